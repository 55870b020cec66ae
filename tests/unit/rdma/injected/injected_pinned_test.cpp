// Puts and gets between pinned memory on the injected network: as late as others, and only what keys allow.
#include "rdma/injected/send_only_transport.hpp"
#include "tests/unit/rdma/injected/injected_pins_world.hpp"

namespace hydrant::testing {
namespace {

using Pinned = PinnedOperations::Pinned;

TEST(InjectedPinned, ReportTheirCapabilities) {
  PinnedNode node({.depth = 17});
  EXPECT_EQ(node.net->capabilities(),
            Transport::kPinned | Transport::kPutsBeforeMessages | Transport::kAtomics);
  EXPECT_EQ(node.net->depth(), 17u);
  EXPECT_EQ(node.net->pinned()->keyless_bytes(), 64u);
  EXPECT_EQ(node.net->memory().put(1, at(node.theirs.data), node.mine.data, 8, nullptr),
            Status::kUnsupported);
  EXPECT_EQ(node.net->memory().get(1, at(node.theirs.data), node.mine.data, 8, nullptr),
            Status::kUnsupported);
  EXPECT_EQ(node.net->memory().write(1, at(node.theirs.data), "xxxxxxxx", 8), Status::kUnsupported);
  EXPECT_TRUE(node.theirs.is_untouched());
}

TEST(InjectedPinned, AreAbsentWithoutPinsOrAnInnerOneSidedTransport) {
  InjectedNode plain({});
  EXPECT_EQ(plain.net->pinned(), nullptr);
  Pair pair(ShmTransport::Threads::kMany);
  JobTopology place;
  place.size = 2;
  place.node_ranks = {0, 1};
  std::unique_ptr<Transport> net;
  ASSERT_EQ(
      InjectedTransport::open(
          std::make_unique<SendOnlyTransport>(std::move(pair.a.transport)), place,
          {.network = PinnedNode::with_pins({}), .has_thread = false, .clock = test_clock}, &net),
      Status::kOk);
  EXPECT_EQ(net->capabilities(), 0u);
  EXPECT_EQ(net->pinned(), nullptr);
}

TEST(InjectedPinned, PutReadsItsSourceLateAndCompletesAfterAnotherDelay) {
  PinnedNode node({.delay_ns = 1000});
  Told told;
  std::memset(node.mine.data, 'a', 100);
  ASSERT_EQ(node.put(7, 0, 100, &told), Status::kOk);
  std::memset(node.mine.data, 'b', 100);  // too early: the network has not taken it
  EXPECT_EQ(node.after(999), 0u);
  EXPECT_TRUE(node.theirs.is_untouched());
  EXPECT_EQ(node.after(1), 0u);
  EXPECT_EQ(node.theirs.text(0, 109), "......." + std::string(100, 'b') + "..");
  EXPECT_EQ(node.after(999), 0u);
  EXPECT_EQ(node.after(1), 1u);
  EXPECT_EQ(told.times, 1);
  EXPECT_EQ(told.status, Status::kOk);
}

TEST(InjectedPinned, ShortPutCopiesItsSourceAndNeedsNoKey) {
  PinnedNode node({.delay_ns = 1000});
  std::string source(65, 'a');
  Told told;
  const Pinned remote{at(node.theirs.data), node.remote.data()};
  ASSERT_EQ(node.net->pinned()->put(1, remote, {at(source.data())}, 64, &told), Status::kOk);
  source.assign(65, 'b');
  EXPECT_EQ(node.net->pinned()->put(1, remote, {at(source.data())}, 65, &told), Status::kBadArg);
  EXPECT_EQ(node.net->pinned()->get(1, remote, {at(source.data())}, 8, &told), Status::kBadArg);
  EXPECT_EQ(node.after(2000), 1u);
  EXPECT_EQ(told.times, 1);
  EXPECT_EQ(node.theirs.text(0, 65), std::string(64, 'a') + ".");
}

TEST(InjectedPinned, GetTakesARoundTripAndItsTransferTime) {
  PinnedNode node({.delay_ns = 1000, .bytes_per_second = 100'000'000});  // 10 ns a byte
  std::memset(node.theirs.data + 50, 'x', 100);
  Told told;
  ASSERT_EQ(node.get(3, 50, 100, &told), Status::kOk);
  EXPECT_EQ(node.after(2999), 0u);
  EXPECT_TRUE(node.mine.is_untouched());
  EXPECT_EQ(node.after(1), 1u);
  EXPECT_EQ(node.mine.text(0, 105), "..." + std::string(100, 'x') + "..");
  EXPECT_EQ(told.status, Status::kOk);
}

TEST(InjectedPinned, DepthLimitsOperationsInFlight) {
  PinnedNode node({.delay_ns = 1000, .depth = 2});
  Told told[5];
  ASSERT_EQ(node.put(0, 0, 100, &told[0]), Status::kOk);
  ASSERT_EQ(node.put(100, 0, 8, &told[1]), Status::kOk);
  EXPECT_EQ(node.put(0, 0, 100, &told[2]), Status::kNotReady);
  EXPECT_EQ(node.get(0, 0, 100, &told[2]), Status::kNotReady);
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(node.after(2000), 2u);
    ASSERT_EQ(node.put(0, 0, 100, &told[3]), Status::kOk);
    ASSERT_EQ(node.get(0, 0, 100, &told[4]), Status::kOk);
    EXPECT_EQ(node.put(0, 0, 8, &told[2]), Status::kNotReady);
  }
  EXPECT_EQ(told[0].times, 1);
  EXPECT_EQ(told[1].times, 1);
  EXPECT_EQ(told[2].times, 0);
}

TEST(InjectedPinned, PutIsVisibleBeforeALaterMessage) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    PinnedNode node(
        {.delay_ns = 1000, .bytes_per_second = 1 << 30, .reorder_ns = 50'000, .seed = seed});
    std::memset(node.mine.data, 'x', 1000);
    Told told;
    ASSERT_EQ(node.put(0, 0, 1000, &told), Status::kOk);
    ASSERT_EQ(node.send(1, Lane::kReply, 1, 1), Status::kOk);
    ASSERT_EQ(node.send(1, Lane::kRequest, 1, 2), Status::kOk);
    size_t messages = 0;
    for (int i = 0; i < 2000 && messages < 2; ++i) {
      node.after(100);
      messages += node.arrived().size();
      if (messages != 0) {
        ASSERT_EQ(node.theirs.text(0, 1000), std::string(1000, 'x'));
      }
    }
    EXPECT_EQ(messages, 2u);
  }
}

TEST(InjectedPinned, DisconnectedPeerCompletesWithBroken) {
  PinnedNode node({.delay_ns = 1000});
  Told first;
  Told second;
  ASSERT_EQ(node.put(0, 0, 100, &first), Status::kOk);
  ASSERT_EQ(node.get(0, 0, 100, &second), Status::kOk);
  node.net->disconnect(1);
  EXPECT_EQ(node.after(0), 2u);
  EXPECT_EQ(first.status, Status::kBroken);
  EXPECT_EQ(second.status, Status::kBroken);
  EXPECT_EQ(node.put(0, 0, 100, &first), Status::kBroken);
  const Pinned remote{at(node.theirs.data), node.remote.data()};
  EXPECT_EQ(node.net->pinned()->put(7, remote, {at(node.mine.data)}, 8, nullptr), Status::kBadArg);
}

TEST(InjectedPinned, UnreachablePeersFailImmediately) {
  ASSERT_EQ(setenv("HYDRANT_CMA", "n", 1), 0);
  PinnedNode node({});
  ASSERT_EQ(unsetenv("HYDRANT_CMA"), 0);
  // The mapped memory of the peer holds no records of pins.
  ASSERT_EQ(node.net->memory().add_segment(1, at(node.theirs.data), kPage, node.theirs.data),
            Status::kOk);
  Told told;
  EXPECT_EQ(node.put(0, 0, 100, &told), Status::kUnsupported);
  EXPECT_EQ(node.get(0, 0, 100, &told), Status::kUnsupported);
  node.after(10'000);
  EXPECT_EQ(told.times, 0);
}

}  // namespace
}  // namespace hydrant::testing
