// The calls upwards: what stands above the core API makes itself ready, before any rank may send, and says
// what it has to when the process ends.
#pragma once

#include "firehose/base/status.hpp"

namespace hydrant {

// Defined in extended/. Called once per process, when rank, size and transport are there.
Status start_extended() noexcept;
// Once more, behind the job's fence. Errors: kBadArg: this rank was told something else than rank 0.
Status agree_on_extended() noexcept;
// Once, before the process tells anybody that it ends; perhaps in a handler of
// messages; in one of signals if the client ends the job there.
void end_extended() noexcept;

}  // namespace hydrant
