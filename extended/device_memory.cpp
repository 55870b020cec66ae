#include "extended/device_memory.hpp"

#include <cstdint>
#include <dlfcn.h>

namespace hydrant {
namespace {

// CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr)
using GetAttribute = int (*)(void* data, int attribute, uint64_t ptr);
constexpr int kMemoryType = 2;         // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr uint32_t kDeviceMemory = 2;  // CU_MEMORYTYPE_DEVICE

}  // namespace

bool is_device_memory(const void* addr) noexcept {
  static const auto ask =
      reinterpret_cast<GetAttribute>(dlsym(RTLD_DEFAULT, "cuPointerGetAttribute"));
  if (ask == nullptr) return false;
  uint32_t type = 0;
  return ask(&type, kMemoryType, reinterpret_cast<uintptr_t>(addr)) == 0 && type == kDeviceMemory;
}

}  // namespace hydrant
