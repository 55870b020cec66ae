// Event descriptors over shared memory: each event makes an armed descriptor readable. Where no interval is
// set, a descriptor becomes readable by events alone, so a lost one fails the test at its time limit.
#include "am/progress/event_descriptors.hpp"

#include "am/progress/unfinished.hpp"
#include "tests/unit/am/fake_transport.hpp"
#include "tests/unit/rdma/shm/node_world.hpp"

#include <atomic>
#include <chrono>
#include <fcntl.h>
#include <functional>
#include <poll.h>
#include <random>
#include <thread>
#include <unistd.h>
#include <utility>

namespace hydrant::testing {
namespace {

using Threads = ShmTransport::Threads;

constexpr uint64_t kNever = 3'600'000'000'000;
constexpr int kLongMs = 100'000;

bool has_something = false;
bool report_something() noexcept { return has_something; }

EventDescriptors::Options only_events(Sleeping* sleeping) {
  return {.sleeping = sleeping,
          .has_events = report_something,
          .min_interval_ns = kNever,
          .max_interval_ns = kNever};
}

bool is_readable(int descriptor, int timeout_ms = 0) {
  pollfd waits = {descriptor, POLLIN, 0};
  const int ready = ::poll(&waits, 1, static_cast<int>(timeout_ms * patience()));
  return ready == 1 && waits.revents == POLLIN;
}

// Arms after what has happened so far was noticed.
Status arm_at_last(EventDescriptors& descriptors, int descriptor) {
  Status status = Status::kNotReady;
  for (int i = 0; i < 100 && status == Status::kNotReady; ++i) status = descriptors.arm(descriptor);
  return status;
}

struct EventDescriptorsTest : ::testing::Test {
  void SetUp() override {
    has_something = false;
    ASSERT_EQ(descriptors.open(&descriptor), Status::kOk);
  }
  Pair pair{Threads::kOne};
  EventDescriptors descriptors{only_events(&pair.b.transport->sleeping())};
  int descriptor = -1;
};

TEST_F(EventDescriptorsTest, MessageMakesADescriptorReadable) {
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(arm_at_last(descriptors, descriptor), Status::kOk);
    EXPECT_FALSE(is_readable(descriptor));
    ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, i), Status::kOk);
    EXPECT_TRUE(is_readable(descriptor, kLongMs));
    EXPECT_TRUE(is_readable(descriptor)) << "until it is armed again";
    EXPECT_EQ(pair.poll_b(), 1u);
  }
}

TEST_F(EventDescriptorsTest, EarlierMessageIsFoundByArming) {
  ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, 1), Status::kOk);
  EXPECT_EQ(descriptors.arm(descriptor), Status::kNotReady);
  EXPECT_FALSE(is_readable(descriptor));
  EXPECT_EQ(pair.poll_b(), 1u);
  EXPECT_EQ(arm_at_last(descriptors, descriptor), Status::kOk);
  // A message in a ring that a poll has visited meanwhile: the sender does not ring, arming again finds it.
  ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, 1), Status::kOk);
  EXPECT_EQ(pair.poll_b(), 1u);
  ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, 1), Status::kOk);
  EXPECT_EQ(descriptors.arm(descriptor), Status::kNotReady);
  EXPECT_EQ(pair.poll_b(), 1u);
}

TEST_F(EventDescriptorsTest, WakingMakesAllReadable) {
  int second = -1;
  ASSERT_EQ(descriptors.open(&second), Status::kOk);
  ASSERT_EQ(arm_at_last(descriptors, descriptor), Status::kOk);
  ASSERT_EQ(arm_at_last(descriptors, second), Status::kOk);
  pair.b.transport->sleeping().wake();
  EXPECT_TRUE(is_readable(descriptor, kLongMs));
  EXPECT_TRUE(is_readable(second, kLongMs));
  ASSERT_EQ(arm_at_last(descriptors, descriptor), Status::kOk);
  pair.a.transport->sleeping().wake_peer(1);
  EXPECT_TRUE(is_readable(descriptor, kLongMs));
  EXPECT_TRUE(is_readable(second)) << "it was not armed again";
}

TEST_F(EventDescriptorsTest, WorkBesidesMessagesIsFoundByArming) {
  ASSERT_EQ(arm_at_last(descriptors, descriptor), Status::kOk);
  has_something = true;
  EXPECT_EQ(arm_at_last(descriptors, descriptor), Status::kNotReady);
  has_something = false;
  ASSERT_EQ(arm_at_last(descriptors, descriptor), Status::kOk);
  EXPECT_FALSE(is_readable(descriptor, 20));
}

TEST_F(EventDescriptorsTest, NeedsADescriptorOfItsOwn) {
  EXPECT_EQ(descriptors.arm(-1), Status::kBadArg);
  EXPECT_EQ(descriptors.arm(0), Status::kBadArg);
  EXPECT_EQ(descriptors.close(0), Status::kBadArg);
  ASSERT_EQ(arm_at_last(descriptors, descriptor), Status::kOk);
  EXPECT_EQ(descriptors.close(descriptor), Status::kOk);
  EXPECT_EQ(fcntl(descriptor, F_GETFD), -1);
  EXPECT_EQ(descriptors.arm(descriptor), Status::kBadArg);
  EXPECT_EQ(descriptors.close(descriptor), Status::kBadArg);
}

TEST_F(EventDescriptorsTest, SixtyFourMayBeOpen) {
  std::vector<int> opened;
  for (uint32_t i = 1; i < EventDescriptors::kMax; ++i) {
    opened.push_back(-1);
    ASSERT_EQ(descriptors.open(&opened.back()), Status::kOk);
  }
  int one_more = -1;
  EXPECT_EQ(descriptors.open(&one_more), Status::kResource);
  EXPECT_EQ(one_more, -1);
  EXPECT_EQ(descriptors.close(opened.back()), Status::kOk);
  EXPECT_EQ(descriptors.open(&one_more), Status::kOk);
  EXPECT_EQ(fcntl(one_more, F_GETFD), FD_CLOEXEC);
}

// Counts announcements that have not ended.
class CountingTransport final : public test::FakeTransport {
 public:
  bool announce_sleep(Announcement* announcement) noexcept override {
    ++announced;
    *announcement = {};  // without a deadline, so that nothing ends it but the test
    return true;
  }
  void end_sleep() noexcept override { --announced; }
  std::atomic<int> announced{0};
};

// Called between the two halves of an arming, in place of another thread.
std::function<void()> meanwhile;
bool let_others_act() noexcept {
  if (meanwhile) std::exchange(meanwhile, nullptr)();
  return false;
}

TEST(EventDescriptors, ArmedWhileOthersCloseAndArm) {
  CountingTransport transport;
  EventDescriptors descriptors({.sleeping = &transport,
                                .has_events = let_others_act,
                                .min_interval_ns = kNever,
                                .max_interval_ns = kNever});
  int descriptor = -1;
  ASSERT_EQ(descriptors.open(&descriptor), Status::kOk);
  meanwhile = [&] { EXPECT_EQ(descriptors.arm(descriptor), Status::kOk); };
  EXPECT_EQ(descriptors.arm(descriptor), Status::kOk);
  EXPECT_EQ(transport.announced, 1) << "one announcement for one armed descriptor";
  meanwhile = [&] { EXPECT_EQ(descriptors.close(descriptor), Status::kOk); };
  EXPECT_EQ(descriptors.arm(descriptor), Status::kBadArg);
  EXPECT_EQ(transport.announced, 0);
}

// The program's file under that number is left alone.
TEST_F(EventDescriptorsTest, ProgramMayCloseADescriptor) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP()
      << "the thread sanitizer reports that the program closes what another thread looks at";
#endif
  ASSERT_EQ(arm_at_last(descriptors, descriptor), Status::kOk);
  ::close(descriptor);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(dup2(ends[1], descriptor), descriptor);
  pair.b.transport->sleeping().wake();
  EXPECT_EQ(descriptors.arm(descriptor), Status::kBadArg);
  EXPECT_FALSE(is_readable(ends[0], 20));
  ::close(descriptor);
  int next = -1;
  ASSERT_EQ(descriptors.open(&next), Status::kOk);
  EXPECT_EQ(next, descriptor) << "the kernel's lowest number";
  ASSERT_EQ(arm_at_last(descriptors, next), Status::kOk);
  ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, 1), Status::kOk);
  EXPECT_TRUE(is_readable(next, kLongMs));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(EventDescriptors, TimeMakesADescriptorReadable) {
  has_something = false;
  Pair pair;
  test::FakeTransport naps;
  for (Sleeping* sleeping : {&pair.b.transport->sleeping(), static_cast<Sleeping*>(&naps),
                             static_cast<Sleeping*>(nullptr)}) {
    EventDescriptors descriptors({.sleeping = sleeping,
                                  .has_events = nullptr,
                                  .min_interval_ns = 1'000'000,
                                  .max_interval_ns = 5'000'000});
    int descriptor = -1;
    ASSERT_EQ(descriptors.open(&descriptor), Status::kOk);
    for (int i = 0; i < 5; ++i) {
      ASSERT_EQ(arm_at_last(descriptors, descriptor), Status::kOk);
      EXPECT_TRUE(is_readable(descriptor, kLongMs));
    }
  }
}

uint32_t do_nothing(void*) { return 0; }

TEST(EventDescriptors, SilentWorkMakesADescriptorReadableSoon) {
  has_something = false;
  Pair pair;
  ProgressTable progress;
  EventDescriptors::Options options = only_events(&pair.b.transport->sleeping());
  options.progress = &progress;
  options.silent_interval_ns = 1'000'000;
  EventDescriptors descriptors(options);
  int first = -1;
  int second = -1;
  ASSERT_EQ(descriptors.open(&first), Status::kOk);
  ASSERT_EQ(descriptors.open(&second), Status::kOk);
  ASSERT_EQ(arm_at_last(descriptors, first), Status::kOk);
  EXPECT_FALSE(is_readable(first, 20));
  // The library's thread sleeps for the first descriptor until an event, and has to look sooner.
  progress.add(do_nothing, &progress, true);
  ASSERT_EQ(arm_at_last(descriptors, second), Status::kOk);
  EXPECT_TRUE(is_readable(second, kLongMs));
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(arm_at_last(descriptors, first), Status::kOk);
    EXPECT_TRUE(is_readable(first, kLongMs));
    // Other work begins: the time since then counts.
    progress.add(do_nothing, &progress, true);
  }
  progress.remove(do_nothing, &progress);
  ASSERT_EQ(arm_at_last(descriptors, first), Status::kOk);
  EXPECT_FALSE(is_readable(first, 20));
}

bool goes_on = false;

TEST(EventDescriptors, UnfinishedOperationsMakeADescriptorReadableSoon) {
  has_something = false;
  Pair pair;
  EventDescriptors::Options options = only_events(&pair.b.transport->sleeping());
  options.silent_interval_ns = 1'000'000;
  EventDescriptors descriptors(options);
  int descriptor = -1;
  ASSERT_EQ(descriptors.open(&descriptor), Status::kOk);
  Unfinished operation;
  operation.proceed = [](Unfinished&) noexcept { return goes_on; };
  continue_in_polls(operation);
  ASSERT_EQ(arm_at_last(descriptors, descriptor), Status::kOk);
  EXPECT_TRUE(is_readable(descriptor, kLongMs));
  goes_on = true;
  EXPECT_EQ(continue_unfinished(), 1u);
  ASSERT_EQ(arm_at_last(descriptors, descriptor), Status::kOk);
  EXPECT_FALSE(is_readable(descriptor, 20));
}

// ---- rounds: no event is lost ----

// A rank that waits in poll(2) whenever there is nothing to do.
struct LoopingRank {
  LoopingRank(NodeRank& self_in, Rank peer_in)
      : self(self_in), peer(peer_in), descriptors(only_events(&self_in.transport->sleeping())) {
    inbox.then = [this](const Incoming&) { ++got; };
    EXPECT_EQ(descriptors.open(&descriptor), Status::kOk);
  }
  // False: an event was lost, or the rank has slept too long.
  bool wait_for(uint64_t count) {
    while (got < count) {
      if (self.transport->poll(inbox, 4, false) != 0) continue;
      if (descriptors.arm(descriptor) != Status::kOk) continue;
      ++sleeps;
      if (!is_readable(descriptor, 20'000)) return false;
    }
    return true;
  }
  NodeRank& self;
  const Rank peer;
  Inbox inbox;
  uint64_t got = 0;
  uint64_t sleeps = 0;
  EventDescriptors descriptors;
  int descriptor = -1;
};

TEST(EventDescriptors, RandomRoundsLoseNothing) {
  has_something = false;
  for (const Threads threads : {Threads::kOne, Threads::kMany}) {
    Pair pair(threads);
    constexpr uint64_t kRounds = 3000;
    std::atomic<bool> failed{false};
    std::atomic<uint64_t> sleeps{0};
    const auto play = [&](NodeRank& self, Rank peer) {
      LoopingRank rank(self, peer);
      std::minstd_rand engine(peer + 1);
      for (uint64_t round = 0; round < kRounds && !failed.load(); ++round) {
        for (auto spins = engine() % 3000; spins > 0; --spins)
          std::atomic_signal_fence(std::memory_order_seq_cst);
        // Long enough for the peer to fall asleep.
        if (round % 50 == peer) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        while (self.try_send(peer, Lane::kRequest, 1, round) == Status::kNotReady) {
          (void)self.transport->poll(rank.inbox, 4, false);
        }
        if (!rank.wait_for(round + 1)) failed.store(true);
      }
      sleeps.fetch_add(rank.sleeps);
    };
    std::thread other([&] { play(pair.b, 0); });
    play(pair.a, 1);
    other.join();
    EXPECT_FALSE(failed.load());
    EXPECT_GT(sleeps.load(), 0u) << "nothing was tested";
  }
}

// Threads of one rank with a descriptor each: a thread that handles a message wakes the others, as a poll of
// the library does, so that each sees the end.
TEST(EventDescriptors, ThreadsWithTheirOwnLoseNothing) {
  has_something = false;
  Pair pair(Threads::kMany);
  EventDescriptors descriptors(only_events(&pair.b.transport->sleeping()));
  constexpr uint64_t kMessages = 1500;
  std::atomic<uint64_t> got{0};
  std::atomic<uint32_t> lost{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      Inbox inbox;
      inbox.then = [&](const Incoming&) { got.fetch_add(1); };
      int descriptor = -1;
      EXPECT_EQ(descriptors.open(&descriptor), Status::kOk);
      while (got.load() < kMessages) {
        if (pair.b.transport->poll(inbox, 1, false) != 0) {
          pair.b.transport->sleeping().wake();
          continue;
        }
        if (descriptors.arm(descriptor) != Status::kOk) continue;
        if (got.load() < kMessages && !is_readable(descriptor, 20'000)) {
          lost.fetch_add(1);
          break;
        }
      }
      EXPECT_EQ(descriptors.close(descriptor), Status::kOk);
    });
  }
  std::minstd_rand engine(3);
  const uint64_t deadline = in_seconds(60);
  for (uint64_t sent = 0; sent < kMessages && lost.load() == 0 && now_ns() < deadline;) {
    if (engine() % 8 == 0) {
      while (got.load() < sent && lost.load() == 0 && now_ns() < deadline) sched_yield();
    }
    if (pair.a.try_send(1, Lane::kRequest, 1, sent) == Status::kOk) ++sent;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lost.load(), 0u);
  EXPECT_EQ(got.load(), kMessages);
}

}  // namespace
}  // namespace hydrant::testing
