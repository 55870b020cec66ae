// Idle rings, doorbells, sleep: each message that was sent must be received.
#include "tests/unit/rdma/shm/node_world.hpp"

#include <cerrno>
#include <random>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>

namespace hydrant::testing {
namespace {

constexpr uint32_t kReviews = shm::NodeRings::kPollsBetweenReviews;

// A node in which rank 0 has received a message from each rank.
struct Crowd {
  explicit Crowd(uint32_t ranks) : file(ranks) {
    for (uint32_t i = 0; i < ranks; ++i) {
      members.push_back(std::make_unique<NodeRank>(file.fd, i, ranks));
    }
    for (uint32_t i = 1; i < ranks; ++i) {
      EXPECT_EQ(members[i]->try_send(0, Lane::kRequest, 1, i), Status::kOk);
    }
    EXPECT_EQ(poll(1), ranks - 1);
  }
  uint32_t poll(uint32_t times) {
    uint32_t got = 0;
    for (uint32_t i = 0; i < times; ++i) got += members[0]->transport->poll(inbox, 100, false);
    return got;
  }
  ShmTransport& reader() { return *members[0]->transport; }
  NodeFile file;
  std::vector<std::unique_ptr<NodeRank>> members;
  Inbox inbox;
};

TEST(ShmIdle, FewRingsArePolledForEver) {
  Crowd crowd(5);
  crowd.poll(3 * kReviews);
  EXPECT_EQ(crowd.reader().active_rings(), 4u);
  EXPECT_EQ(crowd.reader().counts().rings_retired, 0u);
}

TEST(ShmIdle, UnusedRingsRetireAndAreReactivated) {
  Crowd crowd(70);  // doorbells in two words
  EXPECT_EQ(crowd.reader().active_rings(), 69u);
  for (uint32_t i = 0; i < 3 * kReviews; i += 100) {
    ASSERT_EQ(crowd.members[3]->try_send(0, Lane::kRequest, 2, 3), Status::kOk);
    ASSERT_EQ(crowd.poll(100), 1u);
  }
  EXPECT_EQ(crowd.reader().active_rings(), 1u);
  EXPECT_EQ(crowd.reader().counts().rings_retired, 68u);
  for (const uint32_t rank : {69u, 1u, 65u}) {
    ASSERT_EQ(crowd.members[rank]->try_send(0, Lane::kRequest, 3, rank), Status::kOk);
    EXPECT_EQ(crowd.poll(1), 1u);
    EXPECT_EQ(crowd.inbox.letters.back().from, rank);
    // Active: no doorbell is rung for the second.
    ASSERT_EQ(crowd.members[rank]->try_send(0, Lane::kRequest, 3, rank), Status::kOk);
    EXPECT_EQ(crowd.members[rank]->transport->counts().doorbells_rung, 2u);
    EXPECT_EQ(crowd.poll(1), 1u);
  }
}

TEST(ShmPoll, IsFairAndKeepsItsBudget) {
  Crowd crowd(4);
  const auto flood = [&](uint32_t rank) {
    while (crowd.members[rank]->try_send(0, Lane::kRequest, 1, rank) == Status::kOk) {
    }
  };
  uint32_t got[4] = {};
  for (int round = 0; round < 300; ++round) {
    for (uint32_t rank = 1; rank < 4; ++rank) flood(rank);
    crowd.inbox.letters.clear();
    EXPECT_LE(crowd.reader().poll(crowd.inbox, 5, false), 5u);
    for (const auto& letter : crowd.inbox.letters) ++got[letter.from];
  }
  for (uint32_t rank = 1; rank < 4; ++rank) EXPECT_GT(got[rank], 400u);
}

TEST(ShmPoll, RepliesComeFirstAndStarveNoRequest) {
  Pair pair;
  for (const uint32_t budget : {1u, 3u, 8u}) {
    uint32_t replies = 0;
    uint32_t requests = 0;
    for (int round = 0; round < 100; ++round) {
      while (pair.a.try_send(1, Lane::kReply, 1, 1) == Status::kOk) {
      }
      while (pair.a.try_send(1, Lane::kRequest, 1, 1) == Status::kOk) {
      }
      pair.inbox.letters.clear();
      pair.poll_b(budget);
      for (const auto& letter : pair.inbox.letters)
        ++(letter.lane == Lane::kReply ? replies : requests);
    }
    EXPECT_GT(replies, requests) << budget;
    EXPECT_GE(requests, 25 * budget / 4) << budget;
  }
  pair.inbox.letters.clear();
  while (pair.poll_b(100, true) != 0) {
  }
  for (const auto& letter : pair.inbox.letters) EXPECT_EQ(letter.lane, Lane::kReply);
}

// A handler of a request polls for replies of the same peer, and does not meet itself.
TEST(ShmPoll, HandlerMayPollTheReplyLane) {
  for (const auto threads : {ShmTransport::Threads::kOne, ShmTransport::Threads::kMany}) {
    Pair pair(threads);
    uint32_t depth = 0;
    uint32_t replies = 0;
    pair.inbox.then = [&](const Incoming& message) {
      if (message.lane == Lane::kReply) {
        ++replies;
        return;
      }
      EXPECT_EQ(++depth, 1u);
      EXPECT_EQ(pair.a.try_send(1, Lane::kReply, 1, 1), Status::kOk);
      EXPECT_EQ(pair.poll_b(10, true), 1u);
      EXPECT_EQ(pair.poll_b(10), 0u);
      --depth;
    };
    for (int i = 0; i < 5; ++i) ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, 1), Status::kOk);
    EXPECT_EQ(pair.poll_b(), 5u);
    EXPECT_EQ(replies, 5u);
  }
}

// ---- sleep ----

TEST(ShmSleep, EndsAtItsDeadline) {
  Pair pair;
  const uint64_t limit = in_seconds(30);
  // A sleep does not begin if this thread stands still until its deadline.
  while (pair.b.transport->counts().sleeps == 0 && now_ns() < limit)
    pair.b.transport->sleeping().sleep(now_ns() + 20'000'000);
  EXPECT_EQ(pair.b.transport->counts().sleeps, 1u);
  EXPECT_LT(now_ns(), limit);
  pair.b.transport->sleeping().sleep(0);
  EXPECT_EQ(pair.b.transport->counts().sleeps, 1u);
}

TEST(ShmSleep, DoesNotBeginWithAMessageWaiting) {
  Pair pair;
  ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, 1), Status::kOk);
  pair.b.transport->sleeping().sleep(in_seconds(30));  // its doorbell has rung
  EXPECT_EQ(pair.poll_b(), 1u);
  ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, 1), Status::kOk);
  pair.b.transport->sleeping().sleep(in_seconds(30));  // it is in an active ring
  EXPECT_EQ(pair.b.transport->counts().sleeps, 0u);
  EXPECT_EQ(pair.poll_b(), 1u);
}

TEST(ShmSleep, WakeIsNotLostBeforeIt) {
  Pair pair;
  pair.b.transport->sleeping().wake();
  pair.b.transport->sleeping().sleep(in_seconds(30));
  EXPECT_EQ(pair.b.transport->counts().sleeps, 0u);
}

TEST(ShmSleep, WakeEndsTheSleepOfAllThreads) {
  Pair pair(ShmTransport::Threads::kMany);
  std::atomic<bool> stop{false};
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 3; ++i) {
    sleepers.emplace_back([&] {
      while (!stop.load()) pair.b.transport->sleeping().sleep(in_seconds(30));
    });
  }
  while (pair.b.transport->counts().sleeps < 3) sched_yield();
  stop.store(true);
  const uint64_t begin = now_ns();
  pair.b.transport->sleeping().wake();
  for (auto& sleeper : sleepers) sleeper.join();
  EXPECT_LT(now_ns() - begin, patient_ns(20'000'000'000u));
}

// ---- a sleep in another thread ----

TEST(ShmSleep, AnotherThreadSleepsForAnAnnouncement) {
  Pair pair;  // of one thread: what the other thread calls has to be safe there, too
  Sleeping::Announcement announcement;
  for (uint64_t i = 0; i < 50; ++i) {
    while (!pair.b.transport->sleeping().announce_sleep(&announcement)) {
    }
    bool is_woken = false;
    std::thread sleeper([&] {
      is_woken = pair.b.transport->sleeping().sleep_announced(announcement, in_seconds(30));
    });
    ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, i), Status::kOk);
    sleeper.join();
    EXPECT_TRUE(is_woken);
    pair.b.transport->sleeping().end_sleep();
    EXPECT_EQ(pair.poll_b(), 1u);
  }
  while (!pair.b.transport->sleeping().announce_sleep(&announcement)) {
  }
  EXPECT_FALSE(pair.b.transport->sleeping().sleep_announced(announcement, now_ns() + 1'000'000));
}

TEST(ShmSleep, NoneIsAnnouncedWithAMessageWaiting) {
  Pair pair;
  Sleeping::Announcement announcement;
  ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, 1), Status::kOk);
  EXPECT_FALSE(pair.b.transport->sleeping().announce_sleep(&announcement));
  EXPECT_EQ(pair.poll_b(), 1u);
  EXPECT_TRUE(pair.b.transport->sleeping().announce_sleep(&announcement));
  pair.b.transport->sleeping().wake();
  EXPECT_TRUE(pair.b.transport->sleeping().sleep_announced(announcement, in_seconds(30)));
  EXPECT_FALSE(pair.b.transport->sleeping().announce_sleep(&announcement))
      << "woken since the last one";
}

// ---- stress: processes that fall asleep and idle as often as they can ----

struct Tally {
  std::atomic<uint64_t> transitions{0};
  std::atomic<uint64_t> done{0};
};

Tally& shared_tally() {
  void* page =
      mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *new (page) Tally;
}

// Each rank sends `rounds` numbered requests to random others and replies to each request; in between, it
// polls at random and sleeps whenever no message came, for so long that a lost message fails the test.
int talk_and_sleep(NodeRank& self, uint32_t rank, uint32_t ranks, uint32_t rounds, Tally& tally) {
  std::minstd_rand engine(rank + 1);
  uint64_t answered = 0;
  bool overslept = false;
  std::vector<uint64_t> owed(ranks);  // replies that did not fit
  Inbox inbox;
  inbox.then = [&](const Incoming& message) {
    if (message.lane == Lane::kReply) {
      ++answered;
    } else {
      ++owed[message.from];
    }
  };
  uint64_t sent = 0;
  bool told = false;
  while (tally.done.load() < ranks) {
    bool busy = false;
    for (uint32_t to = 0; to < ranks; ++to) {
      while (owed[to] != 0 && self.try_send(to, Lane::kReply, 1, 1) == Status::kOk) {
        --owed[to];
        busy = true;
      }
    }
    // A rank has one message outstanding at a time: ranks wait for replies most of the time.
    if (sent == answered && sent < rounds) {
      const auto to = static_cast<uint32_t>((rank + 1 + engine() % (ranks - 1)) % ranks);
      if (self.try_send(to, Lane::kRequest, 1, sent) == Status::kOk) ++sent;
    }
    if (!told && sent == rounds && answered == rounds) {
      told = true;
      if (tally.done.fetch_add(1) + 1 == ranks) break;
    }
    if (self.transport->poll(inbox, 16, false) != 0 || busy) continue;
    if (engine() % 4 == 0) continue;
    const uint64_t begin = now_ns();
    self.transport->sleeping().sleep(begin + (told ? 1'000'000u : patient_ns(10'000'000'000u)));
    overslept = overslept || now_ns() - begin > patient_ns(9'000'000'000u);
  }
  tally.transitions.fetch_add(self.transport->counts().doorbells_rung);
  return overslept ? 3 : (answered == rounds ? 0 : 4);
}

// Which of the ranks may not call membarrier, and since when.
enum class Refused { kNobody, kEverySecond, kEverySecondLater };

void stress(uint32_t ranks, uint32_t rounds, Refused refused) {
  NodeFile file(ranks);
  Tally& tally = shared_tally();
  const auto failed = run_ranks(ranks, [&](uint32_t rank) {
    const bool refuse = rank % 2 == 0 && refused != Refused::kNobody;
    const auto take_away = [] { return refuse_system_call(SYS_membarrier, EPERM); };
    if (refuse && refused == Refused::kEverySecond && !take_away()) return 77;
    NodeRank self(file.fd, rank, ranks);
    if (refuse && refused == Refused::kEverySecondLater && !take_away()) return 77;
    return talk_and_sleep(self, rank, ranks, rounds, tally);
  });
  EXPECT_EQ(failed, "");
  std::cout << "doorbells: " << tally.transitions.load() << " in " << ranks * rounds
            << " exchanges\n";
  EXPECT_GT(tally.transitions.load(), rounds / 4);
  munmap(&tally, sizeof tally);
}

// HYDRANT_TEST_SHM_ROUNDS in the environment makes them longer.
uint32_t rounds_or(uint32_t usual) {
  const char* text = std::getenv("HYDRANT_TEST_SHM_ROUNDS");
  return text != nullptr ? static_cast<uint32_t>(std::atoi(text)) : usual;
}

TEST(ShmStress, TwoProcessesThatSleepLoseNothing) { stress(2, rounds_or(50000), Refused::kNobody); }
TEST(ShmStress, MoreProcessesThanCoresLoseNothing) { stress(7, rounds_or(8000), Refused::kNobody); }
TEST(ShmStress, ProcessesWithAndWithoutMembarrierLoseNothing) {
  stress(2, rounds_or(20000), Refused::kEverySecond);
  stress(5, rounds_or(8000), Refused::kEverySecond);
}
TEST(ShmStress, LateLossOfMembarrierLosesNothing) {
  stress(3, rounds_or(300), Refused::kEverySecondLater);
}

// The race itself: the second message of two is sent at the moment when the reader, having taken the first,
// makes the ring idle. A lost message stays lost, as there is no third.
TEST(ShmStress, MessagesDuringRetirementOfAReaderArrive) {
  for (const auto mode : {ShmTransport::Threads::kOne, ShmTransport::Threads::kMany}) {
    Pair pair(mode);
    const uint64_t messages = 2 * uint64_t{rounds_or(500)};
    std::atomic<uint64_t> got{0};
    std::atomic<bool> stop{false};
    std::thread reader([&] {
      Inbox inbox;
      inbox.then = [&](const Incoming&) { got.fetch_add(1); };
      while (!stop.load()) {
        // A sleep that ends at once makes all rings idle.
        if (pair.b.transport->poll(inbox, 4, false) == 0) pair.b.transport->sleeping().sleep(0);
      }
    });
    const auto heard = [&](uint64_t count) {
      for (uint64_t spins = 0, deadline = in_seconds(5); got.load() < count; ++spins) {
        if (spins % 2000 != 1999) continue;
        if (now_ns() > deadline) return false;
        sched_yield();
      }
      return true;
    };
    std::minstd_rand engine(7);
    uint64_t sent = 0;
    // A busy machine may run the reader only while messages wait: then the race takes more of them.
    const auto doorbells = [&] { return pair.a.transport->counts().doorbells_rung; };
    const uint64_t deadline = in_seconds(30);
    while ((sent < messages || (doorbells() <= 10 && now_ns() < deadline)) && heard(sent)) {
      if (sent % 2 == 1) {
        const auto spins = static_cast<uint32_t>(engine() % 300);
        for (uint32_t i = 0; i < spins; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
      }
      if (pair.a.try_send(1, Lane::kRequest, 1, sent) == Status::kOk) ++sent;
    }
    EXPECT_GE(sent, messages);
    EXPECT_TRUE(heard(sent)) << got.load() << " of " << sent;
    stop.store(true);
    reader.join();
    EXPECT_GT(doorbells(), 10u);
  }
}

// Several threads send, several poll and sleep; order holds per sender ring only as far as one thread
// polls, so what is counted is that all arrive.
TEST(ShmStress, ManyThreadsOnBothSidesLoseNothing) {
  Pair pair(ShmTransport::Threads::kMany);
  constexpr uint64_t kEach = 15000;
  constexpr uint32_t kThreads = 3;
  std::atomic<uint64_t> got{0};
  std::atomic<uint64_t> sum{0};
  std::vector<std::thread> threads;
  const uint64_t deadline = in_seconds(50);
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kEach && now_ns() < deadline;) {
        const bool cell = i % 16 == 0;
        const Status sent = cell ? pair.a.try_send_cell(1, Lane::kRequest, t, 4096, 1)
                                 : pair.a.try_send(1, Lane::kRequest, t, i);
        if (sent == Status::kOk) {
          ++i;
        } else {
          sched_yield();
        }
      }
    });
    threads.emplace_back([&] {
      Inbox inbox;
      inbox.then = [&](const Incoming& message) {
        got.fetch_add(1);
        sum.fetch_add(message.payload != nullptr ? 1 : 0);
      };
      while (got.load() < kThreads * kEach && now_ns() < deadline) {
        if (pair.b.transport->poll(inbox, 8, false) == 0) {
          pair.b.transport->sleeping().sleep(now_ns() + 20'000'000);
        }
      }
      pair.b.transport->sleeping().wake();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(got.load(), kThreads * kEach);
  EXPECT_EQ(sum.load(), kThreads * ((kEach + 15) / 16));
}

}  // namespace
}  // namespace hydrant::testing
