// The message properties that a handler can query. Lives on the stack of the delivering thread.
#pragma once

#include <hydrant/gasnet/am.h>

#include "am/wire/message.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

struct hydrant_token {
  // Bits of `reply_state`. It is 0 where the handler of an ordinary request may reply.
  static constexpr uint8_t kReplied = 1;
  static constexpr uint8_t kAddressed = 2;  // the token is an AddressedToken

  hydrant::Rank from;
  bool is_request;
  bool is_long;
  uint8_t reply_state;
  const gex_AM_Entry_t* entry;
};

namespace hydrant {

// The token of an addressed message (message.hpp).
struct AddressedToken : hydrant_token {
  gex_EP_t endpoint;       // of this process
  EndpointPair endpoints;  // `from` is the sender's
};

}  // namespace hydrant
