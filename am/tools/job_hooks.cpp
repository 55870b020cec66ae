// Holds the pointer to the running job's hooks. am/job/job_environment.cpp sets it once; the other tools read
// it.
#include "am/tools/job_hooks.hpp"

#include <atomic>

namespace hydrant {
namespace {

constexpr ToolsJob kNoJob;
// Stored with release by set_tools_job(), loaded with acquire by every reader: the hooks themselves are
// constant.
constinit std::atomic<const ToolsJob*> g_job{&kNoJob};

}  // namespace

void set_tools_job(const ToolsJob* job) noexcept {
  g_job.store(job != nullptr ? job : &kNoJob, std::memory_order_release);
}

const ToolsJob* tools_job() noexcept { return g_job.load(std::memory_order_acquire); }

int tools_rank() noexcept {
  const ToolsJob* const job = tools_job();
  return job->rank != nullptr ? job->rank() : -1;
}

}  // namespace hydrant
