// The longest range that a peer ever grants: a constant of the peer, which its messages bring.
//
// Threads: any. Relaxed: it orders no other data.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/status.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class PeerLimit {
 public:
  // `most`: 0 is no limit that was sent. `is_region`: it is the peer's largest region.
  void adopt(uint64_t most, bool is_region) noexcept {
    if (most == 0) return;
    is_region_.store(is_region, std::memory_order_relaxed);
    most_.store(most, std::memory_order_relaxed);
  }
  // True if the peer is known never to grant the granules of the range.
  bool forbids(MemoryRange range, size_t granule_bytes) const noexcept;
  // Fails with kResource for such a range of rank `peer`.
  Status fail(uint32_t peer, MemoryRange range) const noexcept;

 private:
  std::atomic<uint64_t> most_{UINT64_MAX};
  std::atomic<bool> is_region_{false};
};

}  // namespace hydrant
