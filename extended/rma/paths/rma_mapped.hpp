// Mappings of other ranks' memory on this node beyond their segments: memory files such as shared
// arenas (hydrant/alloc.h). A firehose is a mapping here, and a put or get with a mapping is a copy.
//
// A thread that repeatedly accesses the same 2 MiB of a rank requests a mapping; until it arrives the
// operations use their other path. For memory outside of such files the owner refuses, and the requests
// become rarer.
#pragma once

#include <hydrant/remote_pin.h>

#include "extended/rma/common/transfer.hpp"

namespace hydrant {

class RmaThread;

// True: the copy is complete. False: no mapping covers the whole range.
bool copy_mapped(RmaThread& thread, const Transfer& what) noexcept;
// Counts an operation on unmapped memory, and requests a mapping if it seems worthwhile.
void note_unmapped(RmaThread& thread, Rank peer, uintptr_t remote, size_t bytes) noexcept;
// The endpoint for mappings of `peer`'s memory; 0 if that rank offers none.
hydrant_remote_t end_of_mappings(Rank peer) noexcept;

}  // namespace hydrant
