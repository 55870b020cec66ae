// Maps chunks and hands out tables (table_space.hpp). MappedArray and the arenas of slots call it.
#include "firehose/base/table_space.hpp"

#include "firehose/base/brief_lock.hpp"
#include "firehose/base/cancellation.hpp"
#include "firehose/base/raw_memory.hpp"
#include "firehose/base/watch_windows.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <sys/resource.h>

namespace hydrant {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kChunkBytes = size_t{64} << 20;
constexpr size_t kShareOfLimit = 32;  // of the address space that the process may have
constexpr int kTries = 3;

constexpr size_t round_to_pages(size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

constexpr uint32_t class_of(size_t bytes) {
  return static_cast<uint32_t>(std::bit_width(std::max(bytes, kPageBytes) - 1)) - 12;
}
constexpr size_t bytes_of_class(uint32_t size_class) { return kPageBytes << size_class; }

size_t shared_chunk_bytes() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kChunkBytes;
  return std::clamp(static_cast<size_t>(limit.rlim_cur) / kShareOfLimit / kPageBytes * kPageBytes,
                    TableSpace::kMaxShared, kChunkBytes);
}

// True if addresses that were reserved since `since` are apart from ranges that the monitor registers
// meanwhile.
bool is_apart(uint64_t since, MemoryRange reserved) {
  constexpr int kYields = 16;
  for (int yields = 0; yields < kYields; ++yields) {
    const auto answer = g_watch_windows.ask(since, reserved);
    if (answer != WatchWindows::Answer::kNotKnownYet) return answer == WatchWindows::Answer::kApart;
    sched_yield();
  }
  return false;
}

// Returns the table with errno as it was, or null with errno as the reason.
void* answer(void* p, int saved_errno) {
  if (p != nullptr) errno = saved_errno;
  return p;
}

// Holders of the mutex make system calls, which take long while thousands of threads start.
bool lock_for_table(Mutex& mu) HYDRANT_TSA(try_acquire_capability(true, mu)) {
  constexpr int kPatience = 32;
  const CancellationDisabled guard;
  for (int i = 1; i < kPatience; ++i) {
    if (lock_briefly(mu)) return true;
  }
  return lock_briefly(mu);
}

}  // namespace

constinit TableSpace g_table_space;

bool TableSpace::overlaps(MemoryRange range) const noexcept {
  const uint32_t count = chunk_count_.load(std::memory_order_seq_cst);
  for (uint32_t i = 0; i < count; ++i) {
    const uintptr_t end = chunks_[i].end.load(std::memory_order_seq_cst);
    if (end != 0 && chunks_[i].first.load(std::memory_order_relaxed) <= range.last() &&
        range.addr < end) {
      return true;
    }
  }
  return false;
}

void* TableSpace::map_unlisted(size_t bytes) noexcept { return raw_map(round_to_pages(bytes)); }

TableSpace::Chunk* TableSpace::free_entry() noexcept {
  const uint32_t count = chunk_count_.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i) {
    if (chunks_[i].end.load(std::memory_order_relaxed) == 0) return &chunks_[i];
  }
  if (count == kMaxChunks) return nullptr;
  chunk_count_.store(count + 1, std::memory_order_seq_cst);
  return &chunks_[count];
}

// Entries of other chunks may come and go meanwhile: none of them has this address.
TableSpace::Chunk* TableSpace::chunk_of(const void* table) noexcept {
  const auto addr = reinterpret_cast<uintptr_t>(table);
  const uint32_t count = chunk_count_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    const uintptr_t end = chunks_[i].end.load(std::memory_order_acquire);
    if (addr < end && chunks_[i].first.load(std::memory_order_relaxed) <= addr) return &chunks_[i];
  }
  return nullptr;
}

// Reserves and lists addresses for a chunk. Addresses that may be watched already stay reserved for good,
// because unmapping them would look like a release: a chunk is rare, and costs only addresses.
void* TableSpace::map_chunk(size_t bytes) noexcept {
  Chunk* entry = free_entry();
  if (entry == nullptr) return nullptr;
  for (int tries = 0; tries < kTries; ++tries) {
    const uint64_t since = g_watch_windows.now();
    void* p = raw_reserve(bytes);
    if (p == nullptr) return nullptr;
    if (!raw_advise(p, bytes, MADV_DONTDUMP)) {
      raw_unmap(p, bytes);
      return nullptr;
    }
    const auto first = reinterpret_cast<uintptr_t>(p);
    entry->first.store(first, std::memory_order_relaxed);
    entry->end.store(first + bytes, std::memory_order_seq_cst);
    if (is_apart(since, {first, bytes})) return p;
    entry->end.store(0, std::memory_order_seq_cst);
  }
  return nullptr;
}

// The rest of the last chunk is lost: less than a table of the largest size.
bool TableSpace::start_chunk() noexcept {
  const size_t bytes = shared_chunk_bytes();
  void* p = map_chunk(bytes);
  if (p == nullptr) return false;
  // Some kernels would fill a huge page for the first table in it.
  (void)raw_advise(p, bytes, MADV_NOHUGEPAGE);
  // A process that is copied in between finds an empty rest.
  end_ = 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  next_ = reinterpret_cast<uintptr_t>(p);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  end_ = next_ + bytes;
  return true;
}

void* TableSpace::take_shared(uint32_t size_class) noexcept {
  if (FreeTable* table = free_[size_class]; table != nullptr) {
    free_[size_class] = table->next;
    table->next = nullptr;
    return table;
  }
  const size_t bytes = bytes_of_class(size_class);
  if ((end_ < next_ || end_ - next_ < bytes) && !start_chunk()) return nullptr;
  void* p = reinterpret_cast<void*>(next_);
  if (!raw_open(p, bytes)) return nullptr;
  next_ += bytes;
  return p;
}

void* TableSpace::take(size_t bytes) noexcept {
  if (bytes > kMaxShared) return take_apart(bytes);
  const int saved = errno;
  if (!lock_for_table(mu_)) return answer(map_unlisted(bytes), saved);
  void* p = take_shared(class_of(bytes));
  mu_.unlock();
  return p != nullptr ? answer(p, saved) : take_apart(bytes);
}

void* TableSpace::take_apart(size_t bytes) noexcept {
  const int saved = errno;
  bytes = round_to_pages(bytes);
  if (!lock_for_table(mu_)) return answer(map_unlisted(bytes), saved);
  void* p = map_chunk(bytes);
  if (p != nullptr && !raw_open(p, bytes)) {
    raw_unmap(p, bytes);
    chunk_of(p)->end.store(0, std::memory_order_seq_cst);
    p = nullptr;
  }
  mu_.unlock();
  return answer(p != nullptr ? p : map_unlisted(bytes), saved);
}

void TableSpace::give(void* table, size_t bytes) noexcept {
  const int saved = errno;
  const auto first = reinterpret_cast<uintptr_t>(table);
  Chunk* chunk = chunk_of(table);
  if (chunk == nullptr) {
    raw_unmap(table, round_to_pages(bytes));
    errno = saved;
    return;
  }
  const bool is_apart = chunk->first.load(std::memory_order_relaxed) == first &&
                        chunk->end.load(std::memory_order_relaxed) == first + round_to_pages(bytes);
  if (!is_apart) raw_clear(table, bytes);
  if (!lock_for_table(mu_)) {
    errno = saved;
    return;
  }
  if (is_apart) {
    raw_unmap(table, round_to_pages(bytes));
    chunk->end.store(0, std::memory_order_seq_cst);
  } else {
    auto* free = static_cast<FreeTable*>(table);
    free->next = free_[class_of(bytes)];
    free_[class_of(bytes)] = free;
  }
  mu_.unlock();
  errno = saved;
}

void TableSpace::shrink(void* table, size_t bytes, size_t kept) noexcept {
  bytes = round_to_pages(bytes);
  const auto first = reinterpret_cast<uintptr_t>(table);
  raw_unmap(reinterpret_cast<void*>(first + kept), bytes - kept);
  if (Chunk* chunk = chunk_of(table); chunk != nullptr) {
    chunk->end.store(first + kept, std::memory_order_seq_cst);
  }
}

}  // namespace hydrant
