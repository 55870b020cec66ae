// Requests a single firehose for all the peer's pieces of a strided transfer, over a network between pinned
// memory: one message instead of one for each piece.
#pragma once

#include "extended/vis/vis_transfer.hpp"

namespace hydrant {

// Does nothing if the network needs none, or if the memory around the pieces is more than 4 MiB, more than
// four times their bytes, or not in one bound segment. A hint: pieces that begin before the answer has come
// wait for it, and if the peer refuses, each asks by itself. Cost: a hit, if the firehose is cached.
void request_one_firehose(const VisTransfer& what) noexcept;

}  // namespace hydrant
