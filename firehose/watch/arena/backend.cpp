// Chooses jemalloc or the library's own heap, at the first allocation. Arenas (arenas.cpp) asks it in each.
#include "firehose/watch/arena/backend.hpp"

#include "firehose/watch/arena/arenas.hpp"
#include "firehose/watch/arena/process_symbols.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace hydrant::arena {
namespace {

PageStore& private_store() noexcept { return Arenas::instance().private_store(); }

// ---- the store's functions for jemalloc ----

MemoryRange range_at(void* addr, size_t bytes) noexcept {
  return {reinterpret_cast<uintptr_t>(addr), bytes};
}

constexpr JemallocPages kPages = {
    .grow =
        [](size_t bytes, size_t alignment) noexcept {
          return reinterpret_cast<void*>(private_store().grow(bytes, alignment));
        },
    .commit = [](void* addr,
                 size_t bytes) noexcept { private_store().commit(range_at(addr, bytes)); },
    .decommit = [](void* addr,
                   size_t bytes) noexcept { private_store().decommit(range_at(addr, bytes)); },
    .together =
        [](const void* a, const void* b) noexcept {
          return address_map().find(a) == address_map().find(b);
        },
};

}  // namespace

void Backend::choose() noexcept {
  // Takes no lock: the calls below need the locks of the dynamic linker and of jemalloc. Concurrent threads
  // reach the same result.
  char reason[kReasonBytes] = "";
  const char* wish = std::getenv("HYDRANT_ALLOC_BACKEND");
  const JemallocTable* found = nullptr;
  if (wish != nullptr && std::strcmp(wish, "extents") == 0) {
    (void)std::snprintf(reason, sizeof reason, "HYDRANT_ALLOC_BACKEND=extents");
  } else {
    found = find_jemalloc(reason, sizeof reason);
  }
  if (found != nullptr) {
    store_.set_keep_bytes(0);
    const int error = found->start(&kPages);
    (void)std::snprintf(reason, sizeof reason,
                        error == 0 ? "jemalloc %s" : "jemalloc %s cannot create an arena: error %d",
                        found->version, error);
    if (error != 0) {
      found = nullptr;
      store_.set_keep_bytes(keep_bytes_);
    }
  }
  MutexLock lock(mu_);
  if (choice_.load(std::memory_order_relaxed) != Choice::kNone) return;
  std::memcpy(reason_, reason, sizeof reason_);
  table_ = found;
  choice_.store(found == nullptr ? Choice::kExtents : Choice::kJemalloc, std::memory_order_release);
}

}  // namespace hydrant::arena
