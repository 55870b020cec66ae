// Ends the job, or returns the code, for an operation that failed. All calls that put, get or change remote
// memory end with it.
#include "extended/rma/common/rma_errors.hpp"

#include "am/job/job.hpp"
#include "am/progress/waiting.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/config/job_knobs.hpp"

#include <atomic>
#include <string_view>

namespace hydrant {
namespace {

bool faults_return_by_knob(bool otherwise) noexcept {
  const std::string_view chosen = knob_choice(JobKnob::kOnFault);
  return chosen == "return" || (chosen == "auto" && otherwise);
}

// Waits up to 2 s for the end of the job after a peer died. The launcher or another rank then ends the
// job with the cause, which this rank does not know.
void wait_for_job_exit_briefly() noexcept {
  constexpr int kLooks = 2000;
  for (int i = 0; i < kLooks; ++i) {
    if (job().ending.load(std::memory_order_relaxed)) wait_for_job_exit();
    uncancelled::sleep_ns(1'000'000);
  }
}

}  // namespace

bool is_fault_returned(bool returns) noexcept {
  static const bool when_abort = faults_return_by_knob(false);
  static const bool when_return = faults_return_by_knob(true);
  return returns ? when_return : when_abort;
}

int return_or_abort(Status status, const char* call, bool returns) noexcept {
  if (status == Status::kOk || status == Status::kNotReady) [[likely]]
    return to_c(status);
  if (status == Status::kBroken && job().ending.load(std::memory_order_relaxed))
    wait_for_job_exit();
  if (!is_fault_returned(returns)) {
    if (status == Status::kBroken) wait_for_job_exit_briefly();
    fatal("%s: %s", call, last_error_text());
  }
  if (!returns) log_error("%s: %s (%s)", call, last_error_text(), status_name(status));
  return to_c(status);
}

}  // namespace hydrant
