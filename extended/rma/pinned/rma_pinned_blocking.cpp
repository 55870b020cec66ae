// Runs blocking puts and gets between firehoses across a network on a fast path: all state is on the caller's
// stack. rma_calls.cpp calls it; it falls back to finish_blocking().
#include "am/call/thread_state.hpp"
#include "am/job/job.hpp"
#include "am/progress/waiting.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/event/wait.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/rma/pinned/rma_pinned.hpp"
#include "extended/rma/pinned/rma_pinned_piece.hpp"
#include "firehose/base/log.hpp"
#include "firehose/remote/initiator/remote_hit.hpp"

#include <atomic>

namespace hydrant {
namespace {

// The completion object. Any polling thread stores the status; that is its last access.
struct Awaiting : Completion {
  static constexpr int kUnderWay = -1;
  explicit Awaiting(Rank rank) noexcept : peer(rank) { done = on_done; }
  static void on_done(Completion& completion, Status status) noexcept {
    static_cast<Awaiting&>(completion).status.store(to_c(status), std::memory_order_release);
  }
  bool is_over() const noexcept { return status.load(std::memory_order_acquire) != kUnderWay; }

  Rank peer;
  std::atomic<int> status{kUnderWay};
};

// Callbacks for wait_blocking().
bool is_over(void* context) noexcept { return static_cast<Awaiting*>(context)->is_over(); }
bool is_ready(const void* context) noexcept {
  return static_cast<const Awaiting*>(context)->is_over();
}
WaitTarget wait_target(const void*) noexcept { return WaitTarget::kPolls; }
void log_missing_wait(const void* context) {
  log_warning("a blocking put or get with rank %u has not completed: is the network up?",
              static_cast<const Awaiting*>(context)->peer);
}

// Polls of the network alone before poll_all(): modules can wait during one operation, but not for ever.
constexpr uint32_t kQuickLooks = 64;

[[gnu::noinline]] void wait_longer(Awaiting& operation) noexcept {
  const auto done = [&operation]() noexcept { return operation.is_over(); };
  if (spin_briefly(done, []() noexcept { return WaitTarget::kPolls; })) return;
  wait_blocking({.done = is_over,
                 .ready = is_ready,
                 .where = wait_target,
                 .log_pending = log_missing_wait,
                 .context = &operation});
}

inline void wait_for(Awaiting& operation) noexcept {
  poll_now_and_then();
  const uint32_t looks = is_spinning_useful() ? kQuickLooks : 1;
  for (uint32_t i = 0; i < looks && !operation.is_over(); ++i) (void)poll_network();
  if (!operation.is_over()) wait_longer(operation);
}

// True if no slower path would reject or change the operation.
bool is_allowed(gex_TM_t tm, gex_Rank_t rank, uintptr_t remote, uintptr_t local,
                size_t bytes) noexcept {
  if (tm != &hydrant_world || rank >= job().size() || handler_depth != 0) return false;
  return paths(rank).hits && rank != job().rank() && bytes - 1 < kMaxPieceBytes && local != 0 &&
         remote != 0 && local + bytes - 1 >= local && remote + bytes - 1 >= remote &&
         are_exports_quiet();
}

template <Direction kDirection>
inline bool transfer_hit(gex_TM_t tm, gex_Rank_t rank, uintptr_t remote, void* local,
                         size_t bytes) noexcept {
  constexpr bool kIsPut = kDirection == Direction::kPut;
  const auto here = reinterpret_cast<uintptr_t>(local);
  if (!is_allowed(tm, rank, remote, here, bytes)) return false;
  // The per-thread state depends on the job's size, so it is created only now.
  RmaThread* thread = RmaThread::mine();
  if (thread == nullptr || !thread->has_peers()) return false;
  PinnedOperations& pinned = *job().pinned;
  const hydrant_pin_t remote_pin = try_remote_hit(firehose().end, rank, remote, bytes,
                                                  kIsPut ? kPutAccess : HYDRANT_REMOTE_READ);
  if (remote_pin.region == nullptr) return false;
  hydrant_pin_t local_pin{};
  const bool needs_key = !kIsPut || bytes > pinned.keyless_bytes();
  if (needs_key) {
    local_pin = try_local_hit(firehose().domain, local, bytes,
                              kIsPut ? HYDRANT_LOCAL_READ : HYDRANT_LOCAL_WRITE);
  }
  Awaiting operation(rank);
  Status status = Status::kNotReady;  // not posted to the network
  if (!needs_key || local_pin.region != nullptr) {
    const PinnedOperations::Pinned there{remote,
                                         static_cast<const std::byte*>(remote_pin.region->key)};
    const PinnedOperations::Pinned mine{
        here, local_pin.region != nullptr ? static_cast<const std::byte*>(local_pin.region->key)
                                          : nullptr};
    status = kIsPut ? pinned.put(rank, there, mine, bytes, &operation)
                    : pinned.get(rank, there, mine, bytes, &operation);
  }
  if (status == Status::kOk) {
    wait_for(operation);
    status = static_cast<Status>(operation.status.load(std::memory_order_relaxed));
  }
  if (status != Status::kOk) [[unlikely]] {
    if (is_refusal(status)) count_refusal();
    uncount_hit(remote_pin);
    if (local_pin.region != nullptr) uncount_hit(local_pin);
  }
  (void)hydrant_remote_release(remote_pin);
  if (local_pin.region != nullptr) (void)hydrant_release(local_pin);
  if (status != Status::kOk) [[unlikely]]
    return false;
  thread->count(kDirection, rank, Path::kFirehose, bytes);
  return true;
}

}  // namespace

bool put_hit(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source, size_t bytes) noexcept {
  return transfer_hit<Direction::kPut>(tm, rank, reinterpret_cast<uintptr_t>(dest),
                                       const_cast<void*>(source), bytes);
}

bool get_hit(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source, size_t bytes) noexcept {
  return transfer_hit<Direction::kGet>(tm, rank, reinterpret_cast<uintptr_t>(source), dest, bytes);
}

}  // namespace hydrant
