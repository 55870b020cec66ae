// Tests whether a pointer is GPU memory, by the CUDA driver if the program has loaded it before its
// first put or get; otherwise no pointer is.
#pragma once

#include <cstdint>

namespace hydrant {

// CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr)
using PointerQuery = int (*)(void* data, int attribute, uint64_t ptr);
// Null without CUDA in this process.
PointerQuery find_pointer_query() noexcept;
bool is_device_pointer(PointerQuery query, const void* addr) noexcept;

// Cost: two loads without CUDA. Threads: any.
inline bool is_device_memory(const void* addr) noexcept {
  static const PointerQuery query = find_pointer_query();
  return query != nullptr && is_device_pointer(query, addr);
}

}  // namespace hydrant
