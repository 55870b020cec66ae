// Pools and small parts of the send side, each alone.
#include "rdma/ibv/queue/completion_batch.hpp"
#include "rdma/ibv/queue/deferred_work.hpp"
#include "rdma/ibv/queue/operation_pool.hpp"
#include "rdma/ibv/queue/send_slots.hpp"
#include "rdma/ibv/queue/stall_detector.hpp"
#include "rdma/ibv/transfer/peer_state.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

namespace hydrant::ibv {
namespace {

struct Ended : Completion {
  Ended() { done = &end; }
  static void end(Completion& completion, Status status) noexcept {
    auto& ended = static_cast<Ended&>(completion);
    ++ended.times;
    ended.status = status;
  }
  int times = 0;
  Status status = Status::kNotReady;
};

TEST(SendSlots, GivesEachSlotOnce) {
  std::byte memory[4 * 64];
  SendSlots slots;
  ASSERT_EQ(slots.open(memory, 64, 4), Status::kOk);
  std::set<uint32_t> taken;
  while (!slots.is_empty()) {
    const uint32_t next = slots.next();
    EXPECT_EQ(slots.take(), next);
    EXPECT_TRUE(taken.insert(next).second);
    EXPECT_EQ(slots.at(next), memory + size_t{next} * 64);
  }
  EXPECT_EQ(taken.size(), 4U);
  slots.release(2);
  EXPECT_FALSE(slots.is_empty());
  EXPECT_EQ(slots.take(), 2U);
}

TEST(OperationPool, OperationCompletesOnceWithItsFirstError) {
  OperationPool pool;
  ASSERT_EQ(pool.open(2, false), Status::kOk);
  PooledOperation* const one = pool.take();
  PooledOperation* const other = pool.take();
  ASSERT_NE(one, nullptr);
  ASSERT_NE(other, nullptr);
  EXPECT_NE(one, other);
  EXPECT_EQ(pool.take(), nullptr);

  Ended ended;
  CompletionBatch batch;
  one->completion = &ended;
  one->under_way = 3;
  one->is_posted = false;
  pool.end_part(*one, Status::kOk, &batch);
  pool.end_part(*one, Status::kRefused, &batch);
  EXPECT_TRUE(batch.is_empty());
  one->is_posted = true;
  pool.end_part(*one, Status::kBroken, &batch);
  EXPECT_EQ(ended.times, 0);
  EXPECT_EQ(batch.notify(), 1U);
  EXPECT_EQ(ended.times, 1);
  EXPECT_EQ(ended.status, Status::kRefused);
  EXPECT_EQ(pool.take(), one);
  EXPECT_EQ(one->completion, nullptr);
}

TEST(OperationPool, AbandonedOperationEndsWithItsLastPart) {
  OperationPool pool;
  ASSERT_EQ(pool.open(1, true), Status::kOk);
  Ended ended;
  CompletionBatch batch;
  PooledOperation* const operation = pool.take();
  operation->completion = &ended;
  operation->under_way = 1;
  pool.give_up(*operation, &batch);
  EXPECT_TRUE(batch.is_empty());
  pool.end_part(*operation, Status::kOk, &batch);
  EXPECT_EQ(batch.notify(), 1U);
  EXPECT_EQ(ended.status, Status::kBroken);

  PooledOperation* const idle = pool.take();
  idle->completion = &ended;
  pool.give_up(*idle, &batch);
  EXPECT_EQ(batch.notify(), 1U);
  EXPECT_EQ(ended.times, 2);
}

TEST(OperationPool, StripesOfOperationsDoNotOverlap) {
  OperationPool pool;
  ASSERT_EQ(pool.open(3, false), Status::kOk);
  ASSERT_EQ(pool.open_stripes(), Status::kOk);
  std::set<const Stripe*> all;
  for (int i = 0; i < 3; ++i) {
    const PooledOperation* const operation = pool.take();
    for (uint32_t j = 0; j < OperationPool::kStripesEach; ++j)
      EXPECT_TRUE(all.insert(pool.stripes_of(*operation) + j).second);
  }
}

TEST(PendingOperations, DelayMessagesWhileAnythingIsPending) {
  PendingOperations pending;
  PooledOperation operation;
  EXPECT_FALSE(pending.delays_messages());
  pending.set_waiting(operation);
  pending.add_put_stripe();
  pending.add_put_stripe();
  EXPECT_EQ(pending.waiting(), &operation);
  pending.clear_waiting();
  EXPECT_TRUE(pending.delays_messages());
  EXPECT_TRUE(pending.has_put_stripes());
  pending.complete_put_stripe();
  pending.set_waiting(operation);
  pending.complete_put_stripe();
  EXPECT_FALSE(pending.has_put_stripes());
  EXPECT_TRUE(pending.delays_messages());
  pending.clear_waiting();
  EXPECT_FALSE(pending.delays_messages());
}

TEST(CompletionBatch, IsEmptyBeforeTheFirstCallback) {
  CompletionBatch batch;
  struct Adding : Completion {
    CompletionBatch* batch = nullptr;
    Ended* next = nullptr;
  } first;
  Ended second;
  first.batch = &batch;
  first.next = &second;
  first.done = [](Completion& completion, Status) noexcept {
    auto& self = static_cast<Adding&>(completion);
    EXPECT_TRUE(self.batch->is_empty());
    self.batch->add(self.next, Status::kOk);
  };
  batch.add(&first, Status::kOk);
  batch.add(nullptr, Status::kOk);
  EXPECT_EQ(batch.notify(), 2U);
  EXPECT_EQ(second.times, 0);
  EXPECT_EQ(batch.notify(), 1U);
  EXPECT_EQ(second.times, 1);
  for (uint32_t i = 0; i < CompletionBatch::kCapacity; ++i) batch.add(nullptr, Status::kOk);
  EXPECT_TRUE(batch.is_full());
}

TEST(DeferredWork, UnfinishedItemsAndThoseAddedMeanwhileAreListedOnce) {
  DeferredWork work;
  work.open(true);
  DeferredItem items[3];
  work.add(items[0]);
  work.add(items[0]);
  work.add(items[1]);
  std::vector<const DeferredItem*> seen;
  work.run([&](DeferredItem& item) {
    seen.push_back(&item);
    if (&item == &items[0]) work.add(items[2]);
    if (&item == &items[1]) work.add(items[1]);
    return &item != &items[0];
  });
  EXPECT_EQ(seen, (std::vector<const DeferredItem*>{&items[1], &items[0]}));
  seen.clear();
  work.run([&](DeferredItem& item) {
    seen.push_back(&item);
    return true;
  });
  EXPECT_EQ(std::set<const DeferredItem*>(seen.begin(), seen.end()),
            (std::set<const DeferredItem*>{&items[0], &items[1], &items[2]}));
  EXPECT_EQ(seen.size(), 3U);
  EXPECT_TRUE(work.is_empty());
}

TEST(StallDetector, CountsChecksWithoutProgress) {
  StallDetector detector;
  EXPECT_EQ(detector.check(true, 0), 1U);
  EXPECT_EQ(detector.check(true, 0), 2U);
  EXPECT_EQ(detector.check(true, 1), 0U);
  EXPECT_EQ(detector.check(true, 1), 1U);
  EXPECT_EQ(detector.check(false, 1), 0U);
}

TEST(PeerState, OpensOnceAndDisconnectsOnceWithTheFirstReason) {
  PeerState state;
  EXPECT_TRUE(state.is_connecting());
  EXPECT_TRUE(state.open());
  EXPECT_FALSE(state.open());
  EXPECT_TRUE(state.is_open());
  EXPECT_TRUE(state.disconnect("first"));
  EXPECT_FALSE(state.disconnect("second"));
  EXPECT_TRUE(state.is_disconnected());
  EXPECT_STREQ(state.reason(), "first");
  EXPECT_FALSE(state.open());
  EXPECT_TRUE(state.is_disconnected());
}

TEST(PeerState, RefusalIsKeptUntilThePollThatDisconnects) {
  PeerState state;
  EXPECT_FALSE(state.is_refused());
  state.refuse();
  EXPECT_TRUE(state.is_refused());
  EXPECT_TRUE(state.is_connecting());
  EXPECT_STREQ(state.refusal(), "its queue pair accepts no requests");
  state.refuse("the second port");
  EXPECT_STREQ(state.refusal(), "the second port");
}

}  // namespace
}  // namespace hydrant::ibv
