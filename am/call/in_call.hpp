// Marks public calls, and checks clients with GASNET_DEBUG there: threads follow the client's thread mode
// (in SEQ one thread makes all calls, in PARSYNC one thread at a time), and no call that may poll or send
// is made in a handler or between the prepare and the commit of a negotiated message. gasnet_exit() and
// locks are not checked. A job that is traced writes each call to the trace here.
#pragma once

#include "am/job/job.hpp"

#include <cstdint>

namespace hydrant {

enum class CallKind : uint8_t {
  kLocal,         // neither polls nor sends; also commit and cancel, which end what is prepared
  kReply,         // sends or prepares a reply
  kCommunicates,  // may poll or send
};

// Call it in the thread that starts the job, after any fork of the launch: it records this thread.
void begin_call_checks(int thread_mode, bool debug) noexcept;

// End the job on a violation, with a text that names the call and what forbids it.
[[gnu::cold]] void enter_checked(const char* call, CallKind kind) noexcept;
[[gnu::cold]] void leave_checked() noexcept;
// Ends the job if the calling handler returns although it has prepared a reply.
[[gnu::cold]] void check_reply_is_committed(uint32_t handler, const char* name) noexcept;

// While an object exists, its thread is inside the public call of that name. Nested calls are calls of
// the same thread. Cost for clients that are not checked: a load and a branch.
class InCall {
 public:
  explicit InCall(const char* call, CallKind kind = CallKind::kCommunicates) noexcept
      : is_checked_(job().checks_calls) {
    if (is_checked_) [[unlikely]]
      enter_checked(call, kind);
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
