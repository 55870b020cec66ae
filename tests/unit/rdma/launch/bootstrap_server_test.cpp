#include "rdma/launch/bootstrap_server.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace hydrant::launch {
namespace {

// Fake ranks: the latest reply to each.
class Ranks final : public ReplySender {
 public:
  struct Answer {
    uint32_t id = 0;
    Status status = Status::kOk;
    std::string tail;
  };
  void send_reply(Rank to, const Reply& reply, std::span<const std::byte> tail) noexcept override {
    answers[to] = {reply.id, static_cast<Status>(reply.status),
                   std::string(reinterpret_cast<const char*>(tail.data()), tail.size())};
  }
  std::map<Rank, Answer> answers;
};

class BootstrapServerTest : public ::testing::TestWithParam<Rank> {
 protected:
  void ask(Rank rank, RequestKind kind, std::string_view key = "", uint64_t deadline = 100,
           Rank of = 0, std::string_view value = "") {
    Request request{.kind = kind,
                    .id = ++id_,
                    .rank = of,
                    .deadline_ns = deadline,
                    .value_bytes = static_cast<uint32_t>(value.size())};
    if (!key.empty()) {
      ASSERT_TRUE(set_key(key, &request));
    }
    server_.take(rank, request, std::as_bytes(std::span(value)), now_);
  }
  bool answered(Rank rank) const { return ranks_.answers.count(rank) != 0; }
  Ranks::Answer take(Rank rank) {
    const auto answer = ranks_.answers[rank];
    ranks_.answers.erase(rank);
    return answer;
  }

  Ranks ranks_;
  BootstrapServer server_{GetParam(), ranks_};
  uint64_t now_ = 1;
  uint32_t id_ = 0;
};

TEST_P(BootstrapServerTest, FenceOpensWhenTheLastRankArrives) {
  for (Rank rank = 0; rank + 1 < GetParam(); ++rank) ask(rank, RequestKind::kFence);
  EXPECT_TRUE(ranks_.answers.empty());
  ask(GetParam() - 1, RequestKind::kFence);
  EXPECT_EQ(ranks_.answers.size(), GetParam());
  EXPECT_EQ(take(0).status, Status::kOk);
  EXPECT_EQ(server_.next_ns(), UINT64_MAX);
}

TEST_P(BootstrapServerTest, ValuesOfAllRanksAreServedOneAtATime) {
  for (Rank rank = 0; rank < GetParam(); ++rank) {
    ask(rank, RequestKind::kPut, "k", 100, 0, "value of " + std::to_string(rank));
  }
  for (Rank rank = 0; rank < GetParam(); ++rank) {
    ask(0, RequestKind::kGet, "k", 100, rank);
    const auto answer = take(0);
    EXPECT_EQ(answer.status, Status::kOk);
    EXPECT_EQ(answer.tail, "value of " + std::to_string(rank));
  }
}

TEST_P(BootstrapServerTest, GetCompletesWhenTheValueIsPut) {
  for (Rank rank = 1; rank < GetParam(); ++rank) ask(rank, RequestKind::kGet, "k", 100, 0);
  EXPECT_TRUE(ranks_.answers.empty());
  ask(0, RequestKind::kPut, "other", 100, 0, "no");
  EXPECT_EQ(ranks_.answers.size(), 1u);
  ask(0, RequestKind::kPut, "k", 100, 0, "");
  EXPECT_EQ(ranks_.answers.size(), GetParam());
  EXPECT_EQ(take(1).status, Status::kOk);
}

TEST_P(BootstrapServerTest, DeadlineErrorNamesTheMissingRanks) {
  ask(0, RequestKind::kFence, "", 100);
  EXPECT_EQ(server_.next_ns(), 100u);
  server_.expire(99);
  EXPECT_FALSE(answered(0));
  server_.expire(100);
  const auto answer = take(0);
  EXPECT_EQ(answer.status, Status::kNotReady);
  EXPECT_EQ(answer.tail.substr(0, 10), GetParam() == 2 ? "rank 1 did" : "ranks 1, 2");
  EXPECT_EQ(server_.next_ns(), UINT64_MAX);
  // It may repeat its call, and is counted once.
  for (Rank rank = 0; rank < GetParam(); ++rank) ask(rank, RequestKind::kFence);
  EXPECT_EQ(take(0).status, Status::kOk);
}

TEST_P(BootstrapServerTest, NewCallReplacesTheWaitingOne) {
  ask(0, RequestKind::kFence);
  ask(0, RequestKind::kFence);
  for (Rank rank = 1; rank + 1 < GetParam(); ++rank) ask(rank, RequestKind::kFence);
  EXPECT_FALSE(answered(0));
  ask(GetParam() - 1, RequestKind::kFence);
  EXPECT_EQ(take(0).id, 2u);
}

TEST_P(BootstrapServerTest, JobTerminationFailsAllWaiters) {
  ask(0, RequestKind::kFence);
  ask(1, RequestKind::kGet, "k", 100, 0);
  server_.end("rank 9 is gone");
  for (const Rank rank : {0u, 1u}) {
    const auto answer = take(rank);
    EXPECT_EQ(answer.status, Status::kBroken);
    EXPECT_EQ(answer.tail, "rank 9 is gone");
  }
  ask(0, RequestKind::kFence);
  EXPECT_EQ(take(0).status, Status::kBroken);
}

TEST_P(BootstrapServerTest, RankJoinsOnce) {
  ask(0, RequestKind::kHello);
  EXPECT_EQ(take(0).status, Status::kOk);
  EXPECT_TRUE(server_.joined(0));
  ask(0, RequestKind::kHello);
  EXPECT_EQ(take(0).status, Status::kBadArg);
  EXPECT_EQ(server_.joined_count(), 1u);
}

TEST_P(BootstrapServerTest, RankBeyondTheJobAndExcessValuesAreRejected) {
  ask(0, RequestKind::kGet, "k", 100, GetParam());
  EXPECT_EQ(take(0).status, Status::kBadArg);
  for (size_t i = 0; i < KeyValueStore::kMaxValuesPerRank; ++i) {
    ask(0, RequestKind::kPut, "k" + std::to_string(i), 100, 0, "x");
    EXPECT_EQ(take(0).status, Status::kOk);
  }
  ask(0, RequestKind::kPut, "k0", 100, 0, "y");
  EXPECT_EQ(take(0).status, Status::kOk);
  ask(0, RequestKind::kPut, "more", 100, 0, "x");
  EXPECT_EQ(take(0).status, Status::kResource);
}

INSTANTIATE_TEST_SUITE_P(Sizes, BootstrapServerTest, ::testing::Values(2, 3, 64, 1024));

}  // namespace
}  // namespace hydrant::launch
