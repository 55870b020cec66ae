// Atomic operations on the injected network: what they change and return, their rights, and adapters that are
// at work for another rank.
#include "tests/unit/rdma/injected/injected_pins_world.hpp"

#include <atomic>
#include <cstring>

namespace hydrant::testing {
namespace {

using Atomic = PinnedOperations::Atomic;

constexpr uint64_t kDelay = 1000;
constexpr uint64_t kRoundTrip = 2 * kDelay;

Atomic add(uint64_t operand) { return {Atomic::Kind::kFetchAdd, operand, 0}; }
Atomic swap(uint64_t expected, uint64_t operand) {
  return {Atomic::Kind::kCompareSwap, operand, expected};
}

struct AtomicNode : PinnedNode {
  explicit AtomicNode(uint32_t ranks = 2) : PinnedNode({.delay_ns = kDelay}, false, ranks) {
    set(0);
  }
  uint64_t word() const { return read(theirs); }
  uint64_t result() const { return read(mine); }
  void set(uint64_t value) { std::memcpy(theirs.data, &value, sizeof value); }
  Status start(const Atomic& what, Told* told, size_t to = 0) {
    return net->pinned()->start_atomic(1, {at(theirs.data + to), remote.data()},
                                       {at(mine.data), local.data()}, what, told);
  }
  // The lock of rank 1's adapter.
  std::atomic<uint32_t>& lock() {
    return *static_cast<std::atomic<uint32_t>*>(
        static_cast<void*>(all[1]->transport->memory().shared_block(1)));
  }
  static uint64_t read(const Pages& pages) {
    uint64_t value = 0;
    std::memcpy(&value, pages.data, sizeof value);
    return value;
  }
};

TEST(InjectedAtomics, ChangeTheWordAndReturnItsOldValueAfterARoundTrip) {
  AtomicNode node;
  ASSERT_NE(node.net->capabilities() & Transport::kAtomics, 0U);
  const struct {
    Atomic what;
    uint64_t old;
    uint64_t now;
  } steps[] = {{add(40), 0, 40},       {add(UINT64_MAX), 40, 39},
               {swap(39, 7), 39, 7},   {swap(39, 1), 7, 7},
               {add(0), 7, 7},         {swap(7, UINT64_MAX), 7, UINT64_MAX},
               {add(2), UINT64_MAX, 1}};
  for (const auto& step : steps) {
    Told told;
    ASSERT_EQ(node.start(step.what, &told), Status::kOk) << last_error_text();
    EXPECT_EQ(node.after(kRoundTrip - 1), 0U);
    EXPECT_EQ(node.after(1), 1U);
    EXPECT_EQ(told.times, 1);
    EXPECT_EQ(told.status, Status::kOk);
    EXPECT_EQ(node.result(), step.old);
    EXPECT_EQ(node.word(), step.now);
  }
  EXPECT_EQ(node.lock(), 0U);
}

TEST(InjectedAtomics, ReachTheOwnRank) {
  AtomicNode node;
  const Key own = imported(*node.here, exported(*node.here, node.mine.range(), node.local));
  std::memset(node.mine.data, 0, 16);
  for (uint64_t i = 0; i < 3; ++i) {
    Told told;
    ASSERT_EQ(
        node.net->pinned()->start_atomic(0, {at(node.mine.data + 8), own.data()},
                                         {at(node.mine.data), node.local.data()}, add(5), &told),
        Status::kOk)
        << last_error_text();
    EXPECT_EQ(node.after(kRoundTrip), 1U);
    EXPECT_EQ(told.status, Status::kOk);
    EXPECT_EQ(node.result(), 5 * i);
  }
}

TEST(InjectedAtomics, NeedTheirRightAndAlignedWords) {
  AtomicNode node;
  Told told;
  EXPECT_EQ(node.start(add(1), &told, 4), Status::kBadArg);
  for (const Access rights : {Access::kRemoteWrite | Access::kRemoteRead, Access::kRemoteAtomic}) {
    EXPECT_EQ(node.unpin_theirs(), UnpinResult::kDone);
    node.remote_owned = pinned(*node.there.registrar, node.theirs.range(), rights);
    node.remote = imported(*node.here,
                           exported(*node.there.registrar, node.theirs.range(), node.remote_owned));
    ASSERT_EQ(node.start(add(1), &told), Status::kOk);
    EXPECT_EQ(node.after(kRoundTrip), 1U);
    const bool is_allowed = includes(rights, Access::kRemoteAtomic);
    EXPECT_EQ(told.status, is_allowed ? Status::kOk : Status::kRefused);
    EXPECT_EQ(node.word(), is_allowed ? 1U : 0U);
  }
}

TEST(InjectedAtomics, WaitForAnAdapterThatIsAtWork) {
  AtomicNode node;
  node.lock() = 2;
  Told told;
  ASSERT_EQ(node.start(add(1), &told), Status::kOk);
  EXPECT_EQ(node.after(10 * kRoundTrip), 0U);
  EXPECT_EQ(node.word(), 0U);
  node.lock() = 0;
  EXPECT_EQ(node.after(kRoundTrip), 1U);
  EXPECT_EQ(node.word(), 1U);
}

TEST(InjectedAtomics, EndWhenTheirPeerFails) {
  AtomicNode node;
  node.lock() = 2;
  Told told;
  ASSERT_EQ(node.start(add(1), &told), Status::kOk);
  node.net->disconnect(1);
  EXPECT_EQ(node.after(kRoundTrip), 1U);
  EXPECT_EQ(told.status, Status::kBroken);
  EXPECT_EQ(node.word(), 0U);
}

TEST(InjectedAtomics, TakeAnAdapterOverFromARankThatHasFailed) {
  AtomicNode node(3);
  node.lock() = 3;
  Told told;
  ASSERT_EQ(node.start(add(1), &told), Status::kOk);
  EXPECT_EQ(node.after(kRoundTrip), 0U);
  node.net->disconnect(2);
  EXPECT_EQ(node.after(kRoundTrip), 1U);
  EXPECT_EQ(told.status, Status::kOk);
  EXPECT_EQ(node.word(), 1U);
}

}  // namespace
}  // namespace hydrant::testing
