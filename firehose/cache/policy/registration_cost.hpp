// Estimates what a registration costs: what a policy weighs against the use of keeping it. A small interface:
// an estimate that learns needs the times of the registrar's calls, which the cache does not take.
#pragma once

#include "firehose/base/registrar.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class RegistrationCost {
 public:
  virtual ~RegistrationCost() = default;
  // Nanoseconds to register so many bytes and to undo that; 0: unknown. Any thread; bounded, without a lock.
  virtual uint64_t estimate_ns(size_t bytes) const noexcept = 0;
};

// The registrar's own hints (RegistrarTraits): a base, and a price for each page after the first.
class HintedCost final : public RegistrationCost {
 public:
  HintedCost(const RegistrarTraits& traits, size_t page_bytes) noexcept
      : base_ns_(uint64_t{traits.pin_base_ns} + traits.unpin_base_ns),
        page_ns_(traits.pin_page_ns),
        page_shift_(static_cast<uint32_t>(std::countr_zero(page_bytes))) {}
  uint64_t estimate_ns(size_t bytes) const noexcept override {
    uint64_t ns = 0;
    const uint64_t more_pages = bytes != 0 ? (bytes - 1) >> page_shift_ : 0;
    const bool wraps = __builtin_mul_overflow(more_pages, page_ns_, &ns) ||
                       __builtin_add_overflow(ns, base_ns_, &ns);
    return wraps ? UINT64_MAX : ns;
  }

 private:
  const uint64_t base_ns_;
  const uint64_t page_ns_;
  const uint32_t page_shift_;
};

}  // namespace hydrant
