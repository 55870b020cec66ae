// Moves data between a file and registered buffers, one READ_FIXED or WRITE_FIXED at a time.
// UringRegistrar::move() calls UringRing::move() through uring_registrar.cpp.
#include "firehose/registrars/uring/uring_ring.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <sched.h>

namespace hydrant {
namespace {

constexpr uint64_t kCancelNs = 1'000'000'000;
constexpr uint64_t kNotReadyPauseNs = 100'000;

__kernel_timespec until(uint64_t deadline_ns) noexcept {
  const uint64_t now = now_ns();
  const uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
  return {static_cast<int64_t>(left / 1'000'000'000u),
          static_cast<long long>(left % 1'000'000'000u)};
}

bool try_again(int error) noexcept {
  return error == -EINTR || error == -EAGAIN || error == -EBUSY;
}

}  // namespace

void UringRing::claim_completions() noexcept {
  // A holder of the flag without move_mu_ is inside reap(), which never blocks.
  while (completions_claimed_.test_and_set(std::memory_order_acquire)) sched_yield();
}

int UringRing::move(UringRun run, MemoryRange within, int fd, uint64_t offset, bool to_file,
                    uint64_t timeout_ns, uint64_t* moved) noexcept {
  MutexLock lock(move_mu_);
  claim_completions();
  *moved = 0;
  int error = 0;
  uint64_t deadline_ns = now_ns() + timeout_ns;
  while (*moved < within.len) {
    Piece piece;
    error = -ESTALE;
    if (!find_piece(run, {within.addr + *moved, within.len - *moved}, &piece)) break;
    error = move_piece(piece, fd, offset + *moved, to_file, deadline_ns);
    if (error > 0) {
      *moved += static_cast<uint64_t>(error);
      error = 0;
      deadline_ns = now_ns() + timeout_ns;
      continue;
    }
    if (error == 0) error = -ENODATA;
    if (!try_again(error)) break;
    error = -ETIME;
    if (now_ns() >= deadline_ns) break;
    const timespec pause{0, kNotReadyPauseNs};
    nanosleep(&pause, nullptr);
  }
  release_completions();
  return error;
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

// Returns bytes moved, 0 at the end of the file, or a negative errno.
int UringRing::move_piece(const Piece& piece, int fd, uint64_t offset, bool to_file,
                          uint64_t deadline_ns) noexcept {
  if (!is_usable()) return -ENXIO;
  // An earlier move's queued entries are harmless but occupy the queue.
  if (io_uring_sq_ready(&ring_) != 0) (void)io_uring_submit(&ring_);
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  if (entry == nullptr) return -EBUSY;
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
  int error = io_uring_submit(&ring_);
  while (try_again(error) && now_ns() < deadline_ns) error = io_uring_submit(&ring_);
  if (error < 0 && io_uring_sq_ready(&ring_) != 0) {
    // The queued entry would run later, when the slot may hold another registration. Make it a no-op.
    io_uring_prep_nop(entry);
    io_uring_sqe_set_data64(entry, ticket);
    return error;
  }
  int result = 0;
  error = wait_for(ticket, deadline_ns, &result);
  if (error == -ETIME) {
    error = cancel(ticket);
    if (error == 0) error = wait_for(ticket, now_ns() + kCancelNs, &result);
    if (error != 0 || result == -ECANCELED) return -ETIME;
  }
  return error != 0 ? error : result;
}

// Consumes completions until the one with `ticket` arrives.
int UringRing::wait_for(uint64_t ticket, uint64_t deadline_ns, int* result) noexcept {
  for (;;) {
    if (!is_usable()) return -ENXIO;
    io_uring_cqe* completion = nullptr;
    __kernel_timespec left = until(deadline_ns);
    const int error = io_uring_wait_cqe_timeout(&ring_, &completion, &left);
    if (error == -EINTR || error == -EAGAIN) continue;
    if (error < 0) return error;
    const uint64_t data = completion->user_data;
    *result = completion->res;
    io_uring_cqe_seen(&ring_, completion);
    if (data == ticket) return 0;
    if ((data & kUringTicketBit) == 0) release_update(data);
  }
}

int UringRing::cancel(uint64_t ticket) noexcept {
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  if (entry == nullptr) return -EBUSY;
  io_uring_prep_cancel64(entry, ticket, 0);
  io_uring_sqe_set_data64(entry, kUringTicketBit | ++next_ticket_);
  const int error = io_uring_submit(&ring_);
  return error < 0 ? error : 0;
}

}  // namespace hydrant
