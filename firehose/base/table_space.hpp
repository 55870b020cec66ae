// Memory of the cache's tables, in mappings that contain nothing else and are never watched.
//
// The monitor registers whole mappings, with all memory beside the requested range. Unmapping a watched table
// would look like a release that bypassed the hooks (decision 0037). So tables lie in chunks; the monitor
// calls overlaps() before it registers, and a new chunk is checked against registrations under way.
//
// Invariant: a chunk is in the list before a table of it is handed out and until it is unmapped. Small tables
// share chunks, which stay; free ones are kept by size. A large table has a chunk of its own.
//
// Threads: any, also signal handlers: if the mutex is not free soon, a table gets a mapping of its own that
// is not in the list, and a released table is leaked. errno is kept on success.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/thread.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class TableSpace {
 public:
  // Tables of more bytes have chunks of their own, which shrink() cuts.
  static constexpr size_t kMaxShared = size_t{2} << 20;

  constexpr TableSpace() noexcept = default;
  TableSpace(const TableSpace&) = delete;
  TableSpace& operator=(const TableSpace&) = delete;

  // Zero bytes, readable and writable, at a page. Null when refused, with errno set.
  void* take(size_t bytes) noexcept HYDRANT_EXCLUDES(mu_);
  // The same, always in a chunk of its own.
  void* take_apart(size_t bytes) noexcept HYDRANT_EXCLUDES(mu_);
  // Releases a table that take() or take_apart() returned for as many bytes.
  void give(void* table, size_t bytes) noexcept HYDRANT_EXCLUDES(mu_);
  // Unmaps the end of a table of take_apart(): `kept` bytes of it stay, whole pages.
  void shrink(void* table, size_t bytes, size_t kept) noexcept;

  // True if a table may lie in the range.
  bool overlaps(MemoryRange range) const noexcept;

  // In a new process: the thread that had the mutex does not exist there.
  void reset_in_child() noexcept { mu_.reset_in_child(); }

 private:
  static constexpr uint32_t kMaxChunks = 1024;
  static constexpr uint32_t kClasses = 10;  // 4 KiB to kMaxShared
  struct Chunk {
    std::atomic<uintptr_t> first{0};
    std::atomic<uintptr_t> end{0};  // 0: no chunk
  };
  // At the start of a table that is free.
  struct FreeTable {
    FreeTable* next;
  };

  static void* map_unlisted(size_t bytes) noexcept;
  void* map_chunk(size_t bytes) noexcept HYDRANT_REQUIRES(mu_);
  Chunk* free_entry() noexcept HYDRANT_REQUIRES(mu_);
  Chunk* chunk_of(const void* table) noexcept;
  bool start_chunk() noexcept HYDRANT_REQUIRES(mu_);
  void* take_shared(uint32_t size_class) noexcept HYDRANT_REQUIRES(mu_);

  Mutex mu_;
  std::array<Chunk, kMaxChunks> chunks_{};
  std::atomic<uint32_t> chunk_count_{0};
  std::array<FreeTable*, kClasses> free_ HYDRANT_GUARDED_BY(mu_){};
  // The rest of the newest shared chunk.
  uintptr_t next_ HYDRANT_GUARDED_BY(mu_) = 0;
  uintptr_t end_ HYDRANT_GUARDED_BY(mu_) = 0;
};

// The table space of this copy of the library.
extern constinit TableSpace g_table_space;

}  // namespace hydrant
