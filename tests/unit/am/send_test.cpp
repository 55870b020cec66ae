// The paths of a message through a transport without room, without cells or without access to the
// peer's memory.
#include "am/message/send.hpp"

#include "tests/unit/am/job_fixture.hpp"

#include <gmock/gmock.h>

namespace hydrant::test {
namespace {

using Send = JobFixture;

TEST_F(Send, PollsUntilThereIsRoom) {
  transport->refusals = 50;
  EXPECT_EQ(gex_AM_RequestShort2(team(), 1, kShort2, 0, 7, -7), GASNET_OK);
  EXPECT_GE(transport->polls, 50u);
  EXPECT_EQ(transport->reply_polls, 0u);
  deliver_sent();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].args, (std::vector<int32_t>{7, -7}));
}

TEST_F(Send, ImmediateDoesNotWaitOrPoll) {
  const auto data = pattern(3000);
  gex_Event_t event = GEX_EVENT_INVALID;
  transport->refusals = 3;
  EXPECT_NE(gex_AM_RequestShort0(team(), 1, kShort0, GEX_FLAG_IMMEDIATE), GASNET_OK);
  EXPECT_NE(gex_AM_RequestMedium1(team(), 1, kMedium1, data.data(), 10, GEX_EVENT_NOW,
                                  GEX_FLAG_IMMEDIATE, 1),
            GASNET_OK);
  EXPECT_NE(gex_AM_RequestMedium1(team(), 1, kMedium1, data.data(), data.size(), &event,
                                  GEX_FLAG_IMMEDIATE, 1),
            GASNET_OK);
  EXPECT_TRUE(transport->sent.empty());
  EXPECT_EQ(transport->polls + transport->reply_polls, 0u);
  EXPECT_EQ(gex_AM_RequestShort0(team(), 1, kShort0, GEX_FLAG_IMMEDIATE), GASNET_OK);
}

// The payload of a Long that was not sent must not be visible.
TEST_F(Send, ImmediateLongWithoutRoomWritesNothing) {
  const auto data = pattern(1000);
  std::vector<std::byte> memory(data.size());
  for (const bool maps : {true, false}) {
    transport->maps = maps;
    transport->refusals = 1;
    EXPECT_NE(gex_AM_RequestLong1(team(), 1, kLong1, data.data(), data.size(), memory.data(),
                                  GEX_EVENT_NOW, GEX_FLAG_IMMEDIATE, 1),
              GASNET_OK);
    EXPECT_EQ(memory, std::vector<std::byte>(data.size()));
    EXPECT_TRUE(transport->sent.empty());
    EXPECT_EQ(transport->polls + transport->reply_polls, 0u);
  }
}

TEST_F(Send, StartedImmediateLongIsSentCompletely) {
  const auto data = pattern(FakeTransport::kCell + 1000);
  for (const bool can_write : {false, true}) {
    std::vector<std::byte> memory(data.size());
    transport->can_write = can_write;
    // With write() the message itself finds no room, otherwise the second of the two pieces.
    transport->lets_through = can_write ? 0 : 2;
    transport->refusals = 3;
    std::vector<std::byte> source = data;
    const auto send = [&] {
      return gex_AM_RequestLong1(team(), 1, kLong1, source.data(), source.size(), memory.data(),
                                 GEX_EVENT_NOW, GEX_FLAG_IMMEDIATE, 1);
    };
    EXPECT_EQ(send(), GASNET_OK);
    EXPECT_NE(send(), GASNET_OK) << "before the first has gone";
    EXPECT_EQ(transport->refusals, 2u);
    EXPECT_EQ(transport->polls, 0u);
    std::fill(source.begin(), source.end(), std::byte{0xee});
    for (int i = 0; i < 3; ++i) gasnet_AMPoll();
    EXPECT_EQ(transport->refusals, 0u);
    deliver_sent();
    EXPECT_EQ(memory, data);
    EXPECT_EQ(calls.size(), 1u);
    calls.clear();
    transport->polls = 0;
  }
}

TEST_F(Send, CellIsReturnedWhenThePeerIsDead) {
  const auto data = pattern(3000);
  // take_cell() succeeds, reserve() does not.
  transport->disconnected.insert(2);
  EXPECT_EQ(
      gex_AM_RequestMedium1(team(), 2, kMedium1, data.data(), data.size(), GEX_EVENT_NOW, 0, 1),
      to_c(Status::kBroken));
  EXPECT_EQ(transport->cells_dropped, 1u);
}

TEST_F(Send, MediumsOfAllSizesArriveCompleteAndAligned) {
  for (const size_t bytes :
       {0u, 1u, 7u, 15u, 16u, 100u, 200u, 216u, 220u, 223u, 224u, 225u, 1000u, 4096u}) {
    const auto data = pattern(bytes, static_cast<unsigned>(bytes));
    EXPECT_EQ(gex_AM_RequestMedium1(team(), 1, kMedium1, data.data(), bytes, GEX_EVENT_NOW, 0, -3),
              GASNET_OK);
    ASSERT_EQ(transport->sent.size(), 1u);
    EXPECT_LE(transport->sent[0].head.size(), FakeTransport::kInline);
    deliver_sent();
    ASSERT_EQ(calls.size(), 1u);
    EXPECT_EQ(calls[0].payload, data);
    EXPECT_EQ(calls[0].args, std::vector<int32_t>{-3});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(calls[0].address) % 8, 0u);
    calls.clear();
  }
}

// A network has to offer only reserve(), commit() and poll().
TEST_F(Send, WithoutCellsAllPayloadsAreSentInline) {
  transport->has_cells = false;
  ASSERT_EQ(job().use(std::move(job().transport)), Status::kOk);
  const auto medium = pattern(max_medium());
  EXPECT_EQ(medium.size(), MessageChannel::kMinPayloadBytes);
  EXPECT_EQ(
      gex_AM_RequestMedium1(team(), 1, kMedium1, medium.data(), medium.size(), GEX_EVENT_NOW, 0, 1),
      GASNET_OK);
  const auto data = pattern(2 * max_medium() + 5);
  std::vector<std::byte> memory(data.size());
  EXPECT_EQ(gex_AM_RequestLong1(team(), 1, kLong1, data.data(), data.size(), memory.data(),
                                GEX_EVENT_NOW, 0, 2),
            GASNET_OK);
  EXPECT_EQ(transport->sent.size(), 5u) << "a Medium, three pieces and a Long";
  for (const SentMessage& one : transport->sent) EXPECT_FALSE(one.has_cell);
  deliver_sent();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].payload, medium);
  EXPECT_EQ(calls[1].payload, data);
}

// A network whose longest message is a setting of the test.
class LimitedTransport final : public FakeTransport {
 public:
  uint32_t most = 0;
  uint32_t inline_bytes() const noexcept override { return most; }
};

TEST_F(Send, NetworkWithShorterMessagesThanTheLibraryNeedsIsRefused) {
  auto owned = std::make_unique<LimitedTransport>();
  LimitedTransport* limited = owned.get();
  transport = limited;
  EXPECT_EQ(job().use(std::move(owned)), Status::kUnsupported);
  for (const bool has_cells : {false, true}) {
    const uint32_t least =
        has_cells ? MessageChannel::kMaxHeadBytes : FakeTransport::kInlineWithoutCells;
    limited->has_cells = has_cells;
    limited->most = least - 1;
    EXPECT_EQ(job().use(std::move(job().transport)), Status::kUnsupported);
    EXPECT_THAT(last_error_text(), ::testing::HasSubstr("the network 'fake' has messages of"));
    limited->most = least;
    EXPECT_EQ(job().use(std::move(job().transport)), Status::kOk);
  }
}

TEST_F(Send, LongToUnreachableMemoryIsSentInOrderedPieces) {
  const auto data = pattern(3 * FakeTransport::kCell + 5);
  std::vector<std::byte> memory(data.size());
  EXPECT_EQ(gex_AM_RequestLong1(team(), 1, kLong1, data.data(), data.size(), memory.data(),
                                GEX_EVENT_NOW, 0, 11),
            GASNET_OK);
  ASSERT_EQ(transport->sent.size(), 5u);
  uintptr_t next = reinterpret_cast<uintptr_t>(memory.data());
  for (size_t i = 0; i < 4; ++i) {
    const SentMessage& piece = transport->sent[i];
    const Tag tag = Tag::unpack(piece.tag);
    EXPECT_TRUE(tag.deposit);
    EXPECT_EQ(tag.handler, 0u);
    EXPECT_EQ(read_dest(piece.head.data()), next);
    next += read_length(piece.head.data(), Category::kLong);
  }
  EXPECT_FALSE(Tag::unpack(transport->sent[4].tag).deposit);
  deliver_sent();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].address, memory.data());
  EXPECT_EQ(calls[0].payload, data) << "the handler sees the whole, after all pieces";
  EXPECT_EQ(calls[0].args, std::vector<int32_t>{11});
}

TEST_F(Send, LongToReachableMemoryIsOneMessage) {
  const auto data = pattern(10000);
  for (const bool maps : {true, false}) {
    std::vector<std::byte> memory(data.size());
    transport->maps = maps;
    transport->can_write = !maps;
    ASSERT_EQ(gex_AM_RequestLong1(team(), 1, kLong1, data.data(), data.size(), memory.data(),
                                  GEX_EVENT_NOW, 0, 1),
              GASNET_OK);
    EXPECT_EQ(transport->sent.size(), 1u);
    EXPECT_EQ(memory, data) << "the payload is there before the message";
    deliver_sent();
    EXPECT_EQ(calls.back().payload, data);
  }
  EXPECT_EQ(transport->written_bytes, data.size());
}

TEST_F(Send, EmptyLongAccessesNoMemoryAndKeepsItsAddress) {
  void* nowhere = reinterpret_cast<void*>(uintptr_t{0x1230});
  ASSERT_EQ(gex_AM_RequestLong1(team(), 1, kLong1, nullptr, 0, nowhere, GEX_EVENT_NOW, 0, 1),
            GASNET_OK);
  deliver_sent();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].address, nowhere);
}

TEST_F(Send, FailedWriteIsAnErrorAndNothingIsSent) {
  std::byte memory[8];
  transport->write_fails = Status::kBadArg;
  EXPECT_EQ(
      gex_AM_RequestLong1(team(), 1, kLong1, pattern(8).data(), 8, memory, GEX_EVENT_NOW, 0, 1),
      GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(transport->sent.empty());
}

TEST_F(Send, WaitingRepliesPollOnlyReplies) {
  // A request is queued behind the reply; it must not run inside the handler.
  in_handler = [&](gex_Token_t token) {
    if (calls.size() != 1) return;
    transport->refusals = 20;
    EXPECT_EQ(gex_AM_ReplyShort0(token, kShort0, 0), GASNET_OK);
  };
  SentMessage request;
  request.tag = Tag{.handler = kShort0}.pack();
  transport->arriving = {request};
  FakeTransport::deliver(am_receiver(), request);
  EXPECT_GE(transport->reply_polls, 20u);
  EXPECT_EQ(transport->polls, 0u);
  EXPECT_EQ(calls.size(), 1u);
  ASSERT_EQ(transport->sent.size(), 1u);
  EXPECT_EQ(transport->sent[0].lane, Lane::kReply);
}

// A handler that replies by `reply` while there is no memory.
class SendDeathTest : public JobFixture {
 protected:
  void reply_without_memory(const std::function<void(gex_Token_t)>& reply) {
    in_handler = reply;
    transport->out_of_memory = true;
    SentMessage request;
    request.tag = Tag{.handler = kShort0}.pack();
    FakeTransport::deliver(am_receiver(), request);
    transport->out_of_memory = false;
  }
  const std::vector<std::byte> data = pattern(3000);
};

// Its peer would wait for the reply for ever.
TEST_F(SendDeathTest, AReplyWithoutMemoryEndsTheJob) {
  const std::string waits =
      ": rank 1 would wait for ever for a reply that cannot be sent: no memory";
  EXPECT_DEATH(
      reply_without_memory([](gex_Token_t token) { gex_AM_ReplyShort0(token, kShort0, 0); }),
      "gex_AM_ReplyShort" + waits);
  for (const size_t bytes : {size_t{10}, data.size()}) {
    EXPECT_DEATH(reply_without_memory([&](gex_Token_t token) {
                   gex_AM_ReplyMedium1(token, kMedium1, data.data(), bytes, GEX_EVENT_NOW, 0, 1);
                 }),
                 "gex_AM_ReplyMedium" + waits);
  }
  EXPECT_DEATH(reply_without_memory([&](gex_Token_t token) {
                 gex_AM_ReplyLong1(token, kLong1, data.data(), 10, nullptr, GEX_EVENT_NOW, 0, 1);
               }),
               "gex_AM_ReplyLong" + waits);
}

TEST_F(SendDeathTest, AnImmediateReplyWithoutMemoryIsRefused) {
  reply_without_memory([](gex_Token_t token) {
    EXPECT_EQ(gex_AM_ReplyShort0(token, kShort0, GEX_FLAG_IMMEDIATE), GASNET_ERR_RESOURCE);
    EXPECT_EQ(gex_AM_ReplyShort2(token, kShort2, GEX_FLAG_IMMEDIATE, 1, 2), GASNET_ERR_RESOURCE);
  });
  EXPECT_EQ(calls.size(), 1u);
}

TEST_F(Send, HandlerOfAMessageToThisRankRunsInsideTheCall) {
  std::vector<std::byte> memory(100);
  const auto data = pattern(100);
  in_handler = [](gex_Token_t token) {
    gex_Token_Info_t info;
    gex_Token_Info(token, &info, GEX_TI_ALL);
    if (info.gex_is_req != 0) gex_AM_ReplyShort0(token, kShort0, 0);
  };
  gex_AM_RequestMedium1(team(), 0, kMedium1, data.data(), 100, GEX_EVENT_NOW, 0, 1);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].payload, data);
  EXPECT_NE(calls[0].address, data.data());
  EXPECT_EQ(calls[1].info.gex_is_req, 0);
  gex_AM_RequestLong1(team(), 0, kLong1, data.data(), 100, memory.data(), GEX_EVENT_NOW, 0, 1);
  EXPECT_EQ(calls.size(), 4u);
  EXPECT_EQ(memory, data);
  EXPECT_TRUE(transport->sent.empty());
}

}  // namespace
}  // namespace hydrant::test
