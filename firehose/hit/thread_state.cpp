// Creates and ends the cache's state of a thread, and enters slots into its translation table.
// ThreadDomain::remember() is the last step of "Tour: a miss with eviction".
#include "firehose/hit/thread_state.hpp"

#include "firehose/base/cancellation.hpp"
#include "firehose/hit/gate.hpp"

#include <algorithm>
#include <new>

namespace hydrant {

thread_local constinit HitContext t_hit_context{};

namespace {

constexpr size_t kFirstEntries = 1024;
constexpr uint32_t kSmallestShift = 12;

Mutex g_registry_mutex;
pthread_key_t g_exit_key;
pthread_once_t g_exit_once = PTHREAD_ONCE_INIT;
bool g_exit_key_usable = false;

// Marks a thread whose destructor has run: it may still pin from later destructors of its own.
Thread* exited() noexcept { return reinterpret_cast<Thread*>(uintptr_t{1}); }

// Cancellation is disabled: it can still come while a thread ends by itself.
void end_thread(void* argument) {
  const CancellationDisabled guard;
  auto* thread = static_cast<Thread*>(argument);
  t_hit_context.detach_domain();
  t_hit_context.thread = exited();
  {
    MutexLock lock(g_registry_mutex);
    for (auto& entry : thread->domains) {
      ThreadDomain* state = entry.load(std::memory_order_relaxed);
      if (state == nullptr) continue;
      state->owner->detach(*state);
      delete state;
    }
  }
  free_ended_states(*thread);
  delete thread;
}

void create_exit_key() { g_exit_key_usable = pthread_key_create(&g_exit_key, &end_thread) == 0; }

}  // namespace

Mutex& registry_mutex() noexcept { return g_registry_mutex; }

Thread* this_thread() noexcept {
  Thread* thread = t_hit_context.thread;
  if (thread == exited()) return nullptr;
  if (thread != nullptr) return thread;
  pthread_once(&g_exit_once, &create_exit_key);
  if (!g_exit_key_usable) return nullptr;
  thread = new (std::nothrow) Thread;
  if (thread == nullptr) return nullptr;
  // If a thread first comes here in a late destructor, glibc runs our destructor in its next round. In the
  // last round it does not: the state stays until the domain ends, and its holds still count.
  if (pthread_setspecific(g_exit_key, thread) != 0) {
    delete thread;
    return nullptr;
  }
  t_hit_context.thread = thread;
  return thread;
}

void load_hit_context(ThreadDomain& state) noexcept {
  HitContext& context = t_hit_context;
  state.thread->current = &state;
  context.mask = state.mask();
  context.scale = state.scale();
  context.table = state.table.data();
  context.counts = state.counts;
  // The short path needs the asymmetric fence; without it every call takes the slow path.
  context.domain.store(asymmetric_fence::asymmetric() ? state.handle : kNoHitContext,
                       std::memory_order_relaxed);
}

void free_ended_states(Thread& thread) noexcept {
  const CancellationDisabled guard;
  ThreadDomain* list = nullptr;
  {
    MutexLock lock(g_registry_mutex);
    list = thread.ended.exchange(nullptr, std::memory_order_relaxed);
  }
  while (list != nullptr) {
    ThreadDomain* state = list;
    list = state->next;
    if (thread.current == state) {
      thread.current = nullptr;
      t_hit_context.detach_domain();
    }
    delete state;
  }
}

void forget_threads_in_child() noexcept {
  g_registry_mutex.reset_in_child();
  g_table_space.reset_in_child();
  Thread* own = t_hit_context.thread;
  // Leaks the threads' states in the child: few bytes, once per fork.
  t_hit_context.detach_domain();
  if (own == nullptr || own == exited()) return;
  for (auto& entry : own->domains) entry.store(nullptr, std::memory_order_relaxed);
  own->current = nullptr;
  own->ended.store(nullptr, std::memory_order_relaxed);
}

bool ThreadDomain::set_up(const RegionSlot* null_slot, uint32_t max_slots,
                          uint32_t granule_shift) noexcept {
  if (!counts_memory_.map(max_slots + kHitsBefore)) return false;
  counts = counts_memory_.data() + kHitsBefore;
  return resize_table(null_slot, kFirstEntries, granule_shift);
}

bool ThreadDomain::resize_table(const RegionSlot* null_slot, size_t entries,
                                uint32_t new_shift) noexcept {
  MappedArray<const RegionSlot*> fresh;
  if (!fresh.map(entries)) return false;
  std::fill_n(fresh.data(), entries, null_slot);
  table = std::move(fresh);
  shift = new_shift;
  conflicts = crowded = 0;
  table_bytes.store(table.bytes(), std::memory_order_relaxed);
  return true;
}

size_t ThreadDomain::second_index(uintptr_t addr) const noexcept {
  // Fibonacci hashing of the block number: spreads the power-of-two strides that collide at first. Never
  // their first place, where two regions would replace each other for ever.
  const uint64_t block = uint64_t{addr} >> shift;
  const uint64_t hash = (block * 0x9e3779b97f4a7c15u) >> 32;
  return static_cast<size_t>(block ^ (hash | 1)) & (table.size() - 1);
}

const RegionSlot* ThreadDomain::second_choice(uintptr_t addr) const noexcept {
  return table[second_index(addr)];
}

void ThreadDomain::remember(uintptr_t addr, const RegionSlot* slot, const RegionSlot* null_slot,
                            size_t max_bytes) noexcept {
  const size_t first = (addr >> shift) & (table.size() - 1);
  const RegionSlot* old = table[first];
  // A shut gate, or the same region at another address, is no loss.
  const uintptr_t gate = old->gate.load(std::memory_order_relaxed);
  if (gate <= kMarkedGate || old == slot) {
    table[first] = slot;
    return;
  }
  // Two regions in one block: finer blocks would separate them.
  const uintptr_t old_addr = old->addr.load(std::memory_order_relaxed);
  const bool same_block = old_addr <= (addr | ((uintptr_t{1} << shift) - 1)) &&
                          gate > (addr & ~((uintptr_t{1} << shift) - 1));
  ++(same_block ? crowded : conflicts);
  if (crowded > table.size() / 4 && shift > kSmallestShift) {
    resize_table(null_slot, table.size(), shift - 1);
  } else if (crowded + conflicts > table.size() / 2 && table.bytes() < max_bytes) {
    resize_table(null_slot, std::min(table.size() * 4, max_bytes / sizeof(RegionSlot*)), shift);
  }
  const size_t again = (addr >> shift) & (table.size() - 1);
  if (table[again] == null_slot) {
    table[again] = slot;
  } else {
    table[second_index(addr)] = slot;
  }
  // The context shows the old table, whether or not its short path is in use.
  if (thread->current == this) load_hit_context(*this);
}

}  // namespace hydrant
