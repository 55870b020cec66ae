// What lies in a pool's control memory, and the stack of free buffers. Private to buffer_pool*.cpp; the
// argument for the orders used here is in buffer_pool.hpp.
//
// Control memory is one mapping that reads as zeros in the child of a fork. So zero means: no buffer, nobody
// inside, stack empty, pool not alive; and everything here starts as zeros.
#pragma once

#include "firehose/base/buffer_pool.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant::pool {

inline constexpr size_t kLine = 64;
// A link is a slot's number + 1; 0 is the end of the stack.
using Link = uint32_t;
inline constexpr uint32_t kLinkBits = 24;
inline constexpr uint64_t kLinkMask = (uint64_t{1} << kLinkBits) - 1;
// How many returns go past the magazines after a take found the stack empty: guess, a few magazines' worth.
inline constexpr uint32_t kShortReturns = 64;

enum SlotState : uint32_t {
  kWiped = 0,  // in the child of a fork
  kFree = 1,   // on a stack or in a magazine
  kOut = 2,
};

// One buffer's bookkeeping. A line of its own: neighbours are used by different threads.
struct alignas(kLine) Slot {
  std::atomic<Link> next{0};       // written by whoever pushes the slot, before the push
  std::atomic<uint32_t> state{0};  // written by who has the slot; order comes with the slot itself
};

// Owner only writes, anybody reads: relaxed, a number and no order.
struct Counters {
  std::atomic<uint64_t> taken{0}, returned{0}, exhausted{0}, borrowed{0}, raided{0};
};

// Shared by all threads.
struct ClassState {
  alignas(kLine) std::atomic<uint64_t> head{0};  // pops << 24 | link
  // Highest slot of this class that was ever popped, + 1 - the first. The stack starts in the order of
  // its slots and is last-in-first-out, so slot k is reached only while the k before it are away: this
  // is the high water, without a count. Relaxed: grows only, by compare-and-swap.
  std::atomic<uint32_t> high_water{0};
  // Returns still to be sent past the magazines. Read by every return, so not beside `head`. Relaxed, lost
  // updates included: a hint.
  alignas(kLine) std::atomic<uint32_t> short_returns{0};
  // Of threads without a magazine; added to atomically.
  alignas(kLine) Counters others;
};

struct MagazineClass {
  // Written by who is inside (the owner, or the raider instead); read by raiders in search, as a hint.
  alignas(kLine) std::atomic<uint32_t> count{0};
  uint32_t slots[BufferPoolOptions::kMaxDepth] = {};  // the last one was returned last
  Counters counters;                                  // the owner's, raids or not
};
static_assert(sizeof(MagazineClass) == 3 * kLine);

struct alignas(kLine) Magazine {
  std::atomic<uint32_t> busy{0};  // owner inside; pairs with `raid`
  std::atomic<uint32_t> raid{0};  // raider inside or trying; pairs with `busy`
  std::atomic<uint32_t> claimed{
      0};  // has a thread; acquire by the next one pairs with release at the end
  MagazineClass classes[BufferPoolOptions::kMaxClasses];
};

// Followed by `magazine_count` magazines and a slot for each buffer.
struct Control {
  std::atomic<uint32_t> alive{0};  // 0 in the child of a fork
  // Magazines without a thread, so that threads beyond the last do not search each time; relaxed: a hint.
  std::atomic<uint32_t> unclaimed{0};
  std::atomic<uint32_t> used{0};  // magazines from here on were never claimed; relaxed: grows only
  ClassState states[BufferPoolOptions::kMaxClasses];
};

inline void add_own(std::atomic<uint64_t>& counter, uint64_t n = 1) noexcept {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

// Adds to a counter of the calling thread, or to the common one of threads without a magazine.
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

// Pushes slots[0] on top, slots[n - 1] lowest. Requires: n > 0; the caller has the slots.
void push(ClassState& state, Slot* all, const uint32_t* slots, uint32_t n) noexcept;
// Pops up to n slots, the top first; answers how many. `first_slot` is the class's.
uint32_t pop(ClassState& state, Slot* all, uint32_t first_slot, uint32_t* slots,
             uint32_t n) noexcept;

// What creation works out from the options.
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

// A thread's magazine by number, + 1, below the pool's id: the value of the pool's pthread key.
inline constexpr uint32_t kNumberBits = 12;
inline constexpr uint64_t kNumberMask = (uint64_t{1} << kNumberBits) - 1;
static_assert(BufferPoolOptions::kMaxThreads == kNumberMask);

}  // namespace hydrant::pool

// The two steps of the hot path that all of the pool's sources need.
namespace hydrant {

// Null if the thread has none: too many threads, or magazines are off.
inline pool::Magazine* BufferPool::own_magazine() noexcept {
  if (magazine_count_ == 0) return nullptr;
  const auto number = reinterpret_cast<uintptr_t>(pthread_getspecific(thread_key_));
  if (number == 0) [[unlikely]]
    return claim_magazine();
  return &magazines_[(number & pool::kNumberMask) - 1];
}

// False, and nothing to leave, while a raider is at it.
inline bool BufferPool::enter(pool::Magazine& magazine) const noexcept {
  if (asymmetric_) [[likely]] {
    magazine.busy.store(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the raider's membarrier does the rest
    if (magazine.raid.load(std::memory_order_acquire) == 0) [[likely]]
      return true;
  } else {
    magazine.busy.store(1, std::memory_order_seq_cst);
    if (magazine.raid.load(std::memory_order_seq_cst) == 0) return true;
  }
  pool::leave(magazine);
  return false;
}

}  // namespace hydrant
