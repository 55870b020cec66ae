// Allocates from the arenas, and handles forks and monitors. c_api.cpp calls it; it calls jemalloc's table
// (backend.hpp) or extent_heap.cpp, both of which use page_store.cpp.
#include "firehose/watch/arena/arenas.hpp"

#include "firehose/watch/arena/fatal.hpp"
#include "firehose/watch/arena/process_symbols.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <pthread.h>

namespace hydrant::arena {
namespace {

constinit Arenas g_arenas;

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

void* Arenas::allocate(size_t bytes, size_t alignment) noexcept {
  const JemallocTable* table = backend_.jemalloc();
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
  if (in.store == &private_store_ && backend_.chosen() != nullptr) {
    backend_.chosen()->release(p);
  } else {
    heap_of(in).release(p, in);
  }
}

size_t Arenas::usable_bytes(const void* p) noexcept {
  const AddressReservation& in = reservation_of(p);
  if (in.lost) return 0;
  if (in.store == &private_store_ && backend_.chosen() != nullptr)
    return backend_.chosen()->usable_bytes(p);
  return heap_of(in).usable_bytes(p, in);
}

void* Arenas::reallocate(void* p, size_t bytes) noexcept {
  const AddressReservation& in = reservation_of(p);
  void* moved = p;
  if (in.lost) {
    errno = EINVAL;
    return nullptr;
  }
  if (in.store == &private_store_ && backend_.chosen() != nullptr) {
    moved = backend_.chosen()->reallocate(p, bytes, natural_alignment(bytes));
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
  if (const JemallocTable* table = backend_.jemalloc(); table != nullptr) table->purge();
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

Arenas::Usage Arenas::usage(PageStore::Kind kind) noexcept {
  if (kind == PageStore::Kind::kShared)
    return {shared_store_.counts(), shared_heap_.in_use_bytes()};
  const JemallocTable* table = backend_.jemalloc();
  return {private_store_.counts(),
          table != nullptr ? table->in_use_bytes() : private_heap_.in_use_bytes()};
}

void Arenas::before_fork() noexcept HYDRANT_NO_TSA {
  private_heap_.before_fork();
  shared_heap_.before_fork();
  private_store_.before_fork();
  shared_store_.before_fork();
  backend_.before_fork();
}

void Arenas::after_fork() noexcept HYDRANT_NO_TSA {
  backend_.after_fork();
  shared_store_.after_fork();
  private_store_.after_fork();
  shared_heap_.after_fork();
  private_heap_.after_fork();
}

void Arenas::after_fork_in_child() noexcept HYDRANT_NO_TSA {
  backend_.after_fork();
  shared_store_.after_fork_in_child();
  private_store_.after_fork_in_child();
  shared_heap_.after_fork_in_child(true);
  private_heap_.after_fork_in_child(false);
}

}  // namespace hydrant::arena
