// Ranks on two machines: first contact, messages, puts and gets, and the devices' counters.
#include "tests/verbs/device_counters.hpp"
#include "tests/verbs/pair/link_faults.hpp"
#include "tests/verbs/pair/pair_job.hpp"

namespace hydrant {
namespace {

using testing::DeviceCounters;
using testing::LinkFaults;
using testing::PairJob;
using testing::PinnedMemory;
using testing::read_device_counters;
using testing::Told;

using GuestPairMessages = PairJob;

TEST_F(GuestPairMessages, BothWaysInOrderAndUnchanged) {
  const DeviceCounters before = read_device_counters();
  EXPECT_EQ(exchange(300), Status::kOk) << last_error_text();
  EXPECT_EQ(wrong(), "");
  EXPECT_EQ(process.transport->counts().connected, 1U);
  EXPECT_EQ(process.transport->counts().lost, 0U);
  EXPECT_EQ(process.transport->counts().strangers, 0U);
  const DeviceCounters after = read_device_counters();
  EXPECT_EQ(after.not_ready, before.not_ready);
  EXPECT_GT(after.sends, before.sends + 600);
  EXPECT_TRUE(meet());
}

// Each rank has sent its handshake before either has received one.
TEST_F(GuestPairMessages, CrossingHandshakesMakeOneConnection) {
  Outgoing room;
  ASSERT_EQ(process.transport->messages(other()).reserve(other(), Lane::kRequest, 8, &room),
            Status::kNotReady)
      << last_error_text();
  EXPECT_GE(process.transport->counts().handshakes, 1U);
  ASSERT_TRUE(meet());
  EXPECT_EQ(exchange(40), Status::kOk) << last_error_text();
  EXPECT_EQ(wrong(), "");
  EXPECT_EQ(process.transport->counts().connected, 1U);
  EXPECT_TRUE(meet());
}

// Handshakes are datagrams, so the transport itself has to repeat them.
TEST_F(GuestPairMessages, LostHandshakesAreRepeated) {
  LinkFaults faults;
  faults.set("loss 100%");
  Outgoing room;
  ASSERT_EQ(process.transport->messages(other()).reserve(other(), Lane::kRequest, 8, &room),
            Status::kNotReady)
      << last_error_text();
  ASSERT_TRUE(meet());
  EXPECT_TRUE(process.until([&] { return process.transport->counts().handshakes >= 3; }));
  EXPECT_GE(faults.dropped(), 3U);
  EXPECT_EQ(process.transport->counts().connected, 0U);
  ASSERT_TRUE(meet());
  faults.remove();
  EXPECT_EQ(exchange(40), Status::kOk) << last_error_text();
  EXPECT_EQ(wrong(), "");
  EXPECT_EQ(process.transport->counts().connected, 1U);
  EXPECT_TRUE(meet());
}

TEST_F(GuestPairMessages, APutIsOneWriteAndNoMessage) {
  ASSERT_EQ(exchange(8), Status::kOk) << last_error_text();
  ASSERT_TRUE(meet());
  const DeviceCounters before = read_device_counters();
  ASSERT_TRUE(meet());
  constexpr uint32_t kPuts = 20;
  const uint64_t probes = process.transport->counts().probes;
  if (self() == 0) {
    for (uint32_t i = 0; i < kPuts; ++i)
      EXPECT_EQ(put_once(1024), Status::kOk) << last_error_text();
  }
  const DeviceCounters after = read_device_counters();
  ASSERT_TRUE(meet());
  EXPECT_EQ(after.sends, before.sends);
  EXPECT_EQ(after.not_ready, before.not_ready);
  if (self() == 0) {
    // A packet for the write; the acknowledgement counts for the peer.
    EXPECT_GE(after.sent, before.sent + kPuts);
    EXPECT_LE(after.sent - before.sent, kPuts + after.repeated - before.repeated +
                                            process.transport->counts().probes - probes);
  }
}

}  // namespace
}  // namespace hydrant
