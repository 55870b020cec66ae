// Page mode's pins of several buckets: a slot each, which is what the client's pin points to, and the
// list of the buckets' regions. Spans are not cached: no hit ever reads their slots, so that a free one needs
// no fence.
//
// A span takes none of the regions' slots, so that memory which is pinned can be pinned again as often as
// memory and address space allow.
//
// Invariant: a slot below high() is live and has parts, or is in the queue of free ones, or is a tombstone. A
// freed slot serves again only after kRetained others were freed, unless all are in use.
//
// Thread safety: under the domain's mutex, unless said otherwise. Allocates nothing.
#pragma once

#include "firehose/base/mapped_array.hpp"
#include "firehose/hit/region_slot.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// From malloc, hence made and freed without the mutex.
struct SpanParts {
  size_t count;
  RegionIndex regions[1];

  static SpanParts* create(size_t count) noexcept;
};

class SpanTable {
 public:
  // Number of freed spans for which a second release is still detected.
  static constexpr uint32_t kRetained = 1024;

  // `slots`: for `count` spans, all zero. False when memory is refused. Before the domain is known.
  [[nodiscard]] bool map(RegionSlot* slots, size_t count) noexcept;

  // A slot for these parts, which it owns from now on; null when all are in use.
  const RegionSlot* take(MemoryRange pages, SpanParts* parts) noexcept;
  // The parts of a live span; null for anything else.
  const SpanParts* find(const RegionSlot* slot) const noexcept;
  // The same, which are the caller's from now on.
  SpanParts* free_entry(const RegionSlot* slot) noexcept;
  // True for a span that was live when this process was forked off.
  bool is_tombstone(const RegionSlot* slot) const noexcept;

  uint32_t capacity() const noexcept { return static_cast<uint32_t>(infos_.size()); }
  uint32_t high() const noexcept { return high_; }  // slots ever used
  uint32_t live() const noexcept { return live_; }
  uint64_t live_parts() const noexcept { return live_parts_; }
  uint64_t memory_bytes() const noexcept;

  // Frees all parts. Called when the domain ends, without its mutex: no other thread is inside a call.
  void free_all() noexcept;
  // Turns live spans into tombstones, never used again; their parts are left to this copy of the process.
  void reset_in_child() noexcept;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  enum class State : uint8_t { kUnused, kLive, kFree, kTombstone };
  struct Info {
    SpanParts* parts;
    uint32_t next;  // kFree: in the queue
    State state;
  };

  uint32_t index_of(const RegionSlot* slot) const noexcept;
  void push_free(uint32_t span) noexcept;
  uint32_t pop_free() noexcept;

  RegionSlot* slots_ = nullptr;
  MappedArray<Info> infos_;
  uint32_t high_ = 0;
  uint32_t first_free_ = kNone, last_free_ = kNone, free_count_ = 0;  // oldest first
  uint32_t live_ = 0;
  uint64_t live_parts_ = 0;
};

}  // namespace hydrant
