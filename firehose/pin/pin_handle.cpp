// Issues and redeems the tickets by which builds with HYDRANT_TICKETS detect a second release of a pin; in
// other builds the functions do nothing. hydrant_pin() and hydrant_release() (hit_path.cpp) call them.
#include "firehose/pin/pin_handle.hpp"

#include "firehose/base/thread.hpp"

#if HYDRANT_TICKETS
#include "firehose/base/cancellation.hpp"
#include "firehose/pin/ticket_set.hpp"
#endif

namespace hydrant {

#if HYDRANT_TICKETS

// Such builds trade the speed of hits for certainty: one process-wide set under a mutex.
namespace {
Mutex g_mutex;
uint64_t g_next_ticket HYDRANT_GUARDED_BY(g_mutex) = 1;
uint64_t g_first_of_process HYDRANT_GUARDED_BY(g_mutex) = 1;
// Never destroyed: pins may outlive main().
constinit TicketSet g_tickets HYDRANT_GUARDED_BY(g_mutex);
// A ticket could not be noted for lack of memory: from then on a release without one is not an error.
bool g_some_missing HYDRANT_GUARDED_BY(g_mutex) = false;
}  // namespace

uint64_t issue_hold_ticket() noexcept {
  const CancellationDisabled guard;
  MutexLock lock(g_mutex);
  if (!g_tickets.insert(g_next_ticket)) g_some_missing = true;
  return g_next_ticket++;
}

bool redeem_ticket(uint64_t ticket) noexcept {
  const CancellationDisabled guard;
  MutexLock lock(g_mutex);
  // Tickets of the parent are accepted: the state of the slot decides.
  return (ticket != 0 && ticket < g_first_of_process) || g_tickets.erase(ticket) || g_some_missing;
}

void lock_tickets() noexcept HYDRANT_NO_TSA { g_mutex.lock(); }
void unlock_tickets() noexcept HYDRANT_NO_TSA { g_mutex.unlock(); }
void reset_tickets_in_child() noexcept HYDRANT_NO_TSA {
  g_mutex.reset_in_child();
  g_first_of_process = g_next_ticket;
  g_tickets = {};  // leaked: another thread of the parent may have been changing it
}

#else

uint64_t issue_hold_ticket() noexcept { return 0; }
bool redeem_ticket(uint64_t /*ticket*/) noexcept { return true; }
void lock_tickets() noexcept {}
void unlock_tickets() noexcept {}
void reset_tickets_in_child() noexcept {}

#endif

}  // namespace hydrant
