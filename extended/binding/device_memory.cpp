// Queries the CUDA driver for the kind of a pointer. Called by check_transfer() and rma_path.cpp.
#include "extended/binding/device_memory.hpp"

#include <cstdint>
#include <dlfcn.h>

namespace hydrant {
namespace {

constexpr int kMemoryType = 2;         // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr uint32_t kDeviceMemory = 2;  // CU_MEMORYTYPE_DEVICE

}  // namespace

PointerQuery find_pointer_query() noexcept {
  return reinterpret_cast<PointerQuery>(dlsym(RTLD_DEFAULT, "cuPointerGetAttribute"));
}

bool is_device_pointer(PointerQuery query, const void* addr) noexcept {
  uint32_t type = 0;
  return query(&type, kMemoryType, reinterpret_cast<uintptr_t>(addr)) == 0 && type == kDeviceMemory;
}

}  // namespace hydrant
