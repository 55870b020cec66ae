// Checks of vector, indexed and strided calls, before memory is accessed.
#pragma once

#include "extended/vis/vis_transfer.hpp"

namespace hydrant {

// The bytes of all pieces. Errors: kBadArg: a null list with a count, a null address with a length, or more
// bytes than an address space has.
Status total_of(const gex_Memvec_t* list, size_t count, const char* side, size_t* bytes) noexcept;
Status total_of(void* const* list, size_t count, size_t piece, const char* side,
                size_t* bytes) noexcept;

// The canonical form of a strided call, and the memory between the first and the last byte of the peer's
// side, which stays unchanged if there are no bytes. `names`: of the two addresses, for texts. Errors:
// kBadArg: as canonicalise(); a null address with bytes; strides that wrap around the address space.
struct SideNames {
  const char* dest;
  const char* source;
};
Status check_strided(const StridedArguments& arguments, const SideNames& names, Direction direction,
                     GridPair& pair, MemoryRange* peer_box) noexcept;

// Checks team, rank and context, and writes what.peer. Clients with GASNET_DEBUG also get checks that take as
// long as the transfer: addresses, the segment of the target, and destinations that overlap. Errors:
// kNotInit; kBadArg: a handler, a rank that is not in the team, one of the above.
Status check_vis(gex_TM_t tm, gex_Rank_t rank, VisTransfer& what) noexcept;

}  // namespace hydrant
