// Dispatches a received Active Message to its handler.
#pragma once

#include <hydrant/gasnet/am.h>

#include "am/wire/message.hpp"
#include "rdma/transport/transport.hpp"

namespace hydrant {

// The receiver of the messages of the job's transport. In a job that is traced it also writes them to the
// trace.
Receiver& am_receiver() noexcept;

// Calls the handler that `tag` names, for a message from rank `from`. `payload` is the payload's
// address in this process.
void run_handler(const Tag& tag, Rank from, bool is_request, const int32_t* args, void* payload,
                 size_t bytes) noexcept;

}  // namespace hydrant
