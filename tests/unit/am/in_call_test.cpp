// Calls of clients with GASNET_DEBUG that the rules for threads, negotiated payload or handlers forbid: each
// ends the job and is named. Calls that the rules allow pass.
#include "am/call/in_call.hpp"

#include <gasnet.h>
#include <hydrant/coll.h>
#include <hydrant/persistent.h>
#include <hydrant/rma.h>

#include "tests/unit/am/job_fixture.hpp"

#include <functional>
#include <gasnet_coll.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace hydrant::test {
namespace {

struct PublicCall {
  const char* name;
  std::function<void()> make;
};

using InCallDeathTest = JobFixture;

constexpr int kSeq = 0;
constexpr int kSync = GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC;

gex_AM_SrcDesc_t prepare_request() {
  return gex_AM_PrepareRequestMedium(&hydrant_world, 1, nullptr, 1, 10, nullptr, 0, 1);
}

// Calls that set up a job or handle negotiated payload. Arguments are such that an unchecked call returns.
std::vector<PublicCall> setup_calls() {
  return {{"gex_AM_PrepareRequestMedium", [] { (void)prepare_request(); }},
          {"gex_AM_CancelRequestMedium", [] { (void)gex_AM_CancelRequestMedium(nullptr, 0); }},
          {"gex_AM_CancelRequestLong", [] { (void)gex_AM_CancelRequestLong(nullptr, 0); }},
          {"gex_AM_CancelReplyMedium", [] { (void)gex_AM_CancelReplyMedium(nullptr, 0); }},
          {"gex_AM_CancelReplyLong", [] { (void)gex_AM_CancelReplyLong(nullptr, 0); }},
          {"gex_EP_RegisterHandlers",
           [] { (void)gex_EP_RegisterHandlers(&job().endpoint, nullptr, 0); }},
          {"gex_EP_Create", [] { (void)gex_EP_Create(nullptr, nullptr, 0, 0); }},
          {"gex_EP_BindSegment", [] { (void)gex_EP_BindSegment(nullptr, nullptr, 0); }},
          {"gex_EP_PublishBoundSegment",
           [] { (void)gex_EP_PublishBoundSegment(nullptr, nullptr, 0, 0); }},
          {"gex_Segment_Create",
           [] { (void)gex_Segment_Create(nullptr, nullptr, nullptr, 0, GEX_MK_HOST, 0); }},
          {"gex_Segment_Destroy", [] { gex_Segment_Destroy(GEX_SEGMENT_INVALID, 0); }},
          {"gex_Segment_QueryBound",
           [] { (void)gex_Segment_QueryBound(nullptr, 9, nullptr, nullptr, nullptr); }},
          {"gex_EP_QueryBoundSegmentNB",
           [] { (void)gex_EP_QueryBoundSegmentNB(nullptr, 9, nullptr, nullptr, nullptr, 0); }},
          {"gasnet_getSegmentInfo", [] { (void)gasnet_getSegmentInfo(nullptr, 0); }},
          {"gasnet_getNodeInfo", [] { (void)gasnet_getNodeInfo(nullptr, 0); }},
          {"gasnet_hold_interrupts", [] { gasnet_hold_interrupts(); }},
          {"hydrant_prefetch", [] { (void)hydrant_prefetch(9, nullptr, 0); }},
          {"hydrant_evict", [] { (void)hydrant_evict(9, nullptr, 0); }}};
}

TEST_F(InCallDeathTest, SecondThreadOfASequentialClientIsNamedInEveryCall) {
  for (const PublicCall& call : setup_calls()) {
    EXPECT_DEATH(
        {
          begin_call_checks(kSeq, true);
          std::thread(call.make).join();
        },
        std::string(call.name) + " is called by thread .*has started the job: .*GASNET_PAR");
  }
}

TEST_F(InCallDeathTest, SecondThreadCannotCommitOrResume) {
  EXPECT_DEATH(
      {
        begin_call_checks(kSeq, true);
        gex_AM_SrcDesc_t prepared = prepare_request();
        std::thread([&] { gex_AM_CommitRequestMedium1(prepared, kMedium1, 1, 5); }).join();
      },
      "gex_AM_Commit is called by thread .*has started the job");
  EXPECT_DEATH(
      {
        begin_call_checks(kSeq, true);
        gasnet_hold_interrupts();
        std::thread(gasnet_resume_interrupts).join();
      },
      "gasnet_resume_interrupts is called by thread .*has started the job");
}

// All calls that may poll or send. Their arguments do not matter where a call is refused.
std::vector<PublicCall> communicating_calls() {
  static gex_Event_t events[1] = {GEX_EVENT_INVALID};
  static char here[8];
  const gex_TM_t tm = &hydrant_world;
  return {
      {"gasnet_AMPoll", [] { gasnet_AMPoll(); }},
      {"GASNET_BLOCKUNTIL or a try_sync", [] { hydrant_am_poll(); }},
      {"gex_AM_RequestShort", [=] { gex_AM_RequestShort0(tm, 1, 200, 0); }},
      {"gex_AM_RequestMedium",
       [=] { gex_AM_RequestMedium1(tm, 1, 202, here, 1, GEX_EVENT_NOW, 0, 1); }},
      {"gex_AM_RequestLong",
       [=] { gex_AM_RequestLong1(tm, 1, 203, here, 1, here, GEX_EVENT_NOW, 0, 1); }},
      {"gex_AM_PrepareRequestMedium", [] { (void)prepare_request(); }},
      {"gex_AM_PrepareRequestLong",
       [=] { (void)gex_AM_PrepareRequestLong(tm, 1, nullptr, 1, 9, nullptr, nullptr, 0, 1); }},
      {"gex_RMA_PutBlocking", [=] { hydrant_put_blocking(tm, 1, here, here, 1, 0); }},
      {"gex_RMA_PutNB", [=] { hydrant_put_nb(tm, 1, here, here, 1, GEX_EVENT_NOW, 0); }},
      {"gex_RMA_PutNBI", [=] { hydrant_put_nbi(tm, 1, here, here, 1, GEX_EVENT_NOW, 0); }},
      {"gex_RMA_GetBlocking", [=] { hydrant_get_blocking(tm, here, 1, here, 1, 0); }},
      {"gex_RMA_GetNB", [=] { hydrant_get_nb(tm, here, 1, here, 1, 0); }},
      {"gex_RMA_GetNBI", [=] { hydrant_get_nbi(tm, here, 1, here, 1, 0); }},
      {"gasnet_memset", [] { gasnet_memset(1, here, 0, 1); }},
      {"gasnet_memset_nb", [] { gasnet_memset_nb(1, here, 0, 1); }},
      {"gasnet_memset_nbi", [] { gasnet_memset_nbi(1, here, 0, 1); }},
      {"gasnet_get_nb_val", [] { gasnet_get_nb_val(1, here, 1); }},
      {"gasnet_wait_syncnb_valget", [] { gasnet_wait_syncnb_valget(nullptr); }},
      {"gex_Event_Test", [] { hydrant_event_test(GEX_EVENT_INVALID); }},
      {"gex_Event_Wait", [] { hydrant_event_wait(GEX_EVENT_INVALID); }},
      {"gex_Event_TestSome", [] { gex_Event_TestSome(events, 1, 0); }},
      {"gex_Event_WaitSome", [] { gex_Event_WaitSome(events, 1, 0); }},
      {"gex_Event_TestAll", [] { gex_Event_TestAll(events, 1, 0); }},
      {"gex_Event_WaitAll", [] { gex_Event_WaitAll(events, 1, 0); }},
      {"gex_NBI_Test", [] { gex_NBI_Test(GEX_EC_ALL, 0); }},
      {"gex_NBI_Wait", [] { gex_NBI_Wait(GEX_EC_ALL, 0); }},
      {"gex_NBI_BeginAccessRegion", [] { gex_NBI_BeginAccessRegion(0); }},
      {"gex_NBI_EndAccessRegion", [] { gex_NBI_EndAccessRegion(0); }},
      {"gasnet_barrier_notify", [] { gasnet_barrier_notify(0, 0); }},
      {"gasnet_barrier_wait", [] { gasnet_barrier_wait(0, 0); }},
      {"gasnet_barrier_try", [] { gasnet_barrier_try(0, 0); }},
      {"gasnet_barrier", [] { gasnet_barrier(0, 0); }},
      {"gex_Coll_BarrierNB", [=] { gex_Coll_BarrierNB(tm, 0); }},
      {"gex_Coll_BarrierBlocking", [=] { gex_Coll_BarrierBlocking(tm, 0); }},
      {"gex_Coll_BroadcastNB", [=] { gex_Coll_BroadcastNB(tm, 0, here, here, 1, 0); }},
      {"gex_Coll_ReduceToOneNB",
       [=] {
         gex_Coll_ReduceToOneNB(tm, 0, here, here, GEX_DT_I32, 4, 1, GEX_OP_ADD, nullptr, nullptr,
                                0);
       }},
      {"gex_Coll_ReduceToAllNB",
       [=] {
         gex_Coll_ReduceToAllNB(tm, here, here, GEX_DT_I32, 4, 1, GEX_OP_ADD, nullptr, nullptr, 0);
       }},
      {"gasnet_coll_broadcast", [=] { gasnet_coll_broadcast(tm, here, 0, here, 1, kSync); }},
      {"gasnet_coll_scatter", [=] { gasnet_coll_scatter(tm, here, 0, here, 1, kSync); }},
      {"gasnet_coll_gather", [=] { gasnet_coll_gather(tm, 0, here, here, 1, kSync); }},
      {"gasnet_coll_gather_all", [=] { gasnet_coll_gather_all(tm, here, here, 1, kSync); }},
      {"gasnet_coll_exchange", [=] { gasnet_coll_exchange(tm, here, here, 1, kSync); }},
      {"hydrant_gather_all_nb", [=] { hydrant_gather_all_nb(tm, here, here, 1); }},
      {"hydrant_exchange_nb", [=] { hydrant_exchange_nb(tm, here, here, 1); }},
      {"gex_TM_Split",
       [=] { gex_TM_Split(nullptr, tm, 0, 0, nullptr, 0, GEX_FLAG_TM_NO_SCRATCH); }},
      {"gex_TM_Create",
       [=] { gex_TM_Create(nullptr, 0, tm, nullptr, 0, nullptr, 0, GEX_FLAG_TM_NO_SCRATCH); }},
      {"gex_TM_Destroy", [=] { gex_TM_Destroy(tm, nullptr, 0); }},
      {"gex_Segment_Attach", [=] { gex_Segment_Attach(nullptr, tm, 4096); }},
      {"gex_Segment_Create",
       [] { gex_Segment_Create(nullptr, nullptr, nullptr, 0, GEX_MK_HOST, 0); }},
      {"gex_Segment_Destroy", [] { gex_Segment_Destroy(GEX_SEGMENT_INVALID, 0); }},
      {"gex_Segment_QueryBound", [=] { gex_Segment_QueryBound(tm, 1, nullptr, nullptr, nullptr); }},
      {"gex_EP_Create", [] { gex_EP_Create(nullptr, nullptr, 0, 0); }},
      {"gex_EP_BindSegment", [] { gex_EP_BindSegment(nullptr, nullptr, 0); }},
      {"gex_EP_PublishBoundSegment", [=] { gex_EP_PublishBoundSegment(tm, nullptr, 0, 0); }},
      {"gex_EP_QueryBoundSegmentNB",
       [=] { gex_EP_QueryBoundSegmentNB(tm, 1, nullptr, nullptr, nullptr, 0); }},
      {"gex_TM_TranslateRankToJobrank", [=] { gex_TM_TranslateRankToJobrank(tm, 1); }},
      {"gex_TM_TranslateJobrankToRank", [=] { gex_TM_TranslateJobrankToRank(tm, 1); }},
      {"gex_TM_TranslateRankToEP", [=] { gex_TM_TranslateRankToEP(tm, 1, 0); }},
      {"gasnet_attach", [] { gasnet_attach(nullptr, 0, 4096, 0); }},
      {"hydrant_put_many", [=] { hydrant_put_many(tm, nullptr, 0, 0, nullptr); }},
      {"hydrant_get_many", [=] { hydrant_get_many(tm, nullptr, 0, 0, nullptr); }},
      {"hydrant_start", [] { hydrant_start(nullptr); }},
      {"hydrant_test", [] { hydrant_test(nullptr); }},
      {"hydrant_wait", [] { hydrant_wait(nullptr); }},
      // The headers answer tests and waits of GEX_EVENT_INVALID by themselves, and add this call.
      {"gex_Event_Test of nothing", [] { hydrant_check_call("gex_Event_Test of nothing"); }}};
}

class PreparedDeathTest : public JobFixture {
 protected:
  void SetUp() override {
    JobFixture::SetUp();
    job().debug = job().careful = job().checks_calls = true;
  }
  void TearDown() override {
    job().careful = false;
    JobFixture::TearDown();
  }
  // Delivers a request whose handler is `body`.
  void handle(std::function<void(gex_Token_t)> body) {
    in_handler = std::move(body);
    SentMessage request;
    request.tag = Tag{.handler = kShort0}.pack();
    FakeTransport::deliver(am_receiver(), request);
    in_handler = nullptr;
  }
};

gex_AM_SrcDesc_t prepare_reply(gex_Token_t token) {
  return gex_AM_PrepareReplyMedium(token, nullptr, 1, 10, nullptr, 0, 1);
}

TEST_F(PreparedDeathTest, CallsBetweenPrepareAndCommitAreNamed) {
  gex_AM_SrcDesc_t request = prepare_request();
  for (const PublicCall& call : communicating_calls()) {
    EXPECT_DEATH(
        {
          alarm(10);  // a call that passes may wait for ever
          call.make();
        },
        std::string("\\(rank 0\\): ") + call.name +
            " is called between gex_AM_PrepareRequestMedium and its commit: the request for rank 1 "
            "is prepared; commit or cancel it first");
  }
  EXPECT_EQ(gex_AM_CancelRequestMedium(request, 0), GASNET_OK);
  EXPECT_EQ(gasnet_AMPoll(), GASNET_OK);
}

TEST_F(PreparedDeathTest, CallsWhileAReplyIsPreparedAreNamed) {
  const std::string between =
      " is called between gex_AM_PrepareReplyMedium and its commit: the reply for rank 1";
  EXPECT_DEATH(handle([](gex_Token_t token) {
                 (void)prepare_reply(token);
                 gex_AM_ReplyShort0(token, kShort0, 0);
               }),
               "gex_AM_ReplyShort" + between);
  EXPECT_DEATH(handle([](gex_Token_t token) {
                 (void)prepare_reply(token);
                 (void)gex_AM_PrepareReplyLong(token, nullptr, 1, 9, nullptr, nullptr, 0, 1);
               }),
               "gex_AM_PrepareReplyLong" + between);
  EXPECT_DEATH(handle([](gex_Token_t token) {
                 (void)prepare_reply(token);
                 gasnet_AMPoll();
               }),
               "gasnet_AMPoll" + between);
}

TEST_F(PreparedDeathTest, HandlerThatReturnsWithAPreparedReplyIsNamed) {
  EXPECT_DEATH(handle([](gex_Token_t token) { (void)prepare_reply(token); }),
               "handler 200 \\(noted\\) returns between gex_AM_PrepareReplyMedium and its commit");
}

TEST_F(PreparedDeathTest, CallsInHandlersAreNamed) {
  for (const PublicCall& call : communicating_calls()) {
    EXPECT_DEATH(
        {
          alarm(10);
          handle([&](gex_Token_t) { call.make(); });
        },
        std::string("\\(rank 0\\): ") + call.name + " in a handler, which may send one reply");
  }
  bool was_here = false;
  handle([&](gex_Token_t token) {
    gex_EP_QueryBoundSegmentNB(team(), 1, nullptr, nullptr, nullptr, GEX_FLAG_IMMEDIATE);
    EXPECT_EQ(gex_AM_ReplyShort0(token, kShort0, 0), GASNET_OK);
    was_here = true;
  });
  EXPECT_TRUE(was_here);
}

TEST_F(PreparedDeathTest, PermittedCallsBetweenPrepareAndCommitPass) {
  gex_AM_SrcDesc_t sd = prepare_request();
  std::memset(gex_AM_SrcDescAddr(sd), 7, gex_AM_SrcDescSize(sd));
  EXPECT_EQ(gex_EP_RegisterHandlers(&job().endpoint, nullptr, 0), GASNET_OK);
  gex_EP_QueryBoundSegmentNB(team(), 1, nullptr, nullptr, nullptr, GEX_FLAG_IMMEDIATE);
  gasnet_hold_interrupts();
  gasnet_resume_interrupts();
  gex_HSL_t lock = GEX_HSL_INITIALIZER;
  gex_HSL_Lock(&lock);
  gex_HSL_Unlock(&lock);
  // A poll of another thread runs a handler, which replies.
  std::thread([&] {
    handle(
        [](gex_Token_t token) { gex_AM_CommitReplyMedium1(prepare_reply(token), kMedium1, 1, 5); });
    EXPECT_EQ(gasnet_AMPoll(), GASNET_OK);
  }).join();
  gex_AM_CommitRequestMedium1(sd, kMedium1, 1, 5);
  EXPECT_EQ(transport->sent.size(), 2u);
}

// Prepare and commit run handlers while they wait for room.
TEST_F(PreparedDeathTest, HandlersInsidePrepareAndCommitReply) {
  in_handler = [](gex_Token_t token) {
    gex_Token_Info_t info;
    gex_Token_Info(token, &info, GEX_TI_ALL);
    if (info.gex_is_req != 0) gex_AM_CommitReplyMedium1(prepare_reply(token), kMedium1, 1, 5);
  };
  SentMessage request;
  request.tag = Tag{.handler = kShort0}.pack();
  transport->arriving = {request, request};
  transport->cell_refusals = 1;
  gex_AM_SrcDesc_t sd = gex_AM_PrepareRequestMedium(team(), 1, nullptr, 1000, 1000, nullptr, 0, 1);
  std::memset(gex_AM_SrcDescAddr(sd), 1, 1000);
  transport->refusals = 1;
  gex_AM_CommitRequestMedium1(sd, kMedium1, 1000, 5);
  EXPECT_EQ(transport->sent.size(), 3u);
  // To this process itself: the handler replies inside the commit.
  sd = gex_AM_PrepareRequestMedium(team(), 0, nullptr, 1, 1, nullptr, 0, 1);
  std::memset(gex_AM_SrcDescAddr(sd), 1, 1);
  gex_AM_CommitRequestMedium1(sd, kMedium1, 1, 5);
  EXPECT_EQ(calls.size(), 4u);
  in_handler = nullptr;
}

}  // namespace
}  // namespace hydrant::test
