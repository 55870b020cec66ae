// Decides whether a registration that a miss is about to make may stay in the cache, and at what price: a
// small interface, so that policies can be measured and replaced.
//
// The miss asks once its range is planned and its charge is known, before it reserves budget. What it
// registers is pinned and usable in any case; the policy chooses what happens to others for it, and to it
// after the last release.
//
// All calls come under the domain's mutex: no allocation, no call back into the domain.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/cache/policy/registration_cost.hpp"

#include <cstdint>

namespace hydrant {

enum class Admission {
  kKeep,            // evict for it what it lacks
  kKeepInFreeRoom,  // keep it if it lacks nothing; else ask for the request alone, or use that once
  kUseOnce,         // register the request alone, and unpin it after its last release
};

class AdmissionPolicy {
 public:
  struct Candidate {
    MemoryRange range;             // to be registered
    uint64_t charge;               // bytes of the budget that it takes
    uint64_t lack_bytes;           // to be evicted for that
    bool is_beyond_need;           // longer than the request, at the cost of others
    const RegistrationCost& cost;  // of registering it
  };

  virtual ~AdmissionPolicy() = default;
  virtual Admission decide(const Candidate& candidate) noexcept = 0;
};

// Keeps every request; memory beyond a request only while there is room: under pressure it would be evicted
// before it is used.
class AdmitEveryRequest final : public AdmissionPolicy {
 public:
  Admission decide(const Candidate& candidate) noexcept override {
    return candidate.is_beyond_need ? Admission::kKeepInFreeRoom : Admission::kKeep;
  }
};

}  // namespace hydrant
