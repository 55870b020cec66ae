// What the environment says of launchers, whether or not we can talk to them: so that four processes
// started as a job of four do not become four jobs of one.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <string>

namespace hydrant {

struct LauncherHint {
  const char* variable = "";  // the one that shows the launcher; "" if none does
  const char* launcher = "";  // "Slurm"
  const char* command = "";   // what starts a job, up to its size: "mpirun -n"
  Rank size = 0;              // 0: the launcher is there but does not say
  bool whole_step = true;     // false: the size may be that of an allocation around this process
  const char* wrong = "";     // a variable whose number is beyond those of ranks, or of a size
};

// The hint with the most ranks.
LauncherHint find_launcher_hint() noexcept;

// kBadArg, with variable and value, if a number is beyond those that a job can have.
Status check_hint_numbers(const LauncherHint& hint) noexcept;

// kBroken if the hint says more ranks than wire-up found (`size`), or none at all while `why` has a text: the
// reason for which the launcher could not be asked. The text holds the command to type.
Status check_launcher_hint(const LauncherHint& hint, Rank size, const std::string& why) noexcept;

// "prog -x 1": this process's command line, at most 100 bytes of it.
std::string own_command_line();

}  // namespace hydrant
