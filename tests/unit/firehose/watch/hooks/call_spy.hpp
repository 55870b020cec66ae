// Inspects the calling thread while the hooks are inside a real call: a library (images/call_spy.c) stands
// between the hooks and libc.
#pragma once

#include "tests/unit/firehose/watch/hooks/fake_monitor.hpp"

#include <string>

namespace hydrant::testing {

// Whether the library's calls in its constructor, which runs before that of the hooks, worked; `families` is
// the set that the hooks reported then.
bool early_calls_worked(int* families);

// The last call that got past the hooks on this thread, as it was seen there.
struct SpiedCall {
  std::string name;
  uint64_t entered = 0;  // of the thread's record
  Calls calls;           // of the monitor before it
};

// Calls of this thread are recorded during its lifetime.
class CallSpy {
 public:
  CallSpy();
  ~CallSpy();
  CallSpy(const CallSpy&) = delete;
  CallSpy& operator=(const CallSpy&) = delete;

  // Returns the calls that were seen since the last take(), and forgets them.
  static SpiedCall take();
  // The next call ends its thread, after it was made.
  static void end_thread_in_next_call();
};

}  // namespace hydrant::testing
