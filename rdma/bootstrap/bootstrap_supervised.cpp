// Implements Bootstrap for ranks of hydrant-run and of forked jobs: sends requests to the supervisor and
// reads its notifications. open_bootstrap.cpp and bootstrap_forked.cpp open it;
// rdma/launch/bootstrap_server.cpp replies.
#include "rdma/bootstrap/bootstrap_supervised.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <numeric>
#include <sys/socket.h>

namespace hydrant {
namespace {

// The supervisor replies at the deadline and names the missing ranks; this slack detects a silent supervisor.
constexpr uint64_t kSlackNs = 2'000'000'000;
// Limit of calls that do not wait for other ranks.
constexpr uint64_t kPutPatienceNs = 30'000'000'000;

uint64_t add_without_wrap(uint64_t a, uint64_t b) noexcept {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

// Set when the supervisor refuses a call because the job ends. Per process, not per object: the first call,
// kHello, may already be refused.
std::atomic<bool> refused_at_exit{false};

}  // namespace

bool does_launcher_end_job() noexcept { return refused_at_exit.load(std::memory_order_relaxed); }

JobTopology make_topology(Rank rank, Rank size, uint32_t nodes) {
  const auto first_of = [&](uint32_t node) {
    return static_cast<Rank>((uint64_t{node} * size + nodes - 1) / nodes);
  };
  JobTopology topology;
  topology.rank = rank;
  topology.size = size;
  topology.node_count = nodes;
  topology.node = static_cast<uint32_t>(uint64_t{rank} * nodes / size);
  const Rank first = first_of(topology.node);
  topology.node_ranks.resize(first_of(topology.node + 1) - first);
  std::iota(topology.node_ranks.begin(), topology.node_ranks.end(), first);
  topology.node_rank = rank - first;
  topology.leaders.clear();
  for (uint32_t node = 0; node < nodes; ++node) topology.leaders.push_back(first_of(node));
  return topology;
}

SupervisedBootstrap::SupervisedBootstrap(const char* name, const JobTopology& topology, int calls,
                                         int events)
    : name_(name), topology_(topology), calls_(calls), events_(events) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (getsockopt(events, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0) supervisor_ = peer.pid;
}

Status SupervisedBootstrap::open(const char* name, const JobTopology& topology, int calls,
                                 int events, uint64_t deadline_ns,
                                 std::unique_ptr<Bootstrap>* bootstrap) noexcept {
  std::unique_ptr<SupervisedBootstrap> made(new SupervisedBootstrap(name, topology, calls, events));
  // Programs that this process executes must not inherit the rank's sockets.
  for (const int fd : {calls, events}) fcntl(fd, F_SETFD, FD_CLOEXEC);
  launch::Request hello{.kind = launch::RequestKind::kHello, .deadline_ns = deadline_ns};
  const Status status = made->call(hello, {}, {}, nullptr);
  if (status == Status::kOk) *bootstrap = std::move(made);
  return status;
}

Status SupervisedBootstrap::lost() const noexcept {
  return fail(
      Status::kBroken,
      "the program has closed descriptor %d, by which rank %u asks its supervisor (%s); close "
      "only descriptors that the program has opened",
      calls_.number(), topology_.rank, name_);
}

Status SupervisedBootstrap::gone() const noexcept {
  if (calls_.is_lost()) return lost();
  return fail(Status::kBroken, "the supervisor (%s) is gone", name_);
}

Status SupervisedBootstrap::silent() const noexcept {
  if (calls_.is_lost()) return lost();
  return fail(Status::kBroken, "the supervisor (%s) does not answer; is it stopped?", name_);
}

Status SupervisedBootstrap::send(const launch::Request& request, std::span<const std::byte> entry,
                                 uint64_t deadline_ns) noexcept {
  for (;;) {
    const int error = launch::send_message(calls_.get(), launch::bytes_of(request), entry);
    if (error == 0) return Status::kOk;
    if (error != EAGAIN && error != ENOBUFS) return gone();
    if (!launch::wait_writable(calls_.get(), deadline_ns)) return silent();
  }
}

Status SupervisedBootstrap::call(launch::Request& request, std::span<const std::byte> entry,
                                 std::span<std::byte> entry_out, size_t* bytes,
                                 PollFn poll) noexcept {
  request.id = next_id_++;
  request.value_bytes = static_cast<uint32_t>(entry.size());
  const uint64_t deadline = add_without_wrap(request.deadline_ns, kSlackNs);
  const Status sent = send(request, entry, deadline);
  if (sent != Status::kOk) return sent;
  launch::MessageRoom room;
  for (;;) {
    std::span<const std::byte> message;
    const auto received = launch::receive_message(calls_.get(), &room, &message);
    if (received == launch::Received::kEnd) return gone();
    if (received == launch::Received::kNothing) {
      if (poll != nullptr) poll();
      const uint64_t until = poll != nullptr ? std::min(deadline, now_ns() + kPollNs) : deadline;
      if (!launch::wait_readable(calls_.get(), until) && until == deadline) return silent();
      continue;
    }
    launch::Reply reply;
    std::span<const std::byte> tail;
    if (!launch::read_reply(message, &reply, &tail)) {
      return fail(Status::kBroken, "the supervisor (%s) sent a malformed reply of %zu bytes", name_,
                  message.size());
    }
    if (reply.id != request.id) continue;  // a reply to a call that timed out
    const auto status = static_cast<Status>(reply.status);
    if (status == Status::kBroken) refused_at_exit.store(true, std::memory_order_relaxed);
    if (status != Status::kOk) {
      return fail(status, "%.*s", static_cast<int>(tail.size()),
                  reinterpret_cast<const char*>(tail.data()));
    }
    if (bytes == nullptr) return Status::kOk;
    if (tail.size() > entry_out.size()) {
      return fail(Status::kBadArg, "the entry has %zu bytes, and there is room for %zu",
                  tail.size(), entry_out.size());
    }
    std::copy(tail.begin(), tail.end(), entry_out.begin());
    *bytes = tail.size();
    return Status::kOk;
  }
}

Status SupervisedBootstrap::put(std::string_view key, std::span<const std::byte> entry) noexcept {
  launch::Request request{.kind = launch::RequestKind::kPut,
                          .deadline_ns = now_ns() + kPutPatienceNs};
  if (!launch::set_key(key, &request) || entry.size() > kMaxValueBytes) {
    return fail(Status::kBadArg,
                "an entry of %zu bytes under a key of %zu: at most %zu and 1 to %zu", entry.size(),
                key.size(), kMaxValueBytes, launch::kKeyRoom - 1);
  }
  return call(request, entry, {}, nullptr);
}

Status SupervisedBootstrap::fence_and_poll(uint64_t deadline_ns, PollFn poll) noexcept {
  launch::Request request{.kind = launch::RequestKind::kFence, .deadline_ns = deadline_ns};
  return call(request, {}, {}, nullptr, poll);
}

Status SupervisedBootstrap::get(Rank rank, std::string_view key, std::span<std::byte> entry,
                                size_t* bytes, uint64_t deadline_ns) noexcept {
  launch::Request request{
      .kind = launch::RequestKind::kGet, .rank = rank, .deadline_ns = deadline_ns};
  if (!launch::set_key(key, &request)) {
    return fail(Status::kBadArg, "a key has 1 to %zu bytes, not %zu", launch::kKeyRoom - 1,
                key.size());
  }
  return call(request, {}, entry, bytes);
}

Bootstrap::Event SupervisedBootstrap::read_event() noexcept {
  launch::MessageRoom room;
  std::span<const std::byte> message;
  const auto received = launch::receive_message(events_.get(), &room, &message);
  if (received == launch::Received::kNothing) return {};
  if (received == launch::Received::kEnd) {
    // A read of a descriptor that the program has closed says nothing about the supervisor's end.
    return {.kind = events_.is_lost() ? Event::Kind::kNothing : Event::Kind::kLauncherExited};
  }
  launch::Event event;
  const bool good =
      launch::read_event(message, &event) &&
      (event.kind == launch::EventKind::kExit || event.kind == launch::EventKind::kDeath);
  if (!good) {
    log_warning("the supervisor (%s) sent a malformed message of %zu bytes; ignored", name_,
                message.size());
    return {};
  }
  const bool death = event.kind == launch::EventKind::kDeath;
  return {.kind = death ? Event::Kind::kDeath : Event::Kind::kExit,
          .rank = event.rank,
          .code = event.code,
          .signal = event.signal};
}

void SupervisedBootstrap::leave(int code, ExitReason how, uint64_t deadline_ns) noexcept {
  const launch::Event event{
      .kind = launch::EventKind::kLeave, .rank = topology_.rank, .code = code, .how = how};
  for (;;) {
    const int error = launch::send_message(events_.get(), launch::bytes_of(event));
    if (error != EAGAIN && error != ENOBUFS) return;
    if (!launch::wait_writable(events_.get(), deadline_ns)) return;
  }
}

}  // namespace hydrant
