// Blocking puts and gets between firehoses: the short way, and what becomes of it when the network does not
// take the operation, or refuses it on its way.
#include "extended/rma_pinned.hpp"
#include "tests/unit/extended/pinned_fixture.hpp"

#include <algorithm>
#include <string>

namespace hydrant {
namespace {

using test::count_of;
using test::pattern;

uint64_t hits() {
  const hydrant_path_counts_t counts = count_of(1, HYDRANT_PATH_FIREHOSE);
  return counts.put_ops + counts.get_ops;
}

class RmaPinnedHit : public test::PinnedFixture {
 protected:
  static constexpr size_t kArea = 1 << 20;
  // Memory of both ends that is pinned, as this thread knows.
  void warm() {
    far_ = map(kArea);
    near_ = map(kArea);
    // Where the kernel has to be asked whether memory is still there, a hit is no short way.
    EXPECT_EQ(hydrant_vouch(the_firehose.domain, near_, kArea), GASNET_OK);
    for (int i = 0; i < 2; ++i) {
      gex_RMA_PutBlocking(team(), kPeer, far_, near_, kArea, 0);
      gex_RMA_GetBlocking(team(), near_, kPeer, far_, kArea, 0);
    }
  }
  // "" or what is wrong: moves `bytes` there or back, and looks at the data.
  std::string move(bool is_put, size_t bytes, unsigned seed) {
    const std::vector<std::byte> wanted = pattern(bytes, seed);
    std::byte* const from = is_put ? near_ : far_;
    std::byte* const to = is_put ? far_ : near_;
    std::copy(wanted.begin(), wanted.end(), from + 64);
    std::fill(to, to + bytes + 128, std::byte{0x33});
    if (is_put) {
      gex_RMA_PutBlocking(team(), kPeer, to + 64, from + 64, bytes, 0);
    } else {
      gex_RMA_GetBlocking(team(), to + 64, kPeer, from + 64, bytes, 0);
    }
    const std::string what = (is_put ? "put of " : "get of ") + std::to_string(bytes);
    if (!std::equal(wanted.begin(), wanted.end(), to + 64)) return what + ": other data";
    if (to[63] != std::byte{0x33} || to[64 + bytes] != std::byte{0x33}) return what + ": too much";
    const uint64_t held = holds();
    return held == 0 ? "" : what + ": " + std::to_string(held) + " holds are left";
  }
  static uint64_t holds() {
    hydrant_stats_t stats{};
    stats.size = sizeof stats;
    (void)hydrant_get_stats(the_firehose.domain, &stats);
    // The peer is this process: what it has exported is held, too.
    hydrant_remote_stats_t remote{};
    remote.size = sizeof remote;
    (void)hydrant_remote_get_stats(the_firehose.end, &remote);
    return stats.live_holds - remote.exports;
  }
  std::byte* far_ = nullptr;
  std::byte* near_ = nullptr;
};

constexpr size_t kSizes[] = {1, 8, 64, 65, 4096, 100000};

TEST_F(RmaPinnedHit, IsOneOperationAndNoMessage) {
  in_new_thread([&] {
    warm();
    for (const size_t bytes : kSizes) {
      for (const bool is_put : {true, false}) {
        const uint64_t calls = loop->calls;
        const uint64_t before = hits();
        EXPECT_EQ(move(is_put, bytes, 1), "");
        EXPECT_EQ(loop->calls, calls + 1);
        EXPECT_EQ(hits(), before + 1);
      }
    }
  });
}

// What it reports to is the caller's: nobody's memory is taken for it.
TEST_F(RmaPinnedHit, KeepsNothing) {
  in_new_thread([&] {
    warm();
    const auto* here = static_cast<const std::byte*>(__builtin_frame_address(0));
    loop->records.clear();
    EXPECT_EQ(move(true, 8, 1), "");
    EXPECT_EQ(move(false, 8, 2), "");
    for (const Transport::Completion* record : loop->records) {
      const auto* at = reinterpret_cast<const std::byte*>(record);
      EXPECT_TRUE(at < here && here - at < 65536) << "not on the stack of the calls";
    }
    EXPECT_FALSE(loop->records.empty());
  });
}

TEST_F(RmaPinnedHit, WhatTheNetworkDoesNotTakeGoesTheLongWay) {
  for (const Status refusal : {Status::kNotReady, Status::kRefused, Status::kUnsupported}) {
    in_new_thread([&] {
      warm();
      for (const size_t bytes : kSizes) {
        for (const bool is_put : {true, false}) {
          loop->refusal = refusal;
          loop->refused_call = loop->calls + 1;
          EXPECT_EQ(move(is_put, bytes, 3), "") << status_name(refusal);
          loop->refusal = Status::kOk;
        }
      }
    });
  }
}

TEST_F(RmaPinnedHit, WhatTheNetworkRefusesOnItsWayGoesTheLongWay) {
  in_new_thread([&] {
    warm();
    for (const size_t bytes : kSizes) {
      for (const bool is_put : {true, false}) {
        for (const uint32_t times : {1u, 2u}) {
          loop->refused_from_now = times;
          EXPECT_EQ(move(is_put, bytes, 4), "");
          EXPECT_EQ(loop->refused_from_now, 0u);
        }
      }
    }
  });
}

TEST_F(RmaPinnedHit, MemoryThatIsPinnedOnOneEndOnlyTakesTheLongWay) {
  in_new_thread([&] {
    warm();
    std::byte* const pinned = near_;
    near_ = map(kArea);
    for (const size_t bytes : kSizes) {
      EXPECT_EQ(move(true, bytes, 5), "");
      EXPECT_EQ(move(false, bytes, 6), "");
    }
    near_ = pinned;
    far_ = map(kArea);
    for (const size_t bytes : kSizes) {
      EXPECT_EQ(move(true, bytes, 7), "");
      EXPECT_EQ(move(false, bytes, 8), "");
    }
  });
}

}  // namespace
}  // namespace hydrant
