// Copies of memory that the calling thread knows to be mapped here: the way of most calls, without a call
// and without a look at what the job is. rma.h has the same for callers, where the size is known or large.
#pragma once

#include <hydrant/gasnet/rma.h>

#include "extended/copy.hpp"
#include "extended/rma.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// Counted first: nothing is left to do after the copy, and nothing to be kept across its call.
// False: not known to be mapped, or wrong; nothing was touched. The row of this rank begins at 1,
// so that null is in none.
inline bool put_known(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                      size_t bytes) noexcept {
  hydrant_peer* peer = hydrant_mapped_peer(tm, rank, dest, source, bytes);
  if (peer == nullptr) [[unlikely]]
    return false;
  hydrant_path_count(&peer->path_counts[static_cast<uint32_t>(Direction::kPut)][HYDRANT_RMA_MAPPED],
                     bytes);
  copy_bytes(static_cast<std::byte*>(dest) + peer->shift, source, bytes);
  return true;
}
inline bool get_known(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                      size_t bytes) noexcept {
  hydrant_peer* peer = hydrant_mapped_peer(tm, rank, source, dest, bytes);
  if (peer == nullptr) [[unlikely]]
    return false;
  hydrant_path_count(&peer->path_counts[static_cast<uint32_t>(Direction::kGet)][HYDRANT_RMA_MAPPED],
                     bytes);
  copy_bytes(dest, static_cast<const std::byte*>(source) + peer->shift, bytes);
  return true;
}

}  // namespace hydrant
