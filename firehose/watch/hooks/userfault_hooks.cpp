// Hooks ioctl() for two requests of the program to another userfaultfd: UFFDIO_REGISTER and
// UFFDIO_UNREGISTER.
#include "firehose/watch/hooks/hooks_object.hpp"
#include "firehose/watch/hooks/real_calls.hpp"

#include <cerrno>
#include <cstddef>
#include <linux/ioctl.h>
#include <linux/userfaultfd.h>

using hydrant::hooks::monitor;
using hydrant::hooks::real;

namespace {

constexpr uint64_t kPatienceNs = 200'000'000;
// The first unwatches the ranges in the set of watched memory, the second those that the set has lost.
constexpr int kTries = 2;

// Has the monitor stop watching the memory. False if it stays watched, or was not watched.
[[gnu::cold]] bool makes_room(const uffdio_register& wanted) {
  const hydrant_monitor_t* found = monitor();
  if (found == nullptr || found->size <= offsetof(hydrant_monitor_t, unwatch_range)) return false;
  return found->unwatch_range(wanted.range.start, wanted.range.len, kPatienceNs) == 0;
}

[[gnu::cold]] void forget(const uffdio_range& range) {
  const hydrant_monitor_t* found = monitor();
  if (found == nullptr || found->size <= offsetof(hydrant_monitor_t, not_watched)) return;
  const int kept = errno;
  found->not_watched(range.start, range.len);
  errno = kept;
}

}  // namespace

int hook_ioctl(int fd, unsigned long request, void* argument) {
  const int result = real.ioctl(fd, request, argument);
  if (request == UFFDIO_UNREGISTER && result == 0) [[unlikely]]
    forget(*static_cast<const uffdio_range*>(argument));
  if (request != UFFDIO_REGISTER || result == 0 || errno != EBUSY) [[likely]]
    return result;
  for (int i = 0; i < kTries && makes_room(*static_cast<const uffdio_register*>(argument)); ++i) {
    if (real.ioctl(fd, request, argument) == 0) return 0;
    if (errno != EBUSY) return -1;
  }
  errno = EBUSY;
  return result;
}
HYDRANT_EXPORT_HOOK(ioctl);
