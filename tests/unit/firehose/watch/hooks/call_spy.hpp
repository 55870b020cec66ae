// Looks at the calling thread while the hooks are inside a real call: through a library
// (images/call_spy.c) that comes after the hooks and before libc.
#pragma once

#include "tests/unit/firehose/watch/hooks/fake_monitor.hpp"

#include <string>

namespace hydrant::testing {

// Whether calls worked that the library made in its constructor, before that of the hooks; `families` is what
// the hooks said of themselves then.
bool early_calls_worked(int* families);

// The last call that got past the hooks on this thread, as it was seen there.
struct SpiedCall {
  std::string name;
  uint64_t entered = 0;  // of the thread's record
  Calls calls;           // of the monitor before it
};

// While it lives, calls of this thread are noted.
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
