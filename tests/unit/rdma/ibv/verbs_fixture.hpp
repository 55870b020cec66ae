// What the tests that run over any libibverbs need of the one that they run over: here the fake, with one
// device and a look at its books afterwards.
#pragma once

#include "tests/fakes/fake_ibverbs.hpp"

#include <gtest/gtest.h>

namespace hydrant::testing {

class VerbsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_verbs::reset();
    fake_verbs::add_device({});
  }
  void TearDown() override {
    EXPECT_TRUE(fake_verbs::live().none()) << "something was not given back";
    const fake_verbs::Traffic traffic = fake_verbs::traffic();
    EXPECT_EQ(traffic.not_ready, 0U) << "a message found no receive buffer";
    EXPECT_EQ(traffic.overruns, 0U) << "a completion found no room";
    EXPECT_EQ(traffic.bad_keys, 0U);
    EXPECT_EQ(traffic.too_early, 0U) << "sent before the peer could receive";
  }
};

}  // namespace hydrant::testing
