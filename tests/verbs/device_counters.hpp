// What a verbs device of the guest has counted, from /sys/class/infiniband/DEVICE/ports/1/hw_counters.
#pragma once

#include <cstdint>

namespace hydrant::testing {

struct DeviceCounters {
  uint64_t sent = 0;       // packets
  uint64_t not_ready = 0;  // negative answers of a receiver without a buffer, sent or got
  uint64_t sends = 0;      // RDMA sends that the device has carried out
  uint64_t repeated = 0;   // times that the device has begun to send again
};
DeviceCounters read_device_counters(const char* device = "rxe0");

}  // namespace hydrant::testing
