// Atomic operations on a peer's word, over the fake.
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <vector>

namespace hydrant {
namespace {

using fake_verbs::Call;
using fake_verbs::last_posted;
using fake_verbs::LastPosted;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IbvWorld;
using testing::PinnedMemory;
using testing::Told;
using Atomic = PinnedOperations::Atomic;

constexpr size_t kAtomicBytes = 4096;
constexpr Access kWords = Access::kRemoteAtomic | Access::kRemoteRead | Access::kRemoteWrite;
constexpr uint64_t kGreatest = UINT64_MAX;

Atomic add(uint64_t operand) { return {Atomic::Kind::kFetchAdd, operand, 0}; }
Atomic swap(uint64_t expected, uint64_t operand) {
  return {Atomic::Kind::kCompareSwap, operand, expected};
}

class IbvAtomics : public testing::VerbsTest {
 protected:
  void SetUp() override {
    fake_verbs::reset();
    fake_verbs::Device device = fake_verbs::adapter();
    device.atomics = true;
    fake_verbs::add_device(device);
  }
  struct Pair {
    explicit Pair(Access rights = kWords)
        : world(2),
          here(*world[0].transport, Access::kLocalWrite, kAtomicBytes),
          there(*world[1].transport, rights, kAtomicBytes) {
      world.connect(0, 1);
      (void)there.for_peer();
    }
    static uint64_t word_of(const PinnedMemory& memory, size_t at) {
      uint64_t word = 0;
      std::memcpy(&word, memory.data.get() + at, sizeof word);
      return word;
    }
    void set(size_t at, uint64_t word) { std::memcpy(there.data.get() + at, &word, sizeof word); }
    uint64_t word(size_t at) const { return word_of(there, at); }
    uint64_t before(size_t at = 0) const { return word_of(here, at); }
    Status start(size_t at, const Atomic& what, Told* told, size_t result = 0) {
      return world[0].transport->pinned()->start_atomic(
          1, {there.address() + at, there.imported.data()}, here.local(result), what, told);
    }
    Status carry_out(size_t at, const Atomic& what) {
      Told told;
      const Status begun = world.insist([&] { return start(at, what, &told); });
      if (begun != Status::kOk) return begun;
      EXPECT_TRUE(world.until([&] { return told.times != 0; }));
      EXPECT_EQ(told.times, 1U);
      return told.status;
    }
    IbvWorld world;
    PinnedMemory here;
    PinnedMemory there;
  };
};

TEST_F(IbvAtomics, FetchAddReturnsThePreviousValue) {
  Pair pair;
  EXPECT_NE(pair.world[0].transport->capabilities() & Transport::kAtomics, 0U);
  pair.set(64, 40);
  pair.set(72, 7);
  ASSERT_EQ(pair.carry_out(64, add(2)), Status::kOk) << last_error_text();
  EXPECT_EQ(pair.before(), 40U);
  EXPECT_EQ(pair.word(64), 42U);
  ASSERT_EQ(pair.carry_out(64, add(kGreatest)), Status::kOk);
  EXPECT_EQ(pair.before(), 42U);
  EXPECT_EQ(pair.word(64), 41U) << "modulo 2^64";
  EXPECT_EQ(pair.word(56), 0U);
  EXPECT_EQ(pair.word(72), 7U);
  EXPECT_EQ(pair.before(8), 0U);
  EXPECT_EQ(fake_verbs::traffic().atomics, 2U);
}

TEST_F(IbvAtomics, CompareSwapSwapsOnMatch) {
  Pair pair;
  pair.set(0, 5);
  ASSERT_EQ(pair.carry_out(0, swap(5, kGreatest - 1)), Status::kOk);
  EXPECT_EQ(pair.before(), 5U);
  EXPECT_EQ(pair.word(0), kGreatest - 1);
  ASSERT_EQ(pair.carry_out(0, swap(5, 9)), Status::kOk);
  EXPECT_EQ(pair.before(), kGreatest - 1) << "the old value shows that nothing was stored";
  EXPECT_EQ(pair.word(0), kGreatest - 1);
}

TEST_F(IbvAtomics, PostedRequestMatchesTheCall) {
  Pair pair;
  ASSERT_EQ(pair.carry_out(8, add(3)), Status::kOk);
  const LastPosted sum = last_posted();
  EXPECT_EQ(sum.request.opcode, IBV_WR_ATOMIC_FETCH_AND_ADD);
  EXPECT_EQ(sum.request.send_flags, unsigned{IBV_SEND_SIGNALED});
  EXPECT_EQ(sum.request.wr.atomic.remote_addr, pair.there.address() + 8);
  EXPECT_EQ(sum.request.wr.atomic.compare_add, 3U);
  EXPECT_EQ(sum.piece.addr, pair.here.address());
  EXPECT_EQ(sum.piece.length, 8U);
  ASSERT_EQ(pair.carry_out(16, swap(1, 2)), Status::kOk);
  const LastPosted exchange = last_posted();
  EXPECT_EQ(exchange.request.opcode, IBV_WR_ATOMIC_CMP_AND_SWP);
  EXPECT_EQ(exchange.request.wr.atomic.compare_add, 1U);
  EXPECT_EQ(exchange.request.wr.atomic.swap, 2U);
  EXPECT_EQ(exchange.request.wr.atomic.rkey, sum.request.wr.atomic.rkey);
}

// As many as the queue accepts, each with its own address for the result, and puts and gets between them.
TEST_F(IbvAtomics, ManyOperationsAreInFlight) {
  Pair pair;
  uint64_t sum = 0;
  for (uint32_t round = 0; round < 3; ++round) {
    fake_verbs::hold(true);
    std::array<Told, 65> told;
    size_t taken = 0;
    for (; taken < told.size(); ++taken) {
      const Status status = taken % 5 == 4
                                ? pair.world[0].transport->pinned()->get(
                                      1, {pair.there.address() + 2048, pair.there.imported.data()},
                                      pair.here.local(2048), 8, &told.at(taken))
                                : pair.start(0, add(1), &told.at(taken), 8 * taken);
      if (status == Status::kNotReady) break;
      ASSERT_EQ(status, Status::kOk);
    }
    ASSERT_LT(taken, 65U);
    EXPECT_GE(taken, 50U);
    fake_verbs::hold(false);
    ASSERT_TRUE(pair.world.until([&] { return told.at(taken - 1).times != 0; }));
    for (size_t i = 0; i < taken; ++i) {
      EXPECT_EQ(told.at(i).times, 1U);
      EXPECT_EQ(told.at(i).status, Status::kOk);
      if (i % 5 != 4) {
        EXPECT_EQ(pair.before(8 * i), sum++) << i;
      }
    }
  }
  EXPECT_EQ(pair.word(0), sum);
}

TEST_F(IbvAtomics, MisalignedWordIsABadArgument) {
  Pair pair;
  Told told;
  for (const size_t at : {size_t{1}, size_t{4}, size_t{7}}) {
    EXPECT_EQ(pair.start(at, add(1), &told), Status::kBadArg);
    EXPECT_THAT(last_error_text(), HasSubstr("has to be a multiple of 8"));
  }
  const uint64_t posts = fake_verbs::traffic().posts;
  IbvTransport& transport = *pair.world[0].transport;
  EXPECT_EQ(transport.pinned()->start_atomic(1, {pair.there.address(), nullptr}, pair.here.local(),
                                             add(1), &told),
            Status::kBadArg);
  EXPECT_EQ(transport.pinned()->start_atomic(1, {pair.there.address(), pair.there.imported.data()},
                                             {pair.here.address(), nullptr}, add(1), &told),
            Status::kBadArg);
  EXPECT_EQ(fake_verbs::traffic().posts, posts);
  EXPECT_EQ(told.times, 0U);
  EXPECT_EQ(pair.carry_out(0, add(1)), Status::kOk) << "the connection is unaffected";
}

TEST_F(IbvAtomics, NotOfferedWithoutDeviceSupport) {
  fake_verbs::reset();
  fake_verbs::add_device({.atomics = false});
  Pair pair(Access::kRemoteRead | Access::kRemoteWrite);
  EXPECT_EQ(pair.world[0].transport->capabilities() & Transport::kAtomics, 0U);
  Told told;
  EXPECT_EQ(pair.start(0, add(1), &told), Status::kUnsupported);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("fake0"), HasSubstr("atomic_cap")));
  EXPECT_EQ(told.times, 0U);
  // Memory cannot be pinned for them either.
  std::byte key[64];
  EXPECT_EQ(
      pair.there.registrar->pin({pair.there.address(), kAtomicBytes}, Access::kRemoteAtomic, key),
      Status::kRefused);
}

// Memory is registered with every rail's device, so all of them have to have them.
TEST_F(IbvAtomics, NotOfferedIfAnyRailLacksThem) {
  fake_verbs::Device without = fake_verbs::adapter();
  without.name = "fake1";
  without.atomics = false;
  fake_verbs::add_device(without);
  IbvTransport::Options options = IbvWorld::single();
  options.ports = "fake0,fake1";
  IbvWorld world(1, options);
  ASSERT_EQ(world[0].transport->rails(), 2U);
  EXPECT_EQ(world[0].transport->capabilities() & Transport::kAtomics, 0U);
}

TEST_F(IbvAtomics, MemoryThatIsNotPinnedForThemIsRefusedAndEndsTheConnection) {
  Pair pair(Access::kRemoteRead | Access::kRemoteWrite);
  EXPECT_EQ(pair.carry_out(0, add(1)), Status::kRefused);
  EXPECT_EQ(pair.word(0), 0U);
  Told told;
  EXPECT_EQ(pair.start(0, add(1), &told), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("rank 1 is gone"));
}

TEST_F(IbvAtomics, RejectedRequestIsNotInFlight) {
  Pair pair;
  Told told;
  fake_verbs::fail_call(Call::kPostSend, ENOMEM);
  EXPECT_EQ(pair.start(0, add(1), &told), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("accepts no requests"));
  EXPECT_TRUE(pair.world.until([&] { return pair.world[0].transport->counts().lost == 1; }));
  EXPECT_EQ(told.times, 0U);
  EXPECT_EQ(pair.word(0), 0U);
}

TEST_F(IbvAtomics, AsynchronousErrorIsReported) {
  Pair pair;
  fake_verbs::fail_work(IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(pair.carry_out(0, add(1)), Status::kBroken);
  EXPECT_EQ(pair.before(), 0U);
}

TEST_F(IbvAtomics, DeadPeerIsReported) {
  Pair pair;
  Told before;
  fake_verbs::hold(true);
  ASSERT_EQ(pair.start(0, add(1), &before), Status::kOk);
  pair.world[0].transport->disconnect(1);
  pair.world.poll_all();
  Told after;
  EXPECT_EQ(pair.start(0, add(1), &after), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("rank 1 is gone"));
  fake_verbs::hold(false);
  ASSERT_TRUE(pair.world.until([&] { return before.times != 0; }));
  EXPECT_EQ(before.status, Status::kBroken);
  EXPECT_EQ(after.times, 0U);
}

TEST_F(IbvAtomics, FirstContactIsMadeForThem) {
  IbvWorld world(2);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kAtomicBytes);
  PinnedMemory there(*world[1].transport, kWords, kAtomicBytes);
  const PinnedOperations::Pinned word = there.for_peer();
  Told told;
  EXPECT_EQ(world[0].transport->pinned()->start_atomic(1, word, here.local(), add(1), &told),
            Status::kNotReady);
  ASSERT_EQ(world.insist([&] {
    return world[0].transport->pinned()->start_atomic(1, word, here.local(), add(1), &told);
  }),
            Status::kOk);
  ASSERT_TRUE(world.until([&] { return told.times != 0; }));
  EXPECT_EQ(told.status, Status::kOk);
}

// An adapter's atomics are atomic with each other alone, so those on a rank's own words go through it, too.
TEST_F(IbvAtomics, ARankReachesItsOwnWordsThroughTheAdapter) {
  IbvWorld world(2);
  world.connect(0, 1);  // the peer has all buffers of the receive queue
  IbvTransport& transport = *world[0].transport;
  PinnedMemory memory(transport, kWords | Access::kLocalWrite, kAtomicBytes);
  const PinnedOperations::Pinned word = memory.for_peer();
  const uint64_t before = fake_verbs::traffic().atomics;
  for (uint64_t i = 0; i < 100; ++i) {
    Told told;
    ASSERT_EQ(world.insist([&] {
      return transport.pinned()->start_atomic(0, word, memory.local(kAtomicBytes / 2), add(3),
                                              &told);
    }),
              Status::kOk)
        << last_error_text();
    ASSERT_TRUE(world.until([&] { return told.times != 0; }));
    ASSERT_EQ(told.status, Status::kOk);
    uint64_t old = 0;
    std::memcpy(&old, memory.data.get() + kAtomicBytes / 2, sizeof old);
    ASSERT_EQ(old, 3 * i);
  }
  EXPECT_EQ(fake_verbs::traffic().atomics, before + 100);
}

// A property of the stand-in: an atomic is a read and then a write.
TEST_F(IbvAtomics, ProcessorLosesWhatItWritesWithinAnAtomic) {
  Pair pair;
  pair.set(0, 5);
  fake_verbs::hold_atomics(true);
  std::array<Told, 2> told;
  for (Told& one : told) ASSERT_EQ(pair.start(0, add(1), &one), Status::kOk);
  for (int i = 0; i < 10; ++i) pair.world.poll_all();
  EXPECT_EQ(told[0].times, 0U);
  EXPECT_EQ(pair.word(0), 5U);
  pair.set(0, 15);
  fake_verbs::hold_atomics(false);
  ASSERT_TRUE(pair.world.until([&] { return told[1].times != 0; }));
  EXPECT_EQ(pair.word(0), 7U) << "the second one has waited for the first";
}

// Each rank of a node has two adapters of its own. A rank that executed an operation by its processor, by its
// adapter, or by another one of the owner's, would lose it within another operation.
TEST_F(IbvAtomics, RanksOfANodeWithSeveralAdaptersLoseNoAdditionWithinAnother) {
  fake_verbs::reset();
  fake_verbs::Device device = fake_verbs::adapter();
  device.atomics = true;
  for (const char* const name : {"fake0", "fake1", "fake2", "fake3", "fake4", "fake5"}) {
    device.name = name;
    fake_verbs::add_device(device);
  }
  IbvWorld world(0);
  world.box.node_ranks = {0, 1, 2};
  for (const char* const ports : {"fake0,fake1", "fake2,fake3", "fake4,fake5"}) {
    IbvTransport::Options options = IbvWorld::single();
    options.ports = ports;
    const auto rank = static_cast<Rank>(world.ranks.size());
    world.ranks.push_back(std::make_unique<testing::IbvRank>(world.box, rank, 3, options));
    ASSERT_EQ(world.ranks.back()->opened, Status::kOk) << last_error_text();
  }
  world.connect(0, 1);
  world.connect(2, 1);
  PinnedMemory there(*world[1].transport, kWords | Access::kLocalWrite, kAtomicBytes);
  const PinnedOperations::Pinned word = there.for_peer();
  std::vector<std::unique_ptr<PinnedMemory>> results;
  for (const auto& rank : world.ranks)
    results.push_back(
        std::make_unique<PinnedMemory>(*rank->transport, Access::kLocalWrite, kAtomicBytes));
  constexpr uint64_t kRounds = 50;
  for (uint64_t round = 0; round < kRounds; ++round) {
    fake_verbs::hold_atomics(true);
    std::array<Told, 3> told;
    for (Rank i = 0; i < 3; ++i) {
      const auto rank = static_cast<Rank>((i + round) % 3);
      ASSERT_EQ(world.insist([&] {
        return world[rank].transport->pinned()->start_atomic(1, word, results[rank]->local(),
                                                             add(1), &told.at(rank));
      }),
                Status::kOk)
          << last_error_text();
      world.poll_all();
    }
    fake_verbs::hold_atomics(false);
    ASSERT_TRUE(world.until([&] {
      return std::all_of(told.begin(), told.end(), [](const Told& one) { return one.times != 0; });
    }));
  }
  EXPECT_EQ(Pair::word_of(there, 0), 3 * kRounds);
}

TEST_F(IbvAtomics, ARankThatCannotConnectToItselfReportsIt) {
  IbvWorld world(1);
  IbvTransport& transport = *world[0].transport;
  PinnedMemory memory(transport, kWords | Access::kLocalWrite, kAtomicBytes);
  fake_verbs::fail_call(Call::kModifyQp, EINVAL, 2);
  Told told;
  const auto start = [&] {
    return transport.pinned()->start_atomic(0, memory.for_peer(), memory.local(64), add(1), &told);
  };
  EXPECT_NE(start(), Status::kNotReady);
  EXPECT_THAT(last_error_text(), HasSubstr("the connection of this rank with itself"));
  EXPECT_EQ(told.times, 0U);
}

// Such an adapter is found by a trial: the job must not end with it.
TEST_F(IbvAtomics, AFailedOperationOnAnOwnWordIsNoFailureOfTheRank) {
  static uint32_t failed_peers = 0;
  failed_peers = 0;
  IbvWorld world(2);
  IbvTransport& transport = *world[0].transport;
  transport.set_peer_failed_callback([](Rank, const char*) noexcept { ++failed_peers; });
  PinnedMemory memory(transport, kWords | Access::kLocalWrite, kAtomicBytes);
  fake_verbs::fail_work(IBV_WC_RETRY_EXC_ERR);
  Told told;
  const auto start = [&] {
    return transport.pinned()->start_atomic(0, memory.for_peer(), memory.local(64), add(1), &told);
  };
  ASSERT_EQ(world.insist(start), Status::kOk) << last_error_text();
  ASSERT_TRUE(world.until([&] { return told.times != 0; }));
  EXPECT_EQ(told.status, Status::kBroken);
  for (int i = 0; i < 100; ++i) world.poll_all();
  EXPECT_EQ(failed_peers, 0U);
  EXPECT_EQ(start(), Status::kBroken);
}

}  // namespace
}  // namespace hydrant
