// Polls with events in other threads end a wait, whether the waiting thread sleeps or not, and count only
// once a thread waits.
#include "am/progress/waiting.hpp"

#include <hydrant/waiting.h>

#include "tests/support/child_process.hpp"
#include "tests/unit/am/job_fixture.hpp"

#include <thread>

namespace hydrant::test {
namespace {

using testing::run_in_child;

class Waiting : public JobFixture {
 protected:
  void SetUp() override {
    JobFixture::SetUp();
    job().single_threaded = false;
  }
  void TearDown() override {
    job().single_threaded = true;
    JobFixture::TearDown();
  }
  // The network has a message for this rank.
  void arrive(Lane lane = Lane::kRequest) {
    SentMessage message;
    message.lane = lane;
    message.tag = Tag{.handler = kShort0}.pack();
    transport->arriving.push_back(message);
  }
};

// In a child, because the first wait of a process changes its polls.
TEST_F(Waiting, PollsCountFromTheFirstWaitOn) {
  EXPECT_EQ(run_in_child([this]() -> std::string {
              arrive();
              if (poll_all() != 1 || polls_with_events() != 0) return "a poll before";
              wake_for_handled_messages();
              if (poll_all() != 0 || polls_with_events() != 0) return "a poll without an event";
              arrive();
              if (poll_all() != 1 || polls_with_events() != 1) return "poll_all()";
              arrive();
              if (poll_network() != 1 || polls_with_events() != 2) return "poll_network()";
              arrive(Lane::kReply);
              if (poll_replies() != 1 || polls_with_events() != 3) return "poll_replies()";
              return "";
            }),
            "");
}

TEST_F(Waiting, MessageThatAnotherThreadHasHandledEndsAWait) {
  while (hydrant_wait_for_message(0) == GASNET_OK) {
  }
  EXPECT_EQ(hydrant_wait_for_message(0), GASNET_ERR_NOT_READY);
  arrive();
  std::thread([] { EXPECT_EQ(poll_all(), 1U); }).join();
  EXPECT_EQ(hydrant_wait_for_message(0), GASNET_OK);
  EXPECT_EQ(hydrant_wait_for_message(0), GASNET_ERR_NOT_READY);
  arrive();
  EXPECT_EQ(hydrant_wait_for_message(0), GASNET_OK);
  EXPECT_EQ(hydrant_wait_for_message(0), GASNET_ERR_NOT_READY) << "its own poll does not count";
  EXPECT_EQ(calls.size(), 2U);
}

}  // namespace
}  // namespace hydrant::test
