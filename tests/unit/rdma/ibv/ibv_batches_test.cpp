// Lists of puts or gets that are posted to the adapter together.
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace hydrant {
namespace {

using fake_verbs::Call;
using testing::IbvWorld;
using testing::kTarget;
using testing::PinnedMemory;
using testing::Told;

constexpr size_t kMaxPieces = 16;
constexpr size_t kStride = 8192;

class IbvBatches : public testing::VerbsTest {
 protected:
  void TearDown() override {
    close();
    testing::VerbsTest::TearDown();
  }
  void close() {
    here_.reset();
    there_.reset();
    world_.reset();
  }
  void open(const IbvTransport::Options& options) {
    world_ = std::make_unique<IbvWorld>(2, options);
    here_ = std::make_unique<PinnedMemory>(*net(0), Access::kLocalWrite, kMaxPieces * kStride);
    there_ = std::make_unique<PinnedMemory>(*net(1), kTarget, kMaxPieces * kStride);
    world_->connect(0, 1);
    for (size_t i = 0; i < here_->bytes_; ++i) {
      here_->data.get()[i] = static_cast<std::byte>(i * 7 + i / 253);
      there_->data.get()[i] = std::byte{0x33};
    }
  }
  IbvTransport* net(Rank rank) { return (*world_)[rank].transport.get(); }
  // The sizes range from 0 to 6000 bytes; some are small enough to need no local key.
  static size_t bytes_of(size_t i) { return i * i * 27 % 6001; }
  std::vector<PinnedOperations::Operation> list(size_t count) {
    std::vector<PinnedOperations::Operation> all;
    for (size_t i = 0; i < count; ++i) {
      const PinnedOperations::Pinned remote = there_->for_peer(i * kStride);
      all.push_back({remote, here_->local(i * kStride), bytes_of(i), &told_.at(i)});
    }
    return all;
  }
  // The first `count` operations of the list have been carried out, and no others.
  void expect_put(size_t count) {
    for (size_t i = 0; i < kMaxPieces; ++i) {
      const size_t bytes = i < count ? bytes_of(i) : 0;
      const std::byte* const at = there_->data.get() + i * kStride;
      EXPECT_EQ(std::memcmp(at, here_->data.get() + i * kStride, bytes), 0) << i;
      EXPECT_EQ(at[bytes], std::byte{0x33}) << i;
    }
  }

  std::unique_ptr<IbvWorld> world_;
  std::unique_ptr<PinnedMemory> here_;
  std::unique_ptr<PinnedMemory> there_;
  std::array<Told, kMaxPieces> told_;
};

TEST_F(IbvBatches, AreOneCallOfTheAdapter) {
  open(IbvWorld::single());
  const fake_verbs::Traffic before = fake_verbs::traffic();
  ASSERT_EQ(net(0)->pinned()->put_list(1, list(kMaxPieces)), kMaxPieces);
  EXPECT_EQ(fake_verbs::traffic().posts, before.posts + 1);
  ASSERT_TRUE(world_->until([&] { return told_.back().times != 0; }));
  for (const Told& told : told_) {
    EXPECT_EQ(told.times, 1U);
    EXPECT_EQ(told.status, Status::kOk);
  }
  expect_put(kMaxPieces);

  told_ = {};
  std::memset(here_->data.get(), 0x44, here_->bytes_);
  ASSERT_EQ(net(0)->pinned()->get_list(1, list(kMaxPieces)), kMaxPieces);
  ASSERT_TRUE(world_->until([&] { return told_.back().times != 0; }));
  const fake_verbs::Traffic after = fake_verbs::traffic();
  EXPECT_EQ(after.posts, before.posts + 2);
  EXPECT_EQ(after.writes + after.reads, before.writes + before.reads + 2 * kMaxPieces);
  EXPECT_EQ(after.signalled, before.signalled + 2);
  for (size_t i = 0; i < kMaxPieces; ++i) {
    EXPECT_EQ(told_.at(i).status, Status::kOk);
    EXPECT_EQ(
        std::memcmp(here_->data.get() + i * kStride, there_->data.get() + i * kStride, bytes_of(i)),
        0);
  }
}

TEST_F(IbvBatches, AcceptUpToTheFreeSlots) {
  IbvTransport::Options options = IbvWorld::single();
  options.send_depth = 16;  // three entries are kept for messages
  open(options);
  const size_t taken = net(0)->pinned()->put_list(1, list(kMaxPieces));
  EXPECT_LE(taken, 13U);
  ASSERT_GE(taken, 11U);
  ASSERT_TRUE(world_->until([&] { return told_.at(taken - 1).times != 0; }));
  expect_put(taken);
  for (size_t i = taken; i < kMaxPieces; ++i) EXPECT_EQ(told_.at(i).times, 0U);
}

// A list stops before an operation of several requests: without a key, or longer than the device's limit.
TEST_F(IbvBatches, StopBeforeAnOperationOfSeveralRequests) {
  open(IbvWorld::single());
  std::vector<PinnedOperations::Operation> all = list(8);
  all[5].bytes = 6000;
  all[5].local.key = nullptr;
  ASSERT_EQ(net(0)->pinned()->put_list(1, all), 5U);
  ASSERT_TRUE(world_->until([&] { return told_.at(4).times != 0; }));
  expect_put(5);
  all[0].remote.key = nullptr;
  EXPECT_EQ(net(0)->pinned()->put_list(1, all), 0U);
  EXPECT_EQ(net(0)->pinned()->put_list(1, {}), 0U);
}

TEST_F(IbvBatches, UnconnectedPeerTakesNone) {
  IbvWorld world(2);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, 4096);
  PinnedMemory there(*world[1].transport, kTarget, 4096);
  const PinnedOperations::Operation one{there.for_peer(), here.local(), 8, &told_.at(0)};
  EXPECT_EQ(world[0].transport->pinned()->put_list(1, std::span(&one, 1)), 0U);
}

// Each operation completes once, whether the adapter refuses the nth request or fails to carry it out.
TEST_F(IbvBatches, EachCompletesOnceWhenThePeerFails) {
  for (const bool is_taken : {false, true}) {
    for (size_t nth = 1; nth <= kMaxPieces; ++nth) {
      told_ = {};
      open(IbvWorld::single());
      if (is_taken) {
        fake_verbs::fail_work(IBV_WC_RETRY_EXC_ERR, nth);
      } else {
        fake_verbs::fail_call(Call::kPostSend, ENOMEM, nth);
      }
      const size_t taken = net(0)->pinned()->put_list(1, list(kMaxPieces));
      EXPECT_EQ(taken, is_taken ? kMaxPieces : nth - 1);
      const auto all_told = [&] {
        return std::all_of(told_.begin(), told_.begin() + static_cast<ptrdiff_t>(taken),
                           [](const Told& told) { return told.times != 0; });
      };
      EXPECT_TRUE(world_->until(all_told)) << nth;
      for (size_t i = 0; i < kMaxPieces; ++i) {
        EXPECT_EQ(told_.at(i).times, i < taken ? 1U : 0U) << nth << ' ' << i;
        if (is_taken) {
          EXPECT_EQ(told_.at(i).status == Status::kOk, i + 1 < nth) << nth << ' ' << i;
        }
      }
      close();
    }
  }
}

}  // namespace
}  // namespace hydrant
