// The invalidator over the lower parts of a cache, with a registrar that notes what it is called with.
#pragma once

#include "firehose/cache/coherence/invalidator.hpp"
#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hydrant::testing {

class NotingRegistrar final : public Registrar {
 public:
  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange, Access, std::byte*) noexcept override { return Status::kOk; }
  UnpinResult unpin(MemoryRange range, const std::byte*) noexcept override {
    unpinned.push_back(range);
    return result;
  }
  void unmapped(MemoryRange range) noexcept override { told_unmapped.push_back(range); }
  uint64_t losses() const noexcept override { return lost; }
  std::vector<MemoryRange> unpinned, told_unmapped;
  UnpinResult result = UnpinResult::kDone;
  uint64_t lost = 0;

 private:
  RegistrarTraits traits_;
};

struct InvalidatorParts : Parts {
  explicit InvalidatorParts(uint32_t slots = 128) : Parts(slots, {100'000 * kPage, slots}) {}

  RegionState state(const CacheLock& lock, RegionIndex r) { return store.infos(lock)[r].state; }
  // Adds a published region of the client's own.
  RegionIndex add_own(const CacheLock& lock, MemoryRange range) {
    const RegionIndex r = add_open(lock, range);
    store.infos(lock)[r].prepinned = true;
    return r;
  }
  // Adds a region whose pin is under way.
  RegionIndex add_under_way(const CacheLock& lock, MemoryRange range) {
    const RegionIndex r = add_pending(lock, range);
    pending.add(lock, r);
    return r;
  }

  DomainConfig config;
  NotingRegistrar registrar;
  Planner planner{{config, store, tables, budget, evictor.working_set(), retirement, extensions}};
  Invalidator invalidator{
      {mu, registrar, store, tables, pending, begun, retirement, planner, totals, pending_ranges}};
};

}  // namespace hydrant::testing
