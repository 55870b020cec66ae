// A send queue and a completion queue over a fake device: positions, signals and room, single-threaded.
#include "rdma/ibv/queue/send_queue.hpp"

#include "rdma/ibv/device/ibv_port_choice.hpp"
#include "rdma/ibv/queue/completion_queue.hpp"
#include "tests/fakes/fake_ibverbs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <deque>
#include <random>

namespace hydrant::ibv {
namespace {

using fake_verbs::Call;
using ::testing::HasSubstr;

class SendQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_verbs::reset();
    fake_verbs::add_device({});
    ASSERT_EQ(open_port("", &port_), Status::kOk);
  }
  void TearDown() override {
    queue_.close();
    completions_.close();
    close_ibv_device(port_.device);
    EXPECT_TRUE(fake_verbs::live().none());
  }
  void open(uint32_t depth) {
    ASSERT_EQ(completions_.open({.port = &port_, .entries_per_peer = depth}), Status::kOk);
    ASSERT_EQ(queue_.open({.port = &port_, .completions = completions_.get(), .depth = depth}),
              Status::kOk)
        << last_error_text();
  }

  Port port_;
  GrowingCompletionQueue completions_;
  SendQueue queue_;
};

TEST_F(SendQueueTest, PositionsAgreeWithAModel) {
  constexpr uint32_t kDepth = 20;  // not a power of two
  open(kDepth);
  std::mt19937 random(7);
  std::deque<uint64_t> signalled;  // positions behind those that get a completion
  uint64_t posted = 0;
  uint64_t completed = 0;
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_EQ(queue_.used(), posted - completed);
    ASSERT_EQ(queue_.room(), kDepth - (posted - completed));
    switch (random() % 4) {
      case 0:
      case 1: {
        if (queue_.room() == 0) break;
        ibv_send_wr request{};
        SendRecord& record = queue_.add(request, random() % 8 == 0);
        ASSERT_EQ(record.position, posted);
        ASSERT_EQ(record.queue, &queue_);
        ASSERT_EQ(&record, &queue_.record_at(posted));
        ibv_wc completion{};
        completion.wr_id = request.wr_id;
        ASSERT_TRUE(SendQueue::is_send(completion));
        ASSERT_EQ(&SendQueue::record_of(completion), &record);
        ++posted;
        if ((request.send_flags & IBV_SEND_SIGNALED) != 0) signalled.push_back(posted);
        ASSERT_EQ(queue_.is_last_signalled(), !signalled.empty() && signalled.back() == posted);
        // At least each fourth part of the queue has a completion, so it cannot fill up for good.
        const uint64_t last = signalled.empty() ? completed : signalled.back();
        ASSERT_LT(posted - last, kDepth / 4);
        break;
      }
      case 2:
        if (posted == completed || (!signalled.empty() && signalled.back() == posted)) break;
        ASSERT_EQ(queue_.undo_unposted().position, posted - 1);
        --posted;
        break;
      default:
        if (signalled.empty()) break;
        completed = signalled.front();
        signalled.pop_front();
        queue_.complete(completed);
    }
  }
  EXPECT_GT(completed, 1000U);
}

TEST_F(SendQueueTest, FirstFailureIsDescribed) {
  open(16);
  EXPECT_TRUE(queue_.note_failed());
  EXPECT_FALSE(queue_.note_failed());
  EXPECT_STREQ(queue_.describe_failure("lost"), "lost, on fake0 port 1");
  EXPECT_STREQ(queue_.describe_failure("lost again"), "lost, on fake0 port 1");
}

TEST_F(SendQueueTest, QueueWithNothingDueIsNotStalled) {
  open(16);
  ibv_send_wr request{};
  (void)queue_.add(request, false);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(queue_.is_stalled(2));
  ibv_send_wr due{};
  (void)queue_.add(due, true);
  EXPECT_FALSE(queue_.is_stalled(2));
  EXPECT_FALSE(queue_.is_stalled(2));
  EXPECT_TRUE(queue_.is_stalled(2));
  queue_.complete(queue_.posted());
  EXPECT_FALSE(queue_.is_stalled(2));
  EXPECT_EQ(queue_.used(), 0U);
}

TEST_F(SendQueueTest, CompletionQueueGrowsWithThePeersUpToTheDevicesLimit) {
  port_.max_completions = 100;
  ASSERT_EQ(completions_.open({.port = &port_, .entries_per_peer = 40, .peers_at_first = 1}),
            Status::kOk);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(completions_.make_room(), Status::kOk) << last_error_text();
    completions_.count_peer();
  }
  EXPECT_EQ(completions_.make_room(), Status::kResource);
  EXPECT_THAT(last_error_text(), HasSubstr("at most 100 entries, 2 peers have them all (40 each)"));
}

TEST_F(SendQueueTest, CompletionQueueGrowsAsFarAsThereIsMemory) {
  ASSERT_EQ(
      completions_.open({.port = &port_, .entries_per_peer = 40, .peers = 5, .peers_at_first = 1}),
      Status::kOk);
  completions_.count_peer();
  fake_verbs::fail_call(Call::kResizeCq, ENOMEM);
  EXPECT_EQ(completions_.make_room(), Status::kOk) << last_error_text();
  EXPECT_EQ(completions_.get()->cqe, 80);
}

TEST_F(SendQueueTest, CompletionQueueThatCannotBeResizedHasRoomForAllPeers) {
  for (const int error : {EOPNOTSUPP, ENOSYS, EINVAL}) {
    fake_verbs::fail_always(Call::kResizeCq, error);
    GrowingCompletionQueue queue;
    ASSERT_EQ(queue.open({.port = &port_, .entries_per_peer = 40, .peers = 5, .peers_at_first = 1}),
              Status::kOk);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(queue.make_room(), Status::kOk) << last_error_text();
      queue.count_peer();
    }
    EXPECT_EQ(queue.make_room(), Status::kResource);
    EXPECT_THAT(last_error_text(), HasSubstr("at most 200 entries, 5 peers have them all"));
  }
}

TEST_F(SendQueueTest, CompletionQueueThatCannotBeResizedIsAsLargeAsTheDeviceMakesIt) {
  fake_verbs::fail_always(Call::kResizeCq, EOPNOTSUPP);
  fake_verbs::fail_call(Call::kCreateCq, ENOMEM, 2);
  ASSERT_EQ(
      completions_.open({.port = &port_, .entries_per_peer = 40, .peers = 5, .peers_at_first = 1}),
      Status::kOk);
  EXPECT_EQ(completions_.get()->cqe, 160);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(completions_.make_room(), Status::kOk) << last_error_text();
    completions_.count_peer();
  }
  EXPECT_EQ(completions_.make_room(), Status::kResource);
  EXPECT_THAT(last_error_text(), HasSubstr("at most 160 entries, 4 peers have them all"));
}

// The device has room for 32 peers.
TEST_F(SendQueueTest, CompletionQueueLosesOnePeerAtMostWhereTheDeviceMakesFewerEntriesThanItSays) {
  fake_verbs::fail_always(Call::kResizeCq, EOPNOTSUPP);
  port_.max_completions = 40'000;
  const uint64_t before = fake_verbs::calls(Call::kCreateCq);
  ASSERT_EQ(completions_.open({.port = &port_, .entries_per_peer = 1000, .peers = 100}),
            Status::kOk);
  for (int i = 0; i < 31; ++i) {
    ASSERT_EQ(completions_.make_room(), Status::kOk) << last_error_text();
    completions_.count_peer();
  }
  EXPECT_LE(fake_verbs::calls(Call::kCreateCq) - before, 10U);
}

TEST_F(SendQueueTest, OnePeerMustFitIntoTheCompletionQueue) {
  port_.max_completions = 39;
  EXPECT_EQ(completions_.open({.port = &port_, .entries_per_peer = 40}), Status::kResource);
  EXPECT_THAT(last_error_text(), HasSubstr("at most 39 entries, one peer needs 40"));
}

}  // namespace
}  // namespace hydrant::ibv
