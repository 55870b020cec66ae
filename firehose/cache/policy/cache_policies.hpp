// The policies of a domain: what decides which regions are kept, and on which estimates.
#pragma once

#include "firehose/cache/policy/admission_policy.hpp"
#include "firehose/cache/policy/registration_cost.hpp"
#include "firehose/cache/policy/victim_policy.hpp"

#include <cstddef>
#include <memory>

namespace hydrant {

struct CachePolicies {
  std::unique_ptr<VictimPolicy> replacement;
  std::unique_ptr<AdmissionPolicy> admission;
  std::unique_ptr<RegistrationCost> cost;

  // Sets those that are null to the ones that ship, for a domain with so many slots. False: no memory.
  [[nodiscard]] bool complete(const RegistrarTraits& traits, size_t slots) noexcept;
};

}  // namespace hydrant
