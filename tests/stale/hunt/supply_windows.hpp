// What the supplies have in common that map memory in windows.
#pragma once

#include "tests/stale/hunt/worker.hpp"

#include <functional>

namespace hydrant::stale {

class WindowSupply : public Supply {
 public:
  explicit WindowSupply(Windows* windows) : windows_(windows) {}

 protected:
  // Calls map(addr), which maps `len` bytes, for a slot's address until it succeeds: once for a free
  // slot, again and again for one that is being unmapped. map() replaces nothing. kNone: not now.
  uint32_t map_somewhere(Worker& worker, size_t len, const std::function<bool(uintptr_t)>& map);
  // Around `release`, which unmaps all of the block: others may map there before it returns.
  void unmap_slot(Worker& worker, const Block& block, const std::function<void()>& release);

  Windows& windows() { return *windows_; }
  // Where nothing is mapped; false otherwise.
  static bool map_new(uintptr_t addr, size_t len, int flags, int file);
  static void* pointer(uintptr_t addr) { return reinterpret_cast<void*>(addr); }
  size_t some_pages(Worker& worker) const;
  // Some pages of it, all of them in one case of three.
  static Range some_part(Worker& worker, Range whole);

 private:
  Windows* windows_;
};

}  // namespace hydrant::stale
