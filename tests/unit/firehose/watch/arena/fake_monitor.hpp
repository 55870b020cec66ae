// A monitor that records its calls and behaves as the test sets. The test program exports it as
// hydrant_monitor(), where the arenas look for it; it is absent until appear().
#pragma once

#include <hydrant/monitor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace hydrant::testing {

class FakeMonitor {
 public:
  enum class Kind : uint8_t { kInvalidate, kPinned, kAddArena, kAddKeptArena, kSync };
  struct Call {
    Kind kind;
    uintptr_t addr;
    size_t len;
  };

  static FakeMonitor& instance();
  // The table that hydrant_monitor() returns from now on.
  static const hydrant_monitor_t* table();

  void appear() { present_ = true; }
  bool present() const { return present_; }

  // Makes pinned() report this range until unpin_all().
  void pin(const void* addr, size_t len);
  // Pins from the function of on_invalidate().
  void pin_in_invalidate(const void* addr, size_t len);
  void unpin_all();
  // Sets a function that runs in each invalidate(), under the arena's lock: it may only read memory.
  void on_invalidate(std::function<void(uintptr_t, size_t)> look);
  // `refuse`: add_arena() and add_kept_arena() fail from now on.
  void refuse_arenas(bool refuse);

  std::vector<Call> calls();
  void clear_calls();
  bool announced(const void* addr, size_t len);

  // ---- the functions of the table ----
  void invalidate(uintptr_t addr, size_t len);
  bool pinned(uintptr_t addr, size_t len);
  bool add_arena(uintptr_t addr, size_t len, bool kept);
  void sync();

 private:
  struct Range {
    uintptr_t addr;
    size_t len;
  };
  std::mutex
      mu_;  // recorded under the arenas' locks: these containers use malloc(), not the arenas
  bool present_ = false;
  bool refuse_arenas_ = false;
  std::vector<Call> calls_;
  std::vector<Range> pins_;
  std::vector<Range> arenas_;
  std::function<void(uintptr_t, size_t)> look_;
};

}  // namespace hydrant::testing
