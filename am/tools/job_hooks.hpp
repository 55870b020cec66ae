// What a running job lends to the tools. Without it (programs that use the tools alone) they ask the process.
//
// Threads: set_tools_job() once while the job starts, before other threads use the tools.
#pragma once

namespace hydrant {

struct ToolsJob {
  // The job's environment: the value, or null if not set. Null: getenv().
  char* (*get_environment)(const char* name) noexcept = nullptr;
  // Whether this rank displays settings: 1 yes, 0 no, -1 not known yet (they are kept until it is).
  // Null: every process does that finds GASNET_VERBOSEENV set.
  int (*displays_environment)() noexcept = nullptr;
  // This process' rank, shown in messages; -1 not known yet.
  int (*rank)() noexcept = nullptr;
};

// `job` must live as long as the process; null takes it away.
void set_tools_job(const ToolsJob* job) noexcept;
// Never null.
const ToolsJob* tools_job() noexcept;
// The rank, or -1.
int tools_rank() noexcept;

}  // namespace hydrant
