// What a handler gets to know of its message: on the stack of whoever delivers.
#pragma once

#include <hydrant/gasnet/am.h>

#include "rdma/bootstrap.hpp"

struct hydrant_token {
  hydrant::Rank from;
  bool is_request;
  bool is_long;
  bool replied;
  const gex_AM_Entry_t* entry;
};
