// Moves data between a file and registered buffers, one READ_FIXED or WRITE_FIXED at a time.
// UringRegistrar::move() calls UringRing::move() through uring_registrar.cpp.
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"
#include "firehose/registrars/uring/uring_ring.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant {
namespace {

// A transfer that goes on is cancelled again after this time.
constexpr uint64_t kCancelNs = 1'000'000'000;
constexpr long kPauseNs = 100'000;

__kernel_timespec until(uint64_t deadline_ns) noexcept {
  const uint64_t now = now_ns();
  const uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
  return {static_cast<int64_t>(left / 1'000'000'000u),
          static_cast<long long>(left % 1'000'000'000u)};
}

void pause_briefly() noexcept { uncancelled::sleep_ns(kPauseNs); }

// IORING_REGISTER_SYNC_CANCEL of Linux 6.0, which liburing 2.2 lacks. It needs no io_uring_enter().
constexpr unsigned kRegisterSyncCancel = 24;
struct SyncCancel {
  uint64_t ticket = 0;
  int32_t fd = -1;
  uint32_t flags = 0;
  int64_t seconds = 0, nanoseconds = 0;  // it does not wait
  uint64_t pad[4] = {};
};
static_assert(sizeof(SyncCancel) == 64);

}  // namespace

void UringRing::claim_completions() noexcept {
  // A holder of the flag without move_mu_ is inside reap(), which never blocks.
  while (completions_claimed_.test_and_set(std::memory_order_acquire)) sched_yield();
}

UringMoveEnd UringRing::move(UringRun run, MemoryRange within, int fd, uint64_t offset,
                             bool to_file, uint64_t timeout_ns) noexcept {
  MutexLock lock(move_mu_);
  claim_completions();
  UringMoveEnd end;
  uint64_t moved = 0;
  uint64_t deadline_ns = now_ns() + timeout_ns;
  while (moved < within.len) {
    Piece piece;
    end = {UringMoveCause::kStaleKey, 0, 0};
    if (!find_piece(run, {within.addr + moved, within.len - moved}, &piece)) break;
    end = move_piece(piece, fd, offset + moved, to_file, deadline_ns);
    if (end.cause == UringMoveCause::kNone) {
      moved += end.moved;
      deadline_ns = now_ns() + timeout_ns;
      continue;
    }
    if (!uring_try_again(end.error) || now_ns() >= deadline_ns) break;
    pause_briefly();
  }
  end.moved = moved;
  release_completions();
  return end;
}

// Finds the first part of `within` that lies in a single slot.
bool UringRing::find_piece(UringRun run, MemoryRange within, Piece* piece) noexcept {
  MemoryRange whole;
  if (!slots_.find(run, &whole) || !whole.covers(within)) return false;
  const size_t from = within.addr - whole.addr;
  const size_t index = from / kUringPieceBytes;
  piece->slot = run.first + static_cast<uint32_t>(index);
  piece->range = {within.addr, std::min(within.len, (index + 1) * kUringPieceBytes - from)};
  return true;
}

// Transfers a part of the piece; the kernel has let go of the memory when it returns.
UringMoveEnd UringRing::move_piece(const Piece& piece, int fd, uint64_t offset, bool to_file,
                                   uint64_t deadline_ns) noexcept {
  io_uring_sqe* entry =
      io_uring_get_sqe(&ring_);  // not null: the queue is empty between submissions
  auto* buffer = reinterpret_cast<void*>(piece.range.addr);
  const auto len = static_cast<unsigned>(piece.range.len);
  const auto slot = static_cast<int>(piece.slot);
  if (to_file) {
    io_uring_prep_write_fixed(entry, fd, buffer, len, offset, slot);
  } else {
    io_uring_prep_read_fixed(entry, fd, buffer, len, offset, slot);
  }
  const uint64_t ticket = kUringTicketBit | ++next_ticket_;
  io_uring_sqe_set_data64(entry, ticket);
  int result = 0;
  int error = submit(deadline_ns);
  if (error == 0) {
    error = wait_for(ticket, deadline_ns, &result);
    if (error != 0) error = end_transfer(ticket, error, deadline_ns, &result);
  }
  if (error == -ETIME && now_ns() >= deadline_ns) return {UringMoveCause::kNoProgress, 0, 0};
  if (error != 0) {
    if (is_usable()) return {UringMoveCause::kCall, error, 0};
    const bool hidden = hidden_.load(std::memory_order_relaxed);
    return {hidden ? UringMoveCause::kRingHidden : UringMoveCause::kRingLost, 0, 0};
  }
  if (result == 0) return {UringMoveCause::kEndOfFile, 0, 0};
  if (result < 0) return {UringMoveCause::kFile, result, 0};
  return {UringMoveCause::kNone, 0, static_cast<uint64_t>(result)};
}

// Submits the entry in the queue, or takes it back and returns a negative errno.
int UringRing::submit(uint64_t deadline_ns) noexcept {
  for (;;) {
    const int error = is_usable() ? io_uring_submit(&ring_) : -EBADF;
    if (io_uring_sq_ready(&ring_) == 0) return 0;
    if ((error < 0 && !uring_try_again(error)) || now_ns() >= deadline_ns) {
      // The kernel reads the tail in io_uring_enter() alone. If the entry stayed, it would run later, when
      // its slot may hold another registration.
      const unsigned head = *ring_.sq.khead;
      ring_.sq.sqe_head = ring_.sq.sqe_tail = head;
      *ring_.sq.ktail = head;
      return error < 0 ? error : -EAGAIN;
    }
    reap();  // some kernels take no entry while completions have overflowed
    pause_briefly();
  }
}

// Consumes completions until the one with `ticket` arrives. 0, or a negative errno: -ETIME at the deadline.
// Takes what has arrived whether or not the kernel can be asked.
int UringRing::wait_for(uint64_t ticket, uint64_t deadline_ns, int* result) noexcept {
  for (;;) {
    io_uring_cqe* completion = nullptr;
    while (io_uring_cq_ready(&ring_) != 0 && io_uring_peek_cqe(&ring_, &completion) == 0) {
      const uint64_t data = completion->user_data;
      *result = completion->res;
      io_uring_cqe_seen(&ring_, completion);
      if (data == ticket) return 0;
      if ((data & kUringTicketBit) == 0) release_update(data);
    }
    if (!is_usable()) return -ENXIO;
    __kernel_timespec left = until(deadline_ns);
    const int error = io_uring_wait_cqe_timeout(&ring_, &completion, &left);
    if (error == 0) continue;
    if (!uring_try_again(error) || now_ns() >= deadline_ns) return error;
    if (error != -EINTR) pause_briefly();
  }
}

// Cancels a transfer that is under way, and waits until the kernel has let go of the memory, whichever calls
// fail. 0 if the transfer has ended by itself, else `cause`. A lost ring takes no cancellation: then it waits
// until the deadline only.
int UringRing::end_transfer(uint64_t ticket, int cause, uint64_t deadline_ns,
                            int* result) noexcept {
  uint64_t again_ns = 0;
  for (bool first = true;; first = false) {
    const uint64_t now = now_ns();
    const bool usable = is_usable();
    if (!usable && now >= deadline_ns) return -ENXIO;
    if (usable && now >= again_ns) {
      static RateLimit limit(RateLimit::kSecond);
      if (!first) {
        log_warning(limit,
                    "io_uring: a transfer between a file and pinned memory cannot be cancelled: "
                    "the move waits until the kernel has ended it; look at the file's device or "
                    "server");
      }
      cancel(ticket);
      again_ns = now + kCancelNs;
    }
    if (wait_for(ticket, again_ns, result) == 0)
      return *result == -ECANCELED || *result == -EINTR ? cause : 0;
    pause_briefly();
  }
}

void UringRing::cancel(uint64_t ticket) noexcept {
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  io_uring_prep_cancel64(entry, ticket, 0);
  io_uring_sqe_set_data64(entry, kUringTicketBit | ++next_ticket_);
  if (submit(0) == 0) return;
  SyncCancel request;
  request.ticket = ticket;
  (void)syscall(SYS_io_uring_register, ring_.ring_fd, kRegisterSyncCancel, &request, 1);
}

}  // namespace hydrant
