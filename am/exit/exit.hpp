// How a process of a job ends: by gasnet_exit(), by returning from main, because another rank ends the
// job, or by a signal. docs/launching.md has a table of the cases.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

namespace hydrant {

// Starts the control thread and installs the exit hooks: handlers for signals that have no handler, and
// the action after a return from main.
Status start_exit_watch() noexcept;

// False if GASNET_NO_CATCH_SIGNAL names the signal: then the library must not install a handler for it.
bool catches_signal(int number) noexcept;

// True in a child that a rank has forked: it inherits the rank's handlers, buffered output and
// descriptors, but its end is not the rank's. One system call; async-signal-safe.
bool is_forked_child() noexcept;

// Ends this process and the job; in a forked child, this process alone, without a flush of the output
// that it has inherited. Callable in message handlers, in the client's signal handlers, from
// several threads, and while the job is ending.
[[noreturn]] void exit_job(int code) noexcept;

// True if the shutdown grace period has expired. During that period a rank continues, because it may
// already have received everything it waits for, and may have output to print. Ranks that do not call this
// get signals from the launcher later (rdma/exit/job_termination.hpp).
bool has_exit_grace_expired() noexcept;

// Ends the job because a transport found `rank` dead, as if the launcher had reported the death. No
// effect if the job is ending already: then the rank has only left first. Any thread. Has the type
// Transport::PeerFailedFn.
void on_peer_failed(Rank rank, const char* why) noexcept;

// For a waiting thread, when another process ends the job: raises SIGQUIT for the client's handler,
// then ends.
[[noreturn]] void exit_with_job() noexcept;

}  // namespace hydrant
