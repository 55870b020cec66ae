// The texts of refused pins: the domain, the request, the limit, and the remedy.
//
// Invariant: no state beside the domain's constant settings; each function records one text and returns its
// status.
#pragma once

#include "firehose/base/registrar.hpp"
#include "firehose/cache/budget/budget.hpp"
#include "firehose/cache/plan/domain_config.hpp"

namespace hydrant {

// A request that does not fit now, and how much is idle.
struct Shortage {
  MemoryRange requested;
  Budget::Share wanted;
  Budget::Share idle;
  uint64_t pending = 0;  // the kernel still charges it
};

class RefusalTexts {
 public:
  RefusalTexts(const DomainConfig& config, const RegistrarTraits& traits, uint32_t slots) noexcept
      : config_(config), traits_(traits), slots_(slots) {}

  Status too_large(MemoryRange requested) const noexcept;
  Status beyond_budget(MemoryRange first, size_t ranges, uint64_t charge,
                       size_t regions) const noexcept;
  Status not_now(const CacheLock&, const Budget& budget, const Shortage& lack) const noexcept;
  Status until_uncharged(MemoryRange requested, uint64_t charge, uint64_t pending) const noexcept;
  Status no_free_slot(MemoryRange requested) const noexcept;
  Status being_registered(MemoryRange requested) const noexcept;
  Status invalidated(MemoryRange requested, int times) const noexcept;
  Status beyond_rights(MemoryRange requested, Access need) const noexcept;
  Status refused_recently(MemoryRange requested, Access need) const noexcept;

 private:
  const DomainConfig& config_;
  const RegistrarTraits& traits_;
  const uint32_t slots_;
};

}  // namespace hydrant
