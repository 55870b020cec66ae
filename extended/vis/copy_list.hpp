// Copies lists of equal pieces between memories that are both mapped here.
#pragma once

#include <hydrant/gasnet/rma.h>

#include "extended/rma/common/known_peer.hpp"
#include "extended/vis/side.hpp"
#include "firehose/base/memory_range.hpp"

namespace hydrant {

// The way from the addresses of a call to those of this process, and the peer's memory that is mapped here.
struct Shifts {
  uintptr_t dest;
  uintptr_t source;
  uintptr_t start;  // of the peer's mapped memory
  size_t room;      // its length
  bool peer_is_dest;

  static Shifts of(const MemoryRange& mapped, intptr_t shift, bool peer_is_dest) noexcept {
    return {.dest = peer_is_dest ? static_cast<uintptr_t>(shift) : 0,
            .source = peer_is_dest ? 0 : static_cast<uintptr_t>(shift),
            .start = mapped.addr,
            .room = mapped.len,
            .peer_is_dest = peer_is_dest};
  }
};

// Copies the pieces at the front of two lists whose lengths agree pairwise, or of a list and a single piece
// that is as long as all of it, as far as the peer's memory is mapped here. Returns where the lists go on;
// at the end of both if everything is copied.
struct ListPositions {
  Position dest;
  Position source;
};
ListPositions copy_list(const Side& dest, const Side& source, const Shifts& shifts) noexcept;
// The first case alone, for lists of `count` pieces, at least one. Return the number of pieces that are
// copied.
size_t copy_indexed(void* const* dest, void* const* source, size_t count, size_t bytes,
                    const KnownPeer& peer, bool is_put) noexcept;
size_t copy_vectors(const gex_Memvec_t* dest, const gex_Memvec_t* source, size_t count,
                    const KnownPeer& peer, bool is_put) noexcept;

}  // namespace hydrant
