// Tells whether this process is rank 0, from its launcher's variables: rank 0 writes messages for the job.
#pragma once

namespace hydrant {

// True for rank 0, and for a process without a launcher. Threads: as getenv(3).
bool is_first_of_job() noexcept;

}  // namespace hydrant
