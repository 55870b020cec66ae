// Connects a peer at the first message or operation for it. Handshakes implements it.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/transport/transport.hpp"

namespace hydrant::ibv {

class FirstContact {
 public:
  // Creates the peer and starts its handshake, unless it exists already. Never returns kOk. kNotReady: the
  // peer is connecting; kBadArg: no such peer; kBroken; kResource.
  virtual Status start_connection(Rank number) noexcept = 0;
  // Connects this process with itself, for atomic operations on its own words: its queue pair sends to
  // itself, so that no handshake is needed. Never returns kOk. kNotReady: it is connected; kBroken;
  // kResource.
  virtual Status connect_to_self() noexcept = 0;

 protected:
  ~FirstContact() = default;
};

}  // namespace hydrant::ibv
