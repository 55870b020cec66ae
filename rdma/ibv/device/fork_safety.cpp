// Activates the fork protection of libibverbs. ibv_transport_open.cpp calls it, and before that
// network_agreement.cpp; docs/decisions/0061-fork-protection.md has the reasons.
#include "rdma/ibv/device/fork_safety.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"
#include "firehose/registrars/ibv/fork_protection.hpp"

#include <infiniband/verbs.h>

#include <cerrno>

namespace hydrant::ibv {

namespace {

// Returns 0, or the error.
int activate(ForkProtection found) noexcept {
  return found == ForkProtection::kInactive ? uncancelled::call(ibv_fork_init) : 0;
}

}  // namespace

void protect_from_forks_silently() noexcept { (void)activate(fork_protection()); }

void protect_from_forks() noexcept {
  const ForkProtection found = fork_protection();
  if (found == ForkProtection::kUnneeded) return;
  if (found == ForkProtection::kUnknown) {
    log_info(
        "verbs: this libibverbs (before rdma-core 35) does not say whether forks are safe: set "
        "RDMAV_FORK_SAFE=1 for programs that fork on kernels before 5.13");
    return;
  }
  if (const int error = activate(found); error != 0) {
    log_warning(
        "verbs: after a fork the adapter may not see what this process writes, because "
        "ibv_fork_init() failed: %s%s",
        errno_text(error),
        error == EINVAL ? " (the program has registered memory before: call it earlier, or set "
                          "RDMAV_FORK_SAFE=1)"
                        : "");
    return;
  }
  log_info(
      "verbs: this kernel does not copy pinned pages at a fork, so libibverbs hides registered "
      "memory from children. It costs the cache of ordinary memory: only segments, vouched memory "
      "and memory of libhydrant_alloc stay registered (docs/verbs.md, Fork protection; "
      "HYDRANT_IBV_FORK_SAFE)");
}

}  // namespace hydrant::ibv
