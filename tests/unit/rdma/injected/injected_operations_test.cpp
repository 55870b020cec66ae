// Puts and gets on the injected network: when the source is read, the target written, the client notified.
#include "tests/unit/rdma/injected/injected_world.hpp"

#include <cstdlib>
#include <thread>

namespace hydrant::testing {
namespace {

TEST(InjectedOperations, ReportTheirCapabilities) {
  InjectedNode node({.depth = 17});
  EXPECT_EQ(node.net->capabilities(), Transport::kOneSided | Transport::kPutsBeforeMessages);
  EXPECT_EQ(node.net->depth(), 17u);
  char word[8] = {};
  const MemoryAccess::Piece piece{word, at(word), 8};
  EXPECT_EQ(node.net->memory().put_pieces(1, {&piece, 1}), Status::kUnsupported);
  EXPECT_EQ(node.net->memory().get_pieces(1, {&piece, 1}), Status::kUnsupported);
  ASSERT_EQ(node.net->memory().add_segment(1, at(word), sizeof word, word), Status::kOk);
  EXPECT_EQ(node.net->memory().mapped(1, at(word), sizeof word), nullptr);
}

TEST(InjectedOperations, PutReadsItsSourceLateWritesAfterOneDelayAndCompletesAfterAnother) {
  InjectedNode node({.delay_ns = 1000});
  std::string source = "before";
  std::string target = "......";
  Told told;
  ASSERT_EQ(node.net->memory().put(1, at(target.data()), source.data(), 6, &told), Status::kOk);
  source = "after!";  // too early: the network has not taken it
  EXPECT_EQ(node.after(999), 0u);
  EXPECT_EQ(target, "......");
  EXPECT_EQ(node.after(1), 0u);
  EXPECT_EQ(target, "after!");
  EXPECT_EQ(node.after(999), 0u);
  EXPECT_EQ(told.times, 0);
  EXPECT_EQ(node.after(1), 1u);
  EXPECT_EQ(told.times, 1);
  EXPECT_EQ(told.status, Status::kOk);
  EXPECT_EQ(node.after(10'000), 0u);
  EXPECT_EQ(told.times, 1);
}

// A rank that ends flushes first: another one may wait for what it has put.
TEST(InjectedOperations, FlushWaitsUntilPutsHaveArrived) {
  constexpr uint64_t kDelayNs = 5'000'000;
  constexpr uint64_t kPatienceNs = 10'000'000'000;
  InjectedNode node({.delay_ns = kDelayNs}, 2, true);
  const std::string source = "source";
  std::string target = "......";
  Told told;
  ASSERT_EQ(node.net->memory().put(1, at(target.data()), source.data(), 6, &told), Status::kOk);
  node.net->flush(now_ns() + kPatienceNs);
  EXPECT_EQ(target, "source");
}

TEST(InjectedOperations, EvenWithoutDelayNothingHappensBeforeAPoll) {
  InjectedNode node({});
  std::string source = "source";
  std::string target = "......";
  std::string back = "......";
  Told put;
  Told get;
  ASSERT_EQ(node.net->memory().put(1, at(target.data()), source.data(), 6, &put), Status::kOk);
  EXPECT_EQ(target, "......");
  EXPECT_EQ(node.after(0), 1u);
  EXPECT_EQ(target, "source");
  ASSERT_EQ(node.net->memory().get(1, at(target.data()), back.data(), 6, &get), Status::kOk);
  EXPECT_EQ(back, "......");
  EXPECT_EQ(node.after(0), 1u);
  EXPECT_EQ(back, "source");
  EXPECT_EQ(put.times + get.times, 2);
}

TEST(InjectedOperations, GetTakesARoundTripAndItsTransferTime) {
  InjectedNode node({.delay_ns = 1000, .bytes_per_second = 100'000'000});  // 10 ns a byte
  const std::string there(100, 'x');
  std::string here(100, '.');
  Told told;
  ASSERT_EQ(node.net->memory().get(1, at(there.data()), here.data(), 100, &told), Status::kOk);
  node.after(2999);
  EXPECT_EQ(here, std::string(100, '.'));
  EXPECT_EQ(told.times, 0);
  EXPECT_EQ(node.after(1), 1u);
  EXPECT_EQ(here, there);
  EXPECT_EQ(told.times, 1);
}

TEST(InjectedOperations, DepthLimitsOperationsInFlight) {
  InjectedNode node({.delay_ns = 1000, .depth = 2});
  char source = 's';
  char target[3] = {'.', '.', '.'};
  Told told[3];
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(node.net->memory().put(1, at(&target[i]), &source, 1, &told[i]), Status::kOk);
  }
  EXPECT_EQ(node.net->memory().put(1, at(&target[2]), &source, 1, &told[2]), Status::kNotReady);
  EXPECT_EQ(node.net->memory().get(1, at(&target[2]), &source, 1, &told[2]), Status::kNotReady);
  node.after(1000);
  EXPECT_EQ(node.net->memory().put(1, at(&target[2]), &source, 1, &told[2]), Status::kNotReady);
  EXPECT_EQ(node.after(1000), 2u);
  EXPECT_EQ(node.net->memory().put(1, at(&target[2]), &source, 1, &told[2]), Status::kOk);
  node.after(1000);
  EXPECT_EQ(node.after(1000), 1u);
  for (const Told& each : told) EXPECT_EQ(each.times, 1);
}

TEST(InjectedOperations, PutIsVisibleBeforeALaterMessage) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    InjectedNode node(
        {.delay_ns = 1000, .bytes_per_second = 1 << 30, .reorder_ns = 50'000, .seed = seed});
    std::string source(1000, 'x');
    std::string target(1000, '.');
    Told told;
    ASSERT_EQ(node.net->memory().put(1, at(target.data()), source.data(), 1000, &told),
              Status::kOk);
    ASSERT_EQ(node.send(1, Lane::kReply, 1, 1), Status::kOk);
    ASSERT_EQ(node.send(1, Lane::kRequest, 1, 2), Status::kOk);
    size_t messages = 0;
    for (int i = 0; i < 2000 && messages < 2; ++i) {
      node.after(100);
      const size_t now = node.arrived().size();
      if (now != 0) {
        ASSERT_EQ(target, source);
      }
      messages += now;
    }
    EXPECT_EQ(messages, 2u);
  }
}

TEST(InjectedOperations, WriteIsImmediateAndOccupiesTheLink) {
  InjectedNode node({.delay_ns = 1000, .bytes_per_second = 1'000'000'000});
  std::string target(1000, '.');
  ASSERT_EQ(node.net->memory().write(1, at(target.data()), std::string(1000, 'x').data(), 1000),
            Status::kOk);
  EXPECT_EQ(target, std::string(1000, 'x'));
  ASSERT_EQ(node.send(1, Lane::kRequest, 1, 1), Status::kOk);
  node.after(2007);
  EXPECT_TRUE(node.arrived().empty());
  node.after(1);
  EXPECT_EQ(node.arrived().size(), 1u);
  EXPECT_EQ(node.net->memory().write(1, 4096, target.data(), 8), Status::kUnsupported);
}

TEST(InjectedOperations, MemoryErrorsAreReportedAtCompletion) {
  InjectedNode node({.delay_ns = 1000});
  char word[8] = {};
  Told put;
  Told get;
  // The first one shows whether any memory is reached.
  EXPECT_EQ(node.net->memory().put(1, 4096, word, 8, &put), Status::kUnsupported);
  EXPECT_EQ(put.times, 0);
  ASSERT_EQ(node.net->memory().get(1, at(&put), word, 1, nullptr), Status::kOk);
  EXPECT_EQ(node.after(2000), 1u);
  ASSERT_EQ(node.net->memory().put(1, 4096, word, 8, &put), Status::kOk);
  ASSERT_EQ(node.net->memory().get(1, 4096, word, 8, &get), Status::kOk);
  EXPECT_EQ(node.after(2000), 2u);
  EXPECT_EQ(put.status, Status::kUnsupported);
  EXPECT_EQ(get.status, Status::kUnsupported);
}

TEST(InjectedOperations, UnreachablePeersFailImmediately) {
  ASSERT_EQ(setenv("HYDRANT_CMA", "n", 1), 0);
  InjectedNode node({.delay_ns = 1000});
  ASSERT_EQ(unsetenv("HYDRANT_CMA"), 0);
  char word[8] = {};
  Told told;
  EXPECT_EQ(node.net->memory().put(1, at(word), word, 8, &told), Status::kUnsupported);
  EXPECT_EQ(node.net->memory().get(1, at(word), word, 8, &told), Status::kUnsupported);
  node.after(10'000);
  EXPECT_EQ(told.times, 0);
  // A mapped segment does not extend to addresses outside it.
  std::string there = "mapped";
  ASSERT_EQ(node.net->memory().add_segment(1, 0x10000, there.size(), there.data()), Status::kOk);
  ASSERT_EQ(node.net->memory().get(1, 0x10000, word, 6, &told), Status::kOk);
  EXPECT_EQ(node.after(10'000), 1u);
  EXPECT_STREQ(word, "mapped");
  EXPECT_EQ(node.net->memory().put(1, at(word), word, 8, &told), Status::kUnsupported);
  ASSERT_EQ(node.net->memory().put(1, 0x10000, "MAPPED", 6, &told), Status::kOk);
  EXPECT_EQ(node.after(10'000), 1u);
  EXPECT_EQ(there, "MAPPED");
}

TEST(InjectedOperations, DisconnectedPeerCompletesWithBroken) {
  InjectedNode node({.delay_ns = 1000});
  char source[8] = "source!";
  char target[8] = {};
  Told first;
  Told second;
  ASSERT_EQ(node.net->memory().put(1, at(target), source, 8, &first), Status::kOk);
  ASSERT_EQ(node.net->memory().get(1, at(target), source, 8, &second), Status::kOk);
  node.net->disconnect(1);
  EXPECT_EQ(node.after(0), 2u);
  EXPECT_EQ(first.status, Status::kBroken);
  EXPECT_EQ(second.status, Status::kBroken);
  EXPECT_EQ(target[0], 0);
  EXPECT_EQ(node.net->memory().put(1, at(target), source, 8, &first), Status::kBroken);
  EXPECT_EQ(node.net->memory().put(7, at(target), source, 8, &first), Status::kBadArg);
}

TEST(InjectedOperations, NeedOnesInside) {
  Pair pair(ShmTransport::Threads::kMany);
  struct Mute final : Transport, MessageChannel, Sleeping {
    explicit Mute(Transport& real) : inside(real) {}
    Transport& inside;
    const char* name() const noexcept override { return "mute"; }
    MessageChannel& messages(Rank) noexcept override { return *this; }
    uint32_t inline_bytes() const noexcept override { return inside.messages(1).inline_bytes(); }
    Status reserve(Rank, Lane, uint32_t, Outgoing*) noexcept override { return Status::kNotReady; }
    void commit(Outgoing&, uint32_t) noexcept override {}
    Sleeping& sleeping() noexcept override { return *this; }
    uint32_t poll(Receiver&, uint32_t, bool) noexcept override { return 0; }
    void sleep(uint64_t deadline_ns, const WakeCondition&) noexcept override {
      slept = deadline_ns;
    }
    uint64_t slept = 0;
  };
  auto owned = std::make_unique<Mute>(*pair.a.transport);
  Mute& mute = *owned;
  JobTopology place;
  place.size = 2;
  place.node_ranks = {0, 1};
  std::unique_ptr<Transport> net;
  test_clock_ns = 1000;
  ASSERT_EQ(InjectedTransport::open(
                std::move(owned), place,
                {.network = {.delay_ns = 500}, .has_thread = false, .clock = test_clock}, &net),
            Status::kOk);
  EXPECT_EQ(net->capabilities(), 0u);
  EXPECT_EQ(net->depth(), 0u);
  char word[8] = {};
  EXPECT_EQ(net->memory().put(1, at(word), word, 8, nullptr), Status::kUnsupported);
  EXPECT_EQ(net->memory().get(1, at(word), word, 8, nullptr), Status::kUnsupported);
  // A sleep ends at the next arrival, or at the next try of an operation that finds no room.
  net->sleeping().sleep(1'000'000);
  EXPECT_EQ(mute.slept, 1'000'000u);
  Outgoing room;
  ASSERT_EQ(net->messages(1).reserve(1, Lane::kRequest, 0, &room), Status::kOk);
  net->messages(1).commit(room, 1);
  net->sleeping().sleep(1'000'000);
  EXPECT_EQ(mute.slept, 1500u);
  Sleeping::Announcement announcement;
  ASSERT_TRUE(net->sleeping().announce_sleep(&announcement));
  EXPECT_EQ(announcement.deadline_ns, 1500u);
  net->sleeping().end_sleep();
  test_clock_ns = 1500;
  net->sleeping().sleep(1'000'000);
  EXPECT_GT(mute.slept, 1500u);
  EXPECT_LT(mute.slept, 1'000'000u);
}

// Threads that put, get, send and poll at once, with the network's own thread.
TEST(InjectedOperations, ManyConcurrentThreads) {
  InjectedNode node({.delay_ns = 2000, .reorder_ns = 5000, .credits = 4, .depth = 8}, 2, true);
  constexpr int kThreads = 4;
  constexpr uint64_t kRounds = 300;
  std::vector<uint64_t> targets(kThreads * kRounds);
  std::atomic<uint64_t> received{0};
  std::atomic<bool> is_over{false};
  std::thread reader([&] {
    Inbox there;
    there.then = [&](const Incoming&) { ++received; };
    while (!is_over.load()) {
      if (node.all[1]->transport->poll(there, 100, false) == 0) sched_yield();
    }
  });
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      Inbox inbox;
      for (uint64_t i = 0; i < kRounds; ++i) {
        uint64_t value = thread << 32 | (i + 1);
        uint64_t back = 0;
        uint64_t& target = targets[thread * kRounds + i];
        Told put;
        Told get;
        while (node.net->memory().put(1, at(&target), &value, 8, &put) == Status::kNotReady)
          node.net->poll(inbox, 10, false);
        while (put.times == 0) node.net->poll(inbox, 10, false);
        while (node.net->memory().get(1, at(&target), &back, 8, &get) == Status::kNotReady)
          node.net->poll(inbox, 10, false);
        while (node.send(1, Lane::kRequest, 1, i) == Status::kNotReady)
          node.net->poll(inbox, 10, false);
        while (get.times == 0) {
          node.net->sleeping().sleep(now_ns() + 1'000'000);
          node.net->poll(inbox, 10, false);
        }
        EXPECT_EQ(back, value);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const uint64_t deadline = in_seconds(30);
  while (received.load() < kThreads * kRounds && now_ns() < deadline) sched_yield();
  is_over = true;
  reader.join();
  EXPECT_EQ(received.load(), kThreads * kRounds);
}

}  // namespace
}  // namespace hydrant::testing
