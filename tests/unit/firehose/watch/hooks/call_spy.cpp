#include "tests/unit/firehose/watch/hooks/call_spy.hpp"

#include <pthread.h>

extern "C" void hydrant_spy_on_calls(void (*on_call)(const char* name));
extern "C" int hydrant_spy_early_calls(int* families);

namespace hydrant::testing {
namespace {

thread_local const char* last_name = "";
thread_local uint64_t last_entered = 0;
thread_local Calls last_calls;
thread_local bool ends_thread = false;

// Allocates nothing: it runs inside mmap() as well.
void note_call(const char* name) {
  last_name = name;
  const hydrant_hooks_thread_t* record = own_record();
  last_entered = record != nullptr ? __atomic_load_n(&record->entered, __ATOMIC_ACQUIRE) : 0;
  last_calls = FakeMonitor::calls();
  if (ends_thread) {
    ends_thread = false;
    pthread_exit(nullptr);
  }
}

}  // namespace

bool early_calls_worked(int* families) { return hydrant_spy_early_calls(families) != 0; }

CallSpy::CallSpy() { hydrant_spy_on_calls(note_call); }
CallSpy::~CallSpy() { hydrant_spy_on_calls(nullptr); }

SpiedCall CallSpy::take() {
  SpiedCall seen = {last_name, last_entered, last_calls};
  last_name = "";
  last_entered = 0;
  last_calls = Calls{};
  return seen;
}

void CallSpy::end_thread_in_next_call() { ends_thread = true; }

}  // namespace hydrant::testing
