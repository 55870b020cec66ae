// Reads the hardware counters of the guest's verbs device from sysfs.
#include "tests/verbs/device_counters.hpp"

#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <string>

namespace hydrant::testing {
namespace {

uint64_t counter(const char* device, const char* name) {
  std::ifstream file(std::string("/sys/class/infiniband/") + device + "/ports/1/hw_counters/" +
                     name);
  uint64_t value = 0;
  EXPECT_TRUE(file >> value) << name;
  return value;
}

}  // namespace

DeviceCounters read_device_counters(const char* device) {
  // The kernel caches the counters for one tick of 4 ms.
  const timespec ticks{0, 20'000'000};
  nanosleep(&ticks, nullptr);
  return {counter(device, "sent_pkts"),
          counter(device, "rcvd_rnr_err") + counter(device, "send_rnr_err"),
          counter(device, "rdma_sends"), counter(device, "completer_retry_err")};
}

}  // namespace hydrant::testing
