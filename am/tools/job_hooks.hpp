// Hooks through which a running job supplies its rank and environment to the tools. Programs without a
// job use the process's own environment.
//
// Threads: set_tools_job() once while the job starts, before other threads use the tools.
#pragma once

namespace hydrant {

struct ToolsTrace;

struct ToolsJob {
  // Value of a variable of the job's environment, or null if unset. A null hook means getenv().
  char* (*get_environment)(const char* name) noexcept = nullptr;
  // Whether this rank displays settings: 1 yes, 0 no, -1 not known yet (settings are queued until it
  // is). With a null hook every process displays them if GASNET_VERBOSEENV is set.
  int (*displays_environment)() noexcept = nullptr;
  // This process's rank, shown in messages; -1 not known yet.
  int (*rank)() noexcept = nullptr;
  // The job's trace (trace_hooks.hpp); null: none.
  const ToolsTrace* trace = nullptr;
};

// `job` must live as long as the process; null removes the hooks.
void set_tools_job(const ToolsJob* job) noexcept;
// Never null.
const ToolsJob* tools_job() noexcept;
// The rank, or -1.
int tools_rank() noexcept;

}  // namespace hydrant
