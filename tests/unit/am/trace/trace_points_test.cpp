// Numbers of messages: the receiver finds the sender's, in whatever order messages of several threads arrive.
#include "am/trace/trace_points.hpp"

#include "tests/support/test_seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace hydrant::testing {
namespace {

class Sink final : public TraceSink {
 public:
  void take(const TraceRecord& record, const TraceThread&, const TraceClock&) noexcept override {
    records.push_back(record);
  }
  void flush() noexcept override {}
  std::vector<TraceRecord> records;
};
Sink& sink() {
  static Sink the_sink;
  return the_sink;
}

class TracePoints : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(start_trace_points(4));
    sink().records.clear();
    start_tracing(sink(), {.tsc_is_steady = true});
  }
  void TearDown() override { EXPECT_TRUE(stop_tracing()); }

  static uint64_t run(const TracedMessage& message, uint32_t mark) {
    { const TracedRun traced(message, mark); }
    (void)drain_traces();
    return sink().records.back().number;
  }
};

constexpr TracedMessage kRequest = {.peer = 1, .handler = 200, .bytes = 8};
constexpr TracedMessage kReply = {.peer = 1, .lane = 1, .handler = 201};

TEST_F(TracePoints, NumbersCountPerLaneAndPeer) {
  for (uint64_t n = 0; n < 300; ++n) {
    const TracedSend request(kRequest);
    EXPECT_EQ(request.mark(), n % 127 + 1);
    request.sent();
    EXPECT_EQ(run(kRequest, request.mark()), n);
    if (n % 3 == 0) {
      const TracedSend reply(kReply);
      EXPECT_EQ(run(kReply, reply.mark()), n / 3);
    }
  }
  EXPECT_EQ(run({.peer = 2}, 1), 0u);
}

TEST_F(TracePoints, MessagesThatOvertakeOthersKeepTheirNumbers) {
  std::mt19937_64 random(test_seed());
  std::vector<std::pair<uint64_t, uint32_t>> under_way;
  uint64_t sent = 0;
  for (int round = 0; round < 3000; ++round) {
    while (under_way.size() < 8) {
      const TracedSend one(kRequest);
      under_way.emplace_back(sent++, one.mark());
    }
    // The oldest is late, but fewer than 127 messages overtake it.
    const bool is_urgent = sent - under_way.front().first > 100;
    const size_t place = is_urgent ? 0 : random() % under_way.size();
    const auto [number, mark] = under_way[place];
    under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(place));
    ASSERT_EQ(run(kRequest, mark), number) << "round " << round;
  }
}

TEST_F(TracePoints, AMessageOvertakenByMoreThanTheMarksStillHasANumberOfItsOwn) {
  const TracedSend late(kRequest);
  std::vector<uint64_t> numbers;
  for (int i = 0; i < 200; ++i) numbers.push_back(run(kRequest, TracedSend(kRequest).mark()));
  numbers.push_back(run(kRequest, late.mark()));
  std::sort(numbers.begin(), numbers.end());
  for (uint64_t n = 0; n <= 200; ++n) ASSERT_EQ(numbers[n], n);
}

TEST_F(TracePoints, NumbersOfMessagesThatWereNotSentAreUsedAgain) {
  for (uint64_t n = 0; n < 500; ++n) {
    const TracedSend first(kRequest);
    const TracedSend second(kRequest);  // of another thread
    first.failed();
    const TracedSend third(kRequest);
    EXPECT_EQ(third.mark(), first.mark());
    EXPECT_EQ(run(kRequest, second.mark()), 2 * n + 1);
    EXPECT_EQ(run(kRequest, third.mark()), 2 * n);
  }
}

TEST_F(TracePoints, SendersWithoutATraceHaveNoNumbers) {
  EXPECT_EQ(run(kRequest, 0), UINT64_MAX);
  EXPECT_EQ(run(kRequest, 1), 0u);
}

TEST_F(TracePoints, CallsTakeTheirFirstPathAndOthersHaveTheirOwnRecords) {
  trace_enter("gex_RMA_PutNB");
  trace_transfer(true, 1, "mapped", 8);
  trace_transfer(true, 2, "cma", 16);
  trace_leave();
  trace_enter("gex_Event_Wait");
  trace_transfer(false, 3, "direct", 32);
  trace_leave();
  ASSERT_TRUE(drain_traces());
  ASSERT_EQ(sink().records.size(), 4u);
  EXPECT_STREQ(sink().records[0].detail, "cma");
  EXPECT_EQ(sink().records[0].kind, TraceKind::kTransfer);
  EXPECT_STREQ(sink().records[1].detail, "mapped");
  EXPECT_EQ(sink().records[1].peer, 1u);
  EXPECT_EQ(sink().records[2].lane, 1u);
  EXPECT_EQ(sink().records[3].detail, nullptr) << "a wait is no get";
}

TEST_F(TracePoints, EmptyPollsAreTogetherUpToALimit) {
  const auto poll = [] {
    trace_enter("gasnet_AMPoll");
    trace_leave();
  };
  for (int i = 0; i < 1024 + 5; ++i) poll();
  trace_enter("gasnet_AMPoll");
  trace_transfer(true, 1, "mapped", 8);
  trace_leave();
  poll();
  trace_enter("gex_Event_Wait");
  trace_leave();
  poll();
  trace_pending_polls();
  ASSERT_TRUE(drain_traces());
  std::vector<uint64_t> polls;
  for (const TraceRecord& record : sink().records) {
    if (record.name != nullptr && std::strcmp(record.name, "gasnet_AMPoll") == 0)
      polls.push_back(record.number);
  }
  EXPECT_EQ(polls, (std::vector<uint64_t>{1024, 5, 0, 1, 1}));
}

TEST_F(TracePoints, CallsInsideCallsBeyondTheLimitAreNotRecorded) {
  for (uint32_t i = 0; i < TraceThread::kFrames + 3; ++i) trace_enter("gex_TM_Split");
  for (uint32_t i = 0; i < TraceThread::kFrames + 3; ++i) trace_leave();
  trace_leave();  // a call that began before the trace
  ASSERT_TRUE(drain_traces());
  EXPECT_EQ(sink().records.size(), size_t{TraceThread::kFrames});
}

}  // namespace
}  // namespace hydrant::testing
