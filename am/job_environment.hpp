// The job as its environment sees it: what the tools ask of a running job, and what GASNET_VERBOSEENV shows.
#pragma once

namespace hydrant {

// From now on the tools know this process' rank, and rank 0 alone displays settings. Once rank and size are
// known.
void lend_job_to_tools() noexcept;

// Signals that freeze this process or show a backtrace, and what backtraces need. After lend_job_to_tools(),
// before watch_the_end(), which leaves signals alone that have a handler.
void prepare_debugging() noexcept;

// With GASNET_VERBOSEENV, on rank 0: a line on standard error for every setting of the job, with
// its value and whether that is the default.
void show_environment() noexcept;

}  // namespace hydrant
