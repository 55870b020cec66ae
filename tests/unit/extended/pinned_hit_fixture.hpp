// Memory that is pinned on both ends and known to the calling thread, as the fast paths need it.
#pragma once

#include "extended/rma/pinned/rma_pinned.hpp"
#include "tests/unit/extended/pinned_fixture.hpp"

#include <algorithm>
#include <string>

namespace hydrant::test {

class PinnedHitFixture : public PinnedFixture {
 protected:
  static uint64_t hits() {
    const hydrant_path_counts_t counts = count_of(1, HYDRANT_PATH_FIREHOSE);
    return counts.put_ops + counts.get_ops;
  }
  static constexpr size_t kArea = 1 << 20;
  // Pins memory on both ends and makes this thread know it.
  void warm() {
    far_ = map(kArea);
    near_ = map_vouched(kArea);
    for (int i = 0; i < 2; ++i) {
      gex_RMA_PutBlocking(team(), kPeer, far_, near_, kArea, 0);
      gex_RMA_GetBlocking(team(), near_, kPeer, far_, kArea, 0);
    }
  }
  static std::byte* map_vouched(size_t bytes) {
    std::byte* const at = map(bytes);
    // Vouched memory: otherwise each hit would query the kernel and take the slow path.
    EXPECT_EQ(hydrant_vouch(the_firehose.domain, at, bytes), GASNET_OK);
    return at;
  }
  // Moves `bytes` there or back and checks the data; returns "" or what is wrong.
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
    // The peer is this process, so its exports also count as holds.
    return stats.live_holds - statistics().exports;
  }
  std::byte* far_ = nullptr;
  std::byte* near_ = nullptr;
};

}  // namespace hydrant::test
