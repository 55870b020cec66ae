// Pins, puts and gets on the injected network at once.
#include "tests/unit/rdma/injected/injected_pins_world.hpp"

#include <thread>

namespace hydrant::testing {
namespace {

using Pinned = PinnedOperations::Pinned;

// A transport that stays in the middle of a copy until the test lets it continue.
class Holding final : public Transport, public MessageChannel, public MemoryAccess {
 public:
  explicit Holding(std::unique_ptr<Transport> real) : inside(std::move(real)) {}
  const char* name() const noexcept override { return "holding"; }
  MessageChannel& messages(Rank) noexcept override { return *this; }
  uint32_t inline_bytes() const noexcept override { return inside->messages(1).inline_bytes(); }
  uint32_t capabilities() const noexcept override { return inside->capabilities(); }
  MemoryAccess& memory() noexcept override { return *this; }
  Status reserve(Rank, Lane, uint32_t, Outgoing*) noexcept override { return Status::kNotReady; }
  void commit(Outgoing&, uint32_t) noexcept override {}
  Status put(Rank peer, uintptr_t remote, const void* local, size_t bytes,
             Completion* completion) noexcept override {
    has_begun = true;
    for (const uint64_t deadline = in_seconds(30); !may_go_on && now_ns() < deadline;)
      sched_yield();
    const Status status = inside->memory().put(peer, remote, local, bytes, completion);
    is_over = true;
    return status;
  }
  Status get(Rank peer, uintptr_t remote, void* local, size_t bytes,
             Completion* completion) noexcept override {
    return inside->memory().get(peer, remote, local, bytes, completion);
  }
  uint32_t poll(Receiver&, uint32_t, bool) noexcept override { return 0; }

  const std::unique_ptr<Transport> inside;
  std::atomic<bool> has_begun{false};
  std::atomic<bool> may_go_on{false};
  std::atomic<bool> is_over{false};
};

TEST(InjectedPinnedThreads, UnpinWaitsForTheCopyInFlight) {
  Pair pair(ShmTransport::Threads::kMany);
  auto owned = std::make_unique<Holding>(std::move(pair.a.transport));
  Holding& holding = *owned;
  JobTopology place;
  place.size = 2;
  place.node_ranks = {0, 1};
  std::unique_ptr<Transport> net;
  ASSERT_EQ(
      InjectedTransport::open(
          std::move(owned), place,
          {.network = PinnedNode::with_pins({}), .has_thread = false, .clock = test_clock}, &net),
      Status::kOk);
  const std::unique_ptr<Registrar> here = net->pinned()->make_registrar();
  Adapter there;
  Pages mine(1);
  Pages theirs(1);
  const Key local = pinned(*here, mine.range());
  const Key remote = imported(
      *here, exported(*there.registrar, theirs.range(), pinned(*there.registrar, theirs.range())));
  Told told;
  ASSERT_EQ(net->pinned()->put(1, {at(theirs.data), remote.data()}, {at(mine.data), local.data()},
                               100, &told),
            Status::kOk);
  std::thread copier([&] {
    Inbox inbox;
    net->poll(inbox, 10, false);
  });
  const uint64_t deadline = in_seconds(30);
  while (!holding.has_begun && now_ns() < deadline) sched_yield();
  bool was_over = false;
  std::thread unpinner([&] {
    EXPECT_EQ(here->unpin(mine.range(), local.data()), UnpinResult::kDone);
    was_over = holding.is_over;
  });
  const timespec pause{0, 20'000'000};  // for an unpin that does not wait
  nanosleep(&pause, nullptr);
  holding.may_go_on = true;
  copier.join();
  unpinner.join();
  EXPECT_TRUE(was_over);
  EXPECT_EQ(told.status, Status::kOk);
}

// Threads that pin, put, get and unpin at once, with the network's own thread.
TEST(InjectedPinnedThreads, ManyConcurrentOperations) {
  PinnedNode node({.delay_ns = 2000, .depth = 8}, true);
  constexpr int kThreads = 2;
  constexpr int kRounds = 300;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      Inbox inbox;
      Pages mine(2);
      Pages theirs(1);
      const MemoryRange source = mine.range(0, 1);
      const MemoryRange target = mine.range(1, 1);
      Registrar& there = *node.there.registrar;
      const auto wait = [&](Told& told) {
        const uint64_t deadline = in_seconds(30);
        while (told.times == 0 && now_ns() < deadline) node.net->poll(inbox, 10, false);
        EXPECT_EQ(told.times, 1);
        return told.status;
      };
      const auto begin = [&](auto operation) {
        Status status = operation();
        for (; status == Status::kNotReady; status = operation()) node.net->poll(inbox, 10, false);
        EXPECT_EQ(status, Status::kOk);
      };
      for (int i = 0; i < kRounds; ++i) {
        std::memset(mine.data, 'a' + (thread + i) % 26, kPage);
        const Key from = pinned(*node.here, source, Access::kLocalRead);
        const Key to = pinned(*node.here, target, Access::kLocalWrite);
        const Key owned = pinned(there, theirs.range());
        const Key key = imported(*node.here, exported(there, theirs.range(), owned));
        const Pinned remote{theirs.range().addr, key.data()};
        Told put;
        Told get;
        begin([&] {
          return node.net->pinned()->put(1, remote, {source.addr, from.data()}, kPage, &put);
        });
        EXPECT_EQ(wait(put), Status::kOk);
        begin([&] {
          return node.net->pinned()->get(1, remote, {target.addr, to.data()}, kPage, &get);
        });
        const bool is_early = i % 3 == 0;
        if (is_early) {
          EXPECT_EQ(node.here->unpin(target, to.data()), UnpinResult::kDone);
        }
        const Status got = wait(get);
        if (got == Status::kOk) {
          EXPECT_EQ(std::memcmp(mine.data, mine.data + kPage, kPage), 0);
        } else {
          EXPECT_TRUE(is_early);
          EXPECT_EQ(got, Status::kRefused);
        }
        if (!is_early) {
          EXPECT_EQ(node.here->unpin(target, to.data()), UnpinResult::kDone);
        }
        EXPECT_EQ(node.here->unpin(source, from.data()), UnpinResult::kDone);
        EXPECT_EQ(there.unpin(theirs.range(), owned.data()), UnpinResult::kDone);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace hydrant::testing
