// Implements libhydrant_alloc_jemalloc: jemalloc, linked statically with hidden symbols. It allocates from
// arenas whose pages come from libhydrant_alloc. It exports one symbol, a table of functions that arenas.cpp
// calls; malloc and its family stay libc's.
//
// No code here may use malloc, new or their callers: inside this library those names are jemalloc's, and the
// memory would come from arenas that were not announced to the monitor.
//
// How jemalloc is set up:
//  - Every allocation names one of the arenas and thread caches below, so jemalloc never uses its own.
//  - It never unmaps pages (no dalloc, no destroy hook) and never empties them by itself (no purge hooks). It
//    decommits memory that is free long enough, and the store decides whether to empty it.
//  - The store may keep the contents of decommitted memory, so jemalloc must not assume zeros. It would do so
//    only for MALLOCX_ZERO, which is not used here.
#include "firehose/watch/arena/jemalloc/jemalloc_abi.hpp"

#include <jemalloc/jemalloc.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <pthread.h>
#include <unistd.h>

// jemalloc reads this name when it starts. oversize_threshold:0 disables immediate purging of large extents,
// because those are the pinned ones.
const char* malloc_conf =
    "narenas:1,tcache:false,background_thread:false,oversize_threshold:0,muzzy_decay_ms:0";

// Hides MALLOC_CONF, which configures the program's allocator, possibly another jemalloc.
// NOLINTNEXTLINE(readability-identifier-naming): the linker's name for a wrapper of secure_getenv()
extern "C" char* __wrap_secure_getenv(const char* name);
// NOLINTNEXTLINE(readability-identifier-naming): as above
extern "C" char* __wrap_secure_getenv(const char* /*name*/) { return nullptr; }

namespace hydrant::arena {
namespace {

constexpr unsigned kMaxArenas = 4;

// Set once, under start_once, before any arena exists.
JemallocPages g_pages;
unsigned g_arenas[kMaxArenas];
unsigned g_arena_count;
int g_start_error = EAGAIN;
pthread_key_t g_thread_key;
std::atomic<unsigned> g_next_arena{0};

// ---- extent hooks: true means failure ----

void* on_alloc(extent_hooks_t*, void* wanted, size_t bytes, size_t alignment, bool* zero,
               bool* commit,  // NOLINT(readability-non-const-parameter): jemalloc's type
               unsigned) {
  if (wanted != nullptr)
    return nullptr;  // a request to grow in place, which jemalloc may be denied
  void* p = g_pages.grow(bytes, alignment);
  if (p == nullptr) return nullptr;
  *zero = true;
  if (*commit) g_pages.commit(p, bytes);
  return p;
}

bool on_commit(extent_hooks_t*, void* p, size_t, size_t offset, size_t bytes, unsigned) {
  g_pages.commit(static_cast<char*>(p) + offset, bytes);
  return false;
}

bool on_decommit(extent_hooks_t*, void* p, size_t, size_t offset, size_t bytes, unsigned) {
  g_pages.decommit(static_cast<char*>(p) + offset, bytes);
  return false;
}

bool on_split(extent_hooks_t*, void*, size_t, size_t, size_t, bool, unsigned) { return false; }

bool on_merge(extent_hooks_t*, void* a, size_t, void* b, size_t, bool, unsigned) {
  return !g_pages.together(a, b);
}

extent_hooks_t g_hooks = {on_alloc, nullptr, nullptr,  on_commit, on_decommit,
                          nullptr,  nullptr, on_split, on_merge};

// ---- threads ----

enum class ThreadPhase : unsigned char { kNew, kCached, kUncached };

struct ThreadState {
  ThreadPhase phase;
  unsigned arena;
  unsigned cache;
};
// Static storage: this library needs it for jemalloc anyway.
thread_local constinit ThreadState t_state __attribute__((tls_model("initial-exec"))) = {};

void end_thread(void*) {
  // Other destructors of the thread may still allocate.
  t_state.phase = ThreadPhase::kUncached;
  (void)mallctl("tcache.destroy", nullptr, nullptr, &t_state.cache, sizeof t_state.cache);
}

void begin_thread() {
  const unsigned turn = g_next_arena.fetch_add(1, std::memory_order_relaxed);
  t_state.arena = g_arenas[turn % g_arena_count];
  t_state.phase = ThreadPhase::kUncached;
  size_t size = sizeof t_state.cache;
  // Fails beyond about 4000 threads; further threads go without a cache.
  if (mallctl("tcache.create", &t_state.cache, &size, nullptr, 0) != 0) return;
  if (pthread_setspecific(g_thread_key, &t_state) != 0) return;
  t_state.phase = ThreadPhase::kCached;
}

int cache_flags() {
  if (t_state.phase == ThreadPhase::kNew) begin_thread();
  return t_state.phase == ThreadPhase::kCached ? static_cast<int>(MALLOCX_TCACHE(t_state.cache))
                                               : static_cast<int>(MALLOCX_TCACHE_NONE);
}

int flags_for(size_t alignment) {
  const int cache = cache_flags();
  return cache | static_cast<int>(MALLOCX_ARENA(t_state.arena)) |
         static_cast<int>(MALLOCX_LG_ALIGN(std::countr_zero(alignment)));
}

// ---- the table ----

void start_once() {
  g_arena_count = 0;
  // Overrides /etc/malloc.conf: the library must not start hidden threads.
  bool off = false;
  (void)mallctl("background_thread", nullptr, nullptr, &off, sizeof off);
  if (pthread_key_create(&g_thread_key, end_thread) != 0) return;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  const unsigned wanted = static_cast<unsigned>(std::clamp(cores, 1L, long{kMaxArenas}));
  for (unsigned i = 0; i < wanted; ++i) {
    extent_hooks_t* hooks = &g_hooks;
    size_t size = sizeof g_arenas[i];
    const int error = mallctl("arenas.create", &g_arenas[i], &size, &hooks, sizeof hooks);
    if (error != 0 && i == 0) {
      g_start_error = error;
      return;
    }
    if (error != 0) break;
    g_arena_count = i + 1;
  }
  g_start_error = 0;
}

pthread_mutex_t g_start_lock = PTHREAD_MUTEX_INITIALIZER;
bool g_started = false;

int start(const JemallocPages* pages) {
  // The calls below take no lock of the dynamic linker: this library's constructor started jemalloc.
  pthread_mutex_lock(&g_start_lock);
  if (!g_started) {
    g_pages = *pages;
    start_once();
    g_started = true;
  }
  const int error = g_start_error;
  pthread_mutex_unlock(&g_start_lock);
  return error;
}

// jemalloc counts its arenas before it takes the locks under which they are created. An arena created in
// between would be unlocked after the fork without having been locked. This lock prevents that. fork() runs
// handlers in reverse order of registration, and jemalloc registers its own when it starts.
[[gnu::constructor]] void register_fork_handlers() {
  unsigned arenas = 0;
  size_t size = sizeof arenas;
  (void)mallctl("arenas.narenas", &arenas, &size, nullptr, 0);  // starts jemalloc
  (void)pthread_atfork([] { pthread_mutex_lock(&g_start_lock); },
                       [] { pthread_mutex_unlock(&g_start_lock); },
                       [] { g_start_lock = PTHREAD_MUTEX_INITIALIZER; });
}

void* allocate(size_t bytes, size_t alignment) { return mallocx(bytes, flags_for(alignment)); }

void* reallocate(void* p, size_t bytes, size_t alignment) {
  return rallocx(p, bytes, flags_for(alignment));
}

void release(void* p) { dallocx(p, cache_flags()); }

size_t usable_bytes(const void* p) { return sallocx(p, 0); }

void purge() {
  if (t_state.phase == ThreadPhase::kCached) {
    (void)mallctl("tcache.flush", nullptr, nullptr, &t_state.cache, sizeof t_state.cache);
  }
  for (unsigned i = 0; i < g_arena_count; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "arena.%u.purge", g_arenas[i]);
    (void)mallctl(name, nullptr, nullptr, nullptr, 0);
  }
}

size_t in_use_bytes() {
  uint64_t epoch = 1;
  (void)mallctl("epoch", nullptr, nullptr, &epoch, sizeof epoch);
  size_t sum = 0;
  for (unsigned i = 0; i < g_arena_count; ++i) {
    for (const char* kind : {"small", "large"}) {
      char name[48];
      std::snprintf(name, sizeof name, "stats.arenas.%u.%s.allocated", g_arenas[i], kind);
      size_t bytes = 0;
      size_t size = sizeof bytes;
      if (mallctl(name, &bytes, &size, nullptr, 0) == 0) sum += bytes;
    }
  }
  return sum;
}

}  // namespace
}  // namespace hydrant::arena

extern "C" __attribute__((visibility("default")))
const hydrant::arena::JemallocTable hydrant_alloc_jemalloc_1;
const hydrant::arena::JemallocTable hydrant_alloc_jemalloc_1 = {
    .abi = hydrant::arena::kJemallocAbi,
    .version = JEMALLOC_VERSION,
    .start = hydrant::arena::start,
    .allocate = hydrant::arena::allocate,
    .reallocate = hydrant::arena::reallocate,
    .release = hydrant::arena::release,
    .usable_bytes = hydrant::arena::usable_bytes,
    .purge = hydrant::arena::purge,
    .in_use_bytes = hydrant::arena::in_use_bytes,
};
