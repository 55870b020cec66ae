// Where the pin cache and the network meet: domains, and ends of the remote pins over Active Messages.
//
//   pinned   over the transport's registrar, from the job's start: there only with a transport that moves
//            data between pinned memory (rma_pinned.cpp)
//   mapped   over the node's: memory files of the ranks here are mapped (rma_mapped.cpp); made when somebody
//            first wants it
#pragma once

#include <hydrant/remote_pin.h>

#include "firehose/base/status.hpp"
#include "rdma/bootstrap.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

struct Firehose {
  hydrant_domain_t domain = 0;
  hydrant_remote_t end = 0;
  size_t max_args = 0;     // bytes that travel with a move, and with its answer
  uint32_t key_bytes = 0;  // of a local key
};
extern constinit Firehose the_firehose;
extern constinit Firehose the_mappings;

inline bool firehose_is_on() noexcept { return the_firehose.end != 0; }
inline const Firehose& firehose() noexcept { return the_firehose; }

// True: there are mappings from now on. False: there are none on this machine, or nobody has asked to make
// them.
bool mappings_are_on(bool make) noexcept;

// Once per process, when rank, size and transport are there. Without kPinned it does nothing. A failure is
// one line in the log, and puts and gets go by messages.
void start_firehose() noexcept;
void add_firehose_handlers() noexcept;

// Before this rank tells another anything: until no peer can reach memory that this process has released.
// Polls; in a handler it says what is gone, and does not wait. Cost: two loads while nothing is exported.
void settle_exports() noexcept;
// Whether that is so now.
bool exports_are_quiet() noexcept;
// The same for those who may not poll, because they hold a lock that handlers take: false: not now.
bool exports_are_settled() noexcept;

}  // namespace hydrant
