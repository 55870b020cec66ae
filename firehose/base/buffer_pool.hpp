// A pool of buffers that are pinned before anybody needs them: the way out when memory cannot be pinned
// now, and the send and receive buffers of a network layer. All memory is mapped and registered once,
// when the pool is made; afterwards a buffer is taken and returned without a lock, an allocation or a
// system call. When there is none the answer is "not now" (kNotReady), never a wait. One pool serves
// one registrar. It copies nothing and knows no network. docs/decisions/0011-buffer-pool.md has the
// designs that were measured.
//
// Idea. Free buffers of a size class form a stack that all threads share. In front of it each thread has a
// magazine: up to `magazine_depth` buffers of each class that it takes and returns with plain loads and
// stores. An empty magazine is filled to half from the stack by one compare-and-swap, a full one gives
// half of it back. Nobody starves beside a full magazine of an idle thread: a thread that finds the stack
// empty raids the others' magazines. While a class is short its returns go past the magazines to the stack.
//
// A buffer is: free on a stack, cached in a magazine, or out. Never two of them.
//
// ---- Why it is correct ----
//
// The stack is Treiber's, its links in `Slot`s of their own (a device may be writing to a free buffer's
// neighbour, and readers of links may be late). The head is one 64-bit word: 24 bits name the top slot,
// 40 bits count pops.
//  * ABA. A thread that pops reads the head, follows k links, and swaps the head for what comes after them.
//    The links it follows may be stale, but then the swap fails: below an unchanged top nothing changes
//    without a pop, for a link is written only before its slot is pushed; and each pop changes the count.
//    So an equal head means an equal chain. The count repeats after 2^40 pops: at 10 ns each three
//    hours in which the thread would have to stand still between two instructions, and it would then have to
//    meet that one value.
//  * Order. Pushes release, pops acquire. Every change of the head is a read-modify-write, so each push
//    heads a release sequence that never ends: a pop synchronises with all pushes before it, not only with
//    the last, and the taker sees everything that was done with the buffer before it was returned.
//  * Progress. A failed swap means that another one succeeded: lock-free. Nothing waits for a thread.
//
// A magazine belongs to one thread; a raider takes it only while the owner is not inside:
//    owner:   busy = 1;  [light fence]  raid != 0 ? busy = 0, use the stack : work;  busy = 0 (release)
//    raider:  raid 0 -> 1;  [heavy fence]  busy != 0 ? raid = 0, leave it : empty it;  raid = 0 (release)
//  * Store, then load, on both sides: with a full fence between them on both, at least one sees the other,
//    so the two never work at once. The heavy fence is membarrier(2), which makes every running thread pass a
//    full barrier, so that the owner's fence is nothing but an order to the compiler. Where membarrier is
//    refused (or FIREHOSE_MEMBARRIER=n) and under ThreadSanitizer both sides are sequentially consistent.
//  * The raider reads busy == 0 with acquire, which pairs with the owner's release: it sees the owner's last
//    work. The owner reads raid == 0 with acquire, which pairs with the raider's release.
//  * A thread that ends empties its magazine in the same way and leaves what a raid keeps it from
//    to the raiders and to the magazine's next owner.
//
// Fork. The pool's memory reads as zeros in the child, so the parent's buffers are never shared, copied or
// written there: take() and put_back() answer kNotInit, the destructor only unmaps. Make another pool there.
//
// Threads: all methods but create() and the destructor may be called at any time from any thread; a buffer
// may be returned by another thread than took it. Not async-signal-safe.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/registrar.hpp"
#include "firehose/base/status.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <pthread.h>

namespace hydrant {

struct BufferPoolOptions {
  static constexpr uint32_t kMaxClasses = 16;
  static constexpr uint32_t kMaxDepth = 31;
  static constexpr uint32_t kMaxThreads = 4095;
  static constexpr uint32_t kMaxBuffers = (1u << 24) - 2;

  const char* name = "pool";     // for messages; not copied
  size_t smallest_bytes = 4096;  // powers of two; 64 bytes or more
  size_t largest_bytes = 65536;  // at most kMaxClasses classes: smallest, twice that, ... largest
  Access access = Access::kLocalWrite;

  // Buffers of each class, smallest class first. A class of 0 does not exist: its sizes come from the next.
  std::array<uint32_t, kMaxClasses> counts{};
  // Or, when this is not 0, so many bytes in all, shared out by weight; weights that are all 0 are equal.
  size_t total_bytes = 0;
  std::array<uint32_t, kMaxClasses> shares{};

  // How many larger classes may serve a size whose own class has nothing left.
  uint32_t larger_classes = 0;
  // Buffers of a class that one thread may keep back, at most an eighth of the class. 0: no magazines.
  uint32_t magazine_depth = 16;
  // Threads that can have a magazine, and counters of their own, at the same time; others use the stacks.
  uint32_t threads = 64;
};

struct PoolBuffer {
  std::byte* addr = nullptr;       // aligned to its size, up to a page
  size_t size = 0;                 // the class's size, >= what was asked for
  const std::byte* key = nullptr;  // of the whole pool; null if the registrar has no keys
};

// Counted by thread and added up when asked: sums of a moment that never was, exact once threads are quiet.
struct BufferPoolClassStats {
  size_t bytes = 0;         // of one buffer
  uint32_t count = 0;       // buffers of this class
  uint32_t cached = 0;      // free, in magazines
  uint32_t high_water = 0;  // most that were out or cached at once
  uint64_t taken = 0;       // from this class
  uint64_t returned = 0;    // to this class
  uint64_t exhausted = 0;   // answers "not now" to sizes of this class
  uint64_t borrowed = 0;    // sizes of this class served by a larger one
  uint64_t raided = 0;      // buffers of this class taken out of magazines by raiders
  uint64_t out() const noexcept { return taken > returned ? taken - returned : 0; }
};

namespace pool {
struct Control;
struct ClassState;
struct Magazine;
struct Slot;
struct Plan;
}  // namespace pool

class BufferPool {
 public:
  // Maps and registers everything. `registrar` must outlive the pool. *out is unchanged on failure.
  // Errors: kBadArg (options; the text says which); kResource (memory refused, more than the registrar takes
  // in one region); what the registrar's pin() answers, kNotReady for no budget among them. Nothing is left
  // behind. Cost: one registration, page faults included.
  static Status create(Registrar& registrar, const BufferPoolOptions& options,
                       std::unique_ptr<BufferPool>* out) noexcept;

  // Unregisters and unmaps, buffers that are out included (with a warning). Requires: no other thread is
  // inside a call. Threads that used the pool may end at any time, even now.
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // A buffer of at least `bytes`. Its contents are whatever its last user left. *out is unchanged on failure.
  // Errors: kNotReady - none is free now (writes no text); kBadArg - 0 bytes; kResource - more than
  //         largest_bytes(); kNotInit - this is the child of a fork.
  // Cost: about 6 ns from the magazine, 25 with a refill; a raid pays a membarrier(2): 0.3 us, or 12
  //       beside running threads.
  Status take(size_t bytes, PoolBuffer* out) noexcept;

  // Returns a buffer by its address. All use of it, by devices too, must be over.
  // Errors: kBadArg - not the start of a buffer of this pool that is out. With HYDRANT_DEBUG this ends the
  //         program instead, and is always noticed; without, a buffer returned by two threads at the same
  //         instant, or returned late when it is out again, is not. kNotInit - the child of a fork.
  // Cost: as take(), without the raid.
  Status put_back(void* addr) noexcept;

  // What is fixed.
  size_t largest_bytes() const noexcept { return largest_bytes_; }
  uint32_t class_count() const noexcept { return class_count_; }
  MemoryRange memory() const noexcept { return memory_; }
  const std::byte* key() const noexcept { return key_; }
  bool owns(const void* addr) const noexcept {
    return reinterpret_cast<uintptr_t>(addr) - memory_.addr < memory_.len;
  }

  // Requires: index < class_count(); 0 is the smallest class. Stops nobody. Cost: two cache lines per
  // magazine.
  BufferPoolClassStats stats(uint32_t index) const noexcept;

 private:
  friend struct BufferPoolPeer;  // of the tests

  // One size class; constant after creation.
  struct Geometry {
    size_t offset = 0;   // of its first buffer in memory_
    uint32_t shift = 0;  // log2 of the size
    uint32_t count = 0;
    uint32_t first_slot = 0;  // slots of all classes are numbered through
    uint32_t depth = 0;       // of a magazine
  };

  BufferPool() = default;
  Status set_up(Registrar& registrar, const BufferPoolOptions& options) noexcept;
  Status map_and_pin(const pool::Plan& plan) noexcept;
  Status map_control(const pool::Plan& plan) noexcept;
  void lay_out(const pool::Plan& plan) noexcept;
  void fill_stacks() noexcept;
  bool is_parents() const noexcept;

  Status take_slow(uint32_t index, pool::Magazine* magazine, PoolBuffer* out) noexcept;
  Status refuse_size(size_t bytes) const noexcept;
  bool refill(uint32_t index, pool::Magazine* magazine, uint32_t* slot) noexcept;
  void hand_out(const Geometry& geometry, uint32_t slot, PoolBuffer* out) noexcept;
  void put_slow(uint32_t index, pool::Magazine* magazine, uint32_t slot) noexcept;
  Status refuse_address(const void* addr, const char* why) const noexcept;

  // buffer_pool_threads.cpp
  static void end_of_thread(void* value) noexcept;
  bool set_up_threads(uint32_t threads) noexcept;
  void tear_down_threads() noexcept;
  pool::Magazine* own_magazine() noexcept;
  pool::Magazine* claim_magazine() noexcept;
  void retire_magazine(uint32_t index) noexcept;
  bool enter(pool::Magazine& magazine) const noexcept;
  bool raid(uint32_t index, pool::Magazine* raider, uint32_t* slot) noexcept;
  uint64_t mark_for_raid(uint32_t index, uint32_t from, uint32_t to) noexcept;
  uint32_t empty_marked(uint32_t index, uint32_t magazine, bool fenced, uint32_t* slots) noexcept;

  // Hot and constant.
  MemoryRange memory_;
  const std::byte* key_ = nullptr;
  size_t largest_bytes_ = 0;
  pool::ClassState* states_ = nullptr;   // by class
  pool::Magazine* magazines_ = nullptr;  // magazine_count_ of them
  pool::Slot* slots_ = nullptr;          // one per buffer
  uint32_t class_count_ = 0;
  uint32_t larger_classes_ = 0;
  uint32_t magazine_count_ = 0;
  pthread_key_t thread_key_ = 0;              // valid if magazine_count_ > 0
  bool asymmetric_ = false;                   // an owner's fence is free
  std::array<uint8_t, 64> class_by_width_{};  // by the bits of bytes - 1
  std::array<Geometry, BufferPoolOptions::kMaxClasses> geometry_{};

  // Cold.
  const char* name_ = "";
  Registrar* registrar_ = nullptr;
  pool::Control* control_ = nullptr;
  size_t control_bytes_ = 0;
  bool pinned_ = false;
  uint64_t id_ = 0;             // never used twice in a process or its children
  BufferPool* next_ = nullptr;  // in the registry
};

}  // namespace hydrant
