// Ranks that communicate by verbs inside one process, over the libibverbs that the test program is linked
// with.
#pragma once

#include "firehose/base/thread.hpp"
#include "rdma/ibv/ibv_transport.hpp"
#include "tests/support/patience.hpp"
#include "tests/support/sizes.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace hydrant::testing {

// Rights of memory that peers put to and get from.
inline constexpr Access kTarget = Access::kRemoteWrite | Access::kRemoteRead;

// Stands for the launcher: endpoint addresses by key and rank.
struct CardBox {
  std::mutex mu;
  std::map<std::string, std::string> endpoints;
  Status get_fails = Status::kOk;
  std::function<void(Rank)> before_get;  // called at each get() with the rank that it is about
  int event_fd = -1;                     // >= 0: it reports deaths
  std::vector<Rank> node_ranks;  // of the ranks that start from now on; empty: each is alone
};

class BoxBootstrap final : public Bootstrap {
 public:
  BoxBootstrap(CardBox& box, Rank rank, Rank size) : box_(box) {
    place_.rank = rank;
    place_.size = size;
    place_.node_ranks = box.node_ranks.empty() ? std::vector<Rank>{rank} : box.node_ranks;
    const auto here = static_cast<Rank>(place_.node_ranks.size());
    place_.node_count = std::max(size, here) - here + 1;  // ranks of other nodes are alone
  }
  const char* name() const noexcept override { return "test"; }
  const JobTopology& topology() const noexcept override { return place_; }
  Status put(std::string_view key, std::span<const std::byte> endpoint) noexcept override {
    const std::lock_guard<std::mutex> lock(box_.mu);
    box_.endpoints[std::string(key) + std::to_string(place_.rank)] = {
        reinterpret_cast<const char*>(endpoint.data()), endpoint.size()};
    return Status::kOk;
  }
  Status fence(uint64_t) noexcept override { return Status::kOk; }
  Status get(Rank rank, std::string_view key, std::span<std::byte> endpoint, size_t* bytes,
             uint64_t) noexcept override {
    if (box_.before_get) box_.before_get(rank);
    const std::lock_guard<std::mutex> lock(box_.mu);
    if (box_.get_fails != Status::kOk) return fail(box_.get_fails, "the launcher does not answer");
    const auto found = box_.endpoints.find(std::string(key) + std::to_string(rank));
    if (found == box_.endpoints.end()) return Status::kNotReady;
    *bytes = std::min(found->second.size(), endpoint.size());
    std::memcpy(endpoint.data(), found->second.data(), *bytes);
    return Status::kOk;
  }
  int event_fd() const noexcept override { return box_.event_fd; }
  void leave(int, ExitReason, uint64_t) noexcept override {}

 private:
  CardBox& box_;
  JobTopology place_;
};

// Collects messages, or passes them to `then`.
class Inbox final : public Receiver {
 public:
  struct Letter {
    Rank from;
    Lane lane;
    uint32_t tag;
    std::string head;
    std::string payload;
  };
  void deliver(const Incoming& message) noexcept override {
    ++count;
    if (then) {
      then(message);
      return;
    }
    letters.push_back(
        {message.from,
         message.lane,
         message.tag,
         {reinterpret_cast<const char*>(message.head), message.head_room},
         message.payload == nullptr
             ? std::string()
             : std::string(reinterpret_cast<const char*>(message.payload), message.payload_room)});
  }
  uint64_t count = 0;
  std::vector<Letter> letters;
  std::function<void(const Incoming&)> then;
};

// Records the completion of an operation.
struct Told : Completion {
  Told() { done = &hear; }
  static void hear(Completion& completion, Status status) noexcept {
    auto& told = static_cast<Told&>(completion);
    ++told.times;
    told.status = status;
  }
  uint32_t times = 0;
  Status status = Status::kNotReady;
};

struct IbvRank {
  IbvRank(CardBox& box, Rank rank, Rank size, const IbvTransport::Options& options)
      : bootstrap(box, rank, size) {
    opened = IbvTransport::open(bootstrap, options, &transport);
  }
  Status try_send(Rank to, Lane lane, uint32_t tag, const std::string& head) {
    Outgoing room;
    const Status status =
        transport->messages(to).reserve(to, lane, static_cast<uint32_t>(head.size()), &room);
    if (status != Status::kOk) return status;
    std::memcpy(room.head, head.data(), head.size());
    transport->messages(to).commit(room, tag);
    return status;
  }
  Status try_send_cell(Rank to, Lane lane, uint32_t tag, const std::string& head,
                       const std::string& payload) {
    Cell cell;
    Status status =
        transport->messages(to).take_cell(to, lane, static_cast<uint32_t>(payload.size()), &cell);
    if (status != Status::kOk) return status;
    Outgoing room;
    status = transport->messages(to).reserve(to, lane, static_cast<uint32_t>(head.size()), &room);
    if (status != Status::kOk) {
      transport->messages(to).drop_cell(to, lane, cell);
      return status;
    }
    std::memcpy(cell.data, payload.data(), payload.size());
    std::memcpy(room.head, head.data(), head.size());
    transport->messages(to).commit_with_cell(room, tag, cell,
                                             static_cast<uint32_t>(payload.size()));
    return status;
  }
  uint32_t poll(uint32_t budget = 100, bool replies_only = false) {
    return transport->poll(inbox, budget, replies_only);
  }

  BoxBootstrap bootstrap;
  std::unique_ptr<IbvTransport> transport;
  Status opened = Status::kNotInit;
  Inbox inbox;
};

// A time for handshakes that only the test moves (HandshakeOptions::clock).
struct SimulatedClock {
  static constexpr uint64_t kMillisecond = 1'000'000;
  static void elapse(uint64_t ms) { time_ns += ms * kMillisecond; }
  static uint64_t read() noexcept { return time_ns; }
  static inline uint64_t time_ns = 1'000'000'000'000;
};

// For positive waits: times HYDRANT_TEST_PATIENCE.
inline uint64_t in_seconds(double seconds) {
  return now_ns() + static_cast<uint64_t>(seconds * patience() * 1e9);
}

// `ranks` ranks in this thread.
struct IbvWorld {
  explicit IbvWorld(Rank size, const IbvTransport::Options& options = single()) {
    for (Rank rank = 0; rank < size; ++rank) {
      ranks.push_back(std::make_unique<IbvRank>(box, rank, size, options));
      EXPECT_EQ(ranks.back()->opened, Status::kOk) << last_error_text();
    }
  }
  static IbvTransport::Options single() {
    IbvTransport::Options options;
    options.single_threaded = true;
    options.handshakes = {.first_ns = 1'000'000, .refused_ns = 1'000'000};
    return options;
  }
  IbvRank& operator[](Rank rank) { return *ranks[rank]; }
  void poll_all() {
    for (auto& rank : ranks) rank->poll();
  }
  // Polls all ranks until `holds`, ten seconds at most; false then.
  bool until(const std::function<bool()>& holds) {
    const uint64_t deadline = in_seconds(10);
    while (!holds()) {
      if (now_ns() > deadline) return false;
      poll_all();
    }
    return true;
  }
  // Retries the attempt until it is accepted, polling all ranks meanwhile.
  Status insist(const std::function<Status()>& attempt) {
    Status status = Status::kNotReady;
    const bool decided = until([&] { return (status = attempt()) != Status::kNotReady; });
    return decided ? status : Status::kNotReady;
  }
  Status send(Rank from, Rank to, Lane lane, uint32_t tag, const std::string& head) {
    return insist([&] { return ranks[from]->try_send(to, lane, tag, head); });
  }
  Status send_cell(Rank from, Rank to, Lane lane, uint32_t tag, const std::string& head,
                   const std::string& payload) {
    return insist([&] { return ranks[from]->try_send_cell(to, lane, tag, head, payload); });
  }
  bool arrived(Rank rank, uint64_t count) {
    return until([&] { return ranks[rank]->inbox.count >= count; });
  }
  // Sends in both directions, so that the pair is connected and idle.
  void connect(Rank a, Rank b) {
    ASSERT_EQ(send(a, b, Lane::kRequest, 1, "12345678"), Status::kOk) << last_error_text();
    ASSERT_TRUE(arrived(b, ranks[b]->inbox.count + 1));
    ASSERT_EQ(send(b, a, Lane::kReply, 1, "12345678"), Status::kOk) << last_error_text();
    ASSERT_TRUE(arrived(a, ranks[a]->inbox.count + 1));
    ranks[a]->inbox = Inbox();
    ranks[b]->inbox = Inbox();
  }

  CardBox box;
  std::vector<std::unique_ptr<IbvRank>> ranks;
};

// Pinned memory of one rank, and its key as a peer has it.
struct PinnedMemory {
  PinnedMemory(IbvTransport& owner, Access access, size_t bytes)
      : PinnedMemory(owner.pinned()->make_registrar(), access, bytes) {}
  PinnedMemory(std::unique_ptr<Registrar> its_registrar, Access access, size_t bytes)
      : registrar(std::move(its_registrar)), bytes_(bytes) {
    data.reset(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
    std::memset(data.get(), 0, bytes);
    const MemoryRange range{address(), bytes};
    EXPECT_EQ(registrar->pin(range, access, key.data()), Status::kOk) << last_error_text();
  }
  ~PinnedMemory() {
    if (registrar == nullptr) return;
    const MemoryRange range{address(), bytes_};
    EXPECT_EQ(registrar->unpin(range, key.data()), UnpinResult::kDone);
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  uintptr_t address() const { return reinterpret_cast<uintptr_t>(data.get()); }
  PinnedOperations::Pinned local(size_t offset = 0) const {
    return {address() + offset, key.data()};
  }
  // As `peer` imports it.
  PinnedOperations::Pinned for_peer(size_t offset = 0) {
    std::byte blob[64];
    size_t length = sizeof blob;
    const MemoryRange range{address(), bytes_};
    EXPECT_EQ(registrar->export_key(range, key.data(), blob, &length), Status::kOk);
    EXPECT_EQ(registrar->import_key(blob, length, imported.data()), Status::kOk);
    return {address() + offset, imported.data()};
  }

  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<Registrar> registrar;
  std::unique_ptr<std::byte, Free> data;
  std::array<std::byte, 64> key = {};
  std::array<std::byte, 64> imported = {};
  size_t bytes_;
};

}  // namespace hydrant::testing
