// Serves the hot half of the buffer pool: take(), release_buffer() and the statistics. Network layers call it
// when memory cannot be pinned. buffer_pool_create.cpp builds a pool, buffer_pool_threads.cpp owns magazines
// and stealing.
#include "firehose/base/buffer_pool/buffer_pool.hpp"

#include "firehose/base/buffer_pool/buffer_pool_layout.hpp"
#include "firehose/base/log.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace hydrant {

using pool::Link;
using pool::Magazine;
using pool::MagazineClass;
using pool::Slot;

namespace pool {

void push(ClassState& state, Slot* all, const uint32_t* slots, uint32_t n) noexcept {
  for (uint32_t i = 0; i + 1 < n; ++i) {
    all[slots[i]].next.store(slots[i + 1] + 1, std::memory_order_relaxed);
  }
  std::atomic<Link>& last = all[slots[n - 1]].next;
  uint64_t head = state.head.load(std::memory_order_relaxed);
  uint64_t fresh = 0;
  do {
    last.store(static_cast<Link>(head & kLinkMask), std::memory_order_relaxed);
    fresh = (head & ~kLinkMask) | (slots[0] + 1);
    // Release: pairs with the acquire in pop(). A failed swap needs only the value.
  } while (!state.head.compare_exchange_weak(head, fresh, std::memory_order_release,
                                             std::memory_order_relaxed));
}

uint32_t pop(ClassState& state, Slot* all, uint32_t first_slot, uint32_t* slots,
             uint32_t n) noexcept {
  // Acquire: pairs with the release of every push up to this head.
  uint64_t head = state.head.load(std::memory_order_acquire);
  uint32_t got = 0;
  uint64_t fresh = 0;
  do {
    auto link = static_cast<Link>(head & kLinkMask);
    for (got = 0; got < n && link != 0; ++got) {
      slots[got] = link - 1;
      link =
          all[link - 1].next.load(std::memory_order_relaxed);  // may be stale: then the swap fails
    }
    if (got == 0) return 0;
    fresh = ((head & ~kLinkMask) + (kLinkMask + 1)) | link;
  } while (!state.head.compare_exchange_weak(head, fresh, std::memory_order_acquire,
                                             std::memory_order_acquire));
  const uint32_t reached = *std::max_element(slots, slots + got) + 1 - first_slot;
  uint32_t known = state.high_water.load(std::memory_order_relaxed);
  while (reached > known &&
         !state.high_water.compare_exchange_weak(known, reached, std::memory_order_relaxed)) {
  }
  return got;
}

}  // namespace pool

// ---- taking ----

inline void BufferPool::describe_buffer(const Geometry& geometry, uint32_t slot,
                                        PoolBuffer* out) noexcept {
  std::atomic<uint32_t>& state = slots_[slot].state;
  if (HYDRANT_DEBUG && state.load(std::memory_order_relaxed) != pool::kFree) {
    log_error("%s: buffer %u handed out twice", name_, slot);
    std::abort();
  }
  state.store(pool::kOut, std::memory_order_relaxed);
  const size_t at = geometry.offset + (size_t{slot - geometry.first_slot} << geometry.shift);
  out->addr = reinterpret_cast<std::byte*>(memory_.addr + at);
  out->size = size_t{1} << geometry.shift;
  out->key = key_;
}

Status BufferPool::take(size_t bytes, PoolBuffer* out) noexcept {
  if (bytes - 1 >= largest_bytes_) [[unlikely]]
    return refuse_size(bytes);
  const uint32_t index = class_by_width_[static_cast<size_t>(std::bit_width(bytes - 1))];
  Magazine* own = own_magazine();
  if (own != nullptr && enter(*own)) [[likely]] {
    MagazineClass& mine = own->classes[index];
    const uint32_t count = mine.count.load(std::memory_order_relaxed);
    if (count != 0) [[likely]] {
      const uint32_t slot = mine.slots[count - 1];
      mine.count.store(count - 1, std::memory_order_relaxed);
      pool::leave(*own);
      pool::add_own(mine.counters.taken);
      describe_buffer(geometry_[index], slot, out);
      return Status::kOk;
    }
    pool::leave(*own);
  }
  return take_slow(index, own, out);
}

Status BufferPool::refuse_size(size_t bytes) const noexcept {
  if (bytes == 0)
    return fail(Status::kBadArg, "%s: cannot take a buffer of 0 bytes: pass 1 or more", name_);
  return fail(Status::kResource,
              "%s: cannot take %zu bytes: the largest buffer has %zu: ask for less, or make the "
              "pool with a larger largest_bytes",
              name_, bytes, largest_bytes_);
}

[[gnu::noinline]] Status BufferPool::take_slow(uint32_t index, Magazine* own,
                                               PoolBuffer* out) noexcept {
  uint32_t classes = larger_classes_ + 1;
  for (uint32_t from = index; from < class_count_ && classes > 0; ++from) {
    if (geometry_[from].count == 0) continue;
    --classes;
    uint32_t slot = 0;
    if (!refill(from, own, &slot) && !steal(from, own, &slot)) continue;
    pool::add(own, states_, from, &pool::Counters::taken);
    if (from != index) pool::add(own, states_, index, &pool::Counters::borrowed);
    describe_buffer(geometry_[from], slot, out);
    return Status::kOk;
  }
  if (is_of_parent()) return fail_pool_of_parent();
  pool::add(own, states_, index, &pool::Counters::exhausted);
  return Status::kNotReady;
}

// Pops one slot for the caller from the class's stack, and up to half a magazine more for `own`.
bool BufferPool::refill(uint32_t index, Magazine* own, uint32_t* slot) noexcept {
  const Geometry& geometry = geometry_[index];
  pool::ClassState& state = states_[index];
  uint32_t room = own != nullptr ? (geometry.depth + 1) / 2 : 0;
  if (state.short_returns.load(std::memory_order_relaxed) != 0) room = 0;
  uint32_t slots[BufferPoolOptions::kMaxDepth + 1];
  const uint32_t got = pool::pop(state, slots_, geometry.first_slot, slots, room + 1);
  if (got == 0) {
    state.short_returns.store(pool::kShortReturns, std::memory_order_relaxed);
    return false;
  }
  *slot = slots[0];
  if (got == 1) return true;
  if (enter(*own)) {
    MagazineClass& mine = own->classes[index];
    const bool empty = mine.count.load(std::memory_order_relaxed) == 0;
    if (empty) {
      std::reverse_copy(slots + 1, slots + got, mine.slots);
      mine.count.store(got - 1, std::memory_order_relaxed);
    }
    pool::leave(*own);
    if (empty) return true;
  }
  pool::push(state, slots_, slots + 1, got - 1);
  return true;
}

// ---- returning ----

namespace {

// False if the slot was not out. Two simultaneous returns are detected with HYDRANT_DEBUG only.
bool mark_free(Slot& slot) noexcept {
  if (HYDRANT_DEBUG) {
    uint32_t out = pool::kOut;
    return slot.state.compare_exchange_strong(out, pool::kFree, std::memory_order_relaxed);
  }
  if (slot.state.load(std::memory_order_relaxed) != pool::kOut) return false;
  slot.state.store(pool::kFree, std::memory_order_relaxed);
  return true;
}

}  // namespace

Status BufferPool::release_buffer(void* addr) noexcept {
  const size_t offset = reinterpret_cast<uintptr_t>(addr) - memory_.addr;
  if (offset >= memory_.len) [[unlikely]]
    return refuse_address(addr,
                          "does not belong to this pool: return it to the pool that it came from");
  uint32_t index = 0;  // the largest class lies first, so that buffers are aligned
  while (offset < geometry_[index].offset) ++index;
  const Geometry& geometry = geometry_[index];
  const size_t within = offset - geometry.offset;
  const size_t number = within >> geometry.shift;
  if (number >= geometry.count || number << geometry.shift != within) [[unlikely]] {
    return refuse_address(addr,
                          "is not the start of a buffer: return the address that take() wrote");
  }
  const uint32_t slot = geometry.first_slot + static_cast<uint32_t>(number);
  if (!mark_free(slots_[slot])) [[unlikely]] {
    return refuse_address(addr, "was returned before: return each buffer once");
  }
  Magazine* own = own_magazine();
  pool::add(own, states_, index, &pool::Counters::returned);
  if (own != nullptr && states_[index].short_returns.load(std::memory_order_relaxed) == 0 &&
      enter(*own)) [[likely]] {
    MagazineClass& mine = own->classes[index];
    const uint32_t count = mine.count.load(std::memory_order_relaxed);
    if (count < geometry.depth) [[likely]] {
      mine.slots[count] = slot;
      mine.count.store(count + 1, std::memory_order_relaxed);
      pool::leave(*own);
      return Status::kOk;
    }
    pool::leave(*own);
  }
  release_slow(index, own, slot);
  return Status::kOk;
}

// Pushes the slot on the stack while the class is short; else pushes the magazine's older half and keeps the
// slot.
[[gnu::noinline]] void BufferPool::release_slow(uint32_t index, Magazine* own,
                                                uint32_t slot) noexcept {
  pool::ClassState& state = states_[index];
  const uint32_t depth = geometry_[index].depth;
  const uint32_t waiting = state.short_returns.load(std::memory_order_relaxed);
  if (waiting != 0) state.short_returns.store(waiting - 1, std::memory_order_relaxed);
  if (waiting != 0 || own == nullptr || depth == 0 || !enter(*own)) {
    pool::push(state, slots_, &slot, 1);
    return;
  }
  MagazineClass& mine = own->classes[index];
  uint32_t count = mine.count.load(std::memory_order_relaxed);
  uint32_t old[BufferPoolOptions::kMaxDepth];
  const uint32_t given = count == depth ? (depth + 1) / 2 : 0;
  std::reverse_copy(mine.slots, mine.slots + given, old);
  std::copy(mine.slots + given, mine.slots + count, mine.slots);
  count -= given;
  mine.slots[count] = slot;
  mine.count.store(count + 1, std::memory_order_relaxed);
  pool::leave(*own);
  if (given != 0) pool::push(state, slots_, old, given);
}

Status BufferPool::fail_pool_of_parent() const noexcept {
  return fail(Status::kNotInit,
              "%s: belongs to the parent of this process: make a pool after the fork", name_);
}

Status BufferPool::refuse_address(const void* addr, const char* why) const noexcept {
  if (is_of_parent()) return fail_pool_of_parent();
  if (HYDRANT_DEBUG) {
    log_error("%s: %p %s", name_, addr, why);
    std::abort();
  }
  return fail(Status::kBadArg, "%s: %p %s", name_, addr, why);
}

// ---- statistics ----

BufferPoolClassStats BufferPool::stats(uint32_t index) const noexcept {
  BufferPoolClassStats sum;
  sum.bytes = size_t{1} << geometry_[index].shift;
  sum.count = geometry_[index].count;
  sum.high_water = states_[index].high_water.load(std::memory_order_relaxed);
  const auto add = [&sum](const pool::Counters& counters) {
    sum.taken += counters.taken.load(std::memory_order_relaxed);
    sum.returned += counters.returned.load(std::memory_order_relaxed);
    sum.exhausted += counters.exhausted.load(std::memory_order_relaxed);
    sum.borrowed += counters.borrowed.load(std::memory_order_relaxed);
    sum.stolen += counters.stolen.load(std::memory_order_relaxed);
  };
  add(states_[index].others);
  const uint32_t used = control_->used.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < used; ++i) {
    const MagazineClass& one = magazines_[i].classes[index];
    add(one.counters);
    sum.cached += one.count.load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace hydrant
