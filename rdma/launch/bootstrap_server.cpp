// Serves the requests of ranks: hello, put and get of entries, fence. The supervisor's loop calls it.
#include "rdma/launch/bootstrap_server.hpp"

#include <algorithm>
#include <utility>

namespace hydrant::launch {
namespace {

std::span<const std::byte> text_bytes(std::string_view text) noexcept {
  return std::as_bytes(std::span(text.substr(0, kTextRoom - 1)));
}

}  // namespace

void BootstrapServer::reply(Rank to, uint32_t id, Status status,
                            std::span<const std::byte> tail) noexcept {
  const Reply reply{.id = id, .status = to_c(status), .bytes = static_cast<uint32_t>(tail.size())};
  answerer_.send_reply(to, reply, tail);
}

void BootstrapServer::refuse(Rank to, uint32_t id, Status status, std::string_view text) noexcept {
  reply(to, id, status, text_bytes(text));
}

void BootstrapServer::take(Rank rank, const Request& request, std::span<const std::byte> entry,
                           uint64_t now) noexcept {
  forget(rank);
  switch (request.kind) {
    case RequestKind::kHello: return hello(rank, request);
    case RequestKind::kPut: return put(rank, request, entry);
    case RequestKind::kGet: return get(rank, request, now);
    case RequestKind::kFence: return fence(rank, request, now);
  }
}

void BootstrapServer::hello(Rank rank, const Request& request) noexcept {
  if (joined_[rank]) {
    return refuse(rank, request.id, Status::kBadArg,
                  "another process is rank " + std::to_string(rank) + " already");
  }
  joined_[rank] = true;
  ++joined_count_;
  if (!end_reason_.empty()) return refuse(rank, request.id, Status::kBroken, end_reason_);
  reply(rank, request.id, Status::kOk, {});
}

void BootstrapServer::put(Rank rank, const Request& request,
                          std::span<const std::byte> entry) noexcept {
  const Status status = store_.put(rank, request.key, entry);
  if (status != Status::kOk) return refuse(rank, request.id, status, last_error_text());
  reply(rank, request.id, Status::kOk, {});
  for (Rank reader = 0; entry_waits_ > 0 && reader < waiting_.size(); ++reader) {
    const Waiting& one = waiting_[reader];
    if (one.what != Wait::kEntry || one.request.rank != rank) continue;
    if (std::string_view(one.request.key) != request.key) continue;
    const uint32_t id = one.request.id;
    forget(reader);
    reply(reader, id, Status::kOk, store_.find(rank, request.key));
  }
}

void BootstrapServer::get(Rank rank, const Request& request, uint64_t now) noexcept {
  if (request.rank >= waiting_.size()) {
    return refuse(rank, request.id, Status::kBadArg,
                  "there is no rank " + std::to_string(request.rank));
  }
  const auto entry = store_.find(request.rank, request.key);
  if (entry.data() != nullptr) return reply(rank, request.id, Status::kOk, entry);
  wait(rank, Wait::kEntry, request, now);
}

void BootstrapServer::fence(Rank rank, const Request& request, uint64_t now) noexcept {
  wait(rank, Wait::kFence, request, now);
  if (in_fence_ == waiting_.size()) open_fence();
}

void BootstrapServer::wait(Rank rank, Wait what, const Request& request, uint64_t now) noexcept {
  waiting_[rank] = {what, request};
  ++(what == Wait::kFence ? in_fence_ : entry_waits_);
  if (!end_reason_.empty() || request.deadline_ns <= now) return give_up(rank);
  next_ns_ = std::min(next_ns_, request.deadline_ns);
}

void BootstrapServer::open_fence() noexcept {
  for (Rank rank = 0; rank < waiting_.size(); ++rank) {
    const uint32_t id = waiting_[rank].request.id;
    forget(rank);
    reply(rank, id, Status::kOk, {});
  }
}

void BootstrapServer::forget(Rank rank) noexcept {
  Waiting& one = waiting_[rank];
  if (one.what == Wait::kFence) --in_fence_;
  if (one.what == Wait::kEntry) --entry_waits_;
  one.what = Wait::kNone;
  if (in_fence_ + entry_waits_ == 0) next_ns_ = UINT64_MAX;
}

void BootstrapServer::give_up(Rank rank) noexcept {
  const Waiting one = waiting_[rank];
  // Computed before the rank is removed: a rank that waits in the fence is not missing.
  std::string text = end_reason_;
  if (text.empty()) {
    text = one.what == Wait::kFence ? missing_text()
                                    : "rank " + std::to_string(one.request.rank) +
                                          " has put no entry \"" + one.request.key + "\"";
  }
  forget(rank);
  refuse(rank, one.request.id, end_reason_.empty() ? Status::kNotReady : Status::kBroken, text);
}

std::string BootstrapServer::missing_text() const {
  constexpr uint32_t kNamed = 8;
  std::string text;
  uint32_t missing = 0;
  for (Rank rank = 0; rank < waiting_.size(); ++rank) {
    if (waiting_[rank].what == Wait::kFence) continue;
    if (++missing > kNamed) continue;
    text += (missing == 1 ? "" : ", ") + std::to_string(rank);
  }
  if (missing > kNamed) text += " and " + std::to_string(missing - kNamed) + " more";
  return (missing == 1 ? "rank " : "ranks ") + text + " did not reach the fence";
}

void BootstrapServer::expire(uint64_t now) noexcept {
  if (now < next_ns_) return;
  // Two rounds: expired ranks in the fence still count as present in each other's messages.
  std::vector<Rank> expired;
  next_ns_ = UINT64_MAX;
  for (Rank rank = 0; rank < waiting_.size(); ++rank) {
    if (waiting_[rank].what == Wait::kNone) continue;
    const uint64_t deadline = waiting_[rank].request.deadline_ns;
    if (deadline <= now) {
      expired.push_back(rank);
    } else {
      next_ns_ = std::min(next_ns_, deadline);
    }
  }
  const std::string missing = in_fence_ > 0 ? missing_text() : "";
  for (const Rank rank : expired) {
    const Waiting one = waiting_[rank];
    if (one.what != Wait::kFence) {
      give_up(rank);
      continue;
    }
    forget(rank);
    refuse(rank, one.request.id, Status::kNotReady, missing);
  }
}

void BootstrapServer::end(std::string reason) noexcept {
  if (!end_reason_.empty()) return;
  end_reason_ = std::move(reason);
  for (Rank rank = 0; rank < waiting_.size(); ++rank) {
    if (waiting_[rank].what != Wait::kNone) give_up(rank);
  }
}

}  // namespace hydrant::launch
