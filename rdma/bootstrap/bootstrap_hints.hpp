// Detects launchers by environment variables, even those that cannot be used for wire-up: four processes
// started as one job must not silently become four jobs of one process.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <string>

namespace hydrant {

struct LauncherHint {
  const char* variable = "";  // the variable that shows the launcher; "" if none does
  const char* launcher = "";  // "Slurm"
  const char* command = "";   // the start command up to the job's size: "mpirun -n"
  Rank size = 0;              // 0: there is a launcher, of unknown size
  bool whole_step = true;     // false: the size may be that of an allocation around this process
  const char* wrong = "";     // a variable whose number is no valid rank or size; "" if none
};

// The hint with the most ranks.
LauncherHint find_launcher_hint() noexcept;

// kBadArg, with variable and value, if a number is beyond those that a job can have.
Status check_hint_numbers(const LauncherHint& hint) noexcept;

// kBroken if the hint reports more ranks than wire-up found (`size`), or reports no size while `why` has a
// text: the reason why wire-up with the launcher failed. The text holds the command to type.
Status check_launcher_hint(const LauncherHint& hint, Rank size, const std::string& why) noexcept;

// "prog -x 1": this process's command line, at most 100 bytes of it.
std::string own_command_line();

}  // namespace hydrant
