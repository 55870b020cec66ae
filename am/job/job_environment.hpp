// Connects the job with the tools library and the environment: queries of the tools about the running
// job, and the display of settings for GASNET_VERBOSEENV.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <cstdint>

namespace hydrant {

// Gives the tools this process's rank; from then on only rank 0 displays settings. Requires rank and size.
void register_job_with_tools() noexcept;
// Lets the tools write to the job's trace; null: no longer.
struct ToolsTrace;
void register_trace_with_tools(const ToolsTrace* trace) noexcept;

// Installs the signal handlers that freeze this process or print a backtrace, and prepares backtraces.
// After register_job_with_tools() and before start_exit_watch(), which skips signals that have a handler.
void prepare_debugging() noexcept;

// With GASNET_VERBOSEENV, on rank 0: prints every setting of the job on standard error, one per line,
// with its value and whether that is the default. `max_segment`: the limit of a segment's bytes.
void print_environment(uintptr_t max_segment) noexcept;

// Warns about a job of one rank that neither a launcher nor a setting requested, and explains how to start
// more ranks.
void print_launch_hint(const Bootstrap& bootstrap) noexcept;

}  // namespace hydrant
