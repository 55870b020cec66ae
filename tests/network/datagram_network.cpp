// The smallest network, which docs/porting.md walks through: datagrams between the processes of a machine.
// Tests load it in place of libhydrant_injected. Each rank receives from one socket per lane. A datagram is a
// message: the kernel loses none, keeps the order of a sender, and refuses what a receiver has no room for.
#include "firehose/base/thread.hpp"
#include "rdma/injected/injected_object.hpp"

#include <cerrno>
#include <vector>

namespace hydrant {
namespace {

constexpr char kName[] = "datagrams";
bool g_keeps_messages = false;  // commit() keeps each message, as if the kernel refused it
constexpr socklen_t kNameBytes = sizeof(sa_family_t) + 6;  // of a socket that the kernel names
struct alignas(16) Message {
  Rank from = 0;
  uint32_t tag = 0;
  std::byte head[MessageChannel::kMaxHeadBytes + 512];  // at 8 modulo 16
};
constexpr uint32_t kHeaderBytes = offsetof(Message, head);

struct Box {  // of messages from all peers, or to one
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  std::atomic_flag is_locked;       // in an outbox, from reserve() to commit()
  std::atomic<uint32_t> unsent{0};  // bytes of a committed message that the kernel has refused
  std::atomic<bool> is_lost{false};
  Message message;
};

class DatagramNetwork final : public Transport, private MessageChannel {
 public:
  explicit DatagramNetwork(const JobTopology& job) noexcept
      : self_(job.rank), outboxes_(kLaneCount * job.size) {}

  Status connect(Bootstrap& bootstrap) noexcept {
    sockaddr names[kLaneCount] = {};
    for (uint32_t lane = 0; lane < kLaneCount; ++lane) {
      names[lane].sa_family = AF_UNIX;
      socklen_t bytes = sizeof(sockaddr);
      if (bind(inboxes_[lane].fd, &names[lane], sizeof(sa_family_t)) != 0 ||
          getsockname(inboxes_[lane].fd, &names[lane], &bytes) != 0)
        return fail(Status::kResource, "no socket to receive from: error %d", errno);
    }
    const uint64_t deadline_ns = now_ns() + 60'000'000'000;
    Status status = bootstrap.put(kName, std::as_bytes(std::span(names)));
    if (status == Status::kOk) status = bootstrap.fence(deadline_ns);
    for (uint32_t box = 0; box < outboxes_.size() && status == Status::kOk; ++box) {
      size_t bytes = 0;
      const auto entry = std::as_writable_bytes(std::span(names));
      status = bootstrap.get(box / kLaneCount, kName, entry, &bytes, deadline_ns);
      (void)uncancelled::connect(outboxes_[box].fd, &names[box % kLaneCount], kNameBytes);
    }
    return status;
  }

  const char* name() const noexcept override { return kName; }
  MessageChannel& messages(Rank) noexcept override { return *this; }
  uint32_t poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept override {
    send_all();
    const uint32_t done = receive(receiver, Lane::kReply, budget);
    return replies_only ? done : done + receive(receiver, Lane::kRequest, budget - done);
  }
  void flush(uint64_t deadline_ns) noexcept override {
    while (!send_all() && now_ns() < deadline_ns) sched_yield();
  }
  void disconnect(Rank peer) noexcept override {
    outbox(peer, Lane::kRequest).is_lost = outbox(peer, Lane::kReply).is_lost = true;
  }

 private:
  uint32_t inline_bytes() const noexcept override { return sizeof(Message::head); }
  Status reserve(Rank peer, Lane lane, uint32_t bytes, Outgoing* room) noexcept override {
    Box& out = outbox(peer, lane);
    while (out.is_locked.test_and_set()) sched_yield();
    const bool has_room = send(out);
    *room = {out.message.head, {reinterpret_cast<uintptr_t>(&out), kHeaderBytes + bytes}};
    if (has_room && !out.is_lost) return Status::kOk;
    out.is_locked.clear();
    return has_room ? fail(Status::kBroken, "rank %u has ended", peer) : Status::kNotReady;
  }
  void commit(Outgoing& room, uint32_t tag) noexcept override {
    auto& out = *reinterpret_cast<Box*>(room.state[0]);
    out.message.from = self_;
    out.message.tag = tag;
    out.unsent = static_cast<uint32_t>(room.state[1]);
    if (!g_keeps_messages) (void)send(out);
    out.is_locked.clear();
  }

  Box& outbox(Rank peer, Lane lane) noexcept {
    return outboxes_[kLaneCount * peer + static_cast<uint32_t>(lane)];
  }
  // Returns false if the receiver has no room. The caller has locked the box.
  static bool send(Box& out) noexcept {
    if (out.unsent != 0 && !out.is_lost &&
        uncancelled::send(out.fd, &out.message, out.unsent, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
      if (errno == EAGAIN || errno == ENOBUFS) return false;
      out.is_lost = true;  // the peer's socket is closed
    }
    out.unsent = 0;
    return true;
  }
  bool send_all() noexcept {
    bool all_sent = true;
    for (Box& out : outboxes_) {
      if (out.unsent == 0) continue;
      const bool is_mine = !out.is_locked.test_and_set();
      all_sent = is_mine && send(out) && all_sent;
      if (is_mine) out.is_locked.clear();
    }
    return all_sent;
  }
  uint32_t receive(Receiver& receiver, Lane lane, uint32_t budget) noexcept {
    Box& in = inboxes_[static_cast<uint32_t>(lane)];
    // The lock keeps the order. A thread that delivers a message of this lane, perhaps this one, has it.
    if (in.is_locked.test_and_set()) return 0;
    uint32_t done = 0;
    for (; done < budget; ++done) {
      const ssize_t bytes = uncancelled::recv(in.fd, &in.message, sizeof(Message), MSG_DONTWAIT);
      if (bytes < ssize_t{kHeaderBytes}) break;
      const auto& [from, tag, head] = in.message;
      const auto room = static_cast<uint32_t>(bytes) - kHeaderBytes;
      if (!outbox(from, lane).is_lost) receiver.deliver({from, lane, tag, head, nullptr, room, 0});
    }
    in.is_locked.clear();
    return done;
  }

  const Rank self_;
  std::vector<Box> outboxes_;
  Box inboxes_[kLaneCount];
};

// HYDRANT_INJECT selects this network by any text. It hides memory as send_only does.
Status parse(std::string_view text, Injection* injection) noexcept {
  injection->send_only = true;
  g_keeps_messages = text == "datagrams,kept";
  return Status::kOk;
}
Status inject(const Injection&, Bootstrap& bootstrap, std::unique_ptr<Transport>* to) noexcept {
  auto* network = new DatagramNetwork(bootstrap.topology());
  to->reset(network);
  return network->connect(bootstrap);
}

}  // namespace
}  // namespace hydrant

extern "C" [[gnu::visibility("default")]] const hydrant::InjectedObject hydrant_injected_2;
const hydrant::InjectedObject hydrant_injected_2 = {
    HYDRANT_INJECTED_VERSION, &hydrant::set_injection_host, &hydrant::parse, &hydrant::inject};
