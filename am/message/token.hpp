// The message properties that a handler can query. Lives on the stack of the delivering thread.
#pragma once

#include <hydrant/gasnet/am.h>

#include "rdma/bootstrap/bootstrap.hpp"

struct hydrant_token {
  hydrant::Rank from;
  bool is_request;
  bool is_long;
  bool replied;
  const gex_AM_Entry_t* entry;
};
