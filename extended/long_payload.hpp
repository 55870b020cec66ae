// Payloads of Longs to ranks across a network between pinned memory: put there by the adapter, where there is
// a firehose on their place and the transport keeps puts before messages; the message that calls the handler
// follows on the same queue. The receiver copies nothing.
//
// The payload leaves through bounce buffers, so it may change when the call returns; a large one that is
// pinned already leaves from where it is, and the call waits until it has left. What finds no buffer, no room
// or no firehose is left to the caller, who sends it in messages; a firehose is asked for then, for the next
// time.
//
// Threads: any. Cost of a hit: one copy, no message beside the Long's own. Source: elan-conduit's design
// notes ("AM Long: bounce buffers allocated at startup").
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// As Job::put_long.
Status put_long_payload(Rank peer, uintptr_t dest, const std::byte* source, size_t bytes,
                        bool may_wait, size_t* done) noexcept;

}  // namespace hydrant
