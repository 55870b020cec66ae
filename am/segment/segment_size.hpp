// The maximum size of a segment: GASNET_MAX_SEGSIZE, or a share of the available memory. Read from
// /proc and the control group; allocates no memory.
#pragma once

#include "firehose/base/status.hpp"

#include <cstdint>
#include <string_view>

namespace hydrant {

// The memory available now, and its limit: the machine, a control group, or the kernel's commit limit
// if overcommit is disabled (vm.overcommit_memory is 2). `root` is prepended to the paths of /proc and
// /sys, for tests.
struct AvailableMemory {
  uint64_t bytes = 0;
  char limited_by[300] = "";
};
AvailableMemory find_available_memory(const char* root = "") noexcept;

// Parses "512MB/P", "4GB/H", "0.85/H" or "2G": a size (K, M, G, T, with or without B) or a fraction of
// `available`. It counts per process (P, the default for sizes) or per host (H, the default for
// fractions), where `ranks_here` ranks share it. Errors: kBadArg with a text, also if less than a page
// per rank remains.
Status parse_segment_size(std::string_view text, uint64_t available, uint32_t ranks_here,
                          uint64_t* bytes) noexcept;

// Decides once, at job start. Errors: kBadArg for an invalid GASNET_MAX_SEGSIZE.
Status choose_max_segment(uint32_t ranks_here) noexcept;
uintptr_t max_local_segment() noexcept;
// True if GASNET_MAX_SEGSIZE is unset: then the ranks of a job use the smallest limit of all ranks.
bool max_segment_is_default() noexcept;
// Formats the source of the limit and how to raise it. Returns `text`.
inline constexpr size_t kMaxSegmentText = 512;
const char* explain_max_segment(char* text, size_t room) noexcept;

}  // namespace hydrant
