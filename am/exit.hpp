// How a process of a job ends: by gasnet_exit(), by returning from main, because another rank ends the job,
// or by a signal. docs/launching.md has the table of cases.
#pragma once

#include "firehose/base/status.hpp"

namespace hydrant {

// Starts the control thread and installs what runs at the end: the handlers of signals nobody else
// handles, and what follows a return from main.
Status watch_the_end() noexcept;

// Ends this process and the job. Safe in handlers, in several threads, and when the job is ending already.
[[noreturn]] void end_job(int code) noexcept;

// Whether the end has begun so long ago that nobody will come any more. For a while after it has
// begun a rank goes on: it may have all it waits for, and something to print.
bool is_over() noexcept;

// For a thread that waits while the job is being ended by others: gives the client its SIGQUIT, then ends.
[[noreturn]] void follow_the_end() noexcept;

}  // namespace hydrant
