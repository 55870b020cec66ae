// Calls of clients with GASNET_DEBUG that the rules for threads forbid: each ends the job and is named.
#include <gasnet.h>
#include <hydrant/rma.h>

#include "am/progress/one_thread.hpp"
#include "tests/unit/am/job_fixture.hpp"

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace hydrant::test {
namespace {

struct PublicCall {
  const char* name;
  std::function<void()> make;
};

using InCallDeathTest = JobFixture;

constexpr int kSeq = 0;

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
          begin_thread_check(kSeq, true);
          std::thread(call.make).join();
        },
        std::string(call.name) + " is called by thread .*has started the job: .*GASNET_PAR");
  }
}

TEST_F(InCallDeathTest, SecondThreadCannotCommitOrResume) {
  EXPECT_DEATH(
      {
        begin_thread_check(kSeq, true);
        gex_AM_SrcDesc_t prepared = prepare_request();
        std::thread([&] { gex_AM_CommitRequestMedium1(prepared, kMedium1, 1, 5); }).join();
      },
      "gex_AM_Commit is called by thread .*has started the job");
  EXPECT_DEATH(
      {
        begin_thread_check(kSeq, true);
        gasnet_hold_interrupts();
        std::thread(gasnet_resume_interrupts).join();
      },
      "gasnet_resume_interrupts is called by thread .*has started the job");
}

}  // namespace
}  // namespace hydrant::test
