// The grammar of HYDRANT_INJECT, and the times that follow from it.
#include "rdma/injected/injected_settings.hpp"

#include "rdma/injected/injected_link.hpp"
#include "rdma/injection.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace hydrant {
namespace {

Injection parsed(const char* text) {
  Injection injection;
  EXPECT_EQ(parse_injection(text, &injection), Status::kOk) << last_error_text();
  return injection;
}

TEST(InjectedSettings, EmptyTextInjectsNothing) {
  for (const char* text : {"", "  "}) {
    const Injection none = parsed(text);
    EXPECT_FALSE(none.send_only || none.has_network || none.hides_memory());
  }
}

TEST(InjectedSettings, EachItemIsUnderstood) {
  EXPECT_TRUE(parsed("send_only").send_only);
  EXPECT_FALSE(parsed("send_only").has_network);
  EXPECT_TRUE(parsed("send_only").hides_memory());
  const Injection all =
      parsed("delay=5us, bandwidth=10G,credits=8,window=64K,cells=3,depth=32,reorder=1ms,seed=7");
  EXPECT_TRUE(all.has_network && all.hides_memory() && !all.send_only);
  EXPECT_EQ(all.network.delay_ns, 5000u);
  EXPECT_EQ(all.network.bytes_per_second, uint64_t{10} << 30);
  EXPECT_EQ(all.network.credits, 8u);
  EXPECT_EQ(all.network.window_bytes, 65536u);
  EXPECT_EQ(all.network.cells, 3u);
  EXPECT_EQ(all.network.depth, 32u);
  EXPECT_EQ(all.network.reorder_ns, 1'000'000u);
  EXPECT_EQ(all.network.seed, 7u);
  const Injection both = parsed("send_only,delay=0");
  EXPECT_TRUE(both.send_only && both.has_network);
}

TEST(InjectedSettings, ReorderWithoutATimeFollowsTheDelay) {
  EXPECT_EQ(parsed("delay=5us,reorder").network.reorder_ns, 20'000u);
  EXPECT_EQ(parsed("reorder,delay=1ms").network.reorder_ns, 4'000'000u);
  EXPECT_NE(parsed("reorder").network.reorder_ns, 0u);
  EXPECT_EQ(parsed("delay=5us").network.reorder_ns, 0u);
}

TEST(InjectedSettings, PinsHaveALimitOrAreFakeOrNeither) {
  EXPECT_FALSE(parsed("delay=5us").network.has_pins);
  const Injection plain = parsed("pins");
  EXPECT_TRUE(plain.has_network && plain.hides_memory() && plain.network.has_pins);
  EXPECT_FALSE(plain.network.pins_are_fake);
  EXPECT_EQ(plain.network.pin_bytes, 0u);
  const Injection limited = parsed("delay=5us,pins=64K");
  EXPECT_TRUE(limited.network.has_pins);
  EXPECT_FALSE(limited.network.pins_are_fake);
  EXPECT_EQ(limited.network.pin_bytes, 65536u);
  EXPECT_EQ(limited.network.delay_ns, 5000u);
  const Injection fake = parsed("pins=fake,depth=2");
  EXPECT_TRUE(fake.network.has_pins && fake.network.pins_are_fake);
  EXPECT_EQ(fake.network.pin_bytes, 0u);
}

TEST(InjectedSettings, ErrorsNameTheTextAndTheKnownKeys) {
  struct Case {
    const char* text;
    const char* named;
  };
  for (const Case& now : {Case{"dely=5us", "'dely=5us' is not known"},
                          Case{"sendonly", "'sendonly' is not known"},
                          Case{"send_only=1", "is not known"},
                          Case{"delay=5us,,seed=1", "'' is not known"},
                          Case{"delay", "delay"},
                          Case{"delay=", "a time up to 1s"},
                          Case{"delay=2s", "a time up to 1s"},
                          Case{"delay=fast", "'fast' for delay"},
                          Case{"delay=never", "'never' for delay"},
                          Case{"delay=NEVER", "a time up to 1s"},
                          Case{"reorder=never", "'never' for reorder"},
                          Case{"credits=0", "from 1 to 4096"},
                          Case{"credits=4097", "from 1 to 4096"},
                          Case{"bandwidth=0", "bytes per second"},
                          Case{"depth=0", "1048576"},
                          Case{"cells=-1", "'-1' for cells"},
                          Case{"window=0", "such as 64K"},
                          Case{"reorder=0", "or nothing"},
                          Case{"reorder=", "or nothing"},
                          Case{"seed=x", "'x' for seed"},
                          Case{"pins=0", "'0' for pins"},
                          Case{"pins=", "or fake"},
                          Case{"pins=real", "from 4K"},
                          Case{"pins,pins=fake", "pins is said twice"},
                          Case{"delay=1us,delay=2us", "delay is said twice"},
                          Case{"pins,send_only", "leave out one of the two"},
                          Case{"send_only,send_only", "said twice"}}) {
    SCOPED_TRACE(now.text);
    Injection injection;
    injection.network.seed = 99;
    EXPECT_EQ(parse_injection(now.text, &injection), Status::kBadArg);
    const std::string said = last_error_text();
    EXPECT_NE(said.find(now.named), std::string::npos) << said;
    EXPECT_NE(said.find(std::string("HYDRANT_INJECT is '") + now.text), std::string::npos) << said;
    EXPECT_EQ(injection.network.seed, 99u);
    EXPECT_FALSE(injection.hides_memory());
  }
  Injection injection;
  EXPECT_EQ(parse_injection("speed=5", &injection), Status::kBadArg);
  for (const char* known : {"send_only", "delay=", "bandwidth=", "credits=", "window=", "cells=",
                            "depth=", "reorder", "seed=", "pins=SIZE"}) {
    EXPECT_NE(std::string(last_error_text()).find(known), std::string::npos) << known;
  }
}

TEST(InjectedSettings, VariableIsRead) {
  ASSERT_EQ(setenv("HYDRANT_INJECT", "delay=7us", 1), 0);
  Injection injection;
  EXPECT_EQ(read_injection(&injection), Status::kOk);
  EXPECT_EQ(injection.network.delay_ns, 7000u);
  ASSERT_EQ(unsetenv("HYDRANT_INJECT"), 0);
  EXPECT_EQ(read_injection(&injection), Status::kOk);
  EXPECT_FALSE(injection.hides_memory());
}

TEST(InjectedLink, DelayAndBandwidthAddUpAndQueue) {
  InjectedNetwork network;
  network.delay_ns = 1000;
  InjectedLink fast(network, 0, 1);
  EXPECT_EQ(fast.send(100, 1'000'000), 1100u);
  EXPECT_EQ(fast.send(100, 1), 1100u);
  network.bytes_per_second = 1'000'000'000;  // a byte in a nanosecond
  InjectedLink link(network, 0, 1);
  EXPECT_EQ(link.send(100, 500), 1600u);
  EXPECT_EQ(link.send(100, 50), 1650u);   // behind the other
  EXPECT_EQ(link.send(5000, 50), 6050u);  // the wire was free
  link.occupy(5050, 100);
  EXPECT_EQ(link.send(5050, 0), 6150u);
}

TEST(InjectedLink, SameSeedGivesTheSameTimesAndPairsDiffer) {
  InjectedNetwork network;
  network.reorder_ns = 10'000;
  network.seed = 5;
  InjectedLink first(network, 0, 1);
  InjectedLink again(network, 0, 1);
  InjectedLink other_pair(network, 0, 2);
  network.seed = 6;
  InjectedLink other_seed(network, 0, 1);
  int differ_by_pair = 0;
  int differ_by_seed = 0;
  for (uint64_t now = 0; now < 100; ++now) {
    const uint64_t arrives = first.send(now, 8);
    EXPECT_GE(arrives, now);
    EXPECT_LT(arrives, now + 10'000);
    EXPECT_EQ(again.send(now, 8), arrives);
    differ_by_pair += other_pair.send(now, 8) != arrives ? 1 : 0;
    differ_by_seed += other_seed.send(now, 8) != arrives ? 1 : 0;
  }
  EXPECT_GT(differ_by_pair, 90);
  EXPECT_GT(differ_by_seed, 90);
}

}  // namespace
}  // namespace hydrant
