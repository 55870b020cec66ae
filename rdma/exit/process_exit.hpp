// Detects the end, and the exit status, of a process that is not our child.
#pragma once

#include <cstdint>
#include <sys/types.h>

namespace hydrant {

// A descriptor that becomes readable when the process ends; -1 with errno.
int open_pidfd(pid_t pid) noexcept;

// The start time of the process in kernel ticks: together with the pid it identifies a process uniquely. 0 if
// there is no such process.
uint64_t process_start_time(pid_t pid) noexcept;

// True once the process is exiting, even before its parent is notified. Its descriptors may be closed
// already, so that others notice its end before the kernel announces it. The release of large memory may keep
// it in this state for seconds, and signals have no effect then. False if /proc does not show it.
bool process_is_ending(pid_t pid) noexcept;
// True if /proc is mounted and shows exits.
bool can_see_process_exits() noexcept;

struct ProcessExit {
  enum class Kind : uint32_t { kUnknown, kExited, kKilled } kind = Kind::kUnknown;
  int code = 0;  // exit code or signal
};
// The exit status of a process whose pidfd is readable. Kernels from 6.15 on report it to any process; older
// ones show it only while the process is a zombie. Waits at most 20 ms for either.
ProcessExit read_process_end(int pidfd, pid_t pid, uint64_t start_time) noexcept;

}  // namespace hydrant
