// What a thread has for puts and gets: what it knows of each rank and counts per rank, how much it has
// under way, and what it started without events. Kept for the next thread when it ends.
#pragma once

#include <hydrant/gasnet/rma.h>

#include "extended/adopted.hpp"
#include "extended/event.hpp"
#include "extended/pieces.hpp"
#include "extended/rma_path.hpp"
#include "firehose/base/probes.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant {

struct PostedPiece;
struct PinnedPiece;

// How often a thread used memory of a rank that is not mapped here, by blocks (rma_mapped.cpp).
struct UnmappedUse {
  static constexpr uint32_t kShift = 21;
  uintptr_t block = 0;
  Rank peer = 0;
  uint32_t count = 0;
};

class RmaThread {
 public:
  // The calling thread's; null if there is no memory for it.
  static RmaThread* mine() noexcept { return Adopted<RmaThread>::mine(); }

  hydrant_peer& peer(Rank rank) noexcept { return peers_[rank]; }
  const hydrant_peer& peer(Rank rank) const noexcept { return peers_[rank]; }
  bool has_peers() const noexcept { return peers_ != nullptr; }

  // Pieces that have room, in all and of those without an event.
  uint64_t under_way() const noexcept { return launched - landed.load(std::memory_order_acquire); }
  void count(Direction direction, Rank rank, Path path, size_t bytes) noexcept {
    hydrant_path_counts& counts =
        peers_[rank].path_counts[static_cast<uint32_t>(direction)][static_cast<uint32_t>(path)];
    counts.ops += 1;
    counts.bytes += bytes;
    HYDRANT_PROBE(rma, static_cast<uint32_t>(direction), rank, static_cast<uint32_t>(path), bytes);
  }

  // Without an event: by category, or, in an access region, all to its event.
  Pieces& implicit(Direction direction) noexcept {
    return region != nullptr ? region->pieces : implicit_[static_cast<uint32_t>(direction)];
  }
  hydrant_event* region = nullptr;

  // A buffer for data that a handler cannot send from where it is; null if there is no memory.
  std::byte* scratch() noexcept;
  static constexpr size_t kScratchBytes = 65536;

  UnmappedUse& unmapped_use(Rank peer, uintptr_t remote) noexcept {
    return unmapped_[((remote >> UnmappedUse::kShift) ^ peer) % kUnmapped];
  }

  uint64_t launched = 0;  // the owner's
  ReturnableList<PostedPiece> posted;
  ReturnableList<PinnedPiece> pinned;

  // ---- for Adopted ----
  void joined() noexcept;
  void left() noexcept;
  RmaThread* next_of_all = nullptr;
  RmaThread* next_orphan = nullptr;

  alignas(64) std::atomic<uint64_t> landed{0};  // by whoever hears of it

 private:
  hydrant_peer* peers_ = nullptr;
  Pieces implicit_[2];
  std::unique_ptr<std::byte[]> scratch_;
  static constexpr size_t kUnmapped = 16;
  UnmappedUse unmapped_[kUnmapped];
};

}  // namespace hydrant
