// Common part of the supplies that map memory in windows.
#pragma once

#include "tests/stale/hunt/worker.hpp"

#include <functional>

namespace hydrant::stale {

class WindowSupply : public Supply {
 public:
  explicit WindowSupply(Windows* windows) : windows_(windows) {}

 protected:
  // Calls map(addr), which maps `len` bytes at a slot's address: once for a free slot, repeatedly for one
  // that is being unmapped. map() must not replace mappings. kNone if not possible now.
  uint32_t map_somewhere(Worker& worker, size_t len, const std::function<bool(uintptr_t)>& map);
  // Calls `release`, which unmaps the whole block; other threads may map there before it returns.
  void unmap_slot(Worker& worker, const Block& block, const std::function<void()>& release);

  Windows& windows() { return *windows_; }
  // Maps memory at unmapped addresses; false if they are in use.
  static bool map_new(uintptr_t addr, size_t len, int flags, int file);
  static void* pointer(uintptr_t addr) { return reinterpret_cast<void*>(addr); }
  size_t some_pages(Worker& worker) const;
  // A random part in whole pages; everything in one case of three.
  static Range some_part(Worker& worker, Range whole);

 private:
  Windows* windows_;
};

}  // namespace hydrant::stale
