// This process as rank 0 of a job whose rank 1 is reached over a PinnedLoop, with firehoses.
#pragma once

#include "am/progress/waiting.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/rma/pinned/rma_pinned.hpp"
#include "tests/unit/extended/pinned_loop.hpp"
#include "tests/unit/extended/rma_fixture.hpp"

#include <memory>
#include <sys/mman.h>
#include <utility>

namespace hydrant::test {

class PinnedFixture : public RmaFixture {
 protected:
  void SetUp() override {
    RmaFixture::SetUp();
    start_pinned_transfers();
    add_firehose_handlers();
    ASSERT_TRUE(is_firehose_enabled());
    choose({});
  }
  void TearDown() override {
    // Every hold must have been released: otherwise a firehose would remain.
    EXPECT_EQ(hydrant_remote_evict(the_firehose.end, kPeer, 4096, SIZE_MAX / 2), GASNET_OK);
    for (int polls = 0; statistics().exports != 0 && polls < 1000; ++polls) poll_all();
    EXPECT_EQ(statistics().exports, 0u) << "peers still hold firehoses";
    (void)hydrant_remote_destroy(the_firehose.end);
    EXPECT_EQ(hydrant_domain_destroy(the_firehose.domain, HYDRANT_FINI_UNPIN), GASNET_OK);
    the_firehose = {};
    job().hooks.before_send = nullptr;
    job().hooks.can_send = nullptr;
    job().careful = false;
    RmaFixture::TearDown();
  }
  std::unique_ptr<LoopNetwork> make_network() override {
    auto owned = std::make_unique<PinnedLoop>();
    loop = owned.get();
    return owned;
  }
  static hydrant_remote_stats_t statistics() {
    hydrant_remote_stats_t stats{};
    stats.size = sizeof stats;
    EXPECT_EQ(hydrant_remote_get_stats(the_firehose.end, &stats), GASNET_OK);
    return stats;
  }
  static std::byte* map(size_t bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    return static_cast<std::byte*>(at);
  }
  PinnedLoop* loop = nullptr;
};

}  // namespace hydrant::test
