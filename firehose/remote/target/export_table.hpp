// Firehoses that peers have here: each is a hold on a region of the domain, with an id that is used once.
//
// An export is live from add() to release(). When its memory is released it becomes a zombie and is listed
// for its peer, to be recalled; the peer's release ends it like any other. The caller returns holds to the
// domain, outside the lock.
//
// While its move is being served (withhold_until_reply() to publish()) the target's function, or the code
// that makes the reply, uses the registration. Until then neither the peer's release nor the peer's end ends
// it: the peer does not have the id yet and can only guess it.
//
// Threads: the caller's lock, but for some of counts().
#pragma once

#include "firehose/base/mapped_array.hpp"
#include "firehose/base/memory_range.hpp"
#include "firehose/hit/region_slot.hpp"
#include "firehose/remote/target/export_counts.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

class ExportTable {
 public:
  struct Export {
    const RegionSlot* slot;  // held; null: the entry is free
    MemoryRange range;
    uint64_t charge;
    uint32_t peer;
    uint32_t generation;
    uint32_t next;    // free, or to be recalled: of the same list
    uint32_t before;  // of its peer's, by age
    uint32_t after;
    bool once : 1;     // was never cached: nothing to recall
    bool checked : 1;  // only the kernel reports the release of its memory
    bool zombie : 1;
    bool listed : 1;    // to be recalled
    bool withheld : 1;  // its peer does not have the id yet
    bool orphan : 1;    // withheld, and its peer has exited: publish() ends it
  };

  [[nodiscard]] bool set_up(uint32_t most, uint32_t ranks) noexcept;

  // 0: there is no room. Nothing is allocated.
  uint64_t add(const RegionSlot* slot, MemoryRange range, uint64_t charge, uint32_t peer, bool once,
               bool checked) noexcept;
  bool has_room() const noexcept { return free_ != kEnd || high_ + 1 < entries_.size(); }
  // Marks the export as unknown to its peer until publish(), because the target itself uses it first.
  // Requires: add() has just returned `id`.
  void withhold_until_reply(uint64_t id) noexcept;
  // Called before the peer gets the id. True: the peer has exited meanwhile, and this has ended the export,
  // as drop().
  bool publish(uint64_t id, Export* out) noexcept;
  // Ends a firehose that `peer` releases. False: the peer has no such firehose (any more), or does not have
  // its id yet. `out` gets a copy of the entry.
  bool release(uint64_t id, uint32_t peer, Export* out) noexcept;
  // As release(), when the target itself ends it.
  bool drop(uint64_t id, uint32_t peer, Export* out) noexcept;
  // Ends the next firehose of the peer at or after entry *from, and advances *from. As drop(), but skips
  // withheld ones: publish() ends those. Starting at 0, false means that the peer has none.
  bool release_any(uint32_t peer, uint32_t* from, Export* out) noexcept;
  // Returns the part of `most` around `needed` that overlaps no firehose of the peer. Firehoses within `most`
  // may overlap: a peer that is granted the result releases them. Approximate: the search reads only the
  // newest kMaxSeen firehoses of a peer and limits its passes. Cost: one cache line for each firehose read.
  MemoryRange exclude_overlaps(uint32_t peer, MemoryRange needed, MemoryRange most) const noexcept;

  // Turns the exports in the range into zombies and lists them. True if there was one.
  bool invalidate(MemoryRange gone) noexcept;
  bool invalidate(uint64_t id) noexcept;
  // Takes up to `room` of the peer's list; returns their number.
  size_t take_recalls(uint32_t peer, uint64_t* ids, MemoryRange* ranges, size_t room) noexcept;
  // Lists ids again that could not be sent.
  void list_again(const uint64_t* ids, size_t n) noexcept;
  bool has_recalls(uint32_t peer) const noexcept { return peers_[peer].recalls != kEnd; }

  const ExportCounts& counts() const noexcept { return counts_; }

 private:
  static constexpr uint32_t kEnd = 0;  // entry 0 is never used
  static constexpr uint32_t kMaxSeen = 1024;
  static constexpr int kMaxPasses = 4;
  struct PeerExports {
    uint32_t
        recalls;  // first of the peer's recalled exports, linked by `next`; kEnd if there is none
    uint32_t newest;  // newest export, linked by `before`
    uint32_t count;
  };

  static uint64_t id_of(uint32_t index, uint32_t generation) noexcept {
    return uint64_t{generation} << 32 | index;
  }
  Export* find(uint64_t id) noexcept;
  void end(uint32_t index, Export* out) noexcept;
  void unlist(uint32_t index) noexcept;
  void make_zombie(uint32_t index) noexcept;

  MappedArray<Export> entries_;
  MappedArray<PeerExports> peers_;
  uint32_t high_ = 0;  // highest entry ever used
  uint32_t free_ = kEnd;
  ExportCounts counts_;
};

}  // namespace hydrant
