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

namespace {

// Whether the library's own messages fit.
Status check_limits(const Transport& network, const MessageChannel& channel, Rank rank) noexcept {
  constexpr uint32_t kHead = MessageChannel::kMaxHeadBytes;
  constexpr uint32_t kPayload = MessageChannel::kMinPayloadBytes;
  const uint32_t room = channel.inline_bytes();
  const uint32_t cell = channel.cell_bytes();
  if (cell != 0 ? room >= kHead && cell >= kPayload : room >= kHead + kPayload) return Status::kOk;
  return fail(Status::kUnsupported,
              "the network '%s' has messages of %u bytes to rank %u, and cells of %u (0: none); "
              "%u with cells of %u are needed, or %u without cells: choose another network by "
              "HYDRANT_TRANSPORT or HYDRANT_INJECT",
              network.name(), room, rank, cell, kHead, kPayload, kHead + kPayload);
}

}  // namespace

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
    if (const Status status = check_limits(*transport, *channels[rank], rank);
        status != Status::kOk)
      return status;
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
