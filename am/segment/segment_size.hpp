// The maximum size of a segment: GASNET_MAX_SEGSIZE, or a share of the available memory; at most what the
// limits of file sizes (ulimit -f) and address space (ulimit -v) allow. Read from /proc and the control
// group; allocates no memory.
#pragma once

#include "firehose/base/status.hpp"

#include <cstdint>
#include <string_view>

namespace hydrant {

// Slices of the node's file begin at multiples of it.
inline constexpr uint64_t kHugePage = uint64_t{2} << 20;

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

// The largest size of each of the segments of `ranks_here` ranks in one file of at most `limit` bytes.
uint64_t max_in_file(uint64_t limit, uint32_t ranks_here) noexcept;
// The same in `left` bytes of address space, where a process maps all of them between guards. A part is left
// to the program and to later mappings of the library.
uint64_t max_in_address_space(uint64_t left, uint32_t ranks_here) noexcept;

// Decides once, at job start. Errors: kBadArg for an invalid GASNET_MAX_SEGSIZE.
Status choose_max_segment(uint32_t ranks_here) noexcept;
// Reads the limits of file sizes and address space again, after the library has mapped its own memory.
// Errors: kResource with a text, if the address space has no room for a page of each rank.
Status count_process_limits() noexcept;
// A page at least.
uintptr_t max_local_segment() noexcept;
// The maximum that an attach attempts. It ignores the limits of file sizes and address space, the latter of
// which is an estimate, so the attach may still fail.
uintptr_t max_attempted_segment() noexcept;
// True if the maximum is GASNET_MAX_SEGSIZE and no limit is less.
bool max_segment_is_asked_for() noexcept;
// Returns the remedy if the address space has no room for `bytes`: `if_larger`, unless no segment is smaller.
const char* remedy_of_no_room(uint64_t bytes, const char* if_larger) noexcept;
// Formats the source of the maximum and how to raise it. Returns `text`.
inline constexpr size_t kMaxSegmentText = 512;
const char* explain_max_segment(char* text, size_t room) noexcept;

}  // namespace hydrant
