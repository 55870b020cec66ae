// Per-thread state for puts and gets: known memory and counters per rank, the number of pieces under
// way, and implicit operations. A later thread adopts it when the thread ends.
#pragma once

#include <hydrant/gasnet/am.h>
#include <hydrant/gasnet/rma.h>

#include "am/trace/trace_points.hpp"
#include "extended/event/completion_counter.hpp"
#include "extended/event/event.hpp"
#include "extended/event/thread_local_pool.hpp"
#include "extended/rma/common/known_peer.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "firehose/base/probes.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant {

struct PostedPiece;
struct PinnedPiece;

// Counts a thread's accesses to unmapped memory of a rank, by 2 MiB blocks (rma_mapped.cpp).
struct UnmappedUse {
  static constexpr uint32_t kShift = 21;
  uintptr_t block = 0;
  Rank peer = 0;
  uint32_t count = 0;
};

// A thread's request for a handler at the target of its next vector, indexed or strided put
// (gex_VIS_SetPeerCompletionHandler()). Handler 0: none.
struct PeerCompletion {
  gex_AM_Index_t handler = 0;
  const void* source = nullptr;
  size_t bytes = 0;
};

class RmaThread {
 public:
  // The calling thread's state; null if there is no memory.
  static RmaThread* mine() noexcept { return ThreadLocalPool<RmaThread>::mine(); }

  KnownPeer& peer(Rank rank) noexcept { return peers_[rank]; }
  const KnownPeer& peer(Rank rank) const noexcept { return peers_[rank]; }
  bool has_peers() const noexcept { return peers_ != nullptr; }
  PeerCompletion completion;
  // Shows or hides the rows in hydrant_known_peers of the calling thread, which owns this object.
  void show_peers(bool shown) noexcept;

  // Number of pieces under way, with and without events.
  uint64_t under_way() const noexcept { return launched - landed.load(std::memory_order_acquire); }
  void count(Direction direction, Rank rank, Path path, size_t bytes) noexcept {
    PathCounts& counts =
        peers_[rank].path_counts[static_cast<uint32_t>(direction)][static_cast<uint32_t>(path)];
    counts.ops += 1;
    counts.bytes += bytes;
    HYDRANT_PROBE(rma, static_cast<uint32_t>(direction), rank, static_cast<uint32_t>(path), bytes);
    if (is_tracing()) [[unlikely]]
      trace(direction, rank, path, bytes);
  }

  // The counter of implicit operations: by direction, of atomics that are neither (GEX_EC_RMW), or of Longs
  // whose source is being read (GEX_EC_AM); inside an access region its event's.
  CompletionCounter& implicit(Direction direction) noexcept {
    return region != nullptr ? region->counter : implicit_[static_cast<uint32_t>(direction)];
  }
  CompletionCounter& implicit_atomics() noexcept {
    return region != nullptr ? region->counter : implicit_[2];
  }
  CompletionCounter& implicit_longs() noexcept {
    return region != nullptr ? region->counter : implicit_[3];
  }
  hydrant_event* region = nullptr;

  // A buffer for data that a handler cannot send from its place; null if there is no memory.
  std::byte* scratch() noexcept;
  static constexpr size_t kScratchBytes = 65536;
  // A second one of that size, for requests with data from many places; not for handlers.
  std::byte* packet() noexcept;

  UnmappedUse& unmapped_use(Rank peer, uintptr_t remote) noexcept {
    return unmapped_[((remote >> UnmappedUse::kShift) ^ peer) % kUnmapped];
  }

  uint64_t launched = 0;  // written by the owning thread
  // Vector, indexed and strided operations by direction and path (vis_transfer.hpp).
  static constexpr size_t kVisPaths = 3;  // VisPath, but kKernel counts as kPieces
  PathCounts vis_counts[2][kVisPaths] = {};
  CrossThreadFreeList<PostedPiece> posted;
  CrossThreadFreeList<PinnedPiece> pinned;

  // ---- for Adopted ----
  void joined() noexcept;
  void left() noexcept;
  RmaThread* next_of_all = nullptr;
  RmaThread* next_orphan = nullptr;

  alignas(64) std::atomic<uint64_t> landed{0};  // written by any completing thread

 private:
  [[gnu::cold]] static void trace(Direction direction, Rank rank, Path path, size_t bytes) noexcept;

  KnownPeer* peers_ = nullptr;
  CompletionCounter implicit_[4];
  std::unique_ptr<std::byte[]> scratch_;
  std::unique_ptr<std::byte[]> packet_;
  static constexpr size_t kUnmapped = 16;
  UnmappedUse unmapped_[kUnmapped];
};

}  // namespace hydrant
