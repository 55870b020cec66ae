// The job as its environment sees it: what the tools ask of a running job, and what GASNET_VERBOSEENV shows.
#pragma once

namespace hydrant {

// From now on the tools know this process' rank, and rank 0 alone displays settings. Once rank and size are
// known.
void lend_job_to_tools() noexcept;

// With GASNET_VERBOSEENV, on rank 0: a line on standard error for every setting of the job, with
// its value and whether that is the default.
void show_environment() noexcept;

}  // namespace hydrant
