// Determines io_uring's features and limits for this process by trial, never from a kernel version.
#pragma once

#include "firehose/base/status.hpp"
#include "firehose/registrars/charge/huge_pages.hpp"
#include "firehose/registrars/uring/uring_ring.hpp"

#include <cstdint>

namespace hydrant {

struct UringFacts {
  // The kernel returns the charge of a cleared buffer some time after the call that cleared it.
  bool late_charges = false;
  // Total bytes that RLIMIT_MEMLOCK lets this user pin; UINT64_MAX if the process is not charged.
  uint64_t limit_bytes = UINT64_MAX;
  // Minimum of several measurements; 0 = unknown (no budget now).
  uint32_t pin_base_ns = 0;
  uint32_t pin_page_ns = 0;
  uint32_t unpin_base_ns = 0;
};

// True if pinning a whole huge page costs less than eight of its small pages, as measured: the kernel then
// pins it as one piece. False if no huge page is available, or no budget for one.
// Cost: about 0.4 ms, for clearing a huge page.
bool huge_pages_pin_whole(UringRing& ring, const HugePages& huge_pages) noexcept;

// Pins a few pages of its own through `ring`. The ring must be empty, tagged and unknown to other threads; it
// stays tagged only if charges return late.
// Errors: kUnsupported (pinning does not work here, or not even one page may be locked), kResource.
// Cost: about two milliseconds, most of it for the limit trial of a privileged process.
Status probe_uring(UringRing& ring, UringFacts* facts) noexcept;

}  // namespace hydrant
