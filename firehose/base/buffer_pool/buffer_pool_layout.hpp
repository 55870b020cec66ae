// Layout of a pool's control memory, and its stack of free buffers. Private to buffer_pool*.cpp;
// buffer_pool.hpp justifies the memory orders.
//
// Control memory is one mapping that starts as zeros and reads as zeros in the child of a fork. Zero
// therefore means: no buffer, no thread inside, stack empty, pool not alive.
#pragma once

#include "firehose/base/buffer_pool/buffer_pool.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant::pool {

inline constexpr size_t kLine = 64;
// A link is a slot's number + 1; 0 is the end of the stack.
using Link = uint32_t;
inline constexpr uint32_t kLinkBits = 24;
inline constexpr uint64_t kLinkMask = (uint64_t{1} << kLinkBits) - 1;
// Returns that bypass the magazines after a take found the stack empty: a guess, a few magazines.
inline constexpr uint32_t kShortReturns = 64;

enum SlotState : uint32_t {
  kWiped = 0,  // in the child of a fork
  kFree = 1,   // on a stack or in a magazine
  kOut = 2,
};

// Bookkeeping of a buffer. Each has its own cache line: different threads use neighbours.
struct alignas(kLine) Slot {
  std::atomic<Link> next{0};       // written by the pushing thread, before the push
  std::atomic<uint32_t> state{0};  // written by the slot's holder; the stack orders it
};

// The owner writes, any thread reads. Relaxed: a counter that orders nothing.
struct Counters {
  std::atomic<uint64_t> taken{0}, returned{0}, exhausted{0}, borrowed{0}, stolen{0};
};

// Shared by all threads.
struct ClassState {
  alignas(kLine) std::atomic<uint64_t> head{0};  // pops << 24 | link
  // Highest slot of this class that was ever popped, + 1 - the first. The stack is last-in-first-out and
  // starts in slot order, so slot k is reached only while the k slots before it are away. This is the
  // high-water mark without a count. Relaxed: grows only, by compare-and-swap.
  std::atomic<uint32_t> high_water{0};
  // Returns that still have to bypass the magazines. Every return reads it, so it is not beside `head`.
  // Relaxed, and lost updates are harmless: a hint.
  alignas(kLine) std::atomic<uint32_t> short_returns{0};
  // Counters of all threads without a magazine; updated atomically.
  alignas(kLine) Counters others;
};

struct MagazineClass {
  // Written by the thread inside (owner or thief); searching thieves read it as a hint.
  alignas(kLine) std::atomic<uint32_t> count{0};
  uint32_t slots[BufferPoolOptions::kMaxDepth] = {};  // the last entry was returned last
  Counters counters;                                  // written by the owner alone
};
static_assert(sizeof(MagazineClass) == 3 * kLine);

struct alignas(kLine) Magazine {
  std::atomic<uint32_t> busy{0};   // owner inside; pairs with `steal`
  std::atomic<uint32_t> steal{0};  // thief inside or trying; pairs with `busy`
  // 1 while a thread has it. The next owner's acquire pairs with the release when a thread ends.
  std::atomic<uint32_t> claimed{0};
  MagazineClass classes[BufferPoolOptions::kMaxClasses];
};

// In memory it is followed by `magazine_count` magazines and a slot for each buffer.
struct Control {
  std::atomic<uint32_t> alive{0};  // 0 in the child of a fork
  // Magazines without a thread. 0 spares further threads the search. Relaxed: a hint.
  std::atomic<uint32_t> unclaimed{0};
  std::atomic<uint32_t> used{0};  // magazines from here on were never claimed; relaxed: grows only
  ClassState states[BufferPoolOptions::kMaxClasses];
};

inline void add_own(std::atomic<uint64_t>& counter, uint64_t n = 1) noexcept {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

// Adds to a counter of the calling thread, or to the counter shared by threads without a magazine.
inline void add(Magazine* own, ClassState* states, uint32_t index,
                std::atomic<uint64_t> Counters::*counter, uint64_t n = 1) noexcept {
  if (own != nullptr) {
    add_own(own->classes[index].counters.*counter, n);
  } else {
    (states[index].others.*counter).fetch_add(n, std::memory_order_relaxed);
  }
}

inline void leave(Magazine& magazine) noexcept {
  magazine.busy.store(0, std::memory_order_release);
}

// Pushes slots[0] on top, slots[n - 1] lowest. Requires: n > 0; the caller holds the slots.
void push(ClassState& state, Slot* all, const uint32_t* slots, uint32_t n) noexcept;
// Pops up to n slots, the top first; returns how many. `first_slot` is the first slot of the class.
uint32_t pop(ClassState& state, Slot* all, uint32_t first_slot, uint32_t* slots,
             uint32_t n) noexcept;

// Sizes and counts that pool::make_plan() computes from the options.
struct Plan {
  std::array<uint32_t, BufferPoolOptions::kMaxClasses> counts{};
  uint32_t classes = 0;
  uint32_t buffers = 0;
  uint32_t smallest_shift = 0;
  uint32_t depth = 0;
  uint32_t threads = 0;
  size_t data_bytes = 0;  // a multiple of the registrar's granule and of pages
  size_t alignment = 0;
  Access access = Access::kLocalRead;
};

// Errors: kBadArg, kResource.
Status make_plan(const BufferPoolOptions& options, const RegistrarTraits& traits,
                 Plan* plan) noexcept;

// The value of the pool's pthread key: the pool's id, then the magazine's number + 1 in these low bits.
inline constexpr uint32_t kNumberBits = 12;
inline constexpr uint64_t kNumberMask = (uint64_t{1} << kNumberBits) - 1;
static_assert(BufferPoolOptions::kMaxThreads == kNumberMask);

}  // namespace hydrant::pool

// Two steps of the hot path, inline for all of the pool's sources.
namespace hydrant {

// Null if the thread has none: too many threads, or magazines are off.
inline pool::Magazine* BufferPool::own_magazine() noexcept {
  if (magazine_count_ == 0) return nullptr;
  const auto number = reinterpret_cast<uintptr_t>(pthread_getspecific(thread_key_));
  if (number == 0) [[unlikely]]
    return claim_magazine();
  return &magazines_[(number & pool::kNumberMask) - 1];
}

// Locks out thieves. False while a thief is inside; the caller must then not call leave().
inline bool BufferPool::enter(pool::Magazine& magazine) const noexcept {
  if (asymmetric_) [[likely]] {
    magazine.busy.store(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // pairs with the thief's membarrier
    if (magazine.steal.load(std::memory_order_acquire) == 0) [[likely]]
      return true;
  } else {
    magazine.busy.store(1, std::memory_order_seq_cst);
    if (magazine.steal.load(std::memory_order_seq_cst) == 0) return true;
  }
  pool::leave(magazine);
  return false;
}

}  // namespace hydrant
