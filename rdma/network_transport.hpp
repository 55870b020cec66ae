// A transport that a thread can wait for beside something else: what CompositeTransport asks of the one that
// reaches other nodes.
#pragma once

#include "rdma/transport.hpp"

namespace hydrant {

class NetworkTransport : public Transport {
 public:
  // Readable when something has come since the last arm_events(); -1 if nobody is ever told.
  virtual int notice_fd() const noexcept = 0;
  // Makes it unreadable. By any thread, in the mode for one as well.
  virtual void take_notices() noexcept = 0;
  // Before a thread sleeps: has word sent of what comes from now on, and does what must not wait for a poll.
  // False: there is something to do now.
  virtual bool arm_events() noexcept = 0;
};

}  // namespace hydrant
