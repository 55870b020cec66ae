// Counters of a verbs device of the guest, from /sys/class/infiniband/DEVICE/ports/1/hw_counters.
#pragma once

#include <cstdint>

namespace hydrant::testing {

struct DeviceCounters {
  uint64_t sent = 0;       // packets
  uint64_t not_ready = 0;  // receiver-not-ready errors, sent or received
  uint64_t sends = 0;      // RDMA sends by the device
  uint64_t repeated = 0;   // retransmissions by the device
};
DeviceCounters read_device_counters(const char* device = "rxe0");

}  // namespace hydrant::testing
