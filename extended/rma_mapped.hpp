// Memory of other ranks of the node beyond their segments, mapped: what lies in memory files, such as shared
// arenas (hydrant/alloc.h). A firehose is a mapping there, and a put or get that has one is a copy.
//
// Who copies to or from the same 2 MiB of a rank again and again asks for a mapping; the operations
// go on as before meanwhile. What is not in such a file is answered so, and asked for more and more rarely.
#pragma once

#include <hydrant/remote_pin.h>

#include "extended/rma.hpp"

namespace hydrant {

// True: the copy is over. False: there is no mapping for all of it.
bool copy_by_mapping(RmaThread& thread, const Transfer& what) noexcept;
// An operation with memory that is not mapped here: perhaps its mapping is worth asking for.
void note_unmapped(RmaThread& thread, Rank peer, uintptr_t remote, size_t bytes) noexcept;
// The end that asks for mappings of the rank's memory; 0 if it has none to give.
hydrant_remote_t end_of_mappings(Rank peer) noexcept;

}  // namespace hydrant
