// Whether a pointer is a GPU's. Asked of the CUDA driver, if the program has loaded it; otherwise nothing is.
#pragma once

namespace hydrant {

// Cost: a load where there is no such driver. Threads: any.
bool is_device_memory(const void* addr) noexcept;

}  // namespace hydrant
