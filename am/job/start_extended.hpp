// Upcalls from the core API into extended/: initialisation before any rank may send, and the report at
// process exit.
#pragma once

#include "firehose/base/status.hpp"

namespace hydrant {

// Defined in extended/. Called once per process, after rank, size and transport are set.
Status start_extended() noexcept;
// Called again after the job's fence. Errors: kBadArg: a setting differs between this rank and rank 0.
Status verify_extended_settings() noexcept;
// Called once, before the process announces its end; possibly inside a message handler, or inside a
// signal handler if the client ends the job there.
void end_extended() noexcept;
// Calls line(user, text) for each line of a table of this rank's counters: puts and gets by path, atomics,
// collectives and others. Threads: any; not in handlers of signals.
void list_counters(void (*line)(void* user, const char* text) noexcept, void* user) noexcept;

}  // namespace hydrant
