// The calling thread's data for hits, in 48 bytes of static TLS: a copy of the thread's state in the domain
// that it used last. Using another domain reloads it (a few nanoseconds).
//
// libfirehose may use 64 bytes of static TLS in all, so that it can be loaded with dlopen.
#pragma once

#include "firehose/hit/hold.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant {

struct Thread;

// The handle in a context without a domain. It equals no handle and no tag of a slot (0 included), so that
// every call takes the slow path.
constexpr uint64_t kNoHitContext = 0x9d5a'c3e1'0000'0000u;

constexpr size_t kHitsBefore = 64 / sizeof(HoldCount);

// The slot of an empty context, for an invalid handle: reads of it are valid, and writes have no effect.
inline constinit const RegionSlot g_no_slot{};
inline constinit const RegionSlot* const g_no_table[1] = {&g_no_slot};
inline constinit HoldCount g_no_counts[kHitsBefore + 1]{};

struct HitContext {
  // Handle of the domain the other fields belong to, or kNoHitContext. May outlive the domain: its slots
  // are blank then, and the thread's own tables stay until the thread itself frees them.
  std::atomic<uint64_t> domain{kNoHitContext};
  // table[mulhi(addr & mask, scale)] (in bytes) is the slot that may contain addr.
  uint64_t mask = 0;
  uint64_t scale = 0;
  const RegionSlot* const* table = g_no_table;
  HoldCount* counts =
      g_no_counts +
      kHitsBefore;  // by RegionIndex; the hits of this thread and domain lie before them
  // Null before the first use, exited() after the thread's destructor ran.
  Thread* thread = nullptr;

  void detach_domain() noexcept {
    domain.store(kNoHitContext, std::memory_order_relaxed);
    mask = scale = 0;
    table = g_no_table;
    counts = g_no_counts + kHitsBefore;
  }
};
static_assert(sizeof(HitContext) <= 64);

// Hits are counted a cache line before the counts of `counts`.
inline std::atomic<uint64_t>& hits_before(HoldCount* counts) noexcept {
  return *static_cast<std::atomic<uint64_t>*>(static_cast<void*>(counts - kHitsBefore));
}

// initial-exec: two instructions to reach it, also from the shared library. The label is for the
// assembly in hit_path.cpp.
extern thread_local constinit HitContext t_hit_context asm("hydrant_thread_window")
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

// The slot that this thread's table proposes for `addr`; never null once `domain` is set.
inline const RegionSlot* proposed_slot(const HitContext& context, uintptr_t addr) noexcept {
  __extension__ using Wide = unsigned __int128;
  const auto offset = static_cast<uintptr_t>((Wide{addr & context.mask} * context.scale) >> 64);
  return context.table[offset / sizeof(RegionSlot*)];
}

}  // namespace hydrant
