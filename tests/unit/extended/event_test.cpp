// The pools of events: a taken event is exclusive, a returned event is reused, in any thread.
#include "extended/event/event.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace hydrant {
namespace {

bool never(hydrant_event&) noexcept { return false; }

TEST(EventPool, TakenEventsAreDistinct) {
  std::set<hydrant_event*> taken;
  for (int i = 0; i < 1000; ++i) {
    hydrant_event* event = take_event();
    ASSERT_NE(event, nullptr);
    EXPECT_EQ(event->is_done, nullptr);
    event->is_done = never;
    EXPECT_TRUE(taken.insert(event).second);
  }
  const uint64_t events = event_counts().events;
  for (hydrant_event* event : taken) {
    release_event(event);
    EXPECT_EQ(event->is_done, nullptr) << "marks a free event";
  }
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(taken.count(take_event()), 1u);
  for (hydrant_event* event : taken) release_event(event);
  EXPECT_EQ(event_counts().events, events);
}

TEST(EventPool, EventsReturnedByOtherThreadsAreReused) {
  uint64_t events = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<hydrant_event*> taken(100);
    for (hydrant_event*& event : taken) event = take_event();
    std::thread([&] {
      for (hydrant_event* event : taken) release_event(event);
    }).join();
    if (round == 10) events = event_counts().events;
  }
  EXPECT_EQ(event_counts().events, events) << "the pool grew";
}

TEST(EventPool, PoolsOfEndedThreadsAreUsedAgain) {
  const uint64_t pools = event_counts().pools;
  std::vector<hydrant_event*> left;
  for (int i = 0; i < 100; ++i) {
    std::thread([&] {
      release_event(take_event());
      left.push_back(take_event());  // outlives its thread
    }).join();
  }
  EXPECT_LE(event_counts().pools, pools + 1);
  EXPECT_EQ(std::set<hydrant_event*>(left.begin(), left.end()).size(), left.size());
  for (hydrant_event* event : left) release_event(event);
}

// Threads exchange events through a common bag: they put in the events that they take, and release
// those that they find.
TEST(EventPool, ManyThreadsExchange) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 20000;
  std::mutex mu;
  std::vector<hydrant_event*> bag;
  std::atomic<uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        hydrant_event* mine = take_event();
        if (mine->number != 0 || mine->is_done != nullptr) ++wrong;
        mine->number = static_cast<uint64_t>(t) + 1;
        mine->is_done = never;
        hydrant_event* theirs = nullptr;
        {
          const std::lock_guard lock(mu);
          bag.push_back(mine);
          if (bag.size() > 64) {
            theirs = bag[static_cast<size_t>(i) % bag.size()];
            std::swap(bag[static_cast<size_t>(i) % bag.size()], bag.back());
            bag.pop_back();
          }
        }
        if (theirs == nullptr) continue;
        if (theirs->number == 0) ++wrong;
        release_event(theirs);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(std::set<hydrant_event*>(bag.begin(), bag.end()).size(), bag.size());
  for (hydrant_event* event : bag) release_event(event);
}

}  // namespace
}  // namespace hydrant
