// Refused messages of the library itself: temporary, permanent, and temporary for too long.
#include "extended/message/send_failures.hpp"

#include "firehose/base/status.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace hydrant {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct FailedPeer {
  Rank peer;
  std::string why;
};
std::vector<FailedPeer> lost;
void note_lost(Rank peer, const char* why) noexcept { lost.push_back({peer, why}); }

class SendFailuresTest : public ::testing::Test {
 protected:
  void SetUp() override { lost.clear(); }
  // Notes a refusal; returns the log output.
  std::string refuse(Status status, uint64_t now) {
    (void)fail(status, "no %s", "room");
    ::testing::internal::CaptureStderr();
    failures.note(3, status, now);
    return ::testing::internal::GetCapturedStderr();
  }

  static constexpr uint64_t kStart = 1000;
  static constexpr uint64_t kThirdNs = SendFailures::kMaxNs / 3;
  SendFailures failures{note_lost};
};

TEST_F(SendFailuresTest, NotReadyIsNotARefusal) {
  EXPECT_EQ(refuse(Status::kNotReady, kStart), "");
  EXPECT_EQ(refuse(Status::kNotReady, kStart + 10 * SendFailures::kMaxNs), "");
  EXPECT_THAT(lost, IsEmpty());
}

TEST_F(SendFailuresTest, PermanentRefusalIsReportedAtOnce) {
  EXPECT_EQ(refuse(Status::kBroken, kStart), "");
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].peer, 3U);
  EXPECT_EQ(lost[0].why, "no room");
}

TEST_F(SendFailuresTest, TemporaryRefusalIsAWarningAndReportedIfItLasts) {
  EXPECT_THAT(refuse(Status::kResource, kStart),
              HasSubstr("a message to rank 3 cannot be sent: no room; trying again for 30 s"));
  for (int third = 1; third <= 2; ++third)
    EXPECT_EQ(refuse(Status::kResource, kStart + third * kThirdNs), "");
  EXPECT_EQ(refuse(Status::kResource, kStart + SendFailures::kMaxNs - 1), "");
  EXPECT_THAT(lost, IsEmpty());
  EXPECT_EQ(refuse(Status::kResource, kStart + SendFailures::kMaxNs), "");
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].why, "no room");
}

TEST_F(SendFailuresTest, RankThatWasStoppedTriesAgain) {
  EXPECT_NE(refuse(Status::kResource, kStart), "");
  EXPECT_EQ(refuse(Status::kResource, kStart + 2 * SendFailures::kMaxNs), "");
  EXPECT_EQ(refuse(Status::kResource, kStart + 4 * SendFailures::kMaxNs), "");
  EXPECT_THAT(lost, IsEmpty());
}

TEST_F(SendFailuresTest, SuccessRestartsTheTimeLimit) {
  EXPECT_NE(refuse(Status::kResource, kStart), "");
  failures.note_success();
  EXPECT_NE(refuse(Status::kResource, kStart + 2 * SendFailures::kMaxNs), "");
  EXPECT_THAT(lost, IsEmpty());
}

// Another rank has sent the messages before.
TEST_F(SendFailuresTest, RefusalOfAnotherMessageRestartsTheTimeLimit) {
  const auto refuse_message = [&](uint64_t message, uint64_t now) {
    failures.note(3, Status::kResource, now, message);
  };
  ::testing::internal::CaptureStderr();
  uint64_t now = kStart;
  for (uint64_t message = 0; message < 5; ++message) {
    refuse_message(message, now);
    for (int third = 0; third < 2; ++third) refuse_message(message, now += kThirdNs);
    refuse_message(message, now += kThirdNs - 1);
  }
  EXPECT_THAT(lost, IsEmpty());
  refuse_message(4, now + 1);
  EXPECT_EQ(lost.size(), 1U);
  (void)::testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace hydrant
