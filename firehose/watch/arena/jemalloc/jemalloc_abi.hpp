// The interface between libhydrant_alloc and libhydrant_alloc_jemalloc. Both are built together, and the
// version in the symbol's name keeps different builds apart.
//
// They are two libraries because jemalloc needs more static thread-local storage than a running process has
// left, so dlopen() cannot always load it. libhydrant_alloc itself needs none and always loads. It uses the
// other library if the program started with it or if it can still be loaded, else its own heap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant::arena {

inline constexpr uint32_t kJemallocAbi = 1;
inline constexpr const char* kJemallocSymbol = "hydrant_alloc_jemalloc_1";

// The source of jemalloc's pages, a PageStore. jemalloc holds its locks during these calls.
struct JemallocPages {
  void* (*grow)(size_t bytes,
                size_t alignment);  // fresh zero pages, not committed; null if refused
  void (*commit)(void* addr, size_t bytes);
  void (*decommit)(void* addr, size_t bytes);
  bool (*together)(const void* a, const void* b);  // both in one reservation: may be merged
};

// The type of the exported symbol, a constant.
struct JemallocTable {
  uint32_t abi;         // kJemallocAbi
  const char* version;  // of jemalloc
  // Creates the arenas; 0 or an errno. May be repeated from any thread; the first call's pages apply.
  int (*start)(const JemallocPages* pages);
  void* (*allocate)(size_t bytes, size_t alignment);
  void* (*reallocate)(void* p, size_t bytes, size_t alignment);
  void (*release)(void* p);
  size_t (*usable_bytes)(const void* p);
  void (*purge)();  // decommits all free memory
  size_t (*in_use_bytes)();
};

}  // namespace hydrant::arena
