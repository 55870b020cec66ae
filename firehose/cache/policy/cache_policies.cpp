// Makes the policies that ship (cache_policies.hpp).
#include "firehose/cache/policy/cache_policies.hpp"

#include <new>
#include <unistd.h>
#include <utility>

namespace hydrant {

bool CachePolicies::complete(const RegistrarTraits& traits, size_t slots) noexcept {
  if (replacement == nullptr) {
    std::unique_ptr<ClockPolicy> clock(new (std::nothrow) ClockPolicy);
    if (clock == nullptr || !clock->map(slots)) return false;
    replacement = std::move(clock);
  }
  if (admission == nullptr) admission.reset(new (std::nothrow) AdmitEveryRequest);
  if (cost == nullptr) {
    cost.reset(new (std::nothrow) HintedCost(traits, static_cast<size_t>(sysconf(_SC_PAGESIZE))));
  }
  return admission != nullptr && cost != nullptr;
}

}  // namespace hydrant
