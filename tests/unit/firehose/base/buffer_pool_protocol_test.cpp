// The steps of the pool's two protocols in chosen orders, which the stress tests of
// buffer_pool_threads_test.cpp rarely reach. Accesses private state on purpose.
#include "firehose/base/buffer_pool/buffer_pool_layout.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/base/buffer_pool_util.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace hydrant::testing {
namespace {

using pool::Magazine;

// ---- the stack ----

class BufferPoolStack : public ::testing::Test {
 protected:
  static constexpr uint32_t kSlots = 8;
  std::vector<uint32_t> pop(uint32_t n) {
    std::vector<uint32_t> got(n);
    got.resize(pool::pop(state_, slots_.data(), 0, got.data(), n));
    return got;
  }
  void push(std::vector<uint32_t> slots) {
    pool::push(state_, slots_.data(), slots.data(), static_cast<uint32_t>(slots.size()));
  }
  using Slots = std::vector<uint32_t>;

  pool::ClassState state_;
  std::array<pool::Slot, kSlots> slots_;
};

TEST_F(BufferPoolStack, LastInIsFirstOut) {
  EXPECT_EQ(pop(3), Slots{});
  push({2});
  push({4, 1, 0});
  EXPECT_EQ(pop(2), (Slots{4, 1}));
  push({7});
  EXPECT_EQ(pop(8), (Slots{7, 0, 2}));
  EXPECT_EQ(pop(1), Slots{});
  EXPECT_EQ(state_.high_water.load(), 8u);
}

// A thread has read the head (slot 0) and the link to slot 1 and stands still. Others take 0 and 1 and put 0
// back: slot 0 is on top again, but 1 is in use.
TEST_F(BufferPoolStack, LatePopFailsWhenTheSameSlotIsOnTopAgain) {
  push({0, 1, 2});
  uint64_t seen = state_.head.load();
  const uint64_t link = slots_[0].next.load();
  EXPECT_EQ(pop(2), (Slots{0, 1}));
  push({0});
  EXPECT_EQ(state_.head.load() & pool::kLinkMask, seen & pool::kLinkMask) << "0 is on top again";
  const uint64_t fresh = (seen & ~pool::kLinkMask) + pool::kLinkMask + 1 + link;
  EXPECT_FALSE(state_.head.compare_exchange_strong(seen, fresh)) << "slot 1 would be there twice";
  EXPECT_EQ(pop(8), (Slots{0, 2}));
}

TEST_F(BufferPoolStack, CountOfPopsLeavesLinksAloneWhenItOverflows) {
  state_.head.store(~pool::kLinkMask);
  push({3, 5});
  EXPECT_EQ(pop(1), (Slots{3}));
  EXPECT_EQ(state_.head.load(), 6u) << "the count is 0 again, slot 5 on top";
  EXPECT_EQ(pop(8), (Slots{5}));
}

// ---- owner and thief ----

class BufferPoolStealing : public BufferPoolTest, public ::testing::WithParamInterface<bool> {
 protected:
  // Everything but what main's magazine caches is out.
  void SetUp() override {
    create(pool_options(64, {64}));
    if (GetParam()) BufferPoolPeer::make_symmetric(*pool_);
    release_buffer(take(64));
    mine_ = &BufferPoolPeer::own_magazine(*pool_);
    Threads other;
    mine_->busy.store(1);
    other.start([&] { others_ = take_all(64); });
    other.join();
    mine_->busy.store(0);
    cached_ = pool_->stats(0).cached;
    ASSERT_EQ(others_.size() + cached_, 64u) << "the owner was inside: nothing of its own is taken";
    ASSERT_GT(cached_, 1u);
  }
  void TearDown() override {
    put_all(others_);
    BufferPoolTest::TearDown();
  }
  Status take_in_other_thread() {
    auto status = Status::kBroken;
    Threads other;
    other.start([&] {
      PoolBuffer buffer;
      status = pool_->take(64, &buffer);
      if (status == Status::kOk) others_.push_back(buffer);
    });
    other.join();
    return status;
  }

  Magazine* mine_ = nullptr;
  uint32_t cached_ = 0;
  std::vector<PoolBuffer> others_;
};

TEST_P(BufferPoolStealing, BusyOwnerIsNotStolenFrom) {
  mine_->busy.store(1);
  EXPECT_EQ(take_in_other_thread(), Status::kNotReady);
  EXPECT_EQ(pool_->stats(0).cached, cached_);
  EXPECT_EQ(mine_->steal.load(), 0u) << "the raid is over";
  mine_->busy.store(0);
  EXPECT_EQ(take_in_other_thread(), Status::kOk);
  EXPECT_EQ(pool_->stats(0).cached, 0u) << "the rest is on the stack, for all";
  EXPECT_EQ(pool_->stats(0).stolen, cached_);
}

TEST_P(BufferPoolStealing, ActiveThiefIsNotDisturbed) {
  mine_->steal.store(1);
  PoolBuffer buffer;
  EXPECT_EQ(pool_->take(64, &buffer), Status::kNotReady) << "its magazine is another's now";
  EXPECT_EQ(take_in_other_thread(), Status::kNotReady) << "one thief at a time";
  release_buffer(others_.back());
  others_.pop_back();
  EXPECT_EQ(pool_->stats(0).cached, cached_) << "the return went past the magazine";
  EXPECT_EQ(mine_->busy.load(), 0u);
  mine_->steal.store(0);
  for (uint32_t i = 0; i <= cached_; ++i) others_.push_back(take(64));
  EXPECT_EQ(pool_->take(64, &buffer), Status::kNotReady);
}

TEST_P(BufferPoolStealing, ThreadThatEndsDuringAStealLeavesItsMagazine) {
  Magazine* theirs = nullptr;
  put_all(others_);
  others_.clear();
  Threads other;
  other.start([&] {
    std::vector<PoolBuffer> held;
    for (int i = 0; i < 64; ++i) held.push_back(take(64));  // past the short returns of before
    put_all(held);
    release_buffer(take(64));
    theirs = &BufferPoolPeer::own_magazine(*pool_);
    theirs->steal.store(1);
  });
  other.join();
  ASSERT_NE(theirs, mine_);
  EXPECT_EQ(theirs->claimed.load(), 0u);
  EXPECT_GT(theirs->classes[0].count.load(), 0u);
  theirs->steal.store(0);
  EXPECT_EQ(available(64), 64u);
}

INSTANTIATE_TEST_SUITE_P(Fences, BufferPoolStealing, ::testing::Bool(),
                         [](const auto& one) { return one.param ? "Full" : "Asymmetric"; });

}  // namespace
}  // namespace hydrant::testing
