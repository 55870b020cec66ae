// Implements a single ring: opening, registering and clearing buffers, late charges, and loss of the
// descriptor. uring_registrar.cpp calls it; uring_slots.cpp chooses slots, uring_move.cpp moves data.
#include "firehose/registrars/uring/uring_ring.hpp"

#include "firehose/base/signals_blocked.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <sys/uio.h>
#include <unistd.h>

namespace hydrant {
namespace {

// move() has at most one submission and its cancellation queued.
constexpr uint32_t kSubmissions = 8;
// Holds the tags of about one second of unpins; the kernel's overflow list takes more.
constexpr uint32_t kMaxCompletions = 4096;
// pin_user_pages() may fail transiently with EINTR or EAGAIN: calls are tried again this often.
constexpr int kRetries = 16;

// Makes a call that returns a negative errno, again if another attempt may succeed.
template <class Call>
int retried(const Call& call) noexcept {
  int error = call();
  for (int i = 1; uring_try_again(error) && i < kRetries; ++i) error = call();
  return error;
}

// The load in one word: [63:48] users, [47:32] slots, [31:0] units of 64 KiB. The largest ring holds 2^14
// slots of 2^14 units, so no field overflows.
constexpr uint64_t kOneUser = uint64_t{1} << 48;
static_assert(uint64_t{kUringMaxSlots} * (kUringPieceBytes / kUringUnitBytes) < uint64_t{1} << 32);

constexpr uint32_t users_of(uint64_t word) noexcept { return static_cast<uint32_t>(word >> 48); }
constexpr UringSize taken_of(uint64_t word) noexcept {
  return {static_cast<uint32_t>(word >> 32 & 0xFFFF), (word & UINT32_MAX) * kUringUnitBytes};
}
constexpr uint64_t pack(const UringSize& size) noexcept {
  return uint64_t{size.slots} << 32 | size.bytes / kUringUnitBytes;
}

// Clearing this much memory in small pages takes about 3 us.
constexpr uint64_t kLongUnregisterBytes = uint64_t{1} << 20;

constexpr uint32_t kClearBatch = 64;
const iovec kNothing[kClearBatch] = {};
const __u64 kNoTags[kClearBatch] = {};

}  // namespace

std::unique_ptr<UringRing> UringRing::open(uint32_t slots, bool tagged,
                                           UringFailure* failure) noexcept {
  std::unique_ptr<UringRing> self(new (std::nothrow) UringRing);
  if (self == nullptr || !self->slots_.make(slots)) {
    *failure = {-ENOMEM, "malloc"};
    return nullptr;
  }
  *failure = self->set_up(slots, tagged);
  if (failure->error < 0) return nullptr;
  return self;
}

// Creates the ring and its buffer table.
UringFailure UringRing::set_up(uint32_t slots, bool tagged) noexcept {
  const UringFailure failure = make(slots, tagged);
  if (failure.error < 0) return failure;
  return {retried([&] { return io_uring_register_buffers_sparse(&ring_, slots); }),
          "io_uring_register"};
}

// Holds off forks until the ring is excluded from children.
UringFailure UringRing::make(uint32_t slots, bool tagged) noexcept {
  io_uring_params params{};
  const auto create = [&] {
    params = {};
    params.flags = IORING_SETUP_CQSIZE;
    params.cq_entries = tagged ? std::clamp(std::bit_ceil(slots), 64u, kMaxCompletions) : 64;
    return io_uring_queue_init_params(kSubmissions, &ring_, &params);
  };
  prepare_for_forks();
  const SignalsBlocked blocked;
  const MutexLock lock(open_rings_mutex());
  int error = retried(create);
  if (error < 0) {
    // The kernel has filled in the sizes if it made the ring, and also if it had no descriptor for it.
    const bool made = params.sq_entries != 0 && error != -EMFILE && error != -ENFILE;
    return {error, made ? "mmap" : "io_uring_setup"};
  }
  descriptor_.fd = ring_.ring_fd;
  list_ring(&descriptor_);
  if (descriptor_.is_hidden()) {
    error = errno;
    unlist_ring(&descriptor_);
    io_uring_queue_exit(&ring_);
    descriptor_.fd = -1;
    return {-error, "fcntl"};
  }
  opened_ = true;
  tagged_ = tagged;
  // A child that inherited the ring's mappings would keep the ring alive after closing its descriptor.
  error = retried([this] { return io_uring_ring_dontfork(&ring_); });
  return {error, "madvise"};
}

UringRing::~UringRing() {
  if (!opened_) return;
  if (getpid() != descriptor_.owner) {
    forget_rings_in_child();  // removes this ring from the list
    close_in_child();
    return;
  }
  shut();
}

// Clears explicitly and waits for the charge: closing alone would return it some time later.
void UringRing::shut() noexcept {
  opened_ = false;
  const bool mine = descriptor_.is_open();
  if (mine) io_uring_unregister_buffers(&ring_);
  const SignalsBlocked blocked;
  const MutexLock lock(open_rings_mutex());
  unlist_ring(&descriptor_);
  // Without the descriptor, liburing only unmaps the queues.
  if (!mine) ring_.ring_fd = ring_.enter_ring_fd = -1;
  io_uring_queue_exit(&ring_);
  descriptor_.fd = -1;
}

void UringRing::close_in_child() noexcept { descriptor_.close_if_open(); }

bool UringRing::is_usable() noexcept {
  if (is_lost()) return false;
  if (descriptor_.is_ours()) return true;
  hidden_.store(descriptor_.is_hidden(), std::memory_order_relaxed);
  lost_.store(true, std::memory_order_release);
  return false;
}

bool UringRing::claim_loss(bool* hidden) noexcept {
  if (is_usable()) return false;
  const bool first = !loss_taken_.exchange(true, std::memory_order_relaxed);
  if (first && hidden_.load(std::memory_order_relaxed)) *hidden = true;
  end_if_drained();
  return first;
}

int UringRing::update_table(uint32_t first, const iovec* pieces, const __u64* tags,
                            uint32_t n) noexcept {
  if (!is_usable()) return -EBADF;
  const int result = io_uring_register_buffers_update_tag(&ring_, first, pieces, tags, n);
  // EOPNOTSUPP: the memory cannot be pinned, or the number is a file of another kind with an equal mark.
  if ((result != -EBADF && result != -EOPNOTSUPP) || descriptor_.is_open()) return result;
  hidden_.store(false, std::memory_order_relaxed);
  lost_.store(true, std::memory_order_release);
  return -EBADF;
}

void UringRing::end_if_drained() noexcept {
  if (!is_lost() || load_.load(std::memory_order_acquire) != 0) return;
  claim_completions();
  if (opened_ && load_.load(std::memory_order_acquire) == 0) {
    shut();
    pending_.store(0, std::memory_order_relaxed);
  }
  release_completions();
}

UringFailure UringRing::reopen() noexcept {
  uint64_t none = 0;
  UringFailure failure{-EBUSY, ""};
  // A thread that claims the lost ring meanwhile detects the loss and drops its claim.
  if (!is_lost() || !load_.compare_exchange_strong(none, kOneUser, std::memory_order_acq_rel)) {
    return failure;
  }
  claim_completions();
  if (!opened_) {
    overflow_seen_ = 0;
    failure = set_up(slots_.size(), tagged_);
    if (failure.error < 0 && opened_) shut();
    if (failure.error == 0) {
      loss_taken_.store(false, std::memory_order_relaxed);
      lost_.store(false, std::memory_order_release);
    }
  }
  release_completions();
  load_.fetch_sub(kOneUser, std::memory_order_release);
  return failure;
}

uint64_t UringRing::memory_bytes() const noexcept {
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto whole_pages = [page_bytes](uint64_t bytes) {
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
  };
  // Both queues share one mapping.
  return whole_pages(ring_.cq.ring_sz) + whole_pages(uint64_t{kSubmissions} * sizeof(io_uring_sqe));
}

UringLoad UringRing::load() const noexcept {
  const uint64_t word = load_.load(std::memory_order_relaxed);
  const UringSize taken = taken_of(word);
  return {users_of(word), taken, slots_.size() - taken.slots};
}

bool UringRing::claim(size_t len, bool only_if_idle) noexcept {
  if (is_lost()) return false;
  const UringSize size = UringSize::of(len);
  uint64_t seen = load_.load(std::memory_order_relaxed);
  for (;;) {
    if (taken_of(seen).slots + size.slots > slots_.size()) return false;
    if (only_if_idle && users_of(seen) != 0) return false;
    const uint64_t next = seen + kOneUser + pack(size);
    // Acquire: pairs with reopen(), which initialises the ring again.
    if (load_.compare_exchange_weak(seen, next, std::memory_order_acquire,
                                    std::memory_order_relaxed)) {
      return true;
    }
  }
}

// Registers the pieces of `range` in slots from `first`. The kernel stops at the first piece that it cannot
// register and returns the count before it; a second call for the rest returns the reason.
int UringRing::update(uint32_t first, uint32_t count, MemoryRange range, uint64_t tag) noexcept {
  uint32_t done = 0;
  while (done < count) {
    const size_t offset = size_t{done} * kUringPieceBytes;
    iovec piece{reinterpret_cast<void*>(range.addr + offset),
                std::min(range.len - offset, kUringPieceBytes)};
    // Only the first piece has the tag, for the whole run: all pieces are cleared together.
    __u64 piece_tag = done == 0 ? tag : 0;
    const int result = retried([&] { return update_table(first + done, &piece, &piece_tag, 1); });
    if (result != 1) {
      if (done > 0) clear(first, done);
      return result < 0 ? result : -EIO;
    }
    ++done;
  }
  return 0;
}

int UringRing::clear(uint32_t first, uint32_t count) noexcept {
  while (count > 0) {
    const uint32_t n = std::min(count, kClearBatch);
    const int result = retried([&] { return update_table(first, kNothing, kNoTags, n); });
    if (result <= 0) return result < 0 ? result : -EIO;
    first += static_cast<uint32_t>(result);
    count -= static_cast<uint32_t>(result);
  }
  return 0;
}

int UringRing::register_run(MemoryRange range, uint64_t charge_bytes, UringRun* run) noexcept {
  const UringSize size = UringSize::of(range.len);
  const uint32_t count = size.slots;
  const uint64_t claimed = kOneUser + pack(size);
  uint32_t first = 0;
  if (!slots_.take(count, &first)) {
    load_.fetch_sub(claimed, std::memory_order_release);
    end_if_drained();
    return -EXFULL;
  }
  const uint64_t tag = tagged_ ? charge_bytes : 0;
  const int error = update(first, count, range, tag);
  if (error != 0) {
    slots_.give(first, count);
    load_.fetch_sub(claimed, std::memory_order_release);
    end_if_drained();
    return error;
  }
  *run = {first, slots_.publish(first, range, tag)};
  load_.fetch_sub(kOneUser, std::memory_order_relaxed);
  return 0;
}

bool UringRing::begin_unregister(MemoryRange range, UringRun run) noexcept {
  uint64_t charge_bytes = 0;
  if (!slots_.retire(run, range, &charge_bytes)) return false;
  // Must precede clearing: otherwise the tag could be subtracted before it is added.
  if (charge_bytes != 0) pending_.fetch_add(charge_bytes, std::memory_order_relaxed);
  return true;
}

int UringRing::finish_unregister(uint32_t first, const UringSize& size) noexcept {
  // Marks the ring busy only for long calls: this costs a locked instruction.
  const uint64_t user = size.bytes >= kLongUnregisterBytes ? kOneUser : 0;
  if (user != 0) load_.fetch_add(user, std::memory_order_relaxed);
  const int error = clear(first, size.slots);
  const bool kept = error == -EBADF && is_lost();
  // A lost ring returns its charge when its mappings are removed.
  if (kept) pending_.fetch_add(size.bytes, std::memory_order_relaxed);
  // Frees the bits before the count that promises them. A buffer that could not be cleared is replaced by the
  // next one in its slot.
  slots_.give(first, size.slots);
  load_.fetch_sub(user + pack(size), std::memory_order_release);
  if (kept) end_if_drained();
  return error;
}

uint64_t UringRing::pending_bytes() noexcept {
  if (pending_.load(std::memory_order_relaxed) == 0) return 0;
  // If another thread is reaping, its uncounted completions stay pending for now.
  if (!completions_claimed_.test_and_set(std::memory_order_acquire)) {
    if (is_usable()) reap();
    release_completions();
  }
  return pending_.load(std::memory_order_relaxed);
}

void UringRing::reap() noexcept {
  io_uring_cqe* completion = nullptr;
  while (io_uring_peek_cqe(&ring_, &completion) == 0) {
    const uint64_t tag = completion->user_data;
    io_uring_cqe_seen(&ring_, completion);
    // A ticket belongs to a move that timed out.
    if ((tag & kUringTicketBit) == 0) release_update(tag);
  }
  // The kernel dropped unknown completions for lack of memory, so nothing can stay pending.
  const uint32_t lost = io_uring_smp_load_acquire(ring_.cq.koverflow);
  if (lost != overflow_seen_) {
    overflow_seen_ = lost;
    pending_.store(0, std::memory_order_relaxed);
  }
}

void UringRing::release_update(uint64_t tag) noexcept {
  // Only the thread that reaps subtracts, so the value cannot shrink between load and subtraction. It is
  // smaller than `tag` only after lost completions.
  pending_.fetch_sub(std::min(tag, pending_.load(std::memory_order_relaxed)),
                     std::memory_order_relaxed);
}

}  // namespace hydrant
