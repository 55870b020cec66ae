// Several puts or gets in one call between firehoses: started together; operations without a cached
// firehose, or not accepted by the network, are started separately.
#include <hydrant/rma.h>

#include "extended/rma/pinned/rma_pinned.hpp"
#include "tests/unit/extended/pinned_fixture.hpp"

#include <algorithm>
#include <vector>

namespace hydrant {
namespace {

using test::count_of;
using test::pattern;

class RmaPinnedBatch : public test::PinnedFixture {
 protected:
  static constexpr size_t kOps = 40;
  static constexpr size_t kStride = 8192;
  static size_t bytes_of(size_t i) { return i * i * 31 % 5000; }

  void warm() {
    far_ = map(kOps * kStride);
    near_ = map(kOps * kStride);
    EXPECT_EQ(hydrant_vouch(the_firehose.domain, near_, kOps * kStride), GASNET_OK);
    for (int i = 0; i < 2; ++i) {
      gex_RMA_PutBlocking(team(), kPeer, far_, near_, kOps * kStride, 0);
      gex_RMA_GetBlocking(team(), near_, kPeer, far_, kOps * kStride, 0);
    }
    // Make this thread know each 64 KiB block separately.
    for (size_t i = 0; i < kOps; ++i) {
      gex_RMA_PutBlocking(team(), kPeer, far_ + i * kStride, near_ + i * kStride, 100, 0);
      gex_RMA_GetBlocking(team(), near_ + i * kStride, kPeer, far_ + i * kStride, 100, 0);
    }
  }
  void move(bool is_put, unsigned seed, bool with_event) {
    std::byte* const from = is_put ? near_ : far_;
    std::byte* const to = is_put ? far_ : near_;
    std::vector<hydrant_rma_op_t> ops(kOps);
    size_t total = 0;
    std::fill(to, to + kOps * kStride, std::byte{0x33});
    for (size_t i = 0; i < kOps; ++i) {
      const std::vector<std::byte> data = pattern(bytes_of(i), seed + static_cast<unsigned>(i));
      std::copy(data.begin(), data.end(), from + i * kStride);
      ops[i].rank = kPeer;
      ops[i].local = near_ + i * kStride;
      ops[i].remote = far_ + i * kStride;
      ops[i].bytes = bytes_of(i);
      total += bytes_of(i);
    }
    gex_Event_t event = GEX_EVENT_INVALID;
    gex_Event_t* const wanted = with_event ? &event : nullptr;
    ASSERT_EQ(is_put ? hydrant_put_many(team(), ops.data(), kOps, total, wanted)
                     : hydrant_get_many(team(), ops.data(), kOps, total, wanted),
              GASNET_OK);
    gex_Event_Wait(event);
    for (size_t i = 0; i < kOps; ++i) {
      EXPECT_TRUE(
          std::equal(from + i * kStride, from + i * kStride + bytes_of(i), to + i * kStride))
          << i;
      EXPECT_EQ(to[i * kStride + bytes_of(i)], std::byte{0x33}) << i;
    }
  }
  std::byte* far_ = nullptr;
  std::byte* near_ = nullptr;
};

TEST_F(RmaPinnedBatch, ArePostedAsOneList) {
  in_new_thread([&] {
    warm();
    for (const bool is_put : {true, false}) {
      for (const bool with_event : {true, false}) {
        const uint64_t lists = loop->lists;
        const hydrant_path_counts_t before = count_of(1, HYDRANT_PATH_FIREHOSE);
        move(is_put, 1, with_event);
        // An operation of 0 bytes ends a list; here it is the first one.
        EXPECT_EQ(loop->lists, lists + (kOps - 1 + kMaxBatch - 1) / kMaxBatch);
        const hydrant_path_counts_t after = count_of(1, HYDRANT_PATH_FIREHOSE);
        EXPECT_EQ(after.put_ops + after.get_ops, before.put_ops + before.get_ops + kOps - 1);
      }
    }
  });
}

TEST_F(RmaPinnedBatch, OperationsNotAcceptedAreStartedSeparately) {
  for (const Status refusal : {Status::kNotReady, Status::kRefused, Status::kUnsupported}) {
    in_new_thread([&] {
      warm();
      for (uint64_t nth = 1; nth <= kOps; nth += 3) {
        for (const uint64_t times : {1U, 3U}) {
          loop->refusal = refusal;
          loop->refused_call = loop->calls + nth;
          loop->refused_calls = times;
          move(nth % 2 == 0, static_cast<unsigned>(nth), true);
          loop->refusal = Status::kOk;
          loop->refused_calls = 1;
        }
      }
    });
  }
}

TEST_F(RmaPinnedBatch, OperationsRefusedLaterUseMessages) {
  in_new_thread([&] {
    warm();
    for (const bool is_put : {true, false}) {
      loop->refused_from_now = 5;
      move(is_put, 9, true);
      EXPECT_EQ(loop->refused_from_now, 0U);
    }
  });
}

TEST_F(RmaPinnedBatch, MissingFirehosesAreRequested) {
  in_new_thread([&] {
    warm();
    std::byte* const pinned = far_;
    far_ = map(kOps * kStride);
    move(true, 3, true);
    move(false, 4, true);
    far_ = pinned;
    near_ = map(kOps * kStride);
    move(true, 5, false);
    move(false, 6, false);
  });
}

}  // namespace
}  // namespace hydrant
