// System calls that a job cannot do without: repeats those that may succeed later, and has the remedy for the
// others.
#pragma once

#include "firehose/base/start_gate.hpp"
#include "firehose/base/uncancelled.hpp"

#include <cerrno>
#include <cstdint>

namespace hydrant::launch {

// A call that fails for want of something is repeated so often, with this pause: for a second at least.
inline constexpr uint32_t kMaxAttempts = 1000;
inline constexpr uint64_t kPauseNs = 1'000'000;

inline void pause_briefly() noexcept { uncancelled::sleep_ns(kPauseNs); }

// 0 once `call`, which returns a negative number on failure, succeeds; else its errno.
template <class Call>
int attempt(Call call) noexcept {
  for (uint32_t i = 1;; ++i) {
    if (call() >= 0) return 0;
    if (!may_pass(errno) || i == kMaxAttempts) return errno;
    pause_briefly();
  }
}

// The end of a message about a call that failed with `error`; "" if nothing general helps.
inline const char* remedy(int error) noexcept {
  switch (error) {
    case EMFILE:
    case ENFILE: return "; raise the limit of descriptors (ulimit -n)";
    case ENOSPC: return "; raise the limit of the system (sysctl fs.epoll.max_user_watches)";
    case EPERM:
    case EACCES:
    case ENOSYS:
      return "; if a seccomp filter (a container's or a sandbox's) refuses the call, allow it";
    default: return "";
  }
}

}  // namespace hydrant::launch
