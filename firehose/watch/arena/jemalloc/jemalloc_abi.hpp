// What libhydrant_alloc and libhydrant_alloc_jemalloc say to each other. Both are built together, and the
// version in the symbol's name keeps strangers apart.
//
// They are two libraries because jemalloc has static thread-local storage, more than a running process has
// room for: a library that contains it cannot be loaded later. So libhydrant_alloc contains none and always
// loads; it uses the other if that came with the program, or can still be loaded, and its own heap if not.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant::arena {

inline constexpr uint32_t kJemallocAbi = 1;
inline constexpr const char* kJemallocSymbol = "hydrant_alloc_jemalloc_1";

// Where jemalloc's pages come from: a PageStore. Called with jemalloc's locks held.
struct JemallocPages {
  void* (*grow)(size_t bytes, size_t alignment);  // fresh, zero, not in use; null when refused
  void (*commit)(void* addr, size_t bytes);
  void (*decommit)(void* addr, size_t bytes);
  bool (*together)(const void* a, const void* b);  // in one reservation: may be joined
};

// The exported symbol. Constant.
struct JemallocTable {
  uint32_t abi;         // kJemallocAbi
  const char* version;  // of jemalloc
  // Makes the arenas. 0, or an errno. Any number of times, from any thread; the pages of the first count.
  int (*start)(const JemallocPages* pages);
  void* (*allocate)(size_t bytes, size_t alignment);
  void* (*reallocate)(void* p, size_t bytes, size_t alignment);
  void (*release)(void* p);
  size_t (*usable_bytes)(const void* p);
  void (*purge)();  // decommits all that is free
  size_t (*in_use_bytes)();
};

}  // namespace hydrant::arena
