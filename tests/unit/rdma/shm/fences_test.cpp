// Which side pays for the order of a store and a load: a successful run does not show it, since a processor
// reorders them once in a million times. Also interleavings at the moment of a check.
#include "rdma/shm/memory/global_membarrier.hpp"
#include "tests/unit/rdma/shm/node_world.hpp"

#include <cerrno>
#include <csignal>
#include <sys/mman.h>
#include <sys/syscall.h>

namespace hydrant::testing {
namespace {

constexpr int kWrote = 40;  // a child's exit codes
constexpr int kOnlyRead = 41;

// Sends a message while the page of the attention word is read-only: a sender that only reads it succeeds.
// Runs in a child process.
int send_without_touching(NodeRank& sender, uint32_t to) {
  struct sigaction action {};
  action.sa_handler = [](int) { _exit(kWrote); };
  sigaction(SIGSEGV, &action, nullptr);
  auto& control = sender.memory.control(sender.memory.node_rank(), to, Lane::kRequest);
  auto page = reinterpret_cast<uintptr_t>(&control) / shm::kPageBytes * shm::kPageBytes;
  if (mprotect(reinterpret_cast<void*>(page), shm::kPageBytes, PROT_READ) != 0) return 2;
  return sender.try_send(to, Lane::kRequest, 1, 1) == Status::kOk ? kOnlyRead : 3;
}

std::string answer(int code) { return "rank 0 says " + std::to_string(code) + "; "; }

TEST(ShmFences, SendersOfAReaderWithMembarrierOnlyRead) {
  EXPECT_EQ(run_ranks(1,
                      [](uint32_t) {
                        Pair pair;
                        if (pair.a.try_send(1, Lane::kRequest, 1, 1) != Status::kOk) return 4;
                        return send_without_touching(pair.a, 1);
                      }),
            answer(shm::GlobalMembarrier::enable() ? kOnlyRead : kWrote));
}

TEST(ShmFences, SendersOfAReaderWithoutMembarrierConfirm) {
  EXPECT_EQ(run_ranks(1,
                      [](uint32_t) {
                        Pair pair;
                        pair.b.memory.area(1).senders_confirm.store(1);
                        if (pair.a.try_send(1, Lane::kRequest, 1, 1) != Status::kOk) return 4;
                        return send_without_touching(pair.a, 1);
                      }),
            answer(kWrote));
}

TEST(ShmFences, SendersToAnAbsentReaderConfirm) {
  EXPECT_EQ(run_ranks(1,
                      [](uint32_t) {
                        NodeFile file(2);
                        NodeRank self(file.fd, 0, 2);
                        if (self.try_send(1, Lane::kRequest, 1, 1) != Status::kOk) return 4;
                        return send_without_touching(self, 1);
                      }),
            answer(kWrote));
}

TEST(ShmFences, SendersWithoutMembarrierConfirm) {
  EXPECT_EQ(run_ranks(1,
                      [](uint32_t) {
                        if (!refuse_system_call(SYS_membarrier, EPERM)) return 77;
                        // The child of a fork tries again, and is refused.
                        Pair pair;
                        if (pair.a.memory.area(0).senders_confirm.load() != 1) return 5;
                        if (pair.a.try_send(1, Lane::kRequest, 1, 1) != Status::kOk) return 4;
                        return send_without_touching(pair.a, 1);
                      }),
            answer(kWrote));
}

// A ring goes idle behind a barrier in every sender, or not at all.
TEST(ShmFences, NoRingGoesIdleWithoutABarrier) {
  if (!shm::GlobalMembarrier::enable()) GTEST_SKIP() << "no membarrier here: senders confirm";
  EXPECT_EQ(run_ranks(1,
                      [](uint32_t) {
                        Pair pair;
                        for (const bool refused : {false, true}) {
                          if (pair.a.try_send(1, Lane::kRequest, 1, 1) != Status::kOk) return 4;
                          if (pair.poll_b() != 1) return 5;
                          if (refused && !refuse_system_call(SYS_membarrier, EPERM)) return 77;
                          pair.b.transport->sleeping().sleep(0);
                          if (pair.b.transport->active_rings() != (refused ? 1u : 0u)) return 6;
                        }
                        return 0;
                      }),
            "");
}

// wake_peer() relies on it, which has no fence of its own.
TEST(ShmFences, SleepersIssueABarrierWithoutRingsToo) {
  if (!shm::GlobalMembarrier::enable())
    GTEST_SKIP() << "no membarrier here: the waking thread issues a fence";
  Pair pair;
  pair.b.transport->sleeping().sleep(0);
  const uint64_t before = pair.b.transport->counts().fences;
  pair.b.transport->sleeping().sleep(0);
  EXPECT_EQ(pair.b.transport->counts().fences, before + 1);
}

// ---- between announcement and sleep ----

// Wakes of the past, of any transport, are known to this thread then.
void forget_wakes(const NodeRank& rank) { rank.transport->sleeping().sleep(0); }

TEST(ShmFences, SleepIsSkippedWhenItsConditionHolds) {
  Pair pair;
  forget_wakes(pair.b);
  bool asked = false;
  const auto holds = [](const void* context) noexcept {
    *static_cast<bool*>(const_cast<void*>(context)) = true;
    return true;
  };
  pair.b.transport->sleeping().sleep(in_seconds(600), {.holds = holds, .context = &asked});
  EXPECT_TRUE(asked);
  EXPECT_EQ(pair.b.transport->counts().sleeps, 0u);
}

// Between the last check and the sleep, which has been announced: a first message, in some cases to a ring
// that has just gone idle, and a wake. Each must end the sleep.
TEST(ShmFences, MessageAfterTheAnnouncementEndsTheSleep) {
  for (const auto threads : {ShmTransport::Threads::kOne, ShmTransport::Threads::kMany}) {
    Pair pair(threads);
    forget_wakes(pair.b);
    const auto sends = [](const void* context) noexcept {
      auto& sender = static_cast<Pair*>(const_cast<void*>(context))->a;
      EXPECT_EQ(sender.try_send(1, Lane::kRequest, 1, 1), Status::kOk);
      return false;
    };
    for (int i = 0; i < 3; ++i) {
      pair.b.transport->sleeping().sleep(in_seconds(600), {.holds = sends, .context = &pair});
      EXPECT_EQ(pair.poll_b(), 1u);
    }
    const auto wakes = [](const void* context) noexcept {
      static_cast<const Pair*>(context)->b.transport->sleeping().wake();
      return false;
    };
    pair.b.transport->sleeping().sleep(in_seconds(600), {.holds = wakes, .context = &pair});
    EXPECT_EQ(pair.b.transport->counts().sleeps, 4u);
  }
}

TEST(ShmFences, DoorbellsAndWakesAreCountedSoNoneIsMissed) {
  NodeFile file(2);
  NodeRank self(file.fd, 0, 2);
  shm::RankArea& area = self.memory.area(0);
  const uint32_t first = shm::announce_sleep(area);
  shm::wake_sleepers(area);
  // A thread that announced itself before the wake does not sleep, though another has announced itself since.
  const uint32_t second = shm::announce_sleep(area);
  EXPECT_NE(first, second);
  shm::sleep_on(area, first, in_seconds(60));
  EXPECT_EQ(area.sleep.load(), second);
}

// ---- while a message is read ----

TEST(ShmFences, CellAndLinesAreNotReusedMeanwhile) {
  Pair pair;
  const std::string theirs(120, 'b');
  uint32_t cells = 0;
  uint32_t spoilt = 0;
  pair.inbox.then = [&](const Incoming& message) {
    const std::string before(reinterpret_cast<const char*>(message.head), message.head_room);
    const std::byte first = message.payload != nullptr ? message.payload[100] : std::byte{0};
    // As much as the ring accepts, over all lines that are free.
    while (pair.a.try_send_cell(1, Lane::kRequest, 1, 4096, static_cast<int>(++cells % 251)) ==
           Status::kOk) {
    }
    while (pair.a.try_send(1, Lane::kRequest, 2, theirs.data(), 120) == Status::kOk) {
    }
    if (std::memcmp(before.data(), message.head, before.size()) != 0) ++spoilt;
    if (message.payload != nullptr && message.payload[100] != first) ++spoilt;
  };
  ASSERT_EQ(pair.a.try_send_cell(1, Lane::kRequest, 1, 4096, 'a'), Status::kOk);
  for (uint32_t taken = 0; taken < 10 * shm::kRingLines[0];) taken += pair.poll_b(1);
  EXPECT_EQ(spoilt, 0u);
  EXPECT_GT(cells, 2 * shm::kCellClasses[0].count);
}

}  // namespace
}  // namespace hydrant::testing
