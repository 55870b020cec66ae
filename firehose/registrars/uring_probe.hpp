// What io_uring can do for this process, found by trying: nothing here is assumed from a version.
#pragma once

#include "firehose/base/status.hpp"
#include "firehose/registrars/huge_pages.hpp"
#include "firehose/registrars/uring_ring.hpp"

#include <cstdint>

namespace hydrant {

struct UringFacts {
  // The charge of a cleared buffer comes back some time after the call that cleared it.
  bool late_charges = false;
  // Bytes that RLIMIT_MEMLOCK lets this user pin in all; UINT64_MAX if we are not charged.
  uint64_t limit_bytes = UINT64_MAX;
  // Best of a few; 0 = unknown (no budget at the moment).
  uint32_t pin_base_ns = 0;
  uint32_t pin_page_ns = 0;
  uint32_t unpin_base_ns = 0;
};

// True if a whole huge page is pinned for less than eight of its small pages, as measured: the kernel takes
// it as one piece. False where no huge page is to be had, or no budget for one.
// Cost: about 0.4 ms, for clearing a huge page.
bool huge_pages_pin_whole(UringRing& ring, const HugePages& huge_pages) noexcept;

// Pins a few pages of its own through `ring`, which must be empty, tagged and known to nobody else, and
// leaves it tagged only if charges come back late.
// Errors: kUnsupported (pinning does not work here, or no page may be locked), kResource.
// Cost: about two milliseconds, most of it for a privileged process whose limit is put to the test.
Status probe_uring(UringRing& ring, UringFacts* facts) noexcept;

}  // namespace hydrant
