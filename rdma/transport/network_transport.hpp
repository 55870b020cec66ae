// A transport whose events a thread can wait for together with others: the interface that CompositeTransport
// needs of the transport to other nodes.
#pragma once

#include "rdma/transport/transport.hpp"

namespace hydrant {

class Notices {
 public:
  // Readable when messages or completions have arrived since the last arm_events(); -1 if the transport has
  // no notifications.
  virtual int notice_fd() const noexcept = 0;
  // Clears notice_fd(). Any thread may call it, also in the single-threaded mode.
  virtual void take_notices() noexcept = 0;
  // Called before a thread sleeps: requests notifications for events from now on, and does work that must not
  // wait for a poll. False: there are events to poll now. A network without notifications returns true.
  virtual bool arm_events() noexcept = 0;
  // After arm_events(): a time in the clock of now_ns() at which a thread has to poll without a notification.
  virtual uint64_t next_poll_ns() const noexcept { return UINT64_MAX; }

 protected:
  ~Notices() = default;
};

class NetworkTransport : public Transport {
 public:
  virtual Notices& notices() noexcept = 0;
};

}  // namespace hydrant
