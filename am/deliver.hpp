// From a message to its handler.
#pragma once

#include <hydrant/gasnet/am.h>

#include "am/message.hpp"
#include "rdma/transport.hpp"

namespace hydrant {

// The receiver of every transport of the job.
class AmReceiver final : public Receiver {
 public:
  void deliver(const Incoming& message) noexcept override;
};
AmReceiver& am_receiver() noexcept;

// Calls the handler `tag` names, for a message from `from`. `payload` is where its payload is in
// this process.
void run_handler(const Tag& tag, Rank from, bool is_request, const int32_t* args, void* payload,
                 size_t bytes) noexcept;

}  // namespace hydrant
