// HYDRANT_STATS=json:FILE: writes this process's puts and gets by path and peer at process exit.
#pragma once

namespace hydrant {

// No effect without the variable. A write error is logged as one warning.
void write_rma_statistics() noexcept;

}  // namespace hydrant
