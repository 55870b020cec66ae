// What happens around fork(2), to all that this copy of the library has: one set of handlers, one order.
#pragma once

namespace hydrant {

// Once per process; later calls do nothing.
void install_fork_handlers() noexcept;

}  // namespace hydrant
