// The trace and the statistics of a job: GASNET_TRACEFILE, GASNET_STATSFILE and what belongs to them.
// docs/tracing.md describes both.
#pragma once

#include "firehose/base/status.hpp"

namespace hydrant {

// Reads the settings and starts to trace if they ask for it. Before the transport exists, so that every
// message is numbered; rank and size are known.
void start_job_trace() noexcept;
// Opens the files and writes their first lines. After a fence, so that a file that ranks share is emptied
// first.
void open_job_trace() noexcept;
// Writes what is left, the statistics and the files' last lines. Once, at the end of the process.
void end_job_trace() noexcept;

}  // namespace hydrant
