// What the guest's verbs device has counted, from /sys/class/infiniband/rxe0/ports/1/hw_counters.
#pragma once

#include <cstdint>

namespace hydrant::testing {

struct DeviceCounters {
  uint64_t sent = 0;       // packets
  uint64_t not_ready = 0;  // negative answers of a receiver without a buffer, sent or got
  uint64_t sends = 0;      // RDMA sends that the device has carried out
  uint64_t repeated = 0;   // times that the device has begun to send again
};
DeviceCounters read_device_counters();

}  // namespace hydrant::testing
