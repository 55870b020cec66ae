// Wrong calls: each returns its error, and none hangs. Then no-interrupt sections and negotiated payload.
#include <gasnet.h>

#include "am/message/send.hpp"
#include "am/segment/segments.hpp"
#include "tests/unit/am/job_fixture.hpp"

namespace hydrant::test {
namespace {

using Calls = JobFixture;
using CallsDeathTest = JobFixture;

// Expects that the call returns `code` and that report() prints a text containing `words`.
template <typename Call>
void expect_error(int code, const char* words, Call call) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(call(), code);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(words), std::string::npos) << said;
}

TEST_F(Calls, InvalidRequestsAreRefused) {
  std::byte data[8] = {};
  std::byte dest[8];
  int32_t args[17] = {};
  expect_error(GASNET_ERR_BAD_ARG, "rank 3 does not exist; the job has 3",
               [&] { return gex_AM_RequestShort0(team(), 3, kShort0, 0); });
  expect_error(GASNET_ERR_BAD_ARG, "GEX_TM_INVALID",
               [&] { return gex_AM_RequestShort0(GEX_TM_INVALID, 1, kShort0, 0); });
  expect_error(GASNET_ERR_BAD_ARG, "no rank has an endpoint 33", [&] {
    return gex_AM_RequestShort0(gex_TM_Pair(&job().endpoint, GASNET_MAXEPS), 1, kShort0, 0);
  });
  expect_error(GASNET_ERR_BAD_ARG, "17 arguments",
               [&] { return hydrant_request_short(team(), 1, kShort0, 0, 17, args); });
  expect_error(GASNET_ERR_BAD_ARG, "a Medium payload of 4097 bytes exceeds the limit of 4096", [&] {
    return gex_AM_RequestMedium1(team(), 1, kMedium1, data, 4097, GEX_EVENT_NOW, 0, 1);
  });
  expect_error(GASNET_ERR_BAD_ARG, "exceeds the limit of 2147483647", [&] {
    return gex_AM_RequestLong1(team(), 1, kLong1, data, size_t{1} << 31, dest, GEX_EVENT_NOW, 0, 1);
  });
  expect_error(GASNET_ERR_BAD_ARG, "lc_opt is NULL",
               [&] { return gex_AM_RequestMedium1(team(), 1, kMedium1, data, 8, nullptr, 0, 1); });
  expect_error(GASNET_ERR_BAD_ARG, "DEFER", [&] {
    return gex_AM_RequestMedium1(team(), 1, kMedium1, data, 8, GEX_EVENT_DEFER, 0, 1);
  });
  EXPECT_TRUE(transport->sent.empty());
  EXPECT_EQ(transport->polls, 0u);
}

TEST_F(Calls, CallsBeforeInitAndToADeadPeerFail) {
  transport->disconnected.insert(1);
  expect_error(to_c(Status::kBroken), "rank 1 is gone",
               [&] { return gex_AM_RequestShort0(team(), 1, kShort0, 0); });
  job().state = JobState::kNew;
  expect_error(GASNET_ERR_NOT_INIT, "no client",
               [&] { return gex_AM_RequestShort0(team(), 1, kShort0, 0); });
  expect_error(GASNET_ERR_NOT_INIT, "no client", [&] { return gasnet_AMPoll(); });
  expect_error(GASNET_ERR_NOT_INIT, "no client",
               [&] { return gex_EP_RegisterHandlers(&job().endpoint, nullptr, 0); });
  expect_error(GASNET_ERR_NOT_INIT, "call gasnet_init() first",
               [&] { return gasnet_attach(nullptr, 0, 4096, 0); });
  gex_Segment_t segment = GEX_SEGMENT_INVALID;
  expect_error(GASNET_ERR_NOT_INIT, "call gex_Client_Init() first",
               [&] { return gex_Segment_Attach(&segment, team(), 4096); });
  expect_error(GASNET_ERR_NOT_INIT, "no segment is attached",
               [&] { return gasnet_getSegmentInfo(nullptr, 0); });
  gex_Rank_t count = 7;
  gex_System_QueryMyPosition(nullptr, nullptr, &count, nullptr);
  EXPECT_EQ(count, 1u);
  gex_System_QueryHostInfo(nullptr, nullptr, &count);
  EXPECT_EQ(count, 0u);
  uintptr_t size = 1;
  EXPECT_EQ(gex_EP_QueryBoundSegmentNB(team(), 0, nullptr, nullptr, &size, 0), GEX_EVENT_INVALID);
  EXPECT_EQ(size, 0u);
}

TEST_F(Calls, SecondRepliesRepliesToRepliesAndRequestsInHandlersFail) {
  in_handler = [&](gex_Token_t token) {
    if (calls.back().info.gex_is_req != 0) {
      EXPECT_EQ(gex_AM_ReplyShort0(token, kShort0, 0), GASNET_OK);
      expect_error(GASNET_ERR_BAD_ARG, "has replied already",
                   [&] { return gex_AM_ReplyShort0(token, kShort0, 0); });
      expect_error(GASNET_ERR_BAD_ARG, "must not send requests",
                   [&] { return gex_AM_RequestShort0(team(), 0, kShort0, 0); });
      std::byte data[4] = {};
      expect_error(GASNET_ERR_BAD_ARG, "GROUP", [&] {
        return gex_AM_ReplyMedium1(token, kMedium1, data, 4, GEX_EVENT_GROUP, 0, 1);
      });
    } else {
      expect_error(GASNET_ERR_BAD_ARG, "only the handler of a request",
                   [&] { return gex_AM_ReplyShort0(token, kShort0, 0); });
    }
  };
  EXPECT_EQ(gex_AM_RequestShort0(team(), 0, kShort0, 0), GASNET_OK);
  EXPECT_EQ(calls.size(), 2u);
  expect_error(GASNET_ERR_BAD_ARG, "only the handler",
               [&] { return gex_AM_ReplyShort0(nullptr, kShort0, 0); });
}

TEST_F(Calls, ImmediateReplyWithoutRoomCanBeRepeated) {
  in_handler = [&](gex_Token_t token) {
    transport->refusals = 1;
    EXPECT_NE(gex_AM_ReplyShort0(token, kShort0, GEX_FLAG_IMMEDIATE), GASNET_OK);
    EXPECT_EQ(gex_AM_ReplyShort0(token, kShort0, GEX_FLAG_IMMEDIATE), GASNET_OK);
  };
  SentMessage request;
  request.tag = Tag{.handler = kShort0}.pack();
  FakeTransport::deliver(am_receiver(), request);
  EXPECT_EQ(transport->sent.size(), 1u);
}

TEST_F(Calls, NoInterruptSectionDelaysMessagesToThisRank) {
  auto data = pattern(50);
  std::vector<std::byte> memory(50);
  gasnet_hold_interrupts();
  gasnet_hold_interrupts();
  EXPECT_EQ(gex_AM_RequestShort2(team(), 0, kShort2, 0, 1, 2), GASNET_OK);
  gex_AM_RequestMedium1(team(), 0, kMedium1, data.data(), 50, GEX_EVENT_NOW, 0, 3);
  gex_AM_RequestLong1(team(), 0, kLong1, data.data(), 50, memory.data(), GEX_EVENT_NOW, 0, 4);
  data.assign(50, std::byte{0});  // local completion was promised
  gasnet_resume_interrupts();
  EXPECT_TRUE(calls.empty());
  in_handler = [](gex_Token_t token) {
    if (calls.size() == 1) gex_AM_ReplyShort0(token, kShort0, 0);
  };
  gasnet_resume_interrupts();
  ASSERT_EQ(calls.size(), 4u);
  EXPECT_EQ(calls[0].args, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(calls[1].info.gex_is_req, 0) << "the reply is not delayed";
  EXPECT_EQ(calls[2].payload, pattern(50));
  EXPECT_EQ(calls[3].payload, pattern(50));
  EXPECT_EQ(calls[3].address, memory.data());
  gex_AM_RequestShort0(team(), 0, kShort0, 0);
  EXPECT_EQ(calls.size(), 5u);
}

TEST_F(CallsDeathTest, ResumeWithoutHoldEndsTheJob) {
  EXPECT_DEATH(gasnet_resume_interrupts(), "without gasnet_hold_interrupts");
}

TEST_F(Calls, PreparedPayloadsOfEverySizeArrive) {
  for (const Rank peer : {0u, 1u}) {
    for (const size_t bytes : {0u, 1u, 100u, 300u, 4096u}) {
      gex_AM_SrcDesc_t sd =
          gex_AM_PrepareRequestMedium(team(), peer, nullptr, bytes, 4096, nullptr, 0, 1);
      ASSERT_NE(sd, GEX_AM_SRCDESC_NO_OP);
      ASSERT_GE(gex_AM_SrcDescSize(sd), bytes);
      const auto data = pattern(bytes, 3);
      if (bytes != 0) std::memcpy(gex_AM_SrcDescAddr(sd), data.data(), bytes);
      gex_AM_CommitRequestMedium1(sd, kMedium1, bytes, 5);
      deliver_sent();
      ASSERT_EQ(calls.size(), 1u);
      EXPECT_EQ(calls[0].payload, data);
      calls.clear();
    }
  }
}

TEST_F(Calls, CancelReturnsTheCell) {
  gex_AM_SrcDesc_t sd = gex_AM_PrepareRequestMedium(team(), 1, nullptr, 1, 4096, nullptr, 0, 1);
  EXPECT_EQ(transport->cells_out, 1u);
  EXPECT_EQ(gex_AM_CancelRequestMedium(sd, 0), GASNET_OK);
  EXPECT_EQ(transport->cells_out, 0u);
  expect_error(GASNET_ERR_BAD_ARG, "not this thread's prepared message",
               [&] { return gex_AM_CancelRequestMedium(sd, 0); });
}

TEST_F(Calls, ImmediatePrepareAndCommitWithoutRoomCanBeRepeated) {
  transport->cell_refusals = 1;
  EXPECT_EQ(
      gex_AM_PrepareRequestMedium(team(), 1, nullptr, 1000, 4096, nullptr, GEX_FLAG_IMMEDIATE, 1),
      GEX_AM_SRCDESC_NO_OP);
  gex_AM_SrcDesc_t sd =
      gex_AM_PrepareRequestMedium(team(), 1, nullptr, 1000, 4096, nullptr, GEX_FLAG_IMMEDIATE, 1);
  ASSERT_NE(sd, GEX_AM_SRCDESC_NO_OP);
  std::memcpy(gex_AM_SrcDescAddr(sd), pattern(1000).data(), 1000);
  transport->refusals = 2;
  EXPECT_NE(gex_AM_CommitRequestMedium1_v2(sd, kMedium1, 1000, GEX_FLAG_IMMEDIATE, 5), GASNET_OK);
  EXPECT_NE(gex_AM_CommitRequestMedium1_v2(sd, kMedium1, 1000, GEX_FLAG_IMMEDIATE, 5), GASNET_OK);
  EXPECT_EQ(gex_AM_CommitRequestMedium1_v2(sd, kMedium1, 1000, GEX_FLAG_IMMEDIATE, 5), GASNET_OK);
  deliver_sent();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].payload, pattern(1000));
}

// While a prepared request waits for credit, handlers run, and they may prepare replies.
TEST_F(Calls, HandlersReplyDoesNotOverwriteAWaitingRequestsPayload) {
  in_handler = [&](gex_Token_t token) {
    if (calls.size() != 1) return;
    gex_AM_SrcDesc_t reply = gex_AM_PrepareReplyMedium(token, nullptr, 100, 100, nullptr, 0, 1);
    std::memset(gex_AM_SrcDescAddr(reply), 0xee, 100);
    gex_AM_CommitReplyMedium1(reply, kMedium1, 100, 6);
  };
  SentMessage request;
  request.tag = Tag{.handler = kShort0}.pack();
  transport->arriving = {request};
  gex_AM_SrcDesc_t sd = gex_AM_PrepareRequestMedium(team(), 1, nullptr, 100, 100, nullptr, 0, 1);
  std::memcpy(gex_AM_SrcDescAddr(sd), pattern(100).data(), 100);
  transport->refusals = 1;
  gex_AM_CommitRequestMedium1(sd, kMedium1, 100, 5);
  ASSERT_EQ(transport->sent.size(), 2u);
  in_handler = nullptr;
  deliver_sent();
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[1].payload, std::vector<std::byte>(100, std::byte{0xee}));
  EXPECT_EQ(calls[2].payload, pattern(100));
}

// The client's poll between prepare and commit is a mistake that only GASNET_DEBUG reports. The prepared
// request must survive it.
TEST_F(Calls, HandlerPreparesItsReplyWhileARequestIsPrepared) {
  for (const size_t bytes : {100u, 4096u}) {
    in_handler = [&](gex_Token_t token) {
      gex_AM_SrcDesc_t reply =
          gex_AM_PrepareReplyMedium(token, nullptr, bytes, bytes, nullptr, 0, 1);
      std::memset(gex_AM_SrcDescAddr(reply), 0xee, bytes);
      gex_AM_CommitReplyMedium1(reply, kMedium1, bytes, 6);
    };
    SentMessage request;
    request.tag = Tag{.handler = kShort0}.pack();
    transport->arriving = {request};
    gex_AM_SrcDesc_t sd =
        gex_AM_PrepareRequestMedium(team(), 1, nullptr, bytes, bytes, nullptr, 0, 1);
    std::memcpy(gex_AM_SrcDescAddr(sd), pattern(bytes).data(), bytes);
    gasnet_AMPoll();
    gex_AM_CommitRequestMedium1(sd, kMedium1, bytes, 5);
    in_handler = nullptr;
    deliver_sent();
    ASSERT_EQ(calls.size(), 3u);
    EXPECT_EQ(calls[1].payload, std::vector<std::byte>(bytes, std::byte{0xee}));
    EXPECT_EQ(calls[2].payload, pattern(bytes));
    calls.clear();
  }
}

TEST_F(CallsDeathTest, MisuseOfNegotiatedPayloadEndsTheJob) {
  EXPECT_DEATH(
      {
        gex_AM_PrepareRequestMedium(team(), 1, nullptr, 1, 10, nullptr, 0, 1);
        gex_AM_PrepareRequestMedium(team(), 1, nullptr, 1, 10, nullptr, 0, 1);
      },
      "prepared a request already");
  EXPECT_DEATH(gex_AM_PrepareRequestMedium(team(), 1, nullptr, 11, 10, nullptr, 0, 1),
               "least_payload");
  EXPECT_DEATH(gex_AM_PrepareRequestMedium(team(), 1, nullptr, 5000, 6000, nullptr, 0, 1),
               "the limit is 4096");
  EXPECT_DEATH(gex_AM_PrepareRequestMedium(team(), 9, nullptr, 1, 10, nullptr, 0, 1),
               "rank 9 does not exist");
  EXPECT_DEATH(gex_AM_PrepareRequestMedium(team(), 1, nullptr, 1, 10, GEX_EVENT_NOW, 0, 1),
               "lc_opt");
  EXPECT_DEATH(
      {
        gex_AM_SrcDesc_t sd = gex_AM_PrepareRequestMedium(team(), 1, nullptr, 1, 10, nullptr, 0, 1);
        gex_AM_CommitRequestMedium1(sd, kMedium1, 11, 5);
      },
      "11 bytes and 1 arguments");
  EXPECT_DEATH(
      {
        gex_AM_SrcDesc_t sd = gex_AM_PrepareRequestMedium(team(), 1, nullptr, 1, 10, nullptr, 0, 1);
        gex_AM_CommitRequestLong1(sd, kLong1, 1, nullptr, 5);
      },
      "of another kind");
  job().state = JobState::kNew;
  EXPECT_DEATH(gex_AM_PrepareRequestMedium(team(), 1, nullptr, 1, 10, nullptr, 0, 1), "no client");
}

TEST_F(Calls, ClientsSegmentCanBeBoundOnce) {
  alignas(4096) static std::byte memory[8192];
  gex_Segment_t segment = GEX_SEGMENT_INVALID;
  ASSERT_EQ(gex_Segment_Create(&segment, &job().client, memory, sizeof memory, GEX_MK_HOST, 0),
            GASNET_OK);
  expect_error(GASNET_ERR_BAD_ARG, "does not belong to this client",
               [] { return gex_EP_BindSegment(&job().endpoint, GEX_SEGMENT_INVALID, 0); });
  expect_error(GASNET_ERR_BAD_ARG, "flags is not 0",
               [&] { return gex_EP_BindSegment(&job().endpoint, segment, 1); });
  ASSERT_EQ(gex_EP_BindSegment(&job().endpoint, segment, 0), GASNET_OK);
  EXPECT_EQ(gex_EP_QuerySegment(&job().endpoint), segment);
  expect_error(GASNET_ERR_BAD_ARG, "has a segment already",
               [&] { return gex_EP_BindSegment(&job().endpoint, segment, 0); });
  expect_error(GASNET_ERR_BAD_ARG, "has a segment already",
               [&] { return gex_Segment_Attach(nullptr, team(), 4096); });
  void* owner = nullptr;
  void* here = nullptr;
  uintptr_t size = 0;
  EXPECT_EQ(gex_EP_QueryBoundSegmentNB(team(), 0, &owner, &here, &size, GEX_FLAG_IMMEDIATE),
            GEX_EVENT_INVALID);
  EXPECT_EQ(owner, memory);
  EXPECT_EQ(here, memory);
  EXPECT_EQ(size, sizeof memory);
  EXPECT_EQ(gex_EP_QueryBoundSegmentNB(team(), 1, nullptr, nullptr, &size, 0), GEX_EVENT_INVALID);
  EXPECT_EQ(size, 0u) << "no segment was published";
  job().endpoint.segment = nullptr;
  gex_Segment_Destroy(segment, 0);
}

}  // namespace
}  // namespace hydrant::test
