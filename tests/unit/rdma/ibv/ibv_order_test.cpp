// Completed puts over adapters that keep writes, reorder them or execute them twice.
#include "tests/unit/firehose/base/scoped_env.hpp"
#include "tests/unit/rdma/ibv/ibv_order_world.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace hydrant {
namespace {

using fake_verbs::WriteOrder;
using testing::IbvRank;
using testing::IbvWorld;
using testing::kMiB;
using testing::kTarget;
using testing::PinnedMemory;
using testing::rail_options;
using testing::Told;

constexpr size_t kOrderBytes = 4096;
constexpr WriteOrder kOrders[] = {WriteOrder::kOrdered, WriteOrder::kUnordered,
                                  WriteOrder::kRelaxed};

const char* name_of(WriteOrder order) {
  if (order == WriteOrder::kOrdered) return "ordered";
  return order == WriteOrder::kUnordered ? "unordered" : "relaxed";
}

class IbvOrder : public testing::OrderTest {
 protected:
  // Two ranks on nodes of their own, each with `each` adapters of a class of its own.
  struct MixedPair : IbvWorld {
    MixedPair(WriteOrder first, WriteOrder second, uint32_t each = 1)
        : IbvWorld(0), bytes(each == 1 ? 2 * kOrderBytes : 4 * testing::kStripe) {
      fake_verbs::reset();
      fake_verbs::hold_writes(true);
      for (const WriteOrder order : {first, second}) {
        fake_verbs::next_node();
        fake_verbs::Device device = fake_verbs::adapter();
        device.write_order = order;
        add_devices(each, device);
        const ScopedEnv knob("HYDRANT_IBV_ORDER", name_of(order));
        ranks.push_back(
            std::make_unique<IbvRank>(box, static_cast<Rank>(ranks.size()), 2, rail_options()));
        EXPECT_EQ(ranks.back()->opened, Status::kOk) << last_error_text();
      }
      EXPECT_TRUE(settle(*this, each));
      for (Rank rank = 0; rank < 2; ++rank) {
        own.push_back(std::make_unique<PinnedMemory>(*ranks[rank]->transport,
                                                     kTarget | Access::kLocalWrite, bytes));
        remote.push_back(own.back()->for_peer());
      }
    }
    Status start(Rank from, size_t length, Told* told, size_t offset = 0) {
      const PinnedOperations::Pinned to{remote[1 - from].addr + offset, remote[1 - from].key};
      return insist([&] {
        return ranks[from]->transport->pinned()->put(1 - from, to, own[from]->local(offset), length,
                                                     told);
      });
    }
    // Fills the memory of `from`, and puts it.
    Status put(Rank from, size_t length, size_t seed) {
      fill(*own[from], seed);
      return finish(*this, [&](Told* told) { return start(from, length, told); });
    }
    bool shows(Rank from, size_t length) const {
      return is_there(*own[from], *own[1 - from], length);
    }

    const size_t bytes;                              // of each rank's memory
    std::vector<std::unique_ptr<PinnedMemory>> own;  // of each rank
    std::vector<PinnedOperations::Pinned> remote;    // as its peer has it
  };
};

TEST_F(IbvOrder, MessageThatIsDeliveredShowsEarlierPuts) {
  for (const WriteOrder order : kOrders) {
    add_holding_devices(2, order);
    OwnAdapters world({"fake0", "fake1"});
    world.connect(0, 1);
    PinnedMemory here(*world[0].transport, Access::kLocalWrite, kOrderBytes);
    PinnedMemory there(*world[1].transport, kTarget, kOrderBytes);
    fill(here, 1);
    ASSERT_EQ(put(world, there.for_peer(), here.local(), kOrderBytes), Status::kOk);
    EXPECT_FALSE(is_there(here, there, kOrderBytes)) << "the stand-in keeps it";
    ASSERT_EQ(announce(world, 0, 1), Status::kOk);
    EXPECT_TRUE(is_there(here, there, kOrderBytes)) << static_cast<uint32_t>(order);
  }
}

TEST_F(IbvOrder, ClassOfAnAdapterIsThatOfTheKnobOrOfItsVendor) {
  const auto order_of = [](uint32_t vendor) {
    fake_verbs::reset();
    fake_verbs::add_device({.vendor = vendor});
    IbvWorld world(1);
    return world[0].transport->pinned()->put_order();
  };
  constexpr uint32_t kNvidia = 0x2c9;
  EXPECT_EQ(order_of(0), PutOrder::kOrdered);
  EXPECT_EQ(order_of(kNvidia), PutOrder::kUnordered);
  {
    const ScopedEnv knob("HYDRANT_IBV_ORDER", "ordered");
    EXPECT_EQ(order_of(kNvidia), PutOrder::kOrdered);
  }
  const ScopedEnv knob("HYDRANT_IBV_ORDER", "relaxed");
  EXPECT_EQ(order_of(0), PutOrder::kRelaxed);
}

TEST_F(IbvOrder, MessageShowsPutsOverRailsWhoseReadsPassWrites) {
  const ScopedEnv knob("HYDRANT_IBV_ORDER", "unordered");
  add_holding_devices(4, WriteOrder::kUnordered);
  OwnAdapters world({"fake0,fake1", "fake2,fake3"}, rail_options());
  ASSERT_TRUE(settle(world, 2));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
  PinnedMemory there(*world[1].transport, kTarget, kMiB);
  const PinnedOperations::Pinned remote = there.for_peer();
  for (size_t seed = 1; seed <= 3; ++seed) {
    fill(here, seed);
    ASSERT_EQ(put(world, remote, here.local(), kMiB), Status::kOk) << last_error_text();
    ASSERT_EQ(announce(world, 0, 1), Status::kOk);
    EXPECT_TRUE(is_there(here, there, kMiB)) << seed;
  }
  EXPECT_EQ(world[0].transport->counts().striped, 3U);
}

TEST_F(IbvOrder, FailedWriteBeforeALateFenceEndsThePut) {
  const ScopedEnv knob("HYDRANT_IBV_ORDER", "unordered");
  add_holding_devices(4, WriteOrder::kUnordered);
  OwnAdapters world({"fake0,fake1", "fake2,fake3"}, rail_options());
  ASSERT_TRUE(settle(world, 2));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
  PinnedMemory there(*world[1].transport, kTarget, kMiB);
  ::testing::internal::CaptureStderr();
  fake_verbs::fail_work(IBV_WC_REM_ACCESS_ERR, 2);
  const Status status = put(world, there.for_peer(), here.local(), kMiB);
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(status == Status::kRefused || status == Status::kBroken) << status_name(status);
}

TEST_F(IbvOrder, RelaxedAdaptersCutGetsAlone) {
  const ScopedEnv knob("HYDRANT_IBV_ORDER", "relaxed");
  add_holding_devices(4, WriteOrder::kRelaxed);
  OwnAdapters world({"fake0,fake1", "fake2,fake3"}, rail_options());
  ASSERT_TRUE(settle(world, 2));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
  PinnedMemory there(*world[1].transport, kTarget, kMiB);
  const PinnedOperations::Pinned remote = there.for_peer();
  fill(here, 1);
  ASSERT_EQ(put(world, remote, here.local(), kMiB), Status::kOk) << last_error_text();
  EXPECT_EQ(world[0].transport->counts().striped, 0U);
  ASSERT_EQ(announce(world, 0, 1), Status::kOk);
  EXPECT_TRUE(is_there(here, there, kMiB));
  ASSERT_EQ(get(world, remote, here.local(), kMiB), Status::kOk);
  EXPECT_EQ(world[0].transport->counts().striped, 1U);
}

TEST_F(IbvOrder, MessageShowsEarlierPutsBetweenAdaptersOfAnyTwoClasses) {
  for (const WriteOrder first : kOrders) {
    for (const WriteOrder second : kOrders) {
      for (const uint32_t rails : {1U, 2U}) {
        MixedPair pair(first, second, rails);
        for (const Rank from : {0U, 1U}) {
          ASSERT_EQ(pair.put(from, pair.bytes, from), Status::kOk) << last_error_text();
          ASSERT_EQ(announce(pair, from, 1 - from), Status::kOk);
          EXPECT_TRUE(pair.shows(from, pair.bytes))
              << name_of(first) << " and " << name_of(second) << ", from rank " << from;
          const bool is_cut =
              rails == 2 && first != WriteOrder::kRelaxed && second != WriteOrder::kRelaxed;
          EXPECT_EQ(pair[from].transport->counts().striped, is_cut ? 1U : 0U);
        }
      }
    }
  }
}

// Barriers write such words. Over relaxed adapters, where this fails, barriers send messages.
TEST_F(IbvOrder, WordBehindACompletedPutIsSeenAfterItUnlessItsTargetIsRelaxed) {
  for (const WriteOrder first : kOrders) {
    for (const WriteOrder second : kOrders) {
      MixedPair pair(first, second);
      for (const Rank from : {0U, 1U}) {
        const WriteOrder target = from == 0 ? second : first;
        bool is_early = false;
        for (size_t seed = 1; seed <= 64; ++seed) {
          fake_verbs::hold_writes(true);
          ASSERT_EQ(pair.put(from, kOrderBytes, seed), Status::kOk);
          constexpr size_t kWord = kOrderBytes;  // its bytes differ from those of the seed before
          const std::byte* const place = pair.own[1 - from]->data.get() + kWord;
          Told told;
          ASSERT_EQ(pair.start(from, 8, &told, kWord), Status::kOk);
          fake_verbs::seed_writes(seed);
          fake_verbs::hold_writes(false);
          ASSERT_TRUE(pair.until([&] {
            const bool is_seen = *place == pair.own[from]->data.get()[kWord];
            if (is_seen) is_early |= !pair.shows(from, kOrderBytes);
            return is_seen && told.times != 0;
          }));
        }
        EXPECT_EQ(is_early, target == WriteOrder::kRelaxed)
            << name_of(first) << " and " << name_of(second) << ", from rank " << from;
      }
    }
  }
}

// Every request of a put over two rails fails in turn, in either direction.
TEST_F(IbvOrder, NoMessageOvertakesAPutWhoseRailDies) {
  constexpr WriteOrder kFenced[] = {WriteOrder::kOrdered, WriteOrder::kUnordered};
  for (const WriteOrder first : kFenced) {
    for (const WriteOrder second : kFenced) {
      uint32_t behind_the_write = 0;
      for (const uint64_t nth : {1U, 2U, 3U, 4U, 5U}) {
        for (const Rank from : {0U, 1U}) {
          MixedPair pair(first, second, 2);
          const fake_verbs::Traffic before = fake_verbs::traffic();
          const uint64_t delivered = pair[1 - from].inbox.count;
          fill(*pair.own[from], nth);
          Told told;
          ASSERT_EQ(pair.start(from, pair.bytes, &told), Status::kOk);
          ::testing::internal::CaptureStderr();
          fake_verbs::fail_work(IBV_WC_RETRY_EXC_ERR, nth);
          bool is_sent = false;
          EXPECT_TRUE(pair.until([&] {
            if (!is_sent)
              is_sent = pair[from].try_send(1 - from, Lane::kRequest, 1, "12345678") == Status::kOk;
            return told.times != 0;
          }));
          for (int i = 0; i < 100; ++i) pair.poll_all();
          (void)::testing::internal::GetCapturedStderr();
          EXPECT_EQ(told.times, 1U);
          if (pair[1 - from].inbox.count != delivered) {
            EXPECT_TRUE(pair.shows(from, pair.bytes)) << nth;
          }
          const fake_verbs::Traffic after = fake_verbs::traffic();
          if (told.status != Status::kOk && after.writes == before.writes + 2 &&
              after.reads == before.reads)
            ++behind_the_write;
        }
      }
      EXPECT_NE(behind_the_write, 0U) << name_of(first) << " and " << name_of(second);
    }
  }
}

// A property of the stand-in.
TEST_F(IbvOrder, WriteThatIsSentAgainOverwritesLaterDataUnlessAdaptersKeepTheOrder) {
  for (const WriteOrder order : kOrders) {
    add_holding_devices(2, order);
    OwnAdapters world({"fake0", "fake1"});
    world.connect(0, 1);
    PinnedMemory here(*world[0].transport, Access::kLocalWrite, kOrderBytes);
    PinnedMemory there(*world[1].transport, kTarget, kOrderBytes);
    fill(here, 1);
    Told told;
    fake_verbs::lose_acknowledgement(pair_on("fake0"));
    ASSERT_EQ(
        world[0].transport->pinned()->put(1, there.for_peer(), here.local(), kOrderBytes, &told),
        Status::kOk);
    fake_verbs::hold_writes(false);
    ASSERT_TRUE(world.until([&] { return is_there(here, there, kOrderBytes); }));
    EXPECT_EQ(told.times, 0U);
    std::memset(there.data.get(), 0, kOrderBytes);
    fake_verbs::resend(pair_on("fake0"));
    ASSERT_TRUE(world.until([&] { return told.times != 0; }));
    ASSERT_EQ(announce(world, 0, 1), Status::kOk);
    EXPECT_EQ(is_there(here, there, kOrderBytes), order != WriteOrder::kOrdered);
  }
}

// Some adapters refuse one request and take the next.
TEST_F(IbvOrder, MessageBehindARefusedRequestDoesNotArriveAlone) {
  fake_verbs::reset();
  fake_verbs::add_device(fake_verbs::adapter());
  IbvWorld world(2);
  world.connect(0, 1);
  fake_verbs::fail_call(fake_verbs::Call::kPostSend, ENOMEM);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "first..."), Status::kOk);
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 2, "second.."), Status::kOk);
  world[0].transport->flush(now_ns() + 1'000'000'000);
  EXPECT_EQ(world[0].transport->counts().lost, 1u) << "flush() ends once the peer is disconnected";
  world.poll_all();
  EXPECT_EQ(world[1].inbox.count, 0u);
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 3, "third..."), Status::kBroken);
  (void)::testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace hydrant
