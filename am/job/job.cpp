// Holds the process's job, and reports errors of calls: fatal() ends the process, report() returns to the
// client.
#include "am/job/job.hpp"

#include "am/tools/debugger.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/quiet_write.hpp"
#include "firehose/base/trace/tracer.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <unistd.h>
#include <utility>

namespace hydrant {

constinit JobHolder job_holder;

Status Job::use(std::unique_ptr<Transport> network) noexcept {
  transport = std::move(network);
  memory = transport != nullptr ? &transport->memory() : &MemoryAccess::none();
  sleeping = transport != nullptr ? &transport->sleeping() : nullptr;
  pinned = transport != nullptr ? transport->pinned() : nullptr;
  channels.reset();
  payload_bytes = UINT32_MAX;
  if (transport == nullptr) return Status::kOk;
  channels.reset(new (std::nothrow) MessageChannel*[size()]);
  if (channels == nullptr) return fail(Status::kResource, "no memory for a table of ranks");
  for (Rank rank = 0; rank < size(); ++rank) {
    channels[rank] = &transport->messages(rank);
    payload_bytes = std::min(payload_bytes, channels[rank]->payload_bytes());
  }
  return Status::kOk;
}

void fatal(const char* format, ...) noexcept {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  char line[1200];
  const int bytes =
      snprintf(line, sizeof line, "*** FATAL ERROR (rank %u): %s\n", hydrant_job_info.rank, text);
  (void)write_quietly(STDERR_FILENO, line, static_cast<size_t>(bytes));
  // The process ends without end_job_trace().
  (void)drain_traces();
  (void)show_the_end(false);
  std::abort();
}

int report(Status status, const char* call, bool always) noexcept {
  // The launcher reports the end of the job; failures because of it are not logged again.
  if (status == Status::kBroken && does_launcher_end_job()) return to_c(status);
  // `always` includes kNotReady: an init that times out waiting for other ranks also returns it.
  if (status != Status::kOk &&
      (always || (status != Status::kNotReady && gex_System_GetVerboseErrors() != 0))) {
    log_error("%s: %s (%s)", call, last_error_text(), status_name(status));
  }
  return to_c(status);
}

}  // namespace hydrant
