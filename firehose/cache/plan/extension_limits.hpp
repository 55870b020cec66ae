// Keeps a plan within memory that belongs together: the mapping of the request, memory that is there, and
// whole huge pages.
//
// Invariant: a plan contains its request before and after. keep_to_mapping() and without_untouched() query
// the kernel, so the mutex is not held.
#pragma once

#include "firehose/base/registrar.hpp"
#include "firehose/cache/plan/domain_config.hpp"
#include "firehose/cache/plan/pin_request.hpp"
#include "firehose/cache/plan/vouched_ranges.hpp"
#include "firehose/watch/mapping_query.hpp"

namespace hydrant {

class ExtensionLimits {
 public:
  ExtensionLimits(const DomainConfig& config, const RegistrarTraits& traits, Mutex& mu,
                  const VouchedRanges& vouched) noexcept
      : config_(config), traits_(traits), mu_(mu), vouched_(vouched) {}

  // Called before the domain is published, and in the child of a fork.
  void open() noexcept;
  void close() noexcept { mappings_.close(); }

  // Keeps a stream in the mapping of its request, if the kernel reports cheaply how far that goes: behind it
  // there may be a hole, other rights, or unrelated memory.
  void keep_to_mapping(const PinRequest& request, Plan* plan) const noexcept {
    if (plan->stream) cut_to_mapping(request, plan);
  }
  // Requires: plan->charge is the charge of its range.
  void widen_to_huge_pages(const PinRequest& request, Plan* plan) const noexcept;
  // The part of `wanted` around `needed` that a registration may cover: memory that the client vouches for
  // may be reserved and not there yet, and no page is brought in that no request needs. Cost there:
  // mincore(2).
  MemoryRange without_untouched(MemoryRange needed, MemoryRange wanted) const noexcept;

 private:
  void cut_to_mapping(const PinRequest& request, Plan* plan) const noexcept;

  const DomainConfig& config_;
  const RegistrarTraits& traits_;
  Mutex& mu_;
  const VouchedRanges& vouched_;
  MappingQuery mappings_;
};

}  // namespace hydrant
