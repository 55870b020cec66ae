// Decides whether a registration that a miss is about to make may stay in the cache, and at what price: a
// small interface, so that policies can be measured and replaced.
//
// A miss asks once its range is planned and its charge is known. The answer holds for later attempts of the
// same use: after an invalidation, or while it waits for budget. Only memory beyond need is asked for again
// at each attempt, and then the request alone where more was not admitted. Whatever the answer, the request
// is served, and others are evicted for it if it lacks room.
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
  // Register the request alone, and unpin it after its last release. It serves no second pin: each registers
  // the memory again.
  kUseOnce,
};

class AdmissionPolicy {
 public:
  struct Candidate {
    MemoryRange range;          // to be registered
    MemoryRange request;        // the part of it that was requested, in whole granules
    uint64_t charge = 0;        // bytes of the budget that it takes
    uint64_t lack_bytes = 0;    // beyond the budget in force; what the kernel still charges counts
    uint32_t lack_regions = 0;  // beyond the most regions
    // Longer than the request at the cost of others: not by huge pages, nor by a stream that has earned it.
    bool is_beyond_need = false;
    const RegistrationCost* cost = nullptr;
    // ---- if the policy wants room ----
    // What is free before it is registered; the largest numbers if its room is reserved, or that of regions
    // that it replaces.
    uint64_t room_bytes = 0;
    uint32_t room_regions = 0;
    uint64_t budget_bytes = 0;  // in force
    bool is_stream = false;     // longer than the request for a stream that has earned it
    uint64_t hits = 0;          // of the calling thread since it was last asked for
  };

  virtual ~AdmissionPolicy() = default;
  bool wants_room() const noexcept { return wants_room_; }
  // Registrations that belong together (hydrant_pin_many(), spans) lack nothing: their room is reserved
  // before.
  virtual Admission decide(const Candidate& candidate) noexcept = 0;
  // As VictimPolicy::reset_in_child(): forgets what it knows of the parent's memory.
  virtual void reset_in_child() noexcept {}

 protected:
  explicit AdmissionPolicy(bool wants_room = true) noexcept : wants_room_(wants_room) {}

 private:
  const bool wants_room_;
};

// Keeps every request; memory beyond a request only while there are bytes for it: under pressure it would be
// evicted before it is used. A region is needed in any case.
class AdmitEveryRequest final : public AdmissionPolicy {
 public:
  AdmitEveryRequest() noexcept : AdmissionPolicy(false) {}
  Admission decide(const Candidate& candidate) noexcept override {
    const bool is_too_much = candidate.is_beyond_need && candidate.lack_bytes != 0;
    return is_too_much ? Admission::kKeepInFreeRoom : Admission::kKeep;
  }
};

}  // namespace hydrant
