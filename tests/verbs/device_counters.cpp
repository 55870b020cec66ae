#include "tests/verbs/device_counters.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace hydrant::testing {
namespace {

uint64_t counter(const char* name) {
  std::ifstream file(std::string("/sys/class/infiniband/rxe0/ports/1/hw_counters/") + name);
  uint64_t value = 0;
  EXPECT_TRUE(file >> value) << name;
  return value;
}

}  // namespace

DeviceCounters read_device_counters() {
  return {counter("sent_pkts"), counter("rcvd_rnr_err") + counter("send_rnr_err"),
          counter("rdma_sends")};
}

}  // namespace hydrant::testing
