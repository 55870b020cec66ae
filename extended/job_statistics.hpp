// HYDRANT_STATS=json:FILE or table:FILE: writes this process's puts and gets by path and peer, firehoses,
// collectives by algorithm, and atomic operations by path, at process exit.
#pragma once

namespace hydrant {

// No effect without the variable. A write error is logged as one warning.
void write_job_statistics() noexcept;

}  // namespace hydrant
