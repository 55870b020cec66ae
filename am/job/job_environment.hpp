// Connects the job with the tools library and the environment: queries of the tools about the running
// job, and the display of settings for GASNET_VERBOSEENV.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

namespace hydrant {

// Gives the tools this process's rank; from then on only rank 0 displays settings. Requires rank and size.
void lend_job_to_tools() noexcept;

// Installs the signal handlers that freeze this process or print a backtrace, and prepares backtraces.
// After lend_job_to_tools() and before watch_the_end(), which skips signals that have a handler.
void prepare_debugging() noexcept;

// With GASNET_VERBOSEENV, on rank 0: prints every setting of the job on standard error, one per line,
// with its value and whether that is the default.
void show_environment() noexcept;

// Warns about a job of one rank that neither a launcher nor a setting requested, and tells how to start
// more ranks.
void say_how_to_start_more(const Bootstrap& bootstrap) noexcept;

}  // namespace hydrant
