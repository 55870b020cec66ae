// Endpoints that gex_EP_Create() makes: their limit, their handlers, messages by pairs, and bound segments.
#include "am/job/endpoints.hpp"

#include <gasnet.h>

#include "tests/support/child_process.hpp"
#include "tests/unit/am/job_fixture.hpp"

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace hydrant::test {
namespace {

constexpr uint64_t kFourBytes = 4;

class Endpoints : public JobFixture {
 protected:
  void SetUp() override {
    JobFixture::SetUp();
    // Endpoints live as long as the process: the tests share two.
    static gex_EP_t made[2] = {GEX_EP_INVALID, GEX_EP_INVALID};
    for (gex_EP_t& each : made) {
      if (each != GEX_EP_INVALID) continue;
      ASSERT_EQ(gex_EP_Create(&each, &job().client, GEX_EP_CAPABILITY_ALL, 0), GASNET_OK);
      each->client = &job().client;
    }
    first = made[0];
    second = made[1];
    static const bool registered = add_own_handlers(second);
    ASSERT_TRUE(registered);
    marked = 0;
  }
  void TearDown() override {
    for (const gex_EP_t each : {&job().endpoint, first, second}) each->segment = nullptr;
    JobFixture::TearDown();
  }

  static void on_marked(gex_Token_t token, int32_t value) {
    marked += value;
    note(token, nullptr, 0, {value});
  }
  static void on_marked_payload(gex_Token_t token, void* payload, size_t bytes, int32_t value) {
    marked += value;
    note(token, payload, bytes, {value});
  }
  // The second endpoint has handlers of its own, also at an index where the primordial one has another.
  static bool add_own_handlers(gex_EP_t endpoint) {
    gex_AM_Entry_t rows[] = {
        {kShort0, reinterpret_cast<gex_AM_Fn_t>(on_marked), GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQREP,
         1, nullptr, "marked"},
        {kMarkedPayload, reinterpret_cast<gex_AM_Fn_t>(on_marked_payload),
         GEX_FLAG_AM_MEDLONG | GEX_FLAG_AM_REQREP, 1, nullptr, "marked payload"}};
    return gex_EP_RegisterHandlers(endpoint, rows, std::size(rows)) == GASNET_OK;
  }
  static constexpr gex_AM_Index_t kMarkedPayload = 220;
  static inline int marked = 0;

  gex_TM_t pair(gex_EP_t from, gex_EP_t to) { return gex_TM_Pair(from, gex_EP_QueryIndex(to)); }

  gex_EP_t first = GEX_EP_INVALID;
  gex_EP_t second = GEX_EP_INVALID;
};
using EndpointsDeathTest = Endpoints;

// ---- creation ----

std::string create_to_the_limit() {
  Job& the_job = job();
  the_job.state = JobState::kWired;
  gex_EP_t const before = reinterpret_cast<gex_EP_t>(uintptr_t{8});
  for (uint32_t count = endpoint_count(); count < GASNET_MAXEPS; ++count) {
    gex_EP_t made = before;
    if (gex_EP_Create(&made, &the_job.client, GEX_EP_CAPABILITY_RMA, GEX_FLAG_HINT_ACCEL_AD) !=
        GASNET_OK)
      return "not created";
    if (gex_EP_QueryIndex(made) != count) return "another index";
    if (gex_EP_QueryFlags(made) != GEX_FLAG_HINT_ACCEL_AD) return "other flags";
    if (gex_EP_QueryClient(made) != &the_job.client) return "another client";
    if (gex_EP_QuerySegment(made) != GEX_SEGMENT_INVALID) return "a segment";
  }
  gex_EP_t made = before;
  if (gex_EP_Create(&made, &the_job.client, GEX_EP_CAPABILITY_ALL, 0) != GASNET_ERR_RESOURCE)
    return "beyond the limit";
  if (made != before) return "an output is written";
  if (find_endpoint(GASNET_MAXEPS) != nullptr) return "one too many is found";
  return "";
}

TEST_F(Endpoints, AreCreatedUpToTheLimit) {
  EXPECT_EQ(testing::run_in_child(create_to_the_limit), "");
}

TEST_F(Endpoints, WrongArgumentsCreateNone) {
  const uint32_t count = endpoint_count();
  gex_EP_t made = second;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(gex_EP_Create(&made, &job().client, 0, 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(gex_EP_Create(&made, &job().client, GEX_EP_CAPABILITY_ALL + 1, 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(gex_EP_Create(&made, &job().client, GEX_EP_CAPABILITY_AM, 1u << 20),
            GASNET_ERR_BAD_ARG);
  EXPECT_EQ(gex_EP_Create(nullptr, &job().client, GEX_EP_CAPABILITY_AM, 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(gex_EP_Create(&made, nullptr, GEX_EP_CAPABILITY_AM, 0), GASNET_ERR_NOT_INIT);
  EXPECT_NE(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(made, second);
  EXPECT_EQ(endpoint_count(), count);
}

// ---- messages ----

TEST_F(Endpoints, RequestRunsTheHandlerOfItsEndpointAndTheReplyThatOfTheSenders) {
  in_handler = [&](gex_Token_t token) {
    if (calls.back().info.gex_is_req != 0) {
      EXPECT_EQ(gex_AM_ReplyShort1(token, kShort0, 0, 5), GASNET_OK);
    }
  };
  // Between the second endpoints of two ranks; both ends are this process.
  EXPECT_EQ(gex_AM_RequestShort1(pair(second, second), 1, kShort0, 0, 7), GASNET_OK);
  ASSERT_EQ(transport->sent.size(), 1u);
  EXPECT_EQ(transport->sent[0].head.size(), 2 * kFourBytes);
  deliver_sent();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(marked, 7);
  EXPECT_EQ(calls[0].info.gex_ep, second);
  EXPECT_EQ(calls[0].info.gex_srcrank, 1u);
  EXPECT_STREQ(calls[0].info.gex_entry->gex_name, "marked");
  ASSERT_EQ(transport->sent.size(), 1u);
  EXPECT_EQ(transport->sent[0].lane, Lane::kReply);
  deliver_sent();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(marked, 12);
  EXPECT_EQ(calls[1].info.gex_ep, second);
  EXPECT_EQ(calls[1].info.gex_is_req, 0);
}

TEST_F(Endpoints, PrimordialHandlersServeEndpointsWithoutTheirOwn) {
  EXPECT_EQ(gex_AM_RequestShort2(pair(&job().endpoint, first), 1, kShort2, 0, 3, 4), GASNET_OK);
  deliver_sent();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].args, (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(calls[0].info.gex_ep, first);
}

TEST_F(Endpoints, AnEndpointsMessageToThePrimordialOneIsAnsweredToIt) {
  in_handler = [&](gex_Token_t token) {
    if (calls.back().info.gex_is_req != 0) {
      EXPECT_EQ(gex_AM_ReplyShort1(token, kShort0, 0, 9), GASNET_OK);
    }
  };
  EXPECT_EQ(gex_AM_RequestShort0(gex_TM_Pair(second, 0), 1, kShort0, 0), GASNET_OK);
  deliver_sent();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].info.gex_ep, &job().endpoint);
  EXPECT_EQ(marked, 0);
  deliver_sent();
  EXPECT_EQ(calls.back().info.gex_ep, second);
  EXPECT_EQ(marked, 9);
}

TEST_F(Endpoints, APairOfPrimordialOnesIsTheTeam) {
  EXPECT_EQ(gex_AM_RequestShort0(gex_TM_Pair(&job().endpoint, 0), 1, kShort0, 0), GASNET_OK);
  ASSERT_EQ(transport->sent.size(), 1u);
  EXPECT_EQ(transport->sent[0].head.size(), 0u) << "no word for endpoints";
}

TEST_F(Endpoints, PayloadsOfEverySizeAndWayArrive) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100}, size_t{220}, size_t{1000}}) {
    calls.clear();
    const auto data = pattern(bytes, 3);
    EXPECT_EQ(gex_AM_RequestMedium1(pair(first, second), 1, kMarkedPayload, data.data(), bytes,
                                    GEX_EVENT_NOW, 0, 1),
              GASNET_OK);
    deliver_sent();
    ASSERT_EQ(calls.size(), 1u);
    EXPECT_EQ(calls[0].payload, data);
    EXPECT_EQ(calls[0].args, (std::vector<int32_t>{1}));
    for (const bool can_write : {false, true}) {
      transport->can_write = can_write;
      std::vector<std::byte> memory(bytes + 1);
      EXPECT_EQ(gex_AM_RequestLong1(pair(first, second), 1, kMarkedPayload, data.data(), bytes,
                                    memory.data(), GEX_EVENT_NOW, 0, 2),
                GASNET_OK);
      deliver_sent();
      EXPECT_EQ(calls.back().payload, data);
      EXPECT_EQ(calls.back().address, memory.data());
      EXPECT_EQ(calls.back().info.gex_ep, second);
    }
  }
}

TEST_F(Endpoints, NegotiatedPayloadReachesTheEndpoint) {
  in_handler = [&](gex_Token_t token) {
    if (calls.back().info.gex_is_req == 0) return;
    gex_AM_SrcDesc_t reply = gex_AM_PrepareReplyMedium(token, nullptr, 4, 4, nullptr, 0, 1);
    std::memset(gex_AM_SrcDescAddr(reply), 6, 4);
    gex_AM_CommitReplyMedium1(reply, kMarkedPayload, 4, 10);
    EXPECT_NE(gex_AM_ReplyShort1(token, kShort0, 0, 1), GASNET_OK) << "a second reply";
  };
  for (const size_t bytes : {size_t{10}, size_t{2000}}) {
    gex_AM_SrcDesc_t sd =
        gex_AM_PrepareRequestMedium(pair(second, second), 1, nullptr, bytes, bytes, nullptr, 0, 1);
    std::memset(gex_AM_SrcDescAddr(sd), 5, bytes);
    marked = 0;
    gex_AM_CommitRequestMedium1(sd, kMarkedPayload, bytes, 1);
    ::testing::internal::CaptureStderr();
    deliver_sent();
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("has replied already"),
              std::string::npos);
    deliver_sent();
    EXPECT_EQ(marked, 11);
    EXPECT_EQ(calls.back().payload.size(), 4u);
    EXPECT_EQ(calls.back().info.gex_ep, second);
  }
}

TEST_F(Endpoints, MessagesToThisProcessRunInTheCallOrAfterTheSection) {
  in_handler = [&](gex_Token_t token) {
    if (calls.back().info.gex_is_req != 0) (void)gex_AM_ReplyShort2(token, kShort2, 0, 1, 2);
  };
  EXPECT_EQ(gex_AM_RequestShort1(pair(first, second), 0, kShort0, 0, 4), GASNET_OK);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].info.gex_ep, second);
  EXPECT_EQ(calls[1].info.gex_ep, first);
  EXPECT_EQ(calls[1].args, (std::vector<int32_t>{1, 2}));
  calls.clear();
  in_handler = nullptr;
  const auto data = pattern(30);
  gasnet_hold_interrupts();
  EXPECT_EQ(gex_AM_RequestMedium1(pair(first, second), 0, kMarkedPayload, data.data(), 30,
                                  GEX_EVENT_NOW, 0, 4),
            GASNET_OK);
  EXPECT_TRUE(calls.empty());
  gasnet_resume_interrupts();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].payload, data);
  EXPECT_EQ(calls[0].info.gex_ep, second);
  EXPECT_EQ(marked, 8);
}

TEST_F(Endpoints, SixteenArgumentsFit) {
  static std::vector<int32_t> got;
  static const auto on_sixteen =
      [](gex_Token_t, int32_t a, int32_t b, int32_t c, int32_t d, int32_t e, int32_t f, int32_t g,
         int32_t h, int32_t i, int32_t j, int32_t k, int32_t l, int32_t m, int32_t n, int32_t o,
         int32_t p) { got = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p}; };
  using Sixteen =
      void (*)(gex_Token_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t,
               int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
  gex_AM_Entry_t row = {0,
                        reinterpret_cast<gex_AM_Fn_t>(static_cast<Sixteen>(on_sixteen)),
                        GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST,
                        16,
                        nullptr,
                        "sixteen"};
  ASSERT_EQ(gex_EP_RegisterHandlers(first, &row, 1), GASNET_OK);
  std::vector<int32_t> args(16);
  for (int32_t i = 0; i < 16; ++i) args[static_cast<size_t>(i)] = i * i - 5;
  EXPECT_EQ(hydrant_request_short(pair(second, first), 1, row.gex_index, 0, 16, args.data()),
            GASNET_OK);
  deliver_sent();
  EXPECT_EQ(got, args);
}

TEST_F(Endpoints, WrongPairsAreRefused) {
  const auto said = [&](gex_TM_t tm, gex_Rank_t rank) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(gex_AM_RequestShort0(tm, rank, kShort0, 0), GASNET_ERR_BAD_ARG);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(said(gex_TM_Pair(first, GASNET_MAXEPS), 1).find("no rank has an endpoint 33"),
            std::string::npos);
  EXPECT_NE(said(gex_TM_Pair(first, 1), 3).find("rank 3 does not exist; the job has 3"),
            std::string::npos);
  const auto unmade = std::bit_cast<gex_TM_t>((uint64_t{30} << 32) | 1);
  EXPECT_NE(said(unmade, 1).find("endpoint 30 does not exist in this process"), std::string::npos);
  gex_EP_t no_messages = GEX_EP_INVALID;
  ASSERT_EQ(gex_EP_Create(&no_messages, &job().client, GEX_EP_CAPABILITY_RMA, 0), GASNET_OK);
  EXPECT_NE(said(pair(no_messages, first), 1).find("without GEX_EP_CAPABILITY_AM"),
            std::string::npos);
  EXPECT_DEATH(
      gex_AM_PrepareRequestMedium(pair(no_messages, first), 1, nullptr, 1, 1, nullptr, 0, 0),
      "without GEX_EP_CAPABILITY_AM");
  EXPECT_TRUE(transport->sent.empty());
}

SentMessage addressed(uint32_t nargs, size_t head_bytes, const EndpointPair& endpoints) {
  SentMessage made;
  made.tag = Tag{.handler = 200, .nargs = nargs | Tag::kAddressed}.pack();
  made.head.resize(head_bytes);
  const int32_t word = endpoints.pack();
  if (head_bytes >= sizeof word) std::memcpy(made.head.data() + head_bytes - 4, &word, sizeof word);
  return made;
}

TEST_F(EndpointsDeathTest, MalformedMessagesEndTheJob) {
  const auto arrive = [](const SentMessage& one) { FakeTransport::deliver(am_receiver(), one); };
  EXPECT_DEATH(arrive(addressed(0, 0, {})), "malformed message from rank 1");
  EXPECT_DEATH(arrive(addressed(2, 4, {})), "malformed message from rank 1");
  EXPECT_DEATH(arrive(addressed(18, 72, {})), "malformed message from rank 1");
  EXPECT_DEATH(arrive(addressed(1, 4, {.to = 31})), "endpoint 31, which does not exist here");
  EXPECT_DEATH(arrive(addressed(1, 4, {.to = UINT16_MAX})), "endpoint 65535, which does not exist");
  const uint16_t to = second->index;
  EXPECT_DEATH(arrive(addressed(1, 4, {.to = to})), "0 arguments for handler 200 \\(marked\\)");
  SentMessage unknown = addressed(1, 4, {.to = to});
  unknown.tag = Tag{.handler = 211, .nargs = 1 | Tag::kAddressed}.pack();
  EXPECT_DEATH(arrive(unknown), "handler 211, which is not registered");
}

TEST_F(EndpointsDeathTest, EndpointsWithoutTheCapabilityTakeNoMessages) {
  gex_EP_t no_messages = GEX_EP_INVALID;
  ASSERT_EQ(gex_EP_Create(&no_messages, &job().client, GEX_EP_CAPABILITY_RMA, 0), GASNET_OK);
  SentMessage one = addressed(1, 4, {.to = no_messages->index});
  EXPECT_DEATH(FakeTransport::deliver(am_receiver(), one), "without GEX_EP_CAPABILITY_AM");
}

// ---- segments ----

TEST_F(Endpoints, OneSegmentIsBoundToSeveralEndpointsAndItsEndUnbindsIt) {
  static std::byte memory[300];
  gex_Segment_t segment = GEX_SEGMENT_INVALID;
  ASSERT_EQ(gex_Segment_Create(&segment, &job().client, memory + 1, 200, GEX_MK_HOST, 0),
            GASNET_OK);
  ASSERT_EQ(gex_EP_BindSegment(first, segment, 0), GASNET_OK);
  ASSERT_EQ(gex_EP_BindSegment(second, segment, 0), GASNET_OK);
  void* owner = nullptr;
  void* here = nullptr;
  uintptr_t size = 0;
  EXPECT_EQ(gex_EP_QueryBoundSegmentNB(pair(&job().endpoint, second), 0, &owner, &here, &size,
                                       GEX_FLAG_IMMEDIATE),
            GEX_EVENT_INVALID);
  EXPECT_EQ(owner, memory + 1);
  EXPECT_EQ(here, memory + 1);
  EXPECT_EQ(size, 200u);
  EXPECT_EQ(gex_Segment_QueryBound(pair(first, first), 1, nullptr, nullptr, &size),
            GASNET_ERR_BAD_ARG)
      << "rank 1 has published nothing";
  const auto start = reinterpret_cast<uintptr_t>(memory + 1);
  EXPECT_TRUE(is_in_bound_memory(start, 200));
  EXPECT_FALSE(is_in_bound_memory(start, 201));
  EXPECT_FALSE(is_in_bound_memory(start - 1, 1));
  gex_Segment_Destroy(segment, 0);
  EXPECT_EQ(gex_EP_QuerySegment(first), GEX_SEGMENT_INVALID);
  EXPECT_EQ(gex_EP_QuerySegment(second), GEX_SEGMENT_INVALID);
  EXPECT_FALSE(is_in_bound_memory(start, 1));
  ASSERT_EQ(gex_Segment_Create(&segment, &job().client, nullptr, 100, GEX_MK_HOST, 0), GASNET_OK);
  EXPECT_EQ(gex_EP_BindSegment(first, segment, 0), GASNET_OK) << "it can be bound again";
  std::memset(gex_Segment_QueryAddr(segment), 1, gex_Segment_QuerySize(segment));
  gex_Segment_Destroy(segment, 0);
}

TEST_F(Endpoints, WrongSegmentsLeaveTheOutputAlone) {
  gex_Segment_t made = GEX_SEGMENT_INVALID;
  std::byte byte{};
  const auto create = [&](void* addr, uintptr_t size, gex_MK_t kind, gex_Flags_t flags) {
    ::testing::internal::CaptureStderr();
    const int code = gex_Segment_Create(&made, &job().client, addr, size, kind, flags);
    EXPECT_NE(::testing::internal::GetCapturedStderr(), "");
    return code;
  };
  const auto device = std::bit_cast<gex_MK_t>(uintptr_t{2});
  EXPECT_EQ(create(&byte, 1, device, 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(create(nullptr, 1, GEX_MK_INVALID, 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(create(&byte, 0, GEX_MK_HOST, 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(create(&byte, UINTPTR_MAX, GEX_MK_HOST, 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(create(&byte, 1, GEX_MK_HOST, 1), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(made, GEX_SEGMENT_INVALID);
}

TEST_F(Endpoints, WrongArgumentsOfBindAreRefused) {
  static std::byte memory[64];
  gex_Segment_t segment = GEX_SEGMENT_INVALID;
  ASSERT_EQ(gex_Segment_Create(&segment, &job().client, memory, 64, GEX_MK_HOST, 0), GASNET_OK);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(gex_EP_BindSegment(GEX_EP_INVALID, segment, 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(gex_EP_BindSegment(first, GEX_SEGMENT_INVALID, 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(gex_EP_BindSegment(first, segment, 1), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(gex_EP_BindSegment(first, segment, 0), GASNET_OK);
  EXPECT_EQ(gex_EP_BindSegment(first, segment, 0), GASNET_ERR_BAD_ARG);
  (void)::testing::internal::GetCapturedStderr();
  gex_Segment_Destroy(segment, 0);
}

}  // namespace
}  // namespace hydrant::test
