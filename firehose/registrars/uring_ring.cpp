// The table of slots and the registration calls. Data movement: uring_move.cpp.
#include "firehose/registrars/uring_ring.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <sys/uio.h>
#include <unistd.h>

namespace hydrant {
namespace {

// move() uses one submission at a time, plus its cancellation.
constexpr uint32_t kSubmissions = 8;
// Room for the tags of about a second's unpins; more go to the kernel's overflow list.
constexpr uint32_t kMaxCompletions = 4096;
// pin_user_pages() gives up with EINTR or EAGAIN when it is disturbed; it is not ours to report.
constexpr int kRetries = 16;

uint32_t pieces_of(size_t len) noexcept {
  return static_cast<uint32_t>((len + kUringPieceBytes - 1) / kUringPieceBytes);
}

}  // namespace

std::unique_ptr<UringRing> UringRing::open(uint32_t slots, bool tagged, int* error) noexcept {
  std::unique_ptr<UringRing> self(new (std::nothrow) UringRing);
  if (self == nullptr || !self->make_table(slots)) {
    *error = -ENOMEM;
    return nullptr;
  }
  io_uring_params params{};
  params.flags = IORING_SETUP_CQSIZE;
  params.cq_entries = tagged ? std::clamp(std::bit_ceil(slots), 64u, kMaxCompletions) : 64;
  *error = io_uring_queue_init_params(kSubmissions, &self->ring_, &params);
  if (*error < 0) return nullptr;
  self->opened_ = true;
  self->tagged_ = tagged;
  self->owner_ = getpid();
  // A child that inherited the ring's mappings would keep the ring alive after closing its descriptor.
  *error = io_uring_ring_dontfork(&self->ring_);
  if (*error == 0) *error = io_uring_register_buffers_sparse(&self->ring_, slots);
  if (*error < 0) return nullptr;
  return self;
}

bool UringRing::make_table(uint32_t slots) noexcept {
  MutexLock lock(slots_mu_);
  const uint32_t words = (slots + 63) / 64;
  taken_.reset(new (std::nothrow) uint64_t[words]());
  table_.reset(new (std::nothrow) Slot[slots]);
  if (taken_ == nullptr || table_ == nullptr) return false;
  // The bits beyond the table count as taken.
  if (slots % 64 != 0) taken_[words - 1] = ~uint64_t{0} << (slots % 64);
  slots_ = slots;
  free_slots_.store(slots, std::memory_order_relaxed);
  return true;
}

UringRing::~UringRing() {
  if (!opened_) return;
  if (getpid() != owner_) {
    close_in_child();
    return;
  }
  // Explicitly: closing alone gives the charge back some time later, this waits for it.
  io_uring_unregister_buffers(&ring_);
  io_uring_queue_exit(&ring_);
}

void UringRing::close_in_child() const noexcept { close(ring_.ring_fd); }

bool UringRing::claim_if_idle() noexcept {
  uint32_t nobody = 0;
  return users_.compare_exchange_strong(nobody, 1, std::memory_order_relaxed);
}

// Next fit: pins made one after the other get neighbouring slots, so that evicting them in the same
// order clears them in one call.
int UringRing::take_slots(uint32_t count, uint32_t* first) noexcept {
  MutexLock lock(slots_mu_);
  if (free_slots_.load(std::memory_order_relaxed) < count) return -EXFULL;
  const uint32_t words = (slots_ + 63) / 64;
  uint32_t run = 0;
  // One lap and the part before the start; a run does not wrap around the end.
  for (uint32_t step = 0, slot = next_ % slots_; step < slots_ + count; ++step) {
    if (slot % 64 == 0 && run == 0 && taken_[slot / 64] == ~uint64_t{0}) {
      step += 63;
      slot = (slot / 64 + 1) % words * 64;
      continue;
    }
    const bool is_free = (taken_[slot / 64] >> (slot % 64) & 1) == 0;
    run = is_free ? run + 1 : 0;
    if (run == count) {
      *first = slot + 1 - count;
      for (uint32_t i = *first; i <= slot; ++i) taken_[i / 64] |= uint64_t{1} << (i % 64);
      next_ = slot + 1;
      free_slots_.fetch_sub(count, std::memory_order_relaxed);
      return 0;
    }
    if (++slot == slots_) slot = 0, run = 0;
  }
  return -EXFULL;
}

void UringRing::give_slots(uint32_t first, uint32_t count) noexcept {
  MutexLock lock(slots_mu_);
  for (uint32_t i = first; i < first + count; ++i) taken_[i / 64] &= ~(uint64_t{1} << (i % 64));
  free_slots_.fetch_add(count, std::memory_order_relaxed);
}

// Registers the pieces of `range` in slots from `first`. The kernel stops at the first piece it
// cannot take and answers how many it took; the rest is asked for again to learn the reason.
int UringRing::update(uint32_t first, uint32_t count, MemoryRange range, uint64_t tag) noexcept {
  uint32_t done = 0;
  int retries = 0;
  while (done < count) {
    const size_t offset = size_t{done} * kUringPieceBytes;
    iovec piece{reinterpret_cast<void*>(range.addr + offset),
                std::min(range.len - offset, kUringPieceBytes)};
    // The first piece's tag speaks for the whole run: all pieces are cleared together.
    __u64 piece_tag = done == 0 ? tag : 0;
    const int answer =
        io_uring_register_buffers_update_tag(&ring_, first + done, &piece, &piece_tag, 1);
    if (answer == 1) {
      ++done;
    } else if ((answer == -EINTR || answer == -EAGAIN) && ++retries < kRetries) {
      continue;
    } else {
      if (done > 0) clear(first, done);
      return answer < 0 ? answer : -EIO;
    }
  }
  return 0;
}

int UringRing::clear(uint32_t first, uint32_t count) noexcept {
  constexpr uint32_t kBatch = 64;
  const iovec nothing[kBatch] = {};
  const __u64 no_tags[kBatch] = {};
  int retries = 0;
  while (count > 0) {
    const uint32_t n = std::min(count, kBatch);
    const int answer = io_uring_register_buffers_update_tag(&ring_, first, nothing, no_tags, n);
    if (answer > 0) {
      first += static_cast<uint32_t>(answer);
      count -= static_cast<uint32_t>(answer);
    } else if ((answer != -EINTR && answer != -EAGAIN) || ++retries == kRetries) {
      return answer < 0 ? answer : -EIO;
    }
  }
  return 0;
}

int UringRing::register_run(MemoryRange range, uint64_t charge_bytes, UringRun* run) noexcept {
  const uint32_t count = pieces_of(range.len);
  uint32_t first = 0;
  int error = take_slots(count, &first);
  if (error != 0) return error;
  const uint64_t tag = tagged_ ? charge_bytes : 0;
  error = update(first, count, range, tag);
  if (error != 0) {
    give_slots(first, count);
    return error;
  }
  registered_bytes_.fetch_add(range.len, std::memory_order_relaxed);
  MutexLock lock(slots_mu_);
  Slot& slot = table_[first];
  slot.addr = range.addr;
  slot.len = range.len;
  slot.charge_bytes = tag;
  run->first = first;
  run->generation = ++slot.generation;
  return 0;
}

bool UringRing::begin_unregister(MemoryRange range, UringRun run, uint32_t* slots) noexcept {
  if (run.first >= slots_ || run.generation % 2 == 0) return false;
  uint64_t charge_bytes = 0;
  {
    MutexLock lock(slots_mu_);
    Slot& slot = table_[run.first];
    if (slot.generation != run.generation || slot.addr != range.addr || slot.len != range.len) {
      return false;
    }
    ++slot.generation;
    charge_bytes = slot.charge_bytes;
  }
  // Before the buffer is cleared, or its tag might be counted first.
  if (charge_bytes != 0) pending_.fetch_add(charge_bytes, std::memory_order_relaxed);
  registered_bytes_.fetch_sub(range.len, std::memory_order_relaxed);
  *slots = pieces_of(range.len);
  return true;
}

int UringRing::finish_unregister(uint32_t first, uint32_t slots) noexcept {
  const int error = clear(first, slots);
  if (error == 0) give_slots(first, slots);
  return error;
}

uint64_t UringRing::pending_bytes() noexcept {
  if (pending_.load(std::memory_order_relaxed) == 0) return 0;
  // Somebody else is taking completions: what he has not counted yet is still pending.
  if (!completions_claimed_.test_and_set(std::memory_order_acquire)) {
    reap();
    release_completions();
  }
  return pending_.load(std::memory_order_relaxed);
}

void UringRing::reap() noexcept {
  io_uring_cqe* completion = nullptr;
  while (io_uring_peek_cqe(&ring_, &completion) == 0) {
    const uint64_t tag = completion->user_data;
    io_uring_cqe_seen(&ring_, completion);
    // A ticket here belongs to a move that gave up waiting.
    if ((tag & kUringTicketBit) == 0) take_back(tag);
  }
  // The kernel dropped completions for lack of memory: which ones is not known, so forgive them all.
  const uint32_t lost = io_uring_smp_load_acquire(ring_.cq.koverflow);
  if (lost != overflow_seen_) {
    overflow_seen_ = lost;
    pending_.store(0, std::memory_order_relaxed);
  }
}

void UringRing::take_back(uint64_t tag) noexcept {
  // Only the claimant subtracts, so the value cannot fall between the load and the subtraction; it may
  // be too small only after completions were lost.
  pending_.fetch_sub(std::min(tag, pending_.load(std::memory_order_relaxed)),
                     std::memory_order_relaxed);
}

}  // namespace hydrant
