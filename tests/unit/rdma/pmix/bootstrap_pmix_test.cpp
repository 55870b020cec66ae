// How an exit crosses nodes by PMIx. Each case is a process of its own, as what PMIx calls is one object of a
// process.
#include "rdma/bootstrap/bootstrap_pmix.hpp"

#include "firehose/base/thread.hpp"
#include "tests/support/descriptors.hpp"
#include "tests/support/patience.hpp"
#include "tests/unit/rdma/pmix/fake_pmix.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <string>
#include <string_view>

namespace hydrant {
namespace {

using testing::soon;
using testing::fake_pmix::Board;
using Kind = Bootstrap::Event::Kind;
namespace fake = testing::fake_pmix;

bool is_readable(int fd, int timeout_ms) {
  pollfd polled{fd, POLLIN, 0};
  return poll(&polled, 1, timeout_ms) == 1;
}

class Pmix : public ::testing::Test {
 protected:
  void open(Rank rank, Board board) {
    fake::start(rank, board);
    ASSERT_EQ(open_pmix(soon(), &bootstrap_), Status::kOk) << last_error_text();
    ASSERT_EQ(bootstrap_->topology().node_count, 2U);
  }
  void TearDown() override {
    if (bootstrap_ == nullptr) return;
    bootstrap_->leave(0, ExitReason::kExit, soon());
    EXPECT_TRUE(fake::finalized());
    EXPECT_EQ(bootstrap_->read_event().kind, Kind::kNothing);
  }
  void expect_word(Rank rank, int code) {
    ASSERT_TRUE(is_readable(bootstrap_->forwarded_exit_fd(), 20'000));
    const Bootstrap::Event word = bootstrap_->read_event();
    EXPECT_EQ(word.kind, Kind::kExit);
    EXPECT_EQ(word.rank, rank);
    EXPECT_EQ(word.code, code);
  }

  std::unique_ptr<Bootstrap> bootstrap_;
};

TEST_F(Pmix, NodesAreNumberedByTheirFirstRanks) {
  open(3, Board::kCarries);
  EXPECT_EQ(bootstrap_->topology().leaders, (std::vector<Rank>{0, 1}));
  EXPECT_EQ(bootstrap_->topology().node, 1U);
  EXPECT_EQ(bootstrap_->topology().node_ranks, (std::vector<Rank>{1, 3}));
  EXPECT_EQ(bootstrap_->topology().node_rank, 1U);
}

TEST_F(Pmix, LauncherThatHidesOtherNodesIsNoError) {
  open(3, Board::kHidesNodes);
  EXPECT_TRUE(bootstrap_->topology().leaders.empty());
  // Its number is 6 of 2, which is no index.
  EXPECT_EQ(bootstrap_->topology().node, 0U);
  EXPECT_EQ(bootstrap_->topology().node_ranks, (std::vector<Rank>{1, 3}));
}

pmix_value_t* make_value(pmix_data_type_t type, const char* text, uint32_t number) {
  auto* value = static_cast<pmix_value_t*>(std::calloc(1, sizeof(pmix_value_t)));
  value->type = type;
  if (type == PMIX_STRING && text != nullptr) value->data.string = strdup(text);
  if (type == PMIX_UINT32) value->data.uint32 = number;
  return value;
}

// Rank 0 of four, with this list of the ranks of its node, and so many nodes.
Status open_with(const char* peers, uint32_t nodes, std::unique_ptr<Bootstrap>* bootstrap) {
  fake::start(0, Board::kUnsupported);
  fake::answer_gets([=](uint32_t rank, const char* key, pmix_value_t** value) {
    const std::string_view name = key;
    if (name == PMIX_LOCAL_PEERS) {
      *value = make_value(PMIX_STRING, peers, 0);
    } else if (name == PMIX_NODEID) {
      *value = make_value(PMIX_UINT32, nullptr, rank);
    } else {
      *value = make_value(PMIX_UINT32, nullptr, name == PMIX_JOB_SIZE ? 4 : nodes);
    }
    return PMIX_SUCCESS;
  });
  const Status status = open_pmix(soon(), bootstrap);
  fake::answer_gets({});
  return status;
}

TEST_F(Pmix, MalformedNeighbourListIsRejected) {
  for (const char* peers : {"0,1,2,3x", "0,1,2,3,", "0-3", "0 1 2 3", ",0,1,2,3", "0,,1,2,3",
                            "0,1;2,3", "0,1,2,4294967299", "-0,1,2,3", ""}) {
    EXPECT_EQ(open_with(peers, 2, &bootstrap_), Status::kBroken) << peers;
    EXPECT_NE(std::string(last_error_text()).find(std::string("'") + peers + "'"),
              std::string::npos)
        << last_error_text();
    EXPECT_EQ(bootstrap_, nullptr);
  }
  EXPECT_EQ(open_with(nullptr, 2, &bootstrap_), Status::kBroken);
  ASSERT_EQ(open_with("3,0,2,1", 1, &bootstrap_), Status::kOk) << last_error_text();
  EXPECT_EQ(bootstrap_->topology().node_ranks, (std::vector<Rank>{0, 1, 2, 3}));
}

TEST_F(Pmix, MoreNodesThanRanksAreRejected) {
  EXPECT_EQ(open_with("0,1", 4, &bootstrap_), Status::kBroken);
  EXPECT_EQ(open_with("0,1", 1, &bootstrap_), Status::kBroken);
  EXPECT_EQ(open_with("0,1", UINT32_MAX, &bootstrap_), Status::kBroken);
  ASSERT_EQ(open_with("0,1", 3, &bootstrap_), Status::kOk) << last_error_text();
}

TEST_F(Pmix, EmptyEntryIsMissing) {
  open(0, Board::kCarries);
  fake::answer_gets([](uint32_t, const char*, pmix_value_t** value) {
    *value = make_value(PMIX_BYTE_OBJECT, nullptr, 0);
    (*value)->data.bo.size = 9;
    return PMIX_SUCCESS;
  });
  std::byte room[16];
  size_t bytes = 0;
  EXPECT_EQ(bootstrap_->get(1, "card", room, &bytes, soon()), Status::kNotReady);
  fake::answer_gets({});
}

TEST_F(Pmix, FirstRankOfANodeGetsExitEvents) {
  open(0, Board::kCarries);
  EXPECT_EQ(fake::lookups(), 1);
  EXPECT_EQ(bootstrap_->read_event().kind, Kind::kNothing);
  fake::publish(fake::kNamespace, 3, 0, 1);
  expect_word(3, 0);
}

TEST_F(Pmix, OthersOfTheNodeDoNotAsk) {
  open(3, Board::kCarries);
  EXPECT_EQ(fake::lookups(), 0);
}

TEST_F(Pmix, DuplicateReplyIsTwoEvents) {
  open(1, Board::kCarries);
  fake::publish(fake::kNamespace, 2, 5, 2);
  expect_word(2, 5);
  expect_word(2, 5);
}

TEST_F(Pmix, EventsOfOtherJobsAreIgnored) {
  open(0, Board::kCarries);
  fake::publish("job-2", 3, 0, 1);
  bootstrap_->forward_exit(0, false, soon());  // until the reply has come
  EXPECT_EQ(bootstrap_->read_event().kind, Kind::kNothing);
}

TEST_F(Pmix, UnknownRankIsIgnored) {
  open(0, Board::kCarries);
  fake::publish(fake::kNamespace, 4, 0, 1);
  bootstrap_->forward_exit(0, false, soon());
  EXPECT_EQ(bootstrap_->read_event().kind, Kind::kNothing);
}

TEST_F(Pmix, ExitIsPublishedAndIgnoredByItsSender) {
  open(0, Board::kCarries);
  bootstrap_->forward_exit(0, true, soon());
  EXPECT_EQ(fake::published(), 0);
  EXPECT_EQ(bootstrap_->read_event().kind, Kind::kNothing);
}

TEST_F(Pmix, OnlyTheFirstRankOfANodePublishes) {
  open(2, Board::kCarries);
  bootstrap_->forward_exit(7, false, soon());
  EXPECT_EQ(fake::published(), -1);
}

TEST_F(Pmix, TimedOutWaitIsRestarted) {
  open(0, Board::kTimesOutOnce);
  const uint64_t deadline = soon();
  while (fake::lookups() < 2 && now_ns() < deadline) poll(nullptr, 0, 1);
  fake::publish(fake::kNamespace, 1, 0, 1);
  expect_word(1, 0);
}

TEST_F(Pmix, LauncherThatRepliesAtOnceIsNotPolledForever) {
  open(0, Board::kNeverWaits);
  bootstrap_->forward_exit(0, false, soon());  // until no lookup is in flight any more
  EXPECT_EQ(fake::lookups(), 3);
}

TEST_F(Pmix, LauncherWithoutABoardIsNoError) {
  open(0, Board::kUnsupported);
  bootstrap_->forward_exit(0, true, soon());
  EXPECT_EQ(fake::published(), -1);
}

// The exit is published all the same: there is time left for it.
TEST_F(Pmix, SilentLauncherGetsHalfOfTheTimeout) {
  open(0, Board::kSilent);
  const uint64_t deadline = now_ns() + testing::patient_ns(4'000'000'000);
  bootstrap_->forward_exit(0, true, deadline);
  EXPECT_LT(now_ns(), deadline);
  EXPECT_EQ(fake::published(), 0);
}

TEST_F(Pmix, EventArrivesThoughThePipeWasClosed) {
  const testing::OwnDescriptors own;
  open(0, Board::kCarries);
  const std::vector<int> ends = own.others();
  ASSERT_EQ(ends.size(), 2U);
  const testing::ProgramsFiles program(ends);
  EXPECT_EQ(bootstrap_->forwarded_exit_fd(), -1);
  fake::publish(fake::kNamespace, 3, 4, 1);
  const uint64_t deadline = soon();
  Bootstrap::Event word;
  while (word.kind == Kind::kNothing && now_ns() < deadline) word = bootstrap_->read_event();
  EXPECT_EQ(word.rank, 3U);
  EXPECT_EQ(word.code, 4);
  EXPECT_EQ(program.harm(), "");
}

}  // namespace
}  // namespace hydrant
