// The callback of an operation under way.
#pragma once

#include "firehose/base/status.hpp"

namespace hydrant {

// The network calls `done` once, with a status that the operation lists: in any poll(), also one of replies
// alone, in flush(), or when a thread begins to sleep. `done` may release pins and call Sleeping::wake(), but
// no other function of the network, and does not wait. The network then holds no lock that its registrars
// take.
struct Completion {
  void (*done)(Completion& completion, Status status) noexcept = nullptr;
};

}  // namespace hydrant
