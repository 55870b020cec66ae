// hydrant_pin_t: the form in which clients get a hold, or the reason for none.
//
// A pin points at its region's slot. With HYDRANT_TICKETS it also carries a ticket, so that every second
// release is detected. Otherwise its `hold` word has no meaning, and releases are checked by the slot only.
#pragma once

#include <hydrant/pin_cache.h>

#include "firehose/base/status.hpp"
#include "firehose/hit/region_slot.hpp"

namespace hydrant {

// A ticket for a new hold; 0 without HYDRANT_TICKETS.
uint64_t issue_hold_ticket() noexcept;
// Takes a ticket back. False if the ticket is unknown: the pin was released before, or never taken.
bool redeem_ticket(uint64_t ticket) noexcept;
// Around a fork; the last one in the child, where older tickets are the parent's.
void lock_tickets() noexcept;
void unlock_tickets() noexcept;
void reset_tickets_in_child() noexcept;

inline hydrant_pin_t make_pin(const RegionSlot* slot) noexcept {
  // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): callers have one
  return {slot->as_public(), issue_hold_ticket()};
}

inline hydrant_pin_t failed_pin(Status status) noexcept {
  return {nullptr, static_cast<uint64_t>(to_c(status))};
}

}  // namespace hydrant
