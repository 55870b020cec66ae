// Checks, for clients with GASNET_DEBUG, that threads follow the client's thread mode: in SEQ one
// thread makes all calls, in PARSYNC one thread at a time. (Clients of PAR, gasnet_exit() and locks are
// not checked.)
#pragma once

#include "am/job/job.hpp"

namespace hydrant {

// Call it in the thread that starts the job, after any fork of the launch: it records this thread.
void begin_thread_check(int thread_mode, bool debug) noexcept;

// End the job, with a text that names both threads and their calls, on a violation.
[[gnu::cold]] void enter_checked(const char* call) noexcept;
[[gnu::cold]] void leave_checked() noexcept;

// While an object exists, its thread is inside the public call of that name. Nested calls are calls of
// the same thread. Cost for clients that are not checked: a load and a branch.
class InCall {
 public:
  explicit InCall(const char* call) noexcept : is_checked_(job().checks_threads) {
    if (is_checked_) [[unlikely]]
      enter_checked(call);
  }
  ~InCall() {
    if (is_checked_) [[unlikely]]
      leave_checked();
  }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  const bool is_checked_;
};

}  // namespace hydrant
