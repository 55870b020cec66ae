// Tells whether this process is rank 0: rank 0 writes messages for the job. A job tells its rank; before and
// without that, the launcher's variables tell it.
#pragma once

#include <cstdint>

namespace hydrant {

// True for rank 0, and for a process without a launcher. Threads: as getenv(3).
bool is_first_of_job() noexcept;

// From now on `rank` counts, whatever the environment tells. Threads: any.
void note_rank_of_job(uint32_t rank) noexcept;

}  // namespace hydrant
