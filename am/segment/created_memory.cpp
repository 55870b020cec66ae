// Allocates and reuses the memory of created segments. Called by gex_Segment_Create() and
// gex_Segment_Destroy() (calls_segment.cpp); shared_segments.cpp has peers map it.
#include "am/segment/created_memory.hpp"

#include "am/job/job.hpp"
#include "am/segment/neighbourhood.hpp"
#include "am/segment/segment_size.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/machine/memory_file.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/transport/guarded_memory.hpp"
#include "rdma/transport/shared_files.hpp"

#include <cerrno>
#include <cstring>
#include <gasnet_config.h>
#include <new>
#include <sys/mman.h>

namespace hydrant {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;

// An extent that no segment uses; it is not accessible.
struct Extent {
  std::byte* start = nullptr;
  size_t bytes = 0;
  bool is_zero = true;  // its pages have been given back
  bool is_used = false;
  Extent* next = nullptr;
};

struct Extents {
  Mutex mu;
  Extent* first HYDRANT_GUARDED_BY(mu) = nullptr;
};
constinit Extents g_extents;

size_t whole_pages(uintptr_t size) noexcept {
  return (size + GASNET_PAGESIZE - 1) & ~size_t{GASNET_PAGESIZE - 1};
}

Status reserve(size_t bytes, std::byte** start) noexcept {
  const size_t alignment = bytes >= kLargePage ? kLargePage : GASNET_PAGESIZE;
  const Status status = reserve_guarded(bytes, alignment, GuardSize::kRoomy,
                                        {.what = "segment", .rank = job().rank()}, start);
  return status == Status::kOk
             ? status
             : add_context(status, "%s", remedy_of_no_room(bytes, "ask for less"));
}

Status map_private(size_t bytes, void** addr) noexcept {
  std::byte* start = nullptr;
  if (const Status status = reserve(bytes, &start); status != Status::kOk) return status;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (mmap(start, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0) == MAP_FAILED) {
    const int error = errno;
    (void)release_guarded(start);
    return fail(Status::kResource, "the system has no memory for a segment of %zu bytes: %s; %s",
                bytes, errno_text(error),
                remedy_of_no_room(bytes, "ask for less, or raise ulimit -v"));
  }
  *addr = start;
  return Status::kOk;
}

// Takes the smallest unused extent that has room, and is not more than twice as large.
Extent* take_extent(size_t bytes) noexcept {
  const MutexLock lock(g_extents.mu);
  Extent* best = nullptr;
  for (Extent* each = g_extents.first; each != nullptr; each = each->next) {
    if (each->is_used || each->bytes < bytes || each->bytes / 2 > bytes) continue;
    if (best == nullptr || each->bytes < best->bytes) best = each;
  }
  if (best != nullptr) best->is_used = true;
  return best;
}

// Makes an extent in a memory file of its own, which peers can open. False: private memory has to do.
bool make_extent(size_t bytes, void** addr) noexcept {
  const int fd = make_memory_file("hydrant segment", bytes);
  if (fd < 0) return false;
  auto* extent = new (std::nothrow) Extent;
  std::byte* start = nullptr;
  bool is_made = extent != nullptr && reserve(bytes, &start) == Status::kOk;
  if (is_made && mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
                      fd, 0) == MAP_FAILED)
    is_made = false;
  const MemoryRange range{reinterpret_cast<uintptr_t>(start), bytes};
  if (is_made && announce_shared_file(range, fd, 0) != Status::kOk) {
    log_info("a segment is not mapped by other ranks: %s", last_error_text());
    is_made = false;
  }
  uncancelled::close(fd);
  if (!is_made) {
    if (start != nullptr) (void)release_guarded(start);
    delete extent;
    return false;
  }
  (void)madvise(start, bytes, MADV_HUGEPAGE);  // a hint
  const MutexLock lock(g_extents.mu);
  *extent = {.start = start, .bytes = bytes, .is_used = true, .next = g_extents.first};
  g_extents.first = extent;
  *addr = start;
  return true;
}

// Makes the front of an unused extent accessible again; the rest stays a guard.
bool open_extent(Extent& extent, size_t bytes) noexcept {
  if (mprotect(extent.start, bytes, PROT_READ | PROT_WRITE) != 0) {
    const MutexLock lock(g_extents.mu);
    extent.is_used = false;
    return false;
  }
  if (!extent.is_zero) std::memset(extent.start, 0, bytes);
  return true;
}

}  // namespace

Status allocate_created_segment(uintptr_t size, void** addr) noexcept {
  const size_t bytes = whole_pages(size);
  if (bytes < size)
    return fail(Status::kResource,
                "a segment of %zu bytes is more than the address space: ask for less", size);
  if (Extent* extent = take_extent(bytes); extent != nullptr) {
    // Extents are never given up: another one for each segment would add up.
    if (!open_extent(*extent, bytes)) return map_private(bytes, addr);
    *addr = extent->start;
    return Status::kOk;
  }
  if (neighbourhood().neighbours.size() > 1 && make_extent(bytes, addr)) return Status::kOk;
  return map_private(bytes, addr);
}

void free_created_segment(void* addr, uintptr_t size) noexcept {
  auto* start = static_cast<std::byte*>(addr);
  Extent* extent = nullptr;
  {
    const MutexLock lock(g_extents.mu);
    extent = g_extents.first;
    while (extent != nullptr && extent->start != start) extent = extent->next;
  }
  if (extent == nullptr) {
    if (!release_guarded(start)) (void)munmap(start, whole_pages(size));
    return;
  }
  // The whole extent: an earlier segment in it may have been longer.
  const bool is_open = mprotect(start, extent->bytes, PROT_READ | PROT_WRITE) == 0;
  const bool is_zero = is_open && madvise(start, extent->bytes, MADV_REMOVE) == 0;
  (void)mprotect(start, extent->bytes, PROT_NONE);
  const MutexLock lock(g_extents.mu);
  extent->is_zero = is_zero;
  extent->is_used = false;
}

}  // namespace hydrant
