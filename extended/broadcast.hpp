// gex_Coll_BroadcastNB among all ranks of the job: the root says where its data is, every other rank gets it
// from there in pieces (rma.hpp: by whatever path) and says when it has it. Nothing is sent that nobody waits
// for, so a rank that comes late costs nobody memory.
//
// Broadcasts have numbers, and every rank makes the same calls in the same order. Several may be outstanding.
// Threads: any; one mutex, never held while handlers run.
#pragma once

#include "firehose/base/status.hpp"

namespace hydrant {

// Once per process, when rank, size and transport are there.
void start_broadcasts() noexcept;

}  // namespace hydrant
