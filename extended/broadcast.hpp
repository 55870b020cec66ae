// gex_Coll_BroadcastNB over all ranks of the job. The root sends the address of its data. Every other
// rank gets the data from there in pieces (rma.hpp: on any path) and then acknowledges. Data moves only
// when a receiver requests it, so a late rank needs no buffers elsewhere.
//
// Broadcasts are numbered, because every rank makes the same calls in the same order. Several may be
// outstanding. Threads: any; one mutex, never held while handlers run.
#pragma once

#include "firehose/base/status.hpp"

namespace hydrant {

// Called once per process, after rank, size and transport are set.
void start_broadcasts() noexcept;

}  // namespace hydrant
