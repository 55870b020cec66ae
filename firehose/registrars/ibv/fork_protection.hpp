// The fork protection of libibverbs (ibv_fork_init(), RDMAV_FORK_SAFE), one switch of the process, for
// kernels that do not copy pinned pages at a fork. It hides registered memory from children (MADV_DONTFORK),
// and when a registration ends, undoes that for whatever is mapped at the address by then.
#pragma once

namespace hydrant {

enum class ForkProtection {
  kUnneeded,  // the kernel copies pinned pages
  kActive,
  kInactive,
  kUnknown,  // libraries before rdma-core 35 do not tell, and the environment does not ask for it
};

// It can change from kInactive to kActive, until the process registers memory for the first time. Cost:
// system calls.
ForkProtection fork_protection() noexcept;

}  // namespace hydrant
