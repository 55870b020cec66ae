// Puts payloads of Longs directly into the pinned memory of a rank across a network. This needs a
// firehose on the destination, and a transport that delivers puts before later messages. The message
// that runs the handler follows on the same queue; the receiver copies nothing.
//
// The payload is sent from bounce buffers, so the source may change after the call. A large payload
// that is already pinned is sent from its own memory, and the call waits until it has been sent. A caller
// that passes a place for local completion (an event, or GEX_EVENT_GROUP) does not wait, and its source is
// pinned for the purpose, also for the first time. If there is no buffer, room or firehose, the caller sends
// the payload in messages, and a firehose is requested for the next time.
//
// Threads: any. Cost of a hit: one copy, no message besides the Long itself. Source: elan-conduit's
// design notes ("AM Long: bounce buffers allocated at startup").
#pragma once

#include "am/job/job.hpp"
#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// Implements Job::Hooks::put_long.
Status put_long_payload(const Job::LongPayload& payload, size_t* done) noexcept;

}  // namespace hydrant
