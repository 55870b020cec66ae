// Vector, indexed and strided transfers in packets: many pieces in one Medium.
//
//   put   request: the target's pieces, and their data      -> done
//   get   request: the target's pieces                      -> their data
//
// A packet is as long as a Medium; GASNET_NETWORKDEPTH packets are under way. The source of a put has been
// copied when the call returns, unless it is immediate and its source stays as it is: polls send the packets
// that had no room. The initiator keeps the description of a get's destinations, and the answers name the
// place in it where they belong, so they may arrive in any order.
#pragma once

#include "extended/vis/vis_transfer.hpp"

namespace hydrant {

// Moves the bytes behind the positions. Errors: as transfer(); kUnsupported, with nothing started: no memory,
// or a Medium too short for a description.
Status transfer_in_packets(RmaThread& thread, const VisTransfer& what, const Position& dest,
                           const Position& source, CompletionCounter& counter) noexcept;
// Leaves the bytes behind the positions to the polls: the rest of an immediate transfer that has begun.
// Without memory the call waits for room instead. Errors: as above.
Status finish_in_polls(RmaThread& thread, const VisTransfer& what, const Position& dest,
                       const Position& source, CompletionCounter& counter) noexcept;
// True if bytes before this position have been moved, or are under way.
bool has_begun(const VisTransfer& what, const Position& dest) noexcept;

void add_vis_handlers() noexcept;

}  // namespace hydrant
