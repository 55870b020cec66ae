// A pool of buffers that are pinned in advance: the fallback when memory cannot be pinned now, and the send
// and receive buffers of a network layer. All memory is mapped and registered once, when the pool is made.
// Afterwards a buffer is taken and returned without a lock, an allocation or a system call. An empty pool
// returns kNotReady and never waits. A pool serves one registrar; it copies no data and uses no network.
// docs/decisions/0011-buffer-pool.md describes the designs that were measured.
//
// Design. Free buffers of a size class form a stack that all threads share. In front of it each thread has a
// magazine: up to `magazine_depth` buffers of each class, taken and returned with plain loads and stores.
// One compare-and-swap fills an empty magazine to half from the stack, or moves half of a full one back. A
// thread that finds the stack empty steals from other threads' magazines, so buffers of an idle thread stay
// usable. While a class is short, returned buffers bypass the magazines and go to the stack.
//
// Invariant: each buffer is either free on a stack, cached in one magazine, or out.
//
// ---- Correctness ----
//
// The stack is Treiber's. Its links are in separate `Slot`s: a device may write beyond a free buffer, and
// late readers may still load links. The head is one 64-bit word: 24 bits name the top slot, 40 bits count
// pops.
//  * ABA. A pop reads the head, follows k links, and swaps the head for the slot after them. The links may be
//    stale, but then the swap fails: a link is written only before its slot is pushed, so nothing below an
//    unchanged top changes without a pop, and each pop changes the count. An equal head means an equal chain.
//    The count repeats after 2^40 pops. At 10 ns each a thread would have to stop for three hours between two
//    instructions and then meet exactly that value.
//  * Order. Pushes release, pops acquire. Every change of the head is a read-modify-write, so each push heads
//    a release sequence that never ends. A pop therefore synchronises with all earlier pushes, and the taker
//    sees every access to the buffer from before its return.
//  * Progress. A failed swap means that another one succeeded: lock-free. No thread waits for another.
//
// A magazine belongs to one thread; a thief enters it only while the owner is outside:
//    owner:   busy = 1;  [light fence]  steal != 0 ? busy = 0, use the stack : work;  busy = 0 (release)
//    thief:  steal 0 -> 1;  [heavy fence]  busy != 0 ? steal = 0, leave it : empty it;  steal = 0 (release)
//  * Both sides store, then load. With a full fence between the two on both sides at least one sees the
//    other's store, so they never work at the same time. The heavy fence is membarrier(2), which runs a full
//    barrier on every running thread; the owner's fence then only restrains the compiler. Without membarrier
//    (refused, FIREHOSE_MEMBARRIER=n, or ThreadSanitizer) both sides use sequentially consistent operations.
//  * The thief's acquire load of busy == 0 pairs with the owner's release: it sees the owner's last work.
//    The owner's acquire load of steal == 0 pairs with the thief's release.
//  * A thread that ends empties its magazine in the same way. Buffers that it cannot move because of a thief
//    stay for thieves and for the magazine's next owner.
//
// Fork. The pool's memory reads as zeros in the child, so the parent's buffers are never shared, copied or
// written there. In the child take() and release_buffer() return kNotInit and the destructor only unmaps.
//
// Threads: any, except for create() and the destructor. A buffer
// may be returned by a different thread than the one that took it. Not async-signal-safe.
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

  // Buffers of each class, smallest class first. Sizes of a class with count 0 use the next class.
  std::array<uint32_t, kMaxClasses> counts{};
  // Alternative to counts: total bytes, divided among the classes by weight. All weights 0 means equal
  // shares.
  size_t total_bytes = 0;
  std::array<uint32_t, kMaxClasses> shares{};

  // How many larger classes may serve a size whose own class is empty.
  uint32_t larger_classes = 0;
  // Buffers of a class that one thread may cache, at most an eighth of the class. 0: no magazines.
  uint32_t magazine_depth = 16;
  // Threads that can have a magazine and counters at the same time; further threads use the stacks.
  uint32_t threads = 64;
};

struct PoolBuffer {
  std::byte* addr = nullptr;       // aligned to its size, up to a page
  size_t size = 0;                 // the class's size, at least the requested size
  const std::byte* key = nullptr;  // one key for the whole pool; null if the registrar has no keys
};

// Sums of per-thread counters: a snapshot without atomicity, exact once the threads are quiet.
struct BufferPoolClassStats {
  size_t bytes = 0;         // of one buffer
  uint32_t count = 0;       // buffers of this class
  uint32_t cached = 0;      // free, in magazines
  uint32_t high_water = 0;  // peak of out + cached
  uint64_t taken = 0;       // from this class
  uint64_t returned = 0;    // to this class
  uint64_t exhausted = 0;   // requests for this class that got kNotReady
  uint64_t borrowed = 0;    // sizes of this class served by a larger one
  uint64_t stolen = 0;      // buffers of this class taken out of magazines by thieves
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
  // Maps and registers everything. `registrar` must outlive the pool. *out is unchanged on failure, and
  // nothing stays mapped or pinned.
  // Errors: kBadArg (options; the text names the bad one); kResource (no memory, or more than the registrar
  // takes in one region); the errors of the registrar's pin(), such as kNotReady when the budget is used up.
  // Cost: one registration, page faults included.
  static Status create(Registrar& registrar, const BufferPoolOptions& options,
                       std::unique_ptr<BufferPool>* out) noexcept;

  // Unregisters and unmaps, including buffers that are out (with a warning). Requires: no other thread is
  // inside a call. Threads that used the pool may end concurrently.
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Takes a buffer of at least `bytes`, with undefined contents. *out is unchanged on failure.
  // Errors: kNotReady - none is free now (writes no text); kBadArg - 0 bytes; kResource - more than
  //         largest_bytes(); kNotInit - this is the child of a fork.
  // Cost: about 6 ns from the magazine, 25 ns with a refill. Stealing adds a membarrier(2): 0.3 us, or 12 us
  //       beside running threads.
  Status take(size_t bytes, PoolBuffer* out) noexcept;

  // Returns a buffer by its address. The program and all devices must have finished with it.
  // Errors: kBadArg - not the start of a buffer of this pool that is out; kNotInit - the child of a fork.
  //         With HYDRANT_DEBUG a bad address aborts the program. Without it two kinds go undetected: two
  //         threads return a buffer at the same instant, or a late second return after it was taken again.
  // Cost: as take(), without stealing.
  Status release_buffer(void* addr) noexcept;

  // Constant after create().
  size_t largest_bytes() const noexcept { return largest_bytes_; }
  uint32_t class_count() const noexcept { return class_count_; }
  MemoryRange memory() const noexcept { return memory_; }
  const std::byte* key() const noexcept { return key_; }
  bool owns(const void* addr) const noexcept {
    return reinterpret_cast<uintptr_t>(addr) - memory_.addr < memory_.len;
  }

  // Requires: index < class_count(); 0 is the smallest class. Blocks no thread. Cost: two cache lines per
  // magazine.
  BufferPoolClassStats stats(uint32_t index) const noexcept;

 private:
  friend struct BufferPoolPeer;  // gives tests access

  // A size class; constant after creation.
  struct Geometry {
    size_t offset = 0;   // of its first buffer in memory_
    uint32_t shift = 0;  // log2 of the size
    uint32_t count = 0;
    uint32_t first_slot = 0;  // slots of all classes share one numbering
    uint32_t depth = 0;       // of a magazine
  };

  BufferPool() = default;
  Status set_up(Registrar& registrar, const BufferPoolOptions& options) noexcept;
  Status map(const char* what, size_t bytes, size_t alignment, std::byte** at) noexcept;
  Status map_and_pin(const pool::Plan& plan) noexcept;
  Status map_control(const pool::Plan& plan) noexcept;
  void lay_out(const pool::Plan& plan) noexcept;
  void fill_stacks() noexcept;
  bool is_of_parent() const noexcept;

  Status take_slow(uint32_t index, pool::Magazine* magazine, PoolBuffer* out) noexcept;
  Status refuse_size(size_t bytes) const noexcept;
  bool refill(uint32_t index, pool::Magazine* magazine, uint32_t* slot) noexcept;
  void describe_buffer(const Geometry& geometry, uint32_t slot, PoolBuffer* out) noexcept;
  void release_slow(uint32_t index, pool::Magazine* magazine, uint32_t slot) noexcept;
  Status fail_pool_of_parent() const noexcept;
  Status refuse_address(const void* addr, const char* why) const noexcept;

  // buffer_pool_threads.cpp
  static void end_of_thread(void* value) noexcept;
  bool set_up_threads(uint32_t threads) noexcept;
  void tear_down_threads() noexcept;
  pool::Magazine* own_magazine() noexcept;
  pool::Magazine* claim_magazine() noexcept;
  void retire_magazine(uint32_t index) noexcept;
  bool enter(pool::Magazine& magazine) const noexcept;
  bool steal(uint32_t index, pool::Magazine* thief, uint32_t* slot) noexcept;
  uint64_t mark_for_stealing(uint32_t index, uint32_t from, uint32_t to) noexcept;
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
  pthread_key_t thread_key_ = 0;  // valid if magazine_count_ > 0
  bool asymmetric_ = false;       // membarrier works: the owner needs no fence instruction
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
