// An attempt to pin, and the range that it plans to register.
#pragma once

#include <hydrant/monitor.h>

#include "firehose/base/memory_range.hpp"
#include "firehose/cache/policy/admission_policy.hpp"
#include "firehose/cache/region/stream_detector.hpp"
#include "firehose/hit/region_slot.hpp"

#include <cstdint>
#include <optional>

namespace hydrant {

class Reservation;
struct ThreadDomain;

// Whether a call may register, and may wait for a registration that another thread has under way.
enum class MissPolicy {
  kHitOnly,
  kRegister,
  kRegisterSparingly,  // as above; but only the request once half of the budget is in use
};

struct PinRequest {
  MemoryRange range;
  MemoryRange pages;  // range rounded out
  Access need;
  ThreadDomain* thread;
  MissPolicy policy;
  Reservation* prepaid = nullptr;  // pin_many: reserved already
  uint64_t deadline_ns = UINT64_MAX;
  bool may_wait = true;       // for a registration that another thread has under way
  bool asynchronous = false;  // the registration may complete later: kNotReady meanwhile
  bool exact = false;         // do not extend: the extended range was refused
  bool plain = false;         // do not request eager rights: they were refused
  bool quiet = false;         // the monitor knew of no change under way since this call began
  bool must_query = false;    // there is a region to take once the monitor was queried
  bool restless = false;      // changes went on too long: regions that need the check are not used
  bool waited_long = false;   // the wait for another registration deserves a warning
  bool saw_pending = false;   // a pending registration covers the request
  uint32_t no_budget = 0;     // times the registrar had no budget
  bool noted = false;         // the stream detector knows of this miss; its advice:
  StreamDetector::Advice advice{};
  std::optional<Admission> admission{};  // the policy's answer for this use, from its first attempt
};

struct Plan {
  MemoryRange range;
  Access access;
  uint64_t charge = 0;
  RegionIndex region = kNoRegion;
  bool vouched = false;
  bool request_vouched = false;  // the requested pages alone are vouched for
  bool stream = false;           // the range is longer because of a stream
  bool down = false;             // at its start
  bool huge_pages = false;       // the range was rounded out to huge pages, which cost nothing more
  bool evicted = false;          // other regions were evicted for it
  bool once = false;             // not to be cached
  bool replaces = false;         // regions within the range are unpinned before it is registered
  uint64_t extra_bytes = 0;      // added by the stream
  uint64_t invalidations = 0;    // that the planner had counted
  uint32_t cover = HYDRANT_COVER_NONE;  // the monitor's coverage of the range
};

}  // namespace hydrant
