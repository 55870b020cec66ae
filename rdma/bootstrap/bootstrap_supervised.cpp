// Implements Bootstrap for ranks of hydrant-run and of forked jobs: sends requests to the supervisor and
// reads its notifications. bootstrap.cpp and bootstrap_forked.cpp open it; rdma/launch/bootstrap_server.cpp answers.
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

// The supervisor answers at the deadline, with who is missing; this is for its silence.
constexpr uint64_t kSlackNs = 2'000'000'000;
// For calls that wait for nobody.
constexpr uint64_t kPatienceNs = 30'000'000'000;

uint64_t add_without_wrap(uint64_t a, uint64_t b) noexcept {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

// Of this process, which is in one job: a hello may be what is refused.
std::atomic<bool> refused_for_the_end{false};

}  // namespace

bool launcher_tells_of_the_end() noexcept {
  return refused_for_the_end.load(std::memory_order_relaxed);
}

JobPlace place_of(Rank rank, Rank size, uint32_t nodes) {
  const auto first_of = [&](uint32_t node) {
    return static_cast<Rank>((uint64_t{node} * size + nodes - 1) / nodes);
  };
  JobPlace place;
  place.rank = rank;
  place.size = size;
  place.node_count = nodes;
  place.node = static_cast<uint32_t>(uint64_t{rank} * nodes / size);
  const Rank first = first_of(place.node);
  place.node_ranks.resize(first_of(place.node + 1) - first);
  std::iota(place.node_ranks.begin(), place.node_ranks.end(), first);
  place.node_rank = rank - first;
  place.leaders.clear();
  for (uint32_t node = 0; node < nodes; ++node) place.leaders.push_back(first_of(node));
  return place;
}

SupervisedBootstrap::SupervisedBootstrap(const char* name, const JobPlace& place, int calls,
                                         int words)
    : name_(name), place_(place), calls_(calls), words_(words) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (getsockopt(words, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0) supervisor_ = peer.pid;
}

Status SupervisedBootstrap::open(const char* name, const JobPlace& place, int calls, int words,
                                 uint64_t deadline_ns,
                                 std::unique_ptr<Bootstrap>* bootstrap) noexcept {
  std::unique_ptr<SupervisedBootstrap> made(new SupervisedBootstrap(name, place, calls, words));
  // What this process starts is not this rank.
  for (const int fd : {calls, words}) fcntl(fd, F_SETFD, FD_CLOEXEC);
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
      calls_.number(), place_.rank, name_);
}

Status SupervisedBootstrap::gone() const noexcept {
  if (calls_.is_lost()) return lost();
  return fail(Status::kBroken, "the supervisor (%s) is gone", name_);
}

Status SupervisedBootstrap::silent() const noexcept {
  if (calls_.is_lost()) return lost();
  return fail(Status::kBroken, "the supervisor (%s) does not answer; is it stopped?", name_);
}

Status SupervisedBootstrap::send(const launch::Request& request, std::span<const std::byte> card,
                                 uint64_t deadline_ns) noexcept {
  for (;;) {
    const int error = launch::send_message(calls_.get(), launch::bytes_of(request), card);
    if (error == 0) return Status::kOk;
    if (error != EAGAIN && error != ENOBUFS) return gone();
    if (!launch::wait_writable(calls_.get(), deadline_ns)) return silent();
  }
}

Status SupervisedBootstrap::call(launch::Request& request, std::span<const std::byte> card,
                                 std::span<std::byte> answer, size_t* bytes) noexcept {
  request.id = next_id_++;
  request.card_bytes = static_cast<uint32_t>(card.size());
  const uint64_t deadline = add_without_wrap(request.deadline_ns, kSlackNs);
  const Status sent = send(request, card, deadline);
  if (sent != Status::kOk) return sent;
  launch::MessageRoom room;
  for (;;) {
    std::span<const std::byte> message;
    const auto received = launch::receive_message(calls_.get(), &room, &message);
    if (received == launch::Received::kEnd) return gone();
    if (received == launch::Received::kNothing) {
      if (!launch::wait_readable(calls_.get(), deadline)) return silent();
      continue;
    }
    launch::Reply reply;
    std::span<const std::byte> tail;
    if (!launch::read_reply(message, &reply, &tail)) {
      return fail(Status::kBroken, "the supervisor (%s) sent %zu bytes that are no answer", name_,
                  message.size());
    }
    if (reply.id != request.id) continue;  // to a call that was given up
    const auto status = static_cast<Status>(reply.status);
    if (status == Status::kBroken) refused_for_the_end.store(true, std::memory_order_relaxed);
    if (status != Status::kOk) {
      return fail(status, "%.*s", static_cast<int>(tail.size()),
                  reinterpret_cast<const char*>(tail.data()));
    }
    if (bytes == nullptr) return Status::kOk;
    if (tail.size() > answer.size()) {
      return fail(Status::kBadArg, "the card has %zu bytes, and there is room for %zu", tail.size(),
                  answer.size());
    }
    std::copy(tail.begin(), tail.end(), answer.begin());
    *bytes = tail.size();
    return Status::kOk;
  }
}

Status SupervisedBootstrap::put(std::string_view key, std::span<const std::byte> card) noexcept {
  launch::Request request{.kind = launch::RequestKind::kPut, .deadline_ns = now_ns() + kPatienceNs};
  if (!launch::set_key(key, &request) || card.size() > kMaxCardBytes) {
    return fail(Status::kBadArg, "a card of %zu bytes under a key of %zu: at most %zu and 1 to %zu",
                card.size(), key.size(), kMaxCardBytes, launch::kKeyRoom - 1);
  }
  return call(request, card, {}, nullptr);
}

Status SupervisedBootstrap::fence(uint64_t deadline_ns) noexcept {
  launch::Request request{.kind = launch::RequestKind::kFence, .deadline_ns = deadline_ns};
  return call(request, {}, {}, nullptr);
}

Status SupervisedBootstrap::get(Rank rank, std::string_view key, std::span<std::byte> card,
                                size_t* bytes, uint64_t deadline_ns) noexcept {
  launch::Request request{
      .kind = launch::RequestKind::kGet, .rank = rank, .deadline_ns = deadline_ns};
  if (!launch::set_key(key, &request)) {
    return fail(Status::kBadArg, "a key has 1 to %zu bytes, not %zu", launch::kKeyRoom - 1,
                key.size());
  }
  return call(request, {}, card, bytes);
}

Bootstrap::Event SupervisedBootstrap::read_event() noexcept {
  launch::MessageRoom room;
  std::span<const std::byte> message;
  const auto received = launch::receive_message(words_.get(), &room, &message);
  if (received == launch::Received::kNothing) return {};
  if (received == launch::Received::kEnd) {
    // Of a number that the program has closed no end can be read.
    return {.kind = words_.is_lost() ? Event::Kind::kNothing : Event::Kind::kLauncherGone};
  }
  launch::Word word;
  const bool good = launch::read_word(message, &word) &&
                    (word.kind == launch::WordKind::kExit || word.kind == launch::WordKind::kDeath);
  if (!good) {
    log_warning("the supervisor (%s) sent %zu bytes that are no message of its protocol; ignored",
                name_, message.size());
    return {};
  }
  const bool death = word.kind == launch::WordKind::kDeath;
  return {.kind = death ? Event::Kind::kDeath : Event::Kind::kExit,
          .rank = word.rank,
          .code = word.code,
          .signal = word.signal};
}

void SupervisedBootstrap::leave(int code, Leaving how, uint64_t deadline_ns) noexcept {
  const launch::Word word{
      .kind = launch::WordKind::kLeave, .rank = place_.rank, .code = code, .how = how};
  for (;;) {
    const int error = launch::send_message(words_.get(), launch::bytes_of(word));
    if (error != EAGAIN && error != ENOBUFS) return;
    if (!launch::wait_writable(words_.get(), deadline_ns)) return;
  }
}

}  // namespace hydrant
