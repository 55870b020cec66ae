// Magazines of a buffer pool: claiming one for a thread, retiring it when the thread ends, stealing from
// others. Called by buffer_pool.cpp when a thread has no magazine or the stack is empty.
//
// A pthread key of the pool leads a thread to its magazine (libfirehose has no room in static TLS). The key's
// value is a number, not a pointer: a thread may end while the pool is being destroyed. The key's destructor
// then looks the number up in the registry, under the registry's mutex, and finds no pool.
#include "firehose/base/buffer_pool/buffer_pool.hpp"
#include "firehose/base/buffer_pool/buffer_pool_layout.hpp"
#include "firehose/base/cancellation.hpp"
#include "firehose/base/machine/membarrier.hpp"
#include "firehose/base/thread.hpp"

#include <algorithm>
#include <bit>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant {

using pool::Magazine;
using pool::MagazineClass;

namespace {

// The pools of this process, in a page that reads as zeros in the child of a fork. Zeros are an unlocked
// mutex and an empty list, so no fork handler is needed.
struct Registry {
  Mutex mu;
  BufferPool* first HYDRANT_GUARDED_BY(mu) = nullptr;
};
Registry* g_registry = nullptr;  // written once, under g_once; never unmapped
pthread_once_t g_once = PTHREAD_ONCE_INIT;
// Relaxed. Not in the registry's page: ids of the child's pools must differ from the parent's.
std::atomic<uint64_t> g_last_id{0};

void set_up_once() {
  const long page = syscall(SYS_mmap, nullptr, sizeof(Registry), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
  if (page == -1) return;
  (void)syscall(SYS_madvise, page, sizeof(Registry), MADV_WIPEONFORK);
  g_registry = reinterpret_cast<Registry*>(page);
}

}  // namespace

// ---- start and end of threads ----

bool BufferPool::set_up_threads(uint32_t threads) noexcept {
  pthread_once(&g_once, &set_up_once);
  if (g_registry == nullptr) return false;
  asymmetric_ = membarrier::enable();
  id_ = g_last_id.fetch_add(1, std::memory_order_relaxed) + 1;
  // Without a key the pool works without magazines.
  if (threads != 0 && pthread_key_create(&thread_key_, &BufferPool::end_of_thread) == 0) {
    magazine_count_ = threads;
  }
  control_->unclaimed.store(magazine_count_, std::memory_order_relaxed);
  MutexLock lock(g_registry->mu);
  next_ = g_registry->first;
  g_registry->first = this;
  return true;
}

void BufferPool::tear_down_threads() noexcept {
  if (id_ == 0) return;
  if (magazine_count_ != 0) pthread_key_delete(thread_key_);
  MutexLock lock(g_registry->mu);
  BufferPool** at = &g_registry->first;
  while (*at != nullptr && *at != this) at = &(*at)->next_;
  if (*at == this) *at = next_;  // the child of a fork has an empty registry
}

void BufferPool::end_of_thread(void* value) noexcept {
  const CancellationDisabled guard;
  const auto number = reinterpret_cast<uintptr_t>(value);
  MutexLock lock(g_registry->mu);
  for (BufferPool* pool = g_registry->first; pool != nullptr; pool = pool->next_) {
    if (pool->id_ != number >> pool::kNumberBits) continue;
    pool->retire_magazine(static_cast<uint32_t>(number & pool::kNumberMask) - 1);
    return;
  }
}

[[gnu::noinline]] Magazine* BufferPool::claim_magazine() noexcept {
  if (control_->unclaimed.load(std::memory_order_relaxed) == 0) return nullptr;
  for (uint32_t i = 0; i < magazine_count_; ++i) {
    Magazine& magazine = magazines_[i];
    if (magazine.claimed.load(std::memory_order_relaxed) != 0) continue;
    // Acquire: pairs with the release in retire_magazine(); its last owner's counters are complete.
    if (magazine.claimed.exchange(1, std::memory_order_acquire) != 0) continue;
    const uint64_t value = id_ << pool::kNumberBits | (i + 1);
    if (pthread_setspecific(thread_key_, reinterpret_cast<void*>(value)) != 0) {
      magazine.claimed.store(0, std::memory_order_release);
      return nullptr;
    }
    control_->unclaimed.fetch_sub(1, std::memory_order_relaxed);
    uint32_t used = control_->used.load(std::memory_order_relaxed);
    while (used <= i &&
           !control_->used.compare_exchange_weak(used, i + 1, std::memory_order_relaxed)) {
    }
    return &magazine;
  }
  return nullptr;
}

void BufferPool::retire_magazine(uint32_t index) noexcept {
  Magazine& magazine = magazines_[index];
  if (enter(magazine)) {
    for (uint32_t i = 0; i < class_count_; ++i) {
      MagazineClass& mine = magazine.classes[i];
      const uint32_t count = mine.count.load(std::memory_order_relaxed);
      if (count == 0) continue;
      pool::push(states_[i], slots_, mine.slots, count);
      mine.count.store(0, std::memory_order_relaxed);
    }
    pool::leave(magazine);
  }
  magazine.claimed.store(0, std::memory_order_release);
  control_->unclaimed.fetch_add(1, std::memory_order_relaxed);
}

// ---- stealing ----

// Takes one slot of the class from other threads' magazines and moves their other slots of it to the stack.
bool BufferPool::steal(uint32_t index, Magazine* thief, uint32_t* slot) noexcept {
  if (geometry_[index].depth == 0) return false;
  const uint32_t used = control_->used.load(std::memory_order_relaxed);
  for (uint32_t from = 0; from < used; from += 64) {
    const uint32_t to = std::min(from + 64, used);
    uint64_t marked = mark_for_stealing(index, from, to);
    if (marked == 0) continue;
    const bool fenced = !asymmetric_ || membarrier::barrier();
    uint32_t got = 0;
    for (; marked != 0; marked &= marked - 1) {
      const uint32_t victim = from + static_cast<uint32_t>(std::countr_zero(marked));
      uint32_t slots[BufferPoolOptions::kMaxDepth];
      const uint32_t n = empty_marked(index, victim, fenced, slots);
      if (n == 0) continue;
      const uint32_t kept = got == 0 ? 1 : 0;
      if (kept != 0) *slot = slots[0];
      if (n > kept) pool::push(states_[index], slots_, slots + kept, n - kept);
      got += n;
    }
    if (got == 0) continue;
    pool::add(thief, states_, index, &pool::Counters::stolen, got);
    return true;
  }
  return false;
}

// Returns a bit for each magazine in [from, to) that seems to hold slots and has no other thief.
uint64_t BufferPool::mark_for_stealing(uint32_t index, uint32_t from, uint32_t to) noexcept {
  uint64_t marked = 0;
  for (uint32_t i = from; i < to; ++i) {
    Magazine& magazine = magazines_[i];
    if (magazine.classes[index].count.load(std::memory_order_relaxed) == 0) continue;
    if (magazine.steal.load(std::memory_order_relaxed) != 0) continue;
    // Acquire pairs with the release of the previous theft; sequentially consistent to pair with enter().
    if (magazine.steal.exchange(1, std::memory_order_seq_cst) != 0) continue;
    marked |= uint64_t{1} << (i - from);
  }
  return marked;
}

// Ends the theft from one marked magazine; returns how many slots it took, 0 if the owner is inside.
uint32_t BufferPool::empty_marked(uint32_t index, uint32_t victim, bool fenced,
                                  uint32_t* slots) noexcept {
  Magazine& magazine = magazines_[victim];
  uint32_t count = 0;
  // Sequentially consistent for the case without membarrier; the acquire pairs with leave().
  if (fenced && magazine.busy.load(std::memory_order_seq_cst) == 0) {
    MagazineClass& theirs = magazine.classes[index];
    count = theirs.count.load(std::memory_order_relaxed);
    std::reverse_copy(theirs.slots, theirs.slots + count, slots);
    theirs.count.store(0, std::memory_order_relaxed);
  }
  magazine.steal.store(0, std::memory_order_release);
  return count;
}

}  // namespace hydrant
