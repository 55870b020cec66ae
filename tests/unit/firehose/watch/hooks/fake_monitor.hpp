// A monitor that replaces libfirehose's and counts the hooks' calls.
#pragma once

#include <hydrant/monitor.h>

#include "firehose/watch/hooks_abi.h"

#include <cstddef>
#include <cstdint>

namespace hydrant::testing {

// The hooks of this process: linked before libc, or preloaded. Null if there are none.
hydrant_hooks_t* hooks();

// The record of the calling thread; null if it has none.
const hydrant_hooks_thread_t* own_record();

// How often the hooks called each function of the monitor.
struct Calls {
  uint64_t syncs = 0;
  uint64_t settles = 0;
  uint64_t file_changes = 0;
  uint64_t others = 0;  // functions that the hooks must not call
};

// Installed for its lifetime; one at a time. Its functions overwrite errno, which the hooks must preserve.
class FakeMonitor {
 public:
  FakeMonitor();
  ~FakeMonitor();
  FakeMonitor(const FakeMonitor&) = delete;
  FakeMonitor& operator=(const FakeMonitor&) = delete;

  // Sets the memory that counts as ever pinned; none at first.
  static void pin(const void* addr, size_t len);
  static void pin_everything();
  static void unpin_everything();
  // The reader has an event in progress until the next settle() or sync().
  static void make_busy();
  static void set_removals(uint64_t number);

  static Calls calls();
  // Descriptor of the thread that ended last; 0: none.
  static uintptr_t ended_stack();
  // Whether a single call covered all of this range.
  static bool was_invalidated(uintptr_t addr, size_t len);
  static bool was_replaced(uintptr_t addr, size_t len);
  static bool was_synced(uintptr_t addr, size_t len);
};

}  // namespace hydrant::testing
