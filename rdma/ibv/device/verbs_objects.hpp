// Owning pointers to verbs objects. A failure to release an object is logged.
#pragma once

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"

#include <infiniband/verbs.h>

#include <cerrno>
#include <memory>

namespace hydrant::ibv {

template <auto kDestroy>
struct VerbsDeleter {
  template <typename Object>
  void operator()(Object* object) const noexcept {
    const int error = uncancelled::call(kDestroy, object);
    if (error != 0) {
      log_warning("a verbs object could not be released: %s",
                  errno_text(error > 0 ? error : errno));
    }
  }
};

using Channel = std::unique_ptr<ibv_comp_channel, VerbsDeleter<ibv_destroy_comp_channel>>;
using CompletionQueue = std::unique_ptr<ibv_cq, VerbsDeleter<ibv_destroy_cq>>;
using SharedReceives = std::unique_ptr<ibv_srq, VerbsDeleter<ibv_destroy_srq>>;
using QueuePair = std::unique_ptr<ibv_qp, VerbsDeleter<ibv_destroy_qp>>;
using AddressHandle = std::unique_ptr<ibv_ah, VerbsDeleter<ibv_destroy_ah>>;
using Registration = std::unique_ptr<ibv_mr, VerbsDeleter<ibv_dereg_mr>>;

}  // namespace hydrant::ibv
