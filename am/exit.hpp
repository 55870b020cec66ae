// How a process of a job ends: by gasnet_exit(), by returning from main, because another rank ends the job,
// or by a signal. docs/launching.md has the table of cases.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap.hpp"

namespace hydrant {

// Starts the control thread and installs what runs at the end: the handlers of signals nobody else
// handles, and what follows a return from main.
Status watch_the_end() noexcept;

// Ends this process and the job. Safe in handlers, in several threads, and when the job is ending already.
[[noreturn]] void end_job(int code) noexcept;

// Whether the end has begun so long ago that nobody will come any more. For a while after it has
// begun a rank goes on: it may have all it waits for, and something to print.
bool is_over() noexcept;

// A transport has found out that `rank` is gone: the job ends, as if the launcher had said so. Nothing
// happens if it ends already: the rank has only left before this one. Any thread. As Transport::Lost.
void peer_is_lost(Rank rank, const char* why) noexcept;

// For a thread that waits while the job is being ended by others: gives the client its SIGQUIT, then ends.
[[noreturn]] void follow_the_end() noexcept;

}  // namespace hydrant
