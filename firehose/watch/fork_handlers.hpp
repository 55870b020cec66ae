// The handlers around fork(2) for all state of this copy of the library: one set, in one order.
#pragma once

namespace hydrant {

// Installs them once per process; later calls do nothing.
void install_fork_handlers() noexcept;

}  // namespace hydrant
