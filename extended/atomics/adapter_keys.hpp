// Keys with which a domain uses the adapter's atomics: this rank's segment is pinned for them as a whole,
// and the keys of the segments of all members are known here. Made with the domain, so that no operation
// has to fall back later: an adapter's operation and a processor's on one word are not atomic with each
// other.
//
// Threads: constant.
#pragma once

#include <hydrant/gasnet/objects.h>
#include <hydrant/pin_cache.h>

#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant {

class AdapterKeys {
 public:
  // Collective over the team. Null, on all members: one
  // of them could not pin its segment, or not use a member's key; the reason is logged there. Ends the job if
  // there is no memory. Cost: the registration of a segment, and a reduction of 152 bytes per member.
  static std::unique_ptr<AdapterKeys> make(gex_TM_t tm) noexcept;
  ~AdapterKeys();
  AdapterKeys(const AdapterKeys&) = delete;
  AdapterKeys& operator=(const AdapterKeys&) = delete;

  // The key for `target` in the segment of a member; null: the segment does not hold it.
  const std::byte* find(Rank member, uintptr_t target, size_t bytes) const noexcept;

 private:
  struct Segment {
    uintptr_t addr = 0;
    uintptr_t size = 0;
  };
  struct PublishedKey;

  AdapterKeys() noexcept = default;
  bool pin_own(const hydrant_segment* segment, PublishedKey* mine) noexcept;
  bool import_all(const PublishedKey* keys, Rank members) noexcept;

  hydrant_pin_t pin_ = {};
  size_t key_bytes_ = 0;
  Rank members_ = 0;
  std::unique_ptr<Segment[]> segments_;
  std::unique_ptr<std::byte[]> keys_;
};

}  // namespace hydrant
