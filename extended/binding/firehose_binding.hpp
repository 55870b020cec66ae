// Connects the pin cache with the network: domains, and endpoints of remote pins over Active Messages.
//
//   the_firehose  uses the transport's registrar; created at job start, if the transport moves data between
//                 pinned memory (rma_pinned.cpp)
//   the_mappings  uses the node's registrar, which maps memory files of ranks on this node (rma_mapped.cpp);
//                 created on first use
#pragma once

#include <hydrant/remote_pin.h>

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

struct Firehose {
  hydrant_domain_t domain = 0;
  hydrant_remote_t end = 0;
  size_t max_args = 0;     // most bytes of arguments in a move and in its reply
  uint32_t key_bytes = 0;  // size of a local key
};
extern constinit Firehose the_firehose;
extern constinit Firehose the_mappings;

inline bool is_firehose_enabled() noexcept { return the_firehose.end != 0; }
inline const Firehose& firehose() noexcept { return the_firehose; }

// Creates the_mappings if necessary. False if this machine cannot map, or not now.
bool make_mappings() noexcept;
// True if make_mappings() has succeeded.
bool have_mappings() noexcept;

// Called once per process, after rank, size and transport are set. `serve` does the target's part of a move.
// Without pinned operations it has no effect. After a failure, which is logged, puts and gets use messages.
void start_firehose(hydrant_remote_fn serve) noexcept;
void add_firehose_handlers() noexcept;

// Waits until no peer can access memory that this process has released; called before this rank sends
// any message. Polls. In a handler it only sends the recalls and does not wait. Cost: two loads while
// no memory is exported.
void settle_exports() noexcept;
// True if no peer can access released memory now.
bool are_exports_quiet() noexcept;
// Like settle_exports(), for callers that must not poll because they hold a lock that handlers take:
// makes one attempt and returns false if exports remain.
bool are_exports_settled() noexcept;

}  // namespace hydrant
