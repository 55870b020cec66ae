// Waiting in the kernel over verbs: events that end a sleep. Runs over the fake on any machine, and over a
// real device in the guest. The tests require that a sleep ends in time, not how fast.
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace hydrant {
namespace {

using testing::IbvWorld;

class IbvSleep : public testing::VerbsTest {
 protected:
  // Far longer than a test takes: a sleep that lasts so long was not ended by an event.
  static constexpr double kLong = 100;
};

IbvTransport::Options threaded() {
  IbvTransport::Options options = IbvWorld::single();
  options.single_threaded = false;
  return options;
}

TEST_F(IbvSleep, EndsAtTheDeadline) {
  IbvWorld world(2);
  const uint64_t limit = testing::in_seconds(kLong);
  // A sleep does not begin if this thread stands still until its deadline.
  while (world[0].transport->counts().sleeps == 0 && now_ns() < limit) {
    const uint64_t deadline = now_ns() + 20'000'000;
    while (now_ns() < deadline) world[0].transport->sleeping().sleep(deadline);
  }
  EXPECT_GE(world[0].transport->counts().sleeps, 1U);
  EXPECT_LT(now_ns(), limit);
}

TEST_F(IbvSleep, EndsWhenAMessageArrives) {
  IbvWorld world(2, threaded());
  world.connect(0, 1);
  const uint64_t deadline = testing::in_seconds(kLong);
  std::atomic<bool> is_over{false};
  std::thread reader([&] {
    while (world[1].inbox.count == 0 && now_ns() < deadline) {
      world[1].transport->sleeping().sleep(deadline);
      world[1].poll();
    }
    is_over.store(true);
  });
  // Once it sleeps.
  while (world[1].transport->counts().sleeps == 0 && now_ns() < deadline) sched_yield();
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcdefgh"), Status::kOk);
  while (!is_over.load() && now_ns() < deadline) world[0].poll();
  reader.join();
  EXPECT_LT(now_ns(), deadline);
  EXPECT_EQ(world[1].inbox.count, 1U);
}

TEST_F(IbvSleep, AnotherThreadSleepsForAnAnnouncement) {
  IbvWorld world(2);
  world.connect(0, 1);
  const uint64_t deadline = testing::in_seconds(kLong);
  Sleeping::Announcement announcement;
  for (uint32_t i = 0; i < 5; ++i) {
    while (!world[1].transport->sleeping().announce_sleep(&announcement) && now_ns() < deadline)
      world[1].poll();
    EXPECT_LE(announcement.deadline_ns, world[1].transport->notices().next_poll_ns());
    std::atomic<bool> is_woken{false};
    std::thread sleeper([&] {
      while (!is_woken.load() && now_ns() < deadline)
        is_woken.store(world[1].transport->sleeping().sleep_announced({}, deadline));
    });
    if (i % 2 == 0) {
      EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcdefgh"), Status::kOk);
    } else {
      world[1].transport->sleeping().wake();
    }
    while (!is_woken.load() && now_ns() < deadline) world[0].poll();
    sleeper.join();
    world[1].transport->sleeping().end_sleep();
    EXPECT_TRUE(world.arrived(1, i / 2 + 1));
  }
  ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcdefgh"), Status::kOk);
  world[0].transport->flush(testing::in_seconds(10));
  EXPECT_FALSE(world[1].transport->sleeping().announce_sleep(&announcement));
  EXPECT_TRUE(world.arrived(1, 4));
}

TEST_F(IbvSleep, EndsWhenAPeerConnects) {
  IbvWorld world(2, threaded());
  const uint64_t deadline = testing::in_seconds(kLong);
  std::atomic<bool> is_over{false};
  std::thread reader([&] {
    while (world[1].inbox.count == 0 && now_ns() < deadline) {
      world[1].transport->sleeping().sleep(deadline);
      world[1].poll();
    }
    is_over.store(true);
  });
  while (world[1].transport->counts().sleeps == 0 && now_ns() < deadline) sched_yield();
  while (world[0].try_send(1, Lane::kRequest, 1, "abcdefgh") == Status::kNotReady &&
         now_ns() < deadline)
    world[0].poll();
  while (!is_over.load() && now_ns() < deadline) world[0].poll();
  reader.join();
  EXPECT_LT(now_ns(), deadline);
}

TEST_F(IbvSleep, DoesNotBeginWithAMessageWaiting) {
  IbvWorld world(2);
  world.connect(0, 1);
  const uint64_t before = world[1].transport->counts().sleeps;
  ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcdefgh"), Status::kOk);
  world[0].transport->flush(testing::in_seconds(10));
  world[1].transport->sleeping().sleep(testing::in_seconds(kLong));
  EXPECT_EQ(world[1].transport->counts().sleeps, before);
  EXPECT_TRUE(world.arrived(1, 1));
}

// A sender that waits for room must see returned credits, which come in a message without a payload.
TEST_F(IbvSleep, DoesNotBeginWithCreditsWaiting) {
  IbvWorld world(2);
  world.connect(0, 1);
  for (int i = 0; i < 100; ++i) world.poll_all();  // until no message is left to take
  while (world[0].try_send(1, Lane::kRequest, 1, "abcdefgh") == Status::kOk) {
  }
  world[0].transport->flush(testing::in_seconds(10));
  world[0].poll();
  ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcdefgh"), Status::kNotReady);
  const uint64_t before = world[0].transport->counts().sleeps;
  world[1].poll();
  ASSERT_GE(world[1].transport->counts().control, 1U);
  world[1].transport->flush(testing::in_seconds(10));
  world[0].transport->sleeping().sleep(now_ns() + 1'000'000'000);
  EXPECT_EQ(world[0].transport->counts().sleeps, before);
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcdefgh"), Status::kOk);
}

TEST_F(IbvSleep, DoesNotBeginWhenItsConditionHolds) {
  IbvWorld world(2);
  bool asked = false;
  world[0].transport->sleeping().sleep(testing::in_seconds(kLong),
                                       {[](const void* context) noexcept {
                                          *static_cast<bool*>(const_cast<void*>(context)) = true;
                                          return true;
                                        },
                                        &asked});
  EXPECT_TRUE(asked);
  EXPECT_EQ(world[0].transport->counts().sleeps, 0U);
}

TEST_F(IbvSleep, WakeEndsTheSleepOfAllThreads) {
  IbvWorld world(2, threaded());
  const uint64_t deadline = testing::in_seconds(kLong);
  std::atomic<bool> wanted{false};
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 3; ++i) {
    sleepers.emplace_back([&] {
      while (!wanted.load() && now_ns() < deadline) world[0].transport->sleeping().sleep(deadline);
    });
  }
  while (world[0].transport->counts().sleeps < 3 && now_ns() < deadline) sched_yield();
  wanted.store(true);
  world[0].transport->sleeping().wake();
  for (std::thread& sleeper : sleepers) sleeper.join();
  EXPECT_LT(now_ns(), deadline);
}

TEST_F(IbvSleep, EarlierWakeIsNotForgotten) {
  IbvWorld world(2);
  world[0].transport->sleeping().sleep(now_ns() + 1'000'000);
  world[0].transport->sleeping().wake();
  world[0].transport->sleeping().sleep(testing::in_seconds(kLong));
  SUCCEED() << "it has returned";
}

TEST_F(IbvSleep, NapsWithoutAChannel) {
  IbvTransport::Options options = IbvWorld::single();
  options.has_channel = false;
  IbvWorld world(2, options);
  world.connect(0, 1);
  ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcdefgh"), Status::kOk);
  const uint64_t deadline = testing::in_seconds(kLong);
  while (world[1].inbox.count == 0 && now_ns() < deadline) {
    world[1].transport->sleeping().sleep(deadline);
    world[1].poll();
  }
  EXPECT_LT(now_ns(), deadline);
}

}  // namespace
}  // namespace hydrant
