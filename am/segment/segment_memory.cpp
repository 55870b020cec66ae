// Allocates the memory of the node's segments: creates the memory file, checks the available memory, maps the
// slices. attach_segments() (segments.cpp) calls it.
#include "am/segment/segment_memory.hpp"

#include "am/segment/segment_size.hpp"
#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/machine/machine_limits.hpp"
#include "firehose/base/machine/memory_file.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/config/job_knobs.hpp"
#include "rdma/transport/guarded_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <gasnet_config.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <utility>

namespace hydrant {
namespace {

// A core dump reads every page, which would commit all of a large sparse segment; larger segments are
// not dumped.
constexpr uint64_t kMaxDumped = uint64_t{256} << 20;

bool is_committed_at_once() noexcept { return knob_number(JobKnob::kSegmentCommit) != 0; }

// Whole huge pages, unless only the last part of one is beyond the limit on file sizes.
uint64_t file_bytes(const std::vector<SegmentSlice>& slices) noexcept {
  const SegmentSlice& last = slices.back();
  const uint64_t end = last.start + last.size;
  const uint64_t bytes = (end + kHugePage - 1) & ~(kHugePage - 1);
  return bytes > file_size_limit() ? end : bytes;
}

uint64_t wanted_bytes(const std::vector<SegmentSlice>& slices) noexcept {
  uint64_t bytes = 0;
  for (const SegmentSlice& slice : slices) bytes += slice.size;
  return bytes;
}

// Free space in the memory file's file system; memory files usually have no such limit.
void limit_by_file_system(int fd, AvailableMemory* available) noexcept {
  struct statfs system {};
  if (fstatfs(fd, &system) != 0 || system.f_blocks == 0) return;
  const uint64_t left =
      static_cast<uint64_t>(system.f_bfree) * static_cast<uint64_t>(system.f_bsize);
  if (left >= available->bytes) return;
  available->bytes = left;
  std::snprintf(available->limited_by, sizeof available->limited_by,
                "the file system of memory files");
}

Status check_available(const std::vector<SegmentSlice>& slices, int fd) noexcept {
  AvailableMemory available = find_available_memory();
  limit_by_file_system(fd, &available);
  const uint64_t wanted = wanted_bytes(slices);
  if (wanted <= available.bytes) return Status::kOk;
  if (is_committed_at_once()) {
    return fail(Status::kResource,
                "the segments of this host need %llu bytes, and %llu are available (limited by "
                "%s); ask for less, set GASNET_MAX_SEGSIZE, or leave HYDRANT_SEGMENT_COMMIT unset",
                ull(wanted), ull(available.bytes), available.limited_by);
  }
  char wanted_text[32];
  char available_text[32];
  log_warning(
      "the segments of this host have %s, and %s are available now (limited by %s): pages are "
      "allocated at their first access, and the kernel kills a rank when none are left. Use "
      "less, lower GASNET_MAX_SEGSIZE, or raise that limit",
      format_size_rounded(wanted, wanted_text, sizeof wanted_text),
      format_size_rounded(available.bytes, available_text, sizeof available_text),
      available.limited_by);
  return Status::kOk;
}

// Allocates the slice's pages, so that a later access cannot fail.
Status commit(int fd, const SegmentSlice& slice) noexcept {
  if (slice.size == 0) return Status::kOk;
  int result = 0;
  do {
    result = uncancelled::fallocate(fd, 0, static_cast<off_t>(slice.start),
                                    static_cast<off_t>(slice.size));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return Status::kOk;
  const int error = errno;
  const AvailableMemory available = find_available_memory();
  return fail(Status::kResource,
              "a segment of %llu bytes was asked for, and %llu are available (limited by %s; %s); "
              "ask for less, set GASNET_MAX_SEGSIZE, or leave HYDRANT_SEGMENT_COMMIT unset",
              ull(slice.size), ull(available.bytes), available.limited_by, errno_text(error));
}

constexpr const char* kLessThanLimit =
    "ask for less, or set GASNET_MAX_SEGSIZE for programs that ask for the maximum";

Status map_slice(int fd, Rank own, GuardSize guards, SegmentSlice* slice) noexcept {
  if (slice->size == 0) return Status::kOk;
  std::byte* start = nullptr;
  if (const Status status = reserve_guarded(slice->size, kHugePage, guards,
                                            {.what = "segment", .rank = slice->rank}, &start);
      status != Status::kOk)
    return add_context(status, "%s", remedy_of_no_room(slice->size, kLessThanLimit));
  if (mmap(start, slice->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd,
           static_cast<off_t>(slice->start)) == MAP_FAILED) {
    const int error = errno;
    (void)release_guarded(start);
    return fail(Status::kResource, "the segment of rank %u (%llu bytes) cannot be mapped: %s",
                slice->rank, ull(slice->size), errno_text(error));
  }
  // Both calls are hints; failures are ignored.
  (void)madvise(start, slice->size, MADV_HUGEPAGE);
  if (slice->rank != own || (slice->size > kMaxDumped && !is_committed_at_once()))
    (void)madvise(start, slice->size, MADV_DONTDUMP);
  slice->here = start;
  return Status::kOk;
}

}  // namespace

Status lay_out_slices(const std::vector<Rank>& ranks, const std::vector<uint64_t>& sizes,
                      std::vector<SegmentSlice>* slices) noexcept {
  constexpr uint64_t kMaxBytes = INT64_MAX & ~(kHugePage - 1);  // of a file, in whole huge pages
  std::vector<SegmentSlice> made;
  uint64_t start = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const uint64_t size = sizes[i];
    if (size % GASNET_PAGESIZE != 0) {
      return fail(Status::kBroken,
                  "rank %u asks for a segment of %llu bytes, which is no multiple of %d: all ranks "
                  "have to run the same version of this library",
                  ranks[i], ull(size), GASNET_PAGESIZE);
    }
    if (size > kMaxBytes - start) {
      return fail(Status::kResource,
                  "rank %u asks for a segment of %llu bytes, and with %llu of ranks before it on "
                  "this host that exceeds the largest file (%llu bytes): ask for less, or set "
                  "GASNET_MAX_SEGSIZE",
                  ranks[i], ull(size), ull(start), ull(kMaxBytes));
    }
    made.push_back({.rank = ranks[i], .start = start, .size = size});
    // Not beyond kMaxBytes, which is a multiple of kHugePage.
    start = (start + size + kHugePage - 1) & ~(kHugePage - 1);
  }
  *slices = std::move(made);
  return Status::kOk;
}

Status make_segment_file(const std::vector<SegmentSlice>& slices, int* fd) noexcept {
  const uint64_t bytes = file_bytes(slices);
  *fd = make_memory_file("hydrant segments", bytes);
  if (*fd < 0)
    return add_context(refuse_memory_file("the segments of this host", bytes), "%s",
                       kLessThanLimit);
  return check_available(slices, *fd);
}

Status map_slices(int fd, Rank own, std::vector<SegmentSlice>* slices) noexcept {
  Status status = Status::kOk;
  if (is_committed_at_once()) {
    for (const SegmentSlice& slice : *slices) {
      if (status == Status::kOk && slice.rank == own) status = commit(fd, slice);
    }
  }
  if (status != Status::kOk) return status;
  // In a limited address space guards of the first slices may leave no room for the last ones.
  const bool fit = guards_fit(file_bytes(*slices), slices->size());
  for (const GuardSize guards : {fit ? GuardSize::kRoomy : GuardSize::kNone, GuardSize::kNone}) {
    status = Status::kOk;
    for (SegmentSlice& slice : *slices) {
      if (status == Status::kOk) status = map_slice(fd, own, guards, &slice);
    }
    if (status == Status::kOk) return status;
    unmap_slices(slices);
  }
  return status;
}

void unmap_slices(std::vector<SegmentSlice>* slices) noexcept {
  for (SegmentSlice& slice : *slices) {
    if (slice.here == nullptr) continue;
    if (!release_guarded(slice.here)) (void)munmap(slice.here, slice.size);
    slice.here = nullptr;
  }
}

}  // namespace hydrant
