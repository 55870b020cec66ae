// Peer completion: a put of this API may run a client's handler at its target when all its data is there.
//
// The initiator sends the message that runs the handler once it knows that all pieces are complete, so the
// pieces may take any path. Until it is sent the operation is not complete.
#pragma once

#include <hydrant/gasnet/am.h>

#include "am/wire/message.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/vis/vis_transfer.hpp"

namespace hydrant {

// Stores the calling thread's request, whose inlined calls of this API are shut until then. False: no memory.
bool arm_completion(const PeerCompletion& completion) noexcept;
bool is_completion_armed() noexcept;
// Returns the request, and disarms it.
PeerCompletion take_completion() noexcept;

// As start_vis(), for a put of any length, also 0; then the handler runs at (what.peer, `endpoints`).
// `counter` has one piece under way, or none if the message has been sent.
Status start_with_completion(const VisTransfer& what, const PeerCompletion& completion,
                             const EndpointPair& endpoints, CompletionCounter& counter) noexcept;

// The handler of the message: runs the client's.
void run_peer_completion(gex_Token_t token, void* payload, size_t bytes, int32_t handler,
                         int32_t endpoints);

}  // namespace hydrant
