// A monitor that counts what the hooks ask of it, in the place of libfirehose's.
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
  uint64_t others = 0;  // functions that hooks have no business with
};

// In force while it lives; one at a time. Its functions spoil errno, which hooks keep.
class FakeMonitor {
 public:
  FakeMonitor();
  ~FakeMonitor();
  FakeMonitor(const FakeMonitor&) = delete;
  FakeMonitor& operator=(const FakeMonitor&) = delete;

  // Which memory was ever pinned; none at first.
  static void pin(const void* addr, size_t len);
  static void pin_everything();
  static void unpin_everything();
  // The reader has taken something, until the next settle() or sync().
  static void make_busy();
  static void set_removals(uint64_t number);

  static Calls calls();
  // Was it told so of all of this range, in one piece?
  static bool was_invalidated(uintptr_t addr, size_t len);
  static bool was_replaced(uintptr_t addr, size_t len);
  static bool was_synced(uintptr_t addr, size_t len);
};

}  // namespace hydrant::testing
