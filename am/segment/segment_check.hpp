// Checks that the target of a put, get or Long lies in its rank's segment: before the operation for
// programs with GASNET_DEBUG, and in error texts about unreachable memory for all programs.
//
// Threads: any. Cost: find_segment().
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// Decides at job start, from GASNET_DEBUG, the segment mode (not EVERYTHING) and HYDRANT_SEGMENT_CHECK.
void choose_segment_check() noexcept;
bool checks_segments() noexcept;

// Requires checks_segments(). The segment is that of the rank's endpoint of that index. Errors: kBadArg, with
// rank, address and segment. Passes while no segment has been published.
Status check_in_segment(Rank rank, uint32_t endpoint, uintptr_t addr, size_t bytes) noexcept;

// True if the range overlaps the segment of the primordial endpoint of `rank` but is not inside it: such a
// range is never valid memory.
bool leaves_segment(Rank rank, uintptr_t addr, size_t bytes) noexcept;

// Formats, for example, "; the range reaches 4096 bytes past the end of its segment [0x..., +65536)". The
// result is "" for a range inside the segment or unrelated to it (too far away), and without a segment.
// Returns `text`.
inline constexpr size_t kSegmentRelationText = 160;
const char* relate_to_segment(Rank rank, uintptr_t addr, size_t bytes, char* text,
                              size_t room) noexcept;

}  // namespace hydrant
