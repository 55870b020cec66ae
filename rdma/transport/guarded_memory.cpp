// Reserves memory between guard pages, and finds which reservation an address belongs to. Segments, windows,
// the node's memory and that of barriers are reserved here; am/segment/memory_faults.cpp explains faults
// with it.
#include "rdma/transport/guarded_memory.hpp"

#include "firehose/base/config/job_rank.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/machine/machine_limits.hpp"
#include "firehose/base/thread.hpp"

#include <atomic>
#include <cerrno>
#include <sys/mman.h>

namespace hydrant {
namespace {

constexpr size_t kPageBytes = 4096;

// Readers find an entry by `start` (acquire), which is written after all other fields (release). A reader
// that sees an entry during a change may get incomplete data: it is used for messages only.
struct Entry {
  std::atomic<uintptr_t> start{0};  // 0: unused
  std::atomic<size_t> bytes{0};
  std::atomic<size_t> guard{0};
  std::atomic<const char*> what{nullptr};
  std::atomic<Rank> rank{kNoRank};
};

struct Table {
  Entry entries[kMaxGuarded];
  std::atomic<uint32_t> count{0};  // entries that were ever used
  Mutex mu;                        // for writers; a leaf lock
};
constinit Table g_table;

std::byte* reserve(size_t bytes) noexcept {
  void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

void cut(std::byte* from, std::byte* to) noexcept {
  if (to > from) (void)munmap(from, static_cast<size_t>(to - from));
}

// Aligned memory between two guards of exactly `guard` bytes; null if the address space has no room.
std::byte* reserve_with(size_t bytes, size_t alignment, size_t guard) noexcept {
  const size_t slack = alignment > kPageBytes ? alignment : 0;
  const size_t all = bytes + 2 * guard + slack;
  if (all < bytes) {
    errno = ENOMEM;
    return nullptr;
  }
  std::byte* raw = reserve(all);
  if (raw == nullptr) return nullptr;
  const auto first = reinterpret_cast<uintptr_t>(raw) + guard;
  std::byte* start = raw + (((first + alignment - 1) & ~(alignment - 1)) - first) + guard;
  cut(raw, start - guard);
  cut(start + bytes + guard, raw + all);
  return start;
}

void list(std::byte* start, size_t bytes, size_t guard, GuardLabel label) noexcept {
  const MutexLock lock(g_table.mu);
  const uint32_t count = g_table.count.load(std::memory_order_relaxed);
  uint32_t index = 0;
  while (index < count && g_table.entries[index].start.load(std::memory_order_relaxed) != 0)
    ++index;
  if (index == kMaxGuarded) return;
  Entry& entry = g_table.entries[index];
  entry.bytes.store(bytes, std::memory_order_relaxed);
  entry.guard.store(guard, std::memory_order_relaxed);
  entry.what.store(label.what, std::memory_order_relaxed);
  entry.rank.store(label.rank, std::memory_order_relaxed);
  entry.start.store(reinterpret_cast<uintptr_t>(start), std::memory_order_release);
  if (index == count) g_table.count.store(count + 1, std::memory_order_release);
}

template <typename Visit>
void for_each(Visit&& visit) noexcept {
  const uint32_t count = g_table.count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    Entry& entry = g_table.entries[i];
    const uintptr_t start = entry.start.load(std::memory_order_acquire);
    if (start != 0 && visit(entry, start)) return;
  }
}

}  // namespace

bool guards_fit(uint64_t bytes, uint64_t count) noexcept {
  const uint64_t left = address_space_left();
  if (left == kUnlimited) return true;
  return bytes < left && left - bytes >= kMinSpaceLeft &&
         (left - bytes - kMinSpaceLeft) / (2 * kMinGuardBytes) >= count;
}

Status reserve_guarded(size_t bytes, size_t alignment, GuardSize size, GuardLabel label,
                       std::byte** start) noexcept {
  const bool roomy = size == GuardSize::kRoomy && address_space_left() == kUnlimited;
  size_t guard = roomy ? kRoomyGuardBytes : kMinGuardBytes;
  if (size == GuardSize::kNone || !guards_fit(bytes, 1)) guard = 0;
  std::byte* made = reserve_with(bytes, alignment, guard);
  if (made == nullptr && roomy) {
    guard = kMinGuardBytes;
    made = reserve_with(bytes, alignment, guard);
  }
  if (made == nullptr && guard != 0) {
    guard = 0;
    made = reserve_with(bytes, alignment, guard);
  }
  static constinit std::atomic<bool> is_logged{false};
  // Only the job's first rank warns: the limit is usually the same for all ranks.
  if (made != nullptr && guard == 0 && is_first_of_job() &&
      !is_logged.exchange(true, std::memory_order_relaxed)) {
    log_warning(
        "the address space has no room for guards of %zu bytes beside the %s (%zu bytes) and the "
        "program: an access beyond its ends may change other memory. Raise the limit (ulimit -v)",
        kMinGuardBytes, label.what, bytes);
  }
  if (made == nullptr) {
    return fail(Status::kResource,
                "%zu bytes of address space for the %s cannot be mapped: %s (ulimit -v?)", bytes,
                label.what, errno_text(errno));
  }
  list(made, bytes, guard, label);
  *start = made;
  return Status::kOk;
}

bool release_guarded(std::byte* start) noexcept {
  size_t bytes = 0;
  size_t guard = 0;
  {
    const MutexLock lock(g_table.mu);
    for_each([&](Entry& entry, uintptr_t at) {
      if (at != reinterpret_cast<uintptr_t>(start)) return false;
      bytes = entry.bytes.load(std::memory_order_relaxed);
      guard = entry.guard.load(std::memory_order_relaxed);
      entry.start.store(0, std::memory_order_release);
      return true;
    });
  }
  if (bytes == 0) return false;
  (void)munmap(start - guard, bytes + 2 * guard);
  return true;
}

bool find_guarded(uintptr_t addr, Guarded* found) noexcept {
  bool any = false;
  for_each([&](const Entry& entry, uintptr_t start) {
    const size_t bytes = entry.bytes.load(std::memory_order_relaxed);
    const size_t guard = entry.guard.load(std::memory_order_relaxed);
    if (addr - (start - guard) >= bytes + 2 * guard) return false;
    *found = {.start = start,
              .bytes = bytes,
              .label = {entry.what.load(std::memory_order_relaxed),
                        entry.rank.load(std::memory_order_relaxed)},
              .before = addr < start ? start - addr : 0,
              .past = addr >= start + bytes ? addr - (start + bytes) + 1 : 0};
    any = true;
    return true;
  });
  return any;
}

}  // namespace hydrant
