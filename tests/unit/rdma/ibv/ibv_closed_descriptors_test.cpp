// Registrar and transport after the program has closed descriptors of libibverbs or of theirs, and has opened
// its own files under the numbers.
#include "firehose/registrars/ibv/ibv_registrar.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/descriptors.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <string>

namespace hydrant {
namespace {

using testing::IbvWorld;
using testing::OwnDescriptors;
using testing::ProgramsFiles;

constexpr MemoryRange kPinnedRange{0x10000, 0x4000};

bool says_closed() {
  return std::string(last_error_text()).find("the program has closed") != std::string::npos;
}

class IbvClosedDescriptors : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_verbs::reset();
    fake_verbs::add_device(fake_verbs::adapter());
    own_ = std::make_unique<OwnDescriptors>();
  }
  void open() { ASSERT_EQ(IbvRegistrar::open(nullptr, &registrar_), Status::kOk); }

  std::unique_ptr<OwnDescriptors> own_;
  std::unique_ptr<IbvRegistrar> registrar_;
  std::byte key_[sizeof(IbvKey)] = {};
};

TEST_F(IbvClosedDescriptors, RegistrarFailsAndLeavesForeignDescriptorsAlone) {
  open();
  ASSERT_EQ(registrar_->pin(kPinnedRange, Access::kLocalWrite, key_), Status::kOk);
  const std::vector<int> numbers = own_->others();
  ASSERT_EQ(numbers.size(), 2U);
  const ProgramsFiles program(numbers);
  std::byte other[sizeof(IbvKey)] = {};
  EXPECT_EQ(registrar_->pin(kPinnedRange, Access::kLocalWrite, other), Status::kBroken);
  EXPECT_TRUE(says_closed()) << last_error_text();
  EXPECT_EQ(registrar_->unpin(kPinnedRange, key_), UnpinResult::kBroken);
  EXPECT_TRUE(says_closed()) << last_error_text();
  registrar_.reset();
  EXPECT_EQ(program.harm(), "");
  fake_verbs::forget_all();  // the registration that could not be undone
}

TEST_F(IbvClosedDescriptors, ChildLeavesThemAlone) {
  open();
  const ProgramsFiles program(own_->others());
  EXPECT_EQ(testing::run_in_child([&]() -> std::string {
              registrar_->forget_in_child();
              return program.harm();
            }),
            "");
  registrar_.reset();
  EXPECT_EQ(program.harm(), "");
}

TEST_F(IbvClosedDescriptors, TransportSleepsBrieflyAndWakesNothing) {
  {
    IbvWorld world(2);
    world.connect(0, 1);
    const std::vector<int> numbers = own_->others();
    ASSERT_GE(numbers.size(), 5U) << "per rank: two of the device, one to wake by";
    const ProgramsFiles program(numbers);
    const uint64_t deadline = testing::in_seconds(100);
    for (int i = 0; i < 10; ++i) {
      world[0].transport->sleeping().sleep(deadline);
      world[0].transport->sleeping().wake();
    }
    EXPECT_LT(now_ns(), deadline) << "a sleep that nothing could end";
    EXPECT_EQ(world[0].transport->notices().notice_fd(), -1);
    world[0].transport->notices().take_notices();
    EXPECT_EQ(program.harm(), "");
    // Connections whose memory is mapped go on working.
    EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcdefgh"), Status::kOk);
    while (world[1].inbox.count == 0 && now_ns() < deadline) world[1].poll();
    EXPECT_EQ(world[1].inbox.count, 1U);
    for (int i = 0; i < 2; ++i) world[static_cast<Rank>(i)].transport.reset();
    EXPECT_EQ(program.harm(), "");
  }
}

TEST_F(IbvClosedDescriptors, ConnectionAfterTheLossIsRefused) {
  IbvWorld world(2);
  const ProgramsFiles program(own_->others());
  const uint64_t deadline = testing::in_seconds(20);
  Status status = Status::kNotReady;
  while (status == Status::kNotReady && now_ns() < deadline) {
    status = world[0].try_send(1, Lane::kRequest, 1, "abcdefgh");
    world[0].poll();
  }
  EXPECT_EQ(status, Status::kBroken);
  EXPECT_TRUE(says_closed()) << last_error_text();
  for (Rank rank = 0; rank < 2; ++rank) world[rank].transport.reset();
  EXPECT_EQ(program.harm(), "");
}

}  // namespace
}  // namespace hydrant
