// Copies to and from memory that the calling thread knows to be mapped: the path of most calls, without
// further lookups. rma.h has the inline equivalent for known or large sizes.
#pragma once

#include <hydrant/gasnet/rma.h>

#include "extended/rma/common/copy.hpp"

#include <cstddef>

namespace hydrant {

// These leave no count, as the inlined calls that they stand for. Return false if the memory is not known to
// be mapped, or invalid; then no memory was accessed. This rank's own entry begins at address 1, so null lies
// in no entry.
inline bool put_mapped(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                       size_t bytes) noexcept {
  const hydrant_mapped_segment* entry = hydrant_segment_of(tm, rank, dest, source, bytes);
  if (entry == nullptr) [[unlikely]]
    return false;
  copy_bytes(static_cast<std::byte*>(dest) + entry->shift, source, bytes);
  return true;
}
inline bool get_mapped(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                       size_t bytes) noexcept {
  const hydrant_mapped_segment* entry = hydrant_segment_of(tm, rank, source, dest, bytes);
  if (entry == nullptr) [[unlikely]]
    return false;
  copy_bytes(dest, static_cast<const std::byte*>(source) + entry->shift, bytes);
  return true;
}

}  // namespace hydrant
