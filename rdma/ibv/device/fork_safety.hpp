// Protects what a transport registers from forks: its buffers, queues of the adapter's library, memory of the
// program. Otherwise the process's next write to a page that a child shares would go to a copy, and the
// adapter would go on with the page of the child.
#pragma once

namespace hydrant::ibv {

// Calls ibv_fork_init() where the kernel needs it and no client has called it. Logs what that costs, at info,
// or why the process is not protected. Has to be called before the process registers memory or makes a queue:
// drivers announce the memory of queues to libibverbs like registered memory.
void protect_from_forks() noexcept;
// Calls ibv_fork_init() likewise and logs nothing: for code that makes queues before the transport is open.
void protect_from_forks_silently() noexcept;

}  // namespace hydrant::ibv
