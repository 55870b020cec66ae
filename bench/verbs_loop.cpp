// The loop that bench/verbs_instruction_count runs under valgrind: puts, gets and messages between two ranks
// of one process, over the tests' fake libibverbs.
//
//   verbs_loop WHAT single|threaded OPERATIONS     OPERATIONS is a multiple of 64
//
// WHAT: put, get (8 bytes, one at a time, each completed before the next), put_window, get_window (16 in
// flight), prepared, prepared_get, prepared_window, prepared_get_window (the same, with requests prepared in
// advance), flood (requests of 16 bytes of head, 16 at a time), round_trip (a request and its reply), idle
// (polls of a rank without peers), idle_many (polls of a rank with 1,000 connected peers and 100 that do not
// answer its handshakes).
//
// Prints one JSON object with the fake's counters and the transport's.
#include "firehose/base/thread.hpp"
#include "rdma/ibv/ibv_transport.hpp"
#include "tests/fakes/fake_ibverbs.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <span>
#include <string>

using hydrant::Completion;
using hydrant::Incoming;
using hydrant::Lane;
using hydrant::MemoryRange;
using hydrant::MessageChannel;
using hydrant::PinnedOperations;
using hydrant::Rank;
using hydrant::Receiver;
using hydrant::Status;
using hydrant::Transport;

namespace {

constexpr uint32_t kHeadBytes = 16;
constexpr uint32_t kWindow = 16;
constexpr uint32_t kBudget = 32;
// Peers of idle_many.
constexpr Rank kConnected = 1000;
constexpr Rank kConnecting = 100;

uint64_t completed = 0;
uint64_t delivered = 0;

}  // namespace

// The script counts the callees of these functions and their own few instructions. caller_completed() and
// caller_received() stand for the caller and are excluded. C names, so that the script finds them.
extern "C" {
Status from_put(PinnedOperations& pinned, const PinnedOperations::Pinned& remote,
                const PinnedOperations::Pinned& local, Completion* completion);
Status from_get(PinnedOperations& pinned, const PinnedOperations::Pinned& remote,
                const PinnedOperations::Pinned& local, Completion* completion);
Status from_prepared(PinnedOperations::PersistentRequest& operation, const std::byte* remote_key,
                     const std::byte* local_key, Completion* completion);
Status from_post(MessageChannel& channel, Rank peer, Lane lane, const void* head);
uint32_t from_poll(Transport& transport, Receiver& receiver);
Status to_post(MessageChannel& channel, Rank peer, Lane lane, const void* head);
uint32_t to_poll(Transport& transport, Receiver& receiver);
void caller_completed(Completion& completion, Status status) noexcept;
void caller_received(const Incoming& message) noexcept;
}

[[gnu::noinline]] Status from_put(PinnedOperations& pinned, const PinnedOperations::Pinned& remote,
                                  const PinnedOperations::Pinned& local, Completion* completion) {
  return pinned.put(1, remote, local, 8, completion);
}
[[gnu::noinline]] Status from_get(PinnedOperations& pinned, const PinnedOperations::Pinned& remote,
                                  const PinnedOperations::Pinned& local, Completion* completion) {
  return pinned.get(1, remote, local, 8, completion);
}
[[gnu::noinline]] Status from_prepared(PinnedOperations::PersistentRequest& operation,
                                       const std::byte* remote_key, const std::byte* local_key,
                                       Completion* completion) {
  return operation.start(remote_key, local_key, completion);
}
[[gnu::noinline]] Status from_post(MessageChannel& channel, Rank peer, Lane lane,
                                   const void* head) {
  return channel.post(peer, lane, 7, head, kHeadBytes);
}
[[gnu::noinline]] uint32_t from_poll(Transport& transport, Receiver& receiver) {
  return transport.poll(receiver, kBudget, false);
}
[[gnu::noinline]] Status to_post(MessageChannel& channel, Rank peer, Lane lane, const void* head) {
  return channel.post(peer, lane, 7, head, kHeadBytes);
}
[[gnu::noinline]] uint32_t to_poll(Transport& transport, Receiver& receiver) {
  return transport.poll(receiver, kBudget, false);
}
[[gnu::noinline]] void caller_completed(Completion&, Status status) noexcept {
  if (status == Status::kOk) ++completed;
}
[[gnu::noinline]] void caller_received(const Incoming& message) noexcept {
  if (message.head_room == kHeadBytes) ++delivered;
}

namespace {

class Sink final : public Receiver {
 public:
  void deliver(const Incoming& message) noexcept override { caller_received(message); }
};

using Cards = std::map<std::pair<Rank, std::string>, std::string>;

class LoopBootstrap final : public hydrant::Bootstrap {
 public:
  LoopBootstrap(Cards& endpoints, Rank rank, Rank size) : addresses_(endpoints) {
    topology_.rank = rank;
    topology_.size = size;
    topology_.node_ranks = {rank};
  }
  const char* name() const noexcept override { return "loop"; }
  const hydrant::JobTopology& topology() const noexcept override { return topology_; }
  Status put(std::string_view key, std::span<const std::byte> endpoint) noexcept override {
    addresses_[{topology_.rank, std::string(key)}] = {
        reinterpret_cast<const char*>(endpoint.data()), endpoint.size()};
    return Status::kOk;
  }
  Status fence(uint64_t) noexcept override { return Status::kOk; }
  Status get(Rank rank, std::string_view key, std::span<std::byte> endpoint, size_t* bytes,
             uint64_t) noexcept override {
    const std::string& found = addresses_[{rank, std::string(key)}];
    *bytes = found.size();
    std::memcpy(endpoint.data(), found.data(), found.size());
    return found.empty() ? Status::kNotReady : Status::kOk;
  }
  void leave(int, hydrant::ExitReason, uint64_t) noexcept override {}

 private:
  Cards& addresses_;
  hydrant::JobTopology topology_;
};

[[noreturn]] void give_up(const char* what) {
  std::cerr << "verbs_loop: " << what << ": " << hydrant::last_error_text() << "\n";
  std::exit(1);
}

// A registered page of a rank, with its local key and the key imported by the peer.
struct Page {
  explicit Page(Transport& transport) : registrar(transport.pinned()->make_registrar()) {
    const MemoryRange range{reinterpret_cast<uintptr_t>(memory), sizeof memory};
    std::byte blob[64];
    size_t bytes = sizeof blob;
    if (registrar == nullptr ||
        registrar->pin(range, hydrant::Access::kRemoteRead | hydrant::Access::kRemoteWrite, key) !=
            Status::kOk ||
        registrar->export_key(range, key, blob, &bytes) != Status::kOk ||
        registrar->import_key(blob, bytes, imported) != Status::kOk)
      give_up("cannot register a page");
  }
  ~Page() { (void)registrar->unpin({reinterpret_cast<uintptr_t>(memory), sizeof memory}, key); }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;

  std::unique_ptr<hydrant::Registrar> registrar;
  alignas(4096) std::byte memory[4096] = {};
  std::byte key[64] = {};
  std::byte imported[64] = {};
};

struct Loop {
  Transport& from;
  Transport& to;
  Sink sink;
  const std::byte head[kHeadBytes] = {};

  void connect() {
    const uint64_t deadline = hydrant::now_ns() + 10'000'000'000;
    while (from.messages(1).post(1, Lane::kRequest, 7, head, kHeadBytes) != Status::kOk ||
           to.messages(0).post(0, Lane::kRequest, 7, head, kHeadBytes) != Status::kOk) {
      if (hydrant::now_ns() > deadline)
        give_up("the two ranks do not connect within the time limit");
      settle(4);
    }
    settle(64);
  }
  void settle(uint32_t rounds) {
    for (uint32_t i = 0; i < rounds; ++i) {
      from.poll(sink, kBudget, false);
      to.poll(sink, kBudget, false);
    }
  }
  void move(bool is_put, uint32_t window, uint64_t operations) {
    Page remote(to);
    Page local(from);
    const PinnedOperations::Pinned there{reinterpret_cast<uintptr_t>(remote.memory),
                                         remote.imported};
    const PinnedOperations::Pinned here{reinterpret_cast<uintptr_t>(local.memory), local.key};
    Completion completion{&caller_completed};
    for (uint64_t i = 0; i < operations; i += window) {
      for (uint32_t k = 0; k < window; ++k) {
        const Status status = is_put ? from_put(*from.pinned(), there, here, &completion)
                                     : from_get(*from.pinned(), there, here, &completion);
        if (status != Status::kOk) give_up("cannot post an operation");
      }
      while (completed < i + window) from_poll(from, sink);
    }
  }
  void move_prepared(bool is_put, uint32_t window, uint64_t operations) {
    Page remote(to);
    Page local(from);
    const auto there = reinterpret_cast<uintptr_t>(remote.memory);
    const auto here = reinterpret_cast<uintptr_t>(local.memory);
    std::unique_ptr<PinnedOperations::PersistentRequest> prepared[kWindow];
    for (uint32_t k = 0; k < window; ++k) {
      prepared[k] = is_put ? from.pinned()->make_persistent_put(1, there, here, 8)
                           : from.pinned()->make_persistent_get(1, there, here, 8);
      if (prepared[k] == nullptr) give_up("cannot prepare an operation");
    }
    Completion completion{&caller_completed};
    for (uint64_t i = 0; i < operations; i += window) {
      for (uint32_t k = 0; k < window; ++k) {
        const Status status = from_prepared(*prepared[k], remote.imported, local.key, &completion);
        if (status != Status::kOk) give_up("cannot post an operation");
      }
      while (completed < i + window) from_poll(from, sink);
    }
  }
  void flood(uint64_t operations) {
    for (uint64_t i = 0; i < operations; i += kWindow) {
      for (uint32_t k = 0; k < kWindow; ++k) {
        if (from_post(from.messages(1), 1, Lane::kRequest, head) != Status::kOk)
          give_up("cannot post a message");
      }
      const uint64_t wanted = delivered + kWindow;
      while (delivered < wanted) to_poll(to, sink);
      from_poll(from, sink);
    }
  }
  void round_trip(uint64_t operations) {
    for (uint64_t i = 0; i < operations; ++i) {
      if (from_post(from.messages(1), 1, Lane::kRequest, head) != Status::kOk)
        give_up("cannot post a request");
      uint64_t wanted = delivered + 1;
      while (delivered < wanted) to_poll(to, sink);
      if (to_post(to.messages(0), 0, Lane::kReply, head) != Status::kOk)
        give_up("cannot post a reply");
      ++wanted;
      while (delivered < wanted) from_poll(from, sink);
    }
  }
  bool run(const std::string& what, uint64_t operations) {
    if (what == "put" || what == "put_window") {
      move(true, what == "put" ? 1 : kWindow, operations);
    } else if (what == "get" || what == "get_window") {
      move(false, what == "get" ? 1 : kWindow, operations);
    } else if (what == "prepared" || what == "prepared_window") {
      move_prepared(true, what == "prepared" ? 1 : kWindow, operations);
    } else if (what == "prepared_get" || what == "prepared_get_window") {
      move_prepared(false, what == "prepared_get" ? 1 : kWindow, operations);
    } else if (what == "flood") {
      flood(operations);
    } else if (what == "round_trip") {
      round_trip(operations);
    } else if (what == "idle" || what == "idle_many") {
      for (uint64_t i = 0; i < operations; ++i) from_poll(from, sink);
    } else {
      return false;
    }
    return true;
  }
};

// Gives rank 0 peers that are no more than an endpoint address. A single handshake, by which all is done,
// connects kConnected of them. Rank 0 contacts the others, and what it sends to them goes to rank 1, which
// does not poll.
void add_peers(Transport& transport, Cards& endpoints) {
  const std::string key = hydrant::IbvTransport::kEndpointKey;
  hydrant::ibv::Handshake handshake;
  if (hydrant::ibv::decode_endpoint(std::as_bytes(std::span(endpoints[{0, key}])),
                                    &handshake.endpoint) != Status::kOk)
    give_up("rank 0 has no endpoint address");
  handshake.to_nonce = handshake.endpoint.address.nonce;
  handshake.can_receive = handshake.open = true;
  Sink sink;
  Rank rank = 2;
  for (; rank < 2 + kConnected; ++rank) {
    handshake.from = handshake.queue_pair = rank;
    std::byte bytes[hydrant::ibv::kHandshakeBytes];
    hydrant::ibv::encode_handshake(handshake, bytes);
    hydrant::fake_verbs::send_stray(handshake.endpoint.address.datagram_queue, bytes, sizeof bytes);
    transport.poll(sink, kBudget, false);
  }
  const std::byte head[kHeadBytes] = {};
  for (; rank < 2 + kConnected + kConnecting; ++rank) {
    endpoints[{rank, key}] = endpoints[{1, key}];
    if (transport.messages(rank).post(rank, Lane::kRequest, 7, head, kHeadBytes) !=
        Status::kNotReady)
      give_up("cannot contact a rank");
  }
}

// The time of handshakes in the idle rows: a read costs what it usually does, but the result is always one
// second. Polls take so much longer under valgrind that handshakes would be repeated in far more of them.
uint64_t stopped_clock() noexcept { return std::min<uint64_t>(hydrant::now_ns(), 1'000'000'000); }

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 4 ? argv[1] : "";
  const std::string mode = argc == 4 ? argv[2] : "";
  const uint64_t operations = argc == 4 ? std::strtoull(argv[3], nullptr, 10) : 0;
  const char* usage =
      "usage: verbs_loop put|get|put_window|get_window|prepared|prepared_get|prepared_window|"
      "prepared_get_window|flood|round_trip|idle|idle_many single|threaded OPERATIONS\n"
      "OPERATIONS is a multiple of 64\n";
  if ((mode != "single" && mode != "threaded") || operations == 0 || operations % 64 != 0) {
    std::cerr << usage;
    return 2;
  }
  const bool is_idle = what == "idle" || what == "idle_many";
  hydrant::fake_verbs::add_device(
      {.max_mr = 10'000, .max_cqe = 1 << 20, .max_srq_wr = 1 << 20, .max_qp = 10'000});
  hydrant::IbvTransport::Options options;
  options.single_threaded = mode == "single";
  options.handshakes.first_ns = 1'000'000;
  options.probe_ns = 0;  // probes follow the clock, which runs differently under valgrind
  if (is_idle) options.handshakes.clock = stopped_clock;
  const Rank size = is_idle ? 2 + kConnected + kConnecting : 2;
  Cards endpoints;
  LoopBootstrap bootstraps[] = {LoopBootstrap(endpoints, 0, size),
                                LoopBootstrap(endpoints, 1, size)};
  std::unique_ptr<hydrant::IbvTransport> ranks[2];
  for (Rank rank = 0; rank < 2; ++rank) {
    if (hydrant::IbvTransport::open(bootstraps[rank], options, &ranks[rank]) != Status::kOk)
      give_up("cannot open the transport");
  }
  Loop loop{*ranks[0], *ranks[1], {}};
  if (what == "idle_many") {
    add_peers(*ranks[0], endpoints);
  } else if (!is_idle) {
    loop.connect();
  }
  completed = delivered = 0;
  const hydrant::fake_verbs::Traffic before = hydrant::fake_verbs::traffic();
  if (!loop.run(what, operations)) {
    std::cerr << usage;
    return 2;
  }
  const hydrant::fake_verbs::Traffic after = hydrant::fake_verbs::traffic();
  std::cout << "{\"operations\": " << operations << ", \"writes\": " << after.writes - before.writes
            << ", \"reads\": " << after.reads - before.reads
            << ", \"sends\": " << after.sends - before.sends
            << ", \"signalled\": " << after.signalled - before.signalled
            << ", \"inlined\": " << after.inline_sends - before.inline_sends
            << ", \"delivered\": " << delivered
            << ", \"connected\": " << ranks[0]->counts().connected
            << ", \"handshakes\": " << ranks[0]->counts().handshakes
            << ", \"not_ready\": " << after.not_ready + after.overruns + after.bad_keys << "}\n";
  return 0;
}
