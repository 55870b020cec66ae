// Determines whether this process is rank 0, which writes messages for the job. A job sets its rank; before
// and without that, the launcher's variables give it.
#pragma once

#include <cstdint>

namespace hydrant {

// True for rank 0, and for a process without a launcher. Threads: as getenv(3).
bool is_first_of_job() noexcept;

// From now on `rank` counts, whatever the environment says. Threads: any.
void note_rank_of_job(uint32_t rank) noexcept;

}  // namespace hydrant
