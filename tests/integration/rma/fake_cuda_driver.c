/* What the library asks of a CUDA driver, in a program that has none: addresses that no process has memory at
 * are a device's, everything else is unknown to it. */
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
