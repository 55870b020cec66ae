// Makes this process that of an ordinary user with a small memlock limit, for good: what most users have.
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

// "", or why it cannot be done. Root becomes a user whom nobody else is: the kernel charges io_uring's
// registrations to the user, across processes. Others stay who they are, with whatever they have pinned
// elsewhere. Call it before the first ring and the first thread.
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
    prctl(PR_SET_DUMPABLE, 1);  // its own /proc belongs to it again, as any user's does
  }
  return memlock_is_unlimited() ? "CAP_IPC_LOCK stays, so that no limit counts" : "";
}

}  // namespace hydrant::bench
