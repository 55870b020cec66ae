// How large a segment may be: what GASNET_MAX_SEGSIZE says, or a share of what the machine has. Computed from
// /proc and the control group; no memory is touched.
#pragma once

#include "firehose/base/status.hpp"

#include <cstdint>
#include <string_view>

namespace hydrant {

// Bytes that could be had now: the smaller of what the machine has available and what the control group
// leaves.
uint64_t available_memory() noexcept;

// "512MB/P", "4GB/H", "0.85/H", "2G": a size (K, M, G, T, with or without B) or a fraction of
// `available`, per process (P, the default for sizes) or per host (H, the default for fractions),
// to be shared by `ranks_here`. Errors: kBadArg with a text, also if less than a page remains for
// each.
Status parse_segment_size(std::string_view text, uint64_t available, uint32_t ranks_here,
                          uint64_t* bytes) noexcept;

// Decides once, at start. Errors: kBadArg for an unreadable GASNET_MAX_SEGSIZE.
Status choose_max_segment(uint32_t ranks_here) noexcept;
uintptr_t max_local_segment() noexcept;

}  // namespace hydrant
