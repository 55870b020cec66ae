// Domains of objects that one thread at a time uses: the adapter's library need not lock them, nor the
// registers that announce their requests. They take the place of the protection domains of a process's ports,
// with which they are interchangeable, so that only objects of this process's transport are without locks.
//
// The variable MLX5_SINGLE_THREADED does the same for one driver, but for all objects of the process, also
// those of other libraries and threads: the driver keeps it in one place for all devices that are open.
#pragma once

#include "rdma/ibv/device/ibv_port_choice.hpp"

#include <infiniband/verbs.h>

namespace hydrant::ibv {

class ThreadDomains {
 public:
  // A device whose library has no such domains keeps its protection domain.
  void open(Ports* ports) noexcept;
  // All objects of the ports have to be released before.
  void close(Ports* ports) noexcept;

 private:
  struct Domain {
    ibv_td* thread = nullptr;  // null: none
    ibv_pd* plain = nullptr;   // the port's own protection domain
  };
  Domain domains_[kMaxRails] = {};  // by port; of the first port of each device
};

}  // namespace hydrant::ibv
