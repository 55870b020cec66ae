// HYDRANT_STATS=json:FILE: what this process has put and got, by path and peer, written when it ends.
#pragma once

namespace hydrant {

// Does nothing without the variable. What cannot be written is one warning line.
void write_rma_statistics() noexcept;

}  // namespace hydrant
