#include "firehose/api/pin_handle.hpp"

#include "firehose/base/thread.hpp"

#if HYDRANT_DEBUG
#include "firehose/base/cancellation.hpp"

#include <unordered_set>
#endif

namespace hydrant {

#if HYDRANT_DEBUG

// Debug builds trade the speed of hits for certainty: one process-wide set under a mutex.
namespace {
Mutex g_mutex;
uint64_t g_next_ticket HYDRANT_GUARDED_BY(g_mutex) = 1;
uint64_t g_first_of_process HYDRANT_GUARDED_BY(g_mutex) = 1;
std::unordered_set<uint64_t>& tickets() {
  static auto* set = new std::unordered_set<uint64_t>;  // never destroyed: pins may outlive main()
  return *set;
}
}  // namespace

uint64_t issue_ticket() noexcept {
  const CancellationOff guard;
  MutexLock lock(g_mutex);
  tickets().insert(g_next_ticket);
  return g_next_ticket++;
}

bool redeem_ticket(uint64_t ticket) noexcept {
  const CancellationOff guard;
  MutexLock lock(g_mutex);
  // Tickets of the parent: the slot says what to answer.
  return (ticket != 0 && ticket < g_first_of_process) || tickets().erase(ticket) == 1;
}

void lock_tickets() noexcept HYDRANT_NO_TSA { g_mutex.lock(); }
void unlock_tickets() noexcept HYDRANT_NO_TSA { g_mutex.unlock(); }
void reset_tickets_in_child() noexcept HYDRANT_NO_TSA {
  g_mutex.reset_in_child();
  g_first_of_process = g_next_ticket;
}

#else

uint64_t issue_ticket() noexcept { return 0; }
bool redeem_ticket(uint64_t /*ticket*/) noexcept { return true; }
void lock_tickets() noexcept {}
void unlock_tickets() noexcept {}
void reset_tickets_in_child() noexcept {}

#endif

}  // namespace hydrant
