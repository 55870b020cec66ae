// Chooses the heap of each arena, jemalloc or the library's own, and handles forks and monitors. c_api.cpp
// calls it; it calls jemalloc's table or extent_heap.cpp, both of which use page_store.cpp.
#include "firehose/watch/arena/arenas.hpp"

#include "firehose/watch/arena/fatal.hpp"
#include "firehose/watch/arena/process_symbols.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>

namespace hydrant::arena {
namespace {

constinit Arenas g_arenas;

// ---- the store's functions for jemalloc ----

MemoryRange range_at(void* addr, size_t bytes) noexcept {
  return {reinterpret_cast<uintptr_t>(addr), bytes};
}

constexpr JemallocPages kPages = {
    .grow =
        [](size_t bytes, size_t alignment) noexcept {
          return reinterpret_cast<void*>(g_arenas.private_store().grow(bytes, alignment));
        },
    .commit = [](void* addr,
                 size_t bytes) noexcept { g_arenas.private_store().commit(range_at(addr, bytes)); },
    .decommit =
        [](void* addr, size_t bytes) noexcept {
          g_arenas.private_store().decommit(range_at(addr, bytes));
        },
    .together =
        [](const void* a, const void* b) noexcept {
          return address_map().find(a) == address_map().find(b);
        },
};

// ---- forks ----
//
// fork() runs handlers in reverse order of registration. jemalloc registers its handlers when it starts,
// which is after this library's constructor, on which it depends. So a fork takes jemalloc's locks before
// this library's, in the same order as jemalloc's extent hooks.
//
// Where the cache is in the same image, its handlers may run while these locks are held, which therefore do
// not count as held (fork_nesting.hpp). Like those of any allocator, these handlers lock in every fork. A
// fork in a signal handler that interrupted an allocation, or another fork(), waits for its own thread.
[[gnu::constructor]] void register_fork_handlers() noexcept {
  (void)pthread_atfork([] { g_arenas.before_fork(); }, [] { g_arenas.after_fork(); },
                       [] { g_arenas.after_fork_in_child(); });
}

AddressReservation& reservation_of(const void* p) noexcept {
  AddressReservation* found = address_map().find(p);
  if (found == nullptr) fatal("not allocated by this library", p);
  return *found;
}

}  // namespace

Arenas& Arenas::instance() noexcept { return g_arenas; }

void Arenas::choose() noexcept {
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
    private_store_.set_keep_bytes(0);
    const int error = found->start(&kPages);
    (void)std::snprintf(reason, sizeof reason,
                        error == 0 ? "jemalloc %s" : "jemalloc %s cannot create an arena: error %d",
                        found->version, error);
    if (error != 0) {
      found = nullptr;
      private_store_.set_keep_bytes(kKeepBytes);
    }
  }
  MutexLock lock(choice_mu_);
  if (choice_.load(std::memory_order_relaxed) != Choice::kNone) return;
  std::memcpy(reason_, reason, sizeof reason_);
  table_ = found;
  choice_.store(found == nullptr ? Choice::kExtents : Choice::kJemalloc, std::memory_order_release);
}

void* Arenas::allocate(size_t bytes, size_t alignment) noexcept {
  const JemallocTable* table = jemalloc();
  void* p = table != nullptr ? table->allocate(bytes, alignment)
                             : private_heap_.allocate(bytes, alignment);
  if (p == nullptr) errno = ENOMEM;
  announce_fresh();
  return p;
}

void* Arenas::allocate_shared(size_t bytes, size_t alignment) noexcept {
  void* p = shared_heap_.allocate(bytes, alignment);
  announce_fresh();
  return p;
}

void Arenas::release(void* p) noexcept {
  const AddressReservation& in = reservation_of(p);
  if (in.lost) return;
  if (in.store == &private_store_ && table_ != nullptr) {
    table_->release(p);
  } else {
    heap_of(in).release(p, in);
  }
}

size_t Arenas::usable_bytes(const void* p) noexcept {
  const AddressReservation& in = reservation_of(p);
  if (in.lost) return 0;
  if (in.store == &private_store_ && table_ != nullptr) return table_->usable_bytes(p);
  return heap_of(in).usable_bytes(p, in);
}

void* Arenas::reallocate(void* p, size_t bytes) noexcept {
  const AddressReservation& in = reservation_of(p);
  void* moved = p;
  if (in.lost) {
    errno = EINVAL;
    return nullptr;
  }
  if (in.store == &private_store_ && table_ != nullptr) {
    moved = table_->reallocate(p, bytes, natural_alignment(bytes));
    if (moved == nullptr) errno = ENOMEM;
  } else if (!heap_of(in).resize(p, in, bytes)) {
    moved = move(p, in, bytes);
  }
  announce_fresh();
  return moved;
}

void* Arenas::move(void* p, const AddressReservation& from, size_t bytes) noexcept {
  ExtentHeap& heap = heap_of(from);
  void* fresh = heap.allocate(bytes, natural_alignment(bytes));
  if (fresh == nullptr) return nullptr;
  std::memcpy(fresh, p, std::min(bytes, heap.usable_bytes(p, from)));
  heap.release(p, from);
  return fresh;
}

size_t Arenas::trim() noexcept {
  announce();
  const PageStoreStats before[] = {private_store_.counts(), shared_store_.counts()};
  if (const JemallocTable* table = jemalloc(); table != nullptr) table->purge();
  (void)private_store_.trim();
  (void)shared_store_.trim();
  const uint64_t emptied = private_store_.counts().emptied_bytes - before[0].emptied_bytes +
                           shared_store_.counts().emptied_bytes - before[1].emptied_bytes;
  return static_cast<size_t>(emptied);
}

void Arenas::announce() noexcept {
  if (has_monitor()) return;
  const hydrant_monitor_t* monitor = find_monitor_symbol();
  if (monitor == nullptr) return;
  private_store_.use_monitor(monitor);
  shared_store_.use_monitor(monitor);
  monitor_known_.store(true, std::memory_order_relaxed);
}

const char* Arenas::reason() noexcept {
  (void)jemalloc();
  return reason_;
}

PageStoreStats Arenas::counts(PageStore::Kind kind) noexcept {
  return kind == PageStore::Kind::kShared ? shared_store_.counts() : private_store_.counts();
}

size_t Arenas::in_use_bytes(PageStore::Kind kind) noexcept {
  if (kind == PageStore::Kind::kShared) return shared_heap_.in_use_bytes();
  const JemallocTable* table = jemalloc();
  return table != nullptr ? table->in_use_bytes() : private_heap_.in_use_bytes();
}

void Arenas::before_fork() noexcept HYDRANT_NO_TSA {
  private_heap_.before_fork();
  shared_heap_.before_fork();
  private_store_.before_fork();
  shared_store_.before_fork();
  choice_mu_.lock_uncounted();
}

void Arenas::after_fork() noexcept HYDRANT_NO_TSA {
  choice_mu_.unlock_uncounted();
  shared_store_.after_fork();
  private_store_.after_fork();
  shared_heap_.after_fork();
  private_heap_.after_fork();
}

void Arenas::after_fork_in_child() noexcept HYDRANT_NO_TSA {
  choice_mu_.unlock_uncounted();
  shared_store_.after_fork_in_child();
  private_store_.after_fork_in_child();
  shared_heap_.after_fork_in_child(true);
  private_heap_.after_fork_in_child(false);
}

}  // namespace hydrant::arena
