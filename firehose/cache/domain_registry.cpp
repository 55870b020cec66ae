// Stores the domains of the process by handle, and runs the fork handlers of all of them. In step 1 of "Tour:
// a miss with eviction" find_domain() turns the handle of a pin into its Domain.
#include "firehose/cache/domain_registry.hpp"

#include "firehose/base/cancellation.hpp"
#include "firehose/base/fork_nesting.hpp"
#include "firehose/cache/coherence/upkeep.hpp"
#include "firehose/pin/pin_handle.hpp"
#include "firehose/watch/fork_handlers.hpp"
#include "firehose/watch/monitor.hpp"

#include <cstddef>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

namespace hydrant {
namespace {

struct Entry {
  std::atomic<Domain*> domain{nullptr};
  // Handle of the live domain, 0 if none. Published after `domain`, withdrawn before it.
  std::atomic<uint64_t> handle{0};
  // The domain's slots, so that other threads can find a slot's domain without touching the domain.
  std::atomic<uintptr_t> slots_begin{0}, slots_end{0};
  uint32_t generation = 0;
  bool claimed = false;
};
Entry g_entries[kMaxDomains];  // generation, claimed: guarded by registry_mutex()
// Number of free places for peers' domains. Written under registry_mutex(); relaxed where it is read without:
// a place that has just become free may be overlooked once, and a search under the mutex corrects a count
// that is too high.
std::atomic<uint32_t> g_free_peer_places{kMaxDomains - kMaxClientDomains};
// Places from here on were never used.
std::atomic<uint32_t> g_places{0};
// A page that reads 0 in a child: how far the tables have been reset there.
std::atomic<uint32_t>* g_reset = nullptr;
constexpr uint32_t kNotReset = 0, kResetting = 1, kReset = 2;
bool g_wipes = false;  // such pages do read 0 there, and so do the slots of inherited domains
constexpr uint64_t kResetDeadlineNs = 1'000'000'000;
pthread_once_t g_fork_once = PTHREAD_ONCE_INIT;
// Cancellation state of the forking thread, which is restored when its locks are released. Guarded by these
// locks.
int g_forker_cancellation = PTHREAD_CANCEL_ENABLE;
thread_local constinit ForkNesting t_nesting [[gnu::tls_model("initial-exec")]];

// Under registry_mutex(), or in a child.
void set_claimed(Entry& entry, bool claimed) noexcept {
  const bool of_peer = &entry - g_entries >= static_cast<ptrdiff_t>(kMaxClientDomains);
  if (of_peer && entry.claimed != claimed) {
    const uint32_t free = g_free_peer_places.load(std::memory_order_relaxed);
    g_free_peer_places.store(claimed ? free - 1 : free + 1, std::memory_order_relaxed);
  }
  entry.claimed = claimed;
}

// First the locks under which memory may be mapped or allocated: their holders may wait for the monitor's
// reader. The reader waits for none of these, not even for a domain's mutex (coherence/invalidator.hpp): a
// thread may hold one of malloc's locks, which fork() takes next, and wait for the reader.
void before_fork() HYDRANT_NO_TSA {
  if (!t_nesting.begin()) return;
  int cancellation = PTHREAD_CANCEL_ENABLE;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
  Upkeep::own().pause();
  lock_tickets();
  lock_slot_arenas();
  registry_mutex().lock();
  for (auto& entry : g_entries) {
    Domain* domain = entry.domain.load(std::memory_order_relaxed);
    if (domain != nullptr) domain->lock_for_fork();
  }
  g_forker_cancellation = cancellation;
  ForkNesting::locked();
}

void after_fork_in_parent() HYDRANT_NO_TSA {
  if (!t_nesting.end()) return;
  const int cancellation = g_forker_cancellation;
  for (auto& entry : g_entries) {
    Domain* domain = entry.domain.load(std::memory_order_relaxed);
    if (domain != nullptr) domain->unlock_after_fork();
  }
  registry_mutex().unlock();
  unlock_slot_arenas();
  unlock_tickets();
  t_nesting.unlocked();
  Upkeep::own().resume();
  pthread_setcancelstate(cancellation, nullptr);
}

// Also called by the first slow call of a child that was made without running fork handlers.
void reset_in_child() {
  g_reset->store(kResetting, std::memory_order_relaxed);
  Monitor::own().reset_in_child();
  Upkeep::own().reset_in_child();
  forget_threads_in_child();
  reset_slot_arenas_in_child();
  reset_tickets_in_child();
  for (auto& entry : g_entries) {
    Domain* domain = entry.domain.load(std::memory_order_relaxed);
    if (domain == nullptr || (g_wipes && domain->alive())) continue;  // born in the child
    domain->reset_in_child();
    // If a thread of the parent was creating or destroying the domain, no thread of the child continues that.
    if (entry.handle.load(std::memory_order_relaxed) != 0) continue;
    entry.domain.store(nullptr, std::memory_order_relaxed);
    set_claimed(entry, false);
  }
  g_reset->store(kReset, std::memory_order_release);
}

void after_fork_in_child() {
  reset_in_child();
  if (t_nesting.finish_in_child()) pthread_setcancelstate(g_forker_cancellation, nullptr);
}

void install_once() {
  static std::atomic<uint32_t> fallback{kReset};
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  g_reset = page == MAP_FAILED ? &fallback : static_cast<std::atomic<uint32_t>*>(page);
  g_wipes = page != MAP_FAILED && madvise(page, 4096, MADV_WIPEONFORK) == 0;
  g_reset->store(kReset, std::memory_order_relaxed);
  pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
}

// In a child that was made without running fork handlers: resets the tables. Called before its first lock,
// which a thread that exists in the parent only may hold.
void notice_unannounced_fork() noexcept {
  if (g_reset->load(std::memory_order_acquire) == kReset) return;
  const CancellationDisabled guard;
  // Several threads of the child may come here at once: one does the work, the others wait for it.
  uint32_t expected = kNotReset;
  if (g_reset->compare_exchange_strong(expected, kResetting, std::memory_order_acquire)) {
    reset_in_child();
  }
  const uint64_t deadline = now_ns() + kResetDeadlineNs;
  while (g_reset->load(std::memory_order_acquire) != kReset && now_ns() < deadline) sched_yield();
}

void notice_unannounced_fork(const Domain& domain) noexcept {
  if (!domain.alive()) notice_unannounced_fork();
}

}  // namespace

void install_fork_handlers() noexcept { pthread_once(&g_fork_once, &install_once); }

Domain* find_domain(uint64_t handle) noexcept {
  const Entry& entry = g_entries[handle % kMaxDomains];
  if (handle != 0 && entry.handle.load(std::memory_order_acquire) == handle) {
    Domain* domain = entry.domain.load(std::memory_order_relaxed);
    notice_unannounced_fork(*domain);
    return domain;
  }
  (void)fail(Status::kNotInit, "%#llx is not a live domain: %s",
             static_cast<unsigned long long>(handle),
             handle == 0 ? "none was created" : "it was destroyed, or never created");
  return nullptr;
}

Domain* domain_of(const RegionSlot* slot) noexcept {
  const auto at = reinterpret_cast<uintptr_t>(slot);
  // The caller has a pin, so it has seen the domain live.
  const uint32_t places = g_places.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < places; ++i) {
    const Entry& entry = g_entries[i];
    if (entry.handle.load(std::memory_order_acquire) == 0) continue;
    if (at < entry.slots_begin.load(std::memory_order_relaxed) ||
        at >= entry.slots_end.load(std::memory_order_relaxed)) {
      continue;
    }
    // The pin belongs to this domain, so no thread may be destroying the domain now.
    Domain* domain = entry.domain.load(std::memory_order_relaxed);
    if (domain == nullptr || !domain->arena().contains(slot)) continue;
    notice_unannounced_fork(*domain);
    return domain;
  }
  return nullptr;
}

uint64_t claim_domain_handle(DomainOwner whose) noexcept {
  install_fork_handlers();
  notice_unannounced_fork();
  const bool client = whose == DomainOwner::kClient;
  // Called at each pin of a peer that has no domain: without the lock, and without the search.
  if (!client && g_free_peer_places.load(std::memory_order_relaxed) == 0) return 0;
  MutexLock lock(registry_mutex());
  const uint32_t end = client ? kMaxClientDomains : kMaxDomains;
  for (uint32_t i = client ? 0 : kMaxClientDomains; i < end; ++i) {
    Entry& entry = g_entries[i];
    if (entry.claimed) continue;
    set_claimed(entry, true);
    if (i >= g_places.load(std::memory_order_relaxed)) {
      g_places.store(i + 1, std::memory_order_release);
    }
    // 21 bits, never 0: a handle is never 0, and fits the tag of a slot.
    entry.generation = entry.generation % 0x1fffffu + 1;
    return uint64_t{entry.generation} * kMaxDomains + i;
  }
  return 0;
}

void abandon_domain_handle(uint64_t handle) noexcept {
  MutexLock lock(registry_mutex());
  set_claimed(g_entries[handle % kMaxDomains], false);
}

void publish_domain(std::unique_ptr<Domain> domain) noexcept {
  MutexLock lock(registry_mutex());
  const uint64_t handle = domain->handle();
  Entry& entry = g_entries[handle % kMaxDomains];
  entry.slots_begin.store(reinterpret_cast<uintptr_t>(domain->arena().slots),
                          std::memory_order_relaxed);
  entry.slots_end.store(reinterpret_cast<uintptr_t>(domain->arena().slots + domain->arena().count),
                        std::memory_order_relaxed);
  entry.domain.store(domain.release(), std::memory_order_relaxed);
  entry.handle.store(handle, std::memory_order_release);
}

void add_to_fork_list(Domain& domain) noexcept {
  MutexLock lock(registry_mutex());
  g_entries[domain.handle() % kMaxDomains].domain.store(&domain, std::memory_order_relaxed);
}

void remove_from_fork_list(Domain& domain) noexcept {
  MutexLock lock(registry_mutex());
  g_entries[domain.handle() % kMaxDomains].domain.store(nullptr, std::memory_order_relaxed);
}

Domain* withdraw_domain(uint64_t handle) noexcept {
  if (find_domain(handle) == nullptr) return nullptr;
  MutexLock lock(registry_mutex());
  Entry& entry = g_entries[handle % kMaxDomains];
  if (entry.handle.load(std::memory_order_relaxed) != handle) return nullptr;
  entry.handle.store(0, std::memory_order_release);
  entry.slots_end.store(0, std::memory_order_relaxed);
  return entry.domain.load(std::memory_order_relaxed);
}

void forget_domain(std::unique_ptr<Domain> domain) noexcept {
  {
    MutexLock lock(registry_mutex());
    Entry& entry = g_entries[domain->handle() % kMaxDomains];
    entry.domain.store(nullptr, std::memory_order_relaxed);
    set_claimed(entry, false);
  }
  domain.reset();
}

}  // namespace hydrant
