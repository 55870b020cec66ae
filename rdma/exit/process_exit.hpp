// How a process that is not our child has ended.
#pragma once

#include <cstdint>
#include <sys/types.h>

namespace hydrant {

// A descriptor that becomes readable when the process ends; -1 with errno.
int open_pidfd(pid_t pid) noexcept;

// When the process was started, in the kernel's ticks: with the pid it names a process for good. 0 if it
// is not there.
uint64_t process_start_time(pid_t pid) noexcept;

// True once the process is on its way out, whether or not its parent has been told: it may have closed its
// descriptors, so that others see its end before the kernel announces it. Large memory is given back in this
// state, for seconds perhaps, and no signal changes anything any more. False where that cannot be seen.
bool process_is_ending(pid_t pid) noexcept;
// Whether /proc is there to tell.
bool can_see_process_exits() noexcept;

struct ProcessExit {
  enum class Kind : uint32_t { kUnknown, kExited, kKilled } kind = Kind::kUnknown;
  int code = 0;  // exit code or signal
};
// For a process whose pidfd is readable. Kernels from 6.15 on tell everybody; before, it is known while the
// process waits to be reaped. Waits at most 20 ms for either.
ProcessExit read_process_end(int pidfd, pid_t pid, uint64_t start_time) noexcept;

}  // namespace hydrant
