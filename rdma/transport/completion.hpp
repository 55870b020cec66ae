// The callback of an operation under way.
#pragma once

#include "firehose/base/status.hpp"

namespace hydrant {

// A polling thread calls `done` once; `done` may neither send nor poll.
struct Completion {
  void (*done)(Completion& completion, Status status) noexcept = nullptr;
};

}  // namespace hydrant
