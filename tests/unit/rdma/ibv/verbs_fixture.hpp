// Fixture of the tests that run over any libibverbs: the fake, with a device (HYDRANT_TEST_ADAPTER), and a
// check of its live objects afterwards; or, in the guest (HYDRANT_REAL_VERBS), a device whose counters are
// read.
#pragma once

#ifdef HYDRANT_REAL_VERBS
#include "tests/verbs/device_counters.hpp"
#else
#include "tests/fakes/adapter_profiles.hpp"
#include "tests/fakes/fake_ibverbs.hpp"
#endif

#include <gtest/gtest.h>

#include <cstdint>

namespace hydrant::testing {

#ifdef HYDRANT_REAL_VERBS
class VerbsTest : public ::testing::Test {
 protected:
  void SetUp() override { before_ = read_device_counters(); }
  // Over the fake, the device takes no longer messages from now on.
  static void limit_messages(uint32_t /*bytes*/) {}
  void TearDown() override {
    const DeviceCounters after = read_device_counters();
    EXPECT_EQ(after.not_ready, before_.not_ready) << "a message found no receive buffer";
  }

 private:
  DeviceCounters before_;
};
#else
class VerbsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_verbs::reset();
    fake_verbs::add_device(fake_verbs::adapter());
  }
  static fake_verbs::Device with_messages(uint32_t bytes) {
    fake_verbs::Device device = fake_verbs::adapter();
    device.max_message = bytes;
    return device;
  }
  static void limit_messages(uint32_t bytes) {
    fake_verbs::reset();
    fake_verbs::add_device(with_messages(bytes));
  }
  void TearDown() override {
    EXPECT_TRUE(fake_verbs::live().none()) << "an object was not released";
    const fake_verbs::Traffic traffic = fake_verbs::traffic();
    EXPECT_EQ(traffic.not_ready, 0U) << "a message found no receive buffer";
    EXPECT_EQ(traffic.overruns, 0U) << "a completion found no room";
    EXPECT_EQ(traffic.bad_keys, 0U);
    EXPECT_EQ(traffic.too_early, 0U) << "sent before the peer could receive";
  }
};
#endif

}  // namespace hydrant::testing
