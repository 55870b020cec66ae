// Turns this process permanently into that of an ordinary user with a small memlock limit.
#pragma once

#include "bench/support/limits.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <grp.h>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace hydrant::bench {

// Returns "" or the reason of a failure. Root changes to a user id that no other process uses, because the
// kernel charges io_uring's registrations to the user, across processes. Other users keep their id, with
// whatever they have pinned elsewhere. Call it before the first ring and the first thread.
inline std::string become_ordinary_user(uint64_t memlock_bytes) {
  const rlimit limit{memlock_bytes, memlock_bytes};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
    return std::string("setrlimit(RLIMIT_MEMLOCK): ") + std::strerror(errno);
  }
  if (geteuid() == 0) {
    const auto id = static_cast<uid_t>(60000 + getpid() % 5000);
    if (setgroups(0, nullptr) != 0 || setresgid(id, id, id) != 0 || setresuid(id, id, id) != 0) {
      return "cannot become user " + std::to_string(id) + ": " + std::strerror(errno);
    }
    prctl(PR_SET_DUMPABLE, 1);  // restores access to its own /proc files
  }
  return memlock_is_unlimited() ? "the process keeps CAP_IPC_LOCK, so no limit applies" : "";
}

}  // namespace hydrant::bench
