/* The CUDA call that the library uses, in a program without a driver: addresses below all mappable
 * memory are device memory, all other addresses are unknown. */
#include "tests/integration/rma/fake_cuda_driver.h"

#include <stdint.h>

int cuPointerGetAttribute(void* data, int attribute, uint64_t ptr);

int cuPointerGetAttribute(void* data, int attribute, uint64_t ptr) {
  enum { kMemoryType = 2, kDevice = 2, kInvalidValue = 1 };
  if (attribute != kMemoryType || ptr < FAKE_DEVICE_FIRST || ptr >= FAKE_DEVICE_END)
    return kInvalidValue;
  *(uint32_t*)data = kDevice;
  return 0;
}
