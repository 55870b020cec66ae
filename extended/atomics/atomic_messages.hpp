// Atomic operations by Active Messages: a handler of the target executes them. docs/wire_format_am.md shows
// the two messages.
#pragma once

#include "extended/event/completion_counter.hpp"
#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstdint>
#include <gasnet_fwd.h>

namespace hydrant {

class RmaThread;

struct AtomicRequest {
  Rank peer = 0;
  gex_DT_t type = 0;
  gex_OP_t op = 0;
  uintptr_t target = 0;  // aligned
  uint64_t operand1 = 0;
  uint64_t operand2 = 0;
  void* result = nullptr;  // of a fetching operation
  bool immediate = false;
};

// Sends the request. Its completion counts for `counter`, after the result is stored. May poll. The job ends
// with a text if the target is not in a segment of its rank. Errors: kNotReady: immediate, and no room;
// kBroken: the peer has died or the job is ending.
Status send_atomic(RmaThread& thread, const AtomicRequest& request,
                   CompletionCounter& counter) noexcept;

// Ends the job: no segment of `owner` has the target.
[[noreturn]] void refuse_atomic_target(const char* call, Rank owner, uintptr_t target,
                                       size_t bytes) noexcept;
// True if operations on the target are allowed in this process.
bool is_own_atomic_target(gex_DT_t type, uintptr_t target) noexcept;

void add_atomic_handlers() noexcept;

}  // namespace hydrant
