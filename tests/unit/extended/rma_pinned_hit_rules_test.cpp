// Rules that the fast paths of puts and gets between firehoses must keep: holds, access rights, keys,
// released memory that peers still hold, limits, and wrong calls.
#include "am/progress/waiting.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/pinned/rma_pinned_piece.hpp"
#include "tests/unit/extended/pinned_hit_fixture.hpp"

namespace hydrant {
namespace {

using test::pattern;

class RmaPinnedHitRules : public test::PinnedHitFixture {
 protected:
  gex_Event_t start(bool is_put, std::byte* far, std::byte* near, size_t bytes) {
    return is_put ? gex_RMA_PutNB(team(), kPeer, far, near, bytes, GEX_EVENT_DEFER, 0)
                  : gex_RMA_GetNB(team(), near, kPeer, far, bytes, 0);
  }
  // Starts a transfer with an event, or several without waiting in between.
  void transfer(bool waits, bool is_put, std::byte* far, std::byte* near, size_t bytes) {
    if (!waits) {
      gex_Event_Wait(start(is_put, far, near, bytes));
    } else if (is_put) {
      EXPECT_EQ(gex_RMA_PutBlocking(team(), kPeer, far, near, bytes, 0), GASNET_OK);
    } else {
      EXPECT_EQ(gex_RMA_GetBlocking(team(), near, kPeer, far, bytes, 0), GASNET_OK);
    }
  }
};

// The memory of both ends is released while the operation is under way: no deregistration before its end.
TEST_F(RmaPinnedHitRules, OperationUnderWayHoldsItsMemory) {
  loop->puts_are_ordered = false;  // messages overtake it
  for (const bool is_put : {true, false}) {
    for (const size_t bytes : {size_t{8}, size_t{4096}}) {
      in_new_thread([&] {
        warm();
        const uint64_t before = hits();
        const uint64_t refused = refused_operation_count();
        const uint64_t recalled = statistics().recalled;
        bool is_gone = false;
        loop->at_post = [&] {
          if (std::exchange(is_gone, true)) return;
          EXPECT_EQ(hydrant_invalidate(the_firehose.domain, far_, kArea), GASNET_OK);
          EXPECT_EQ(hydrant_invalidate(the_firehose.domain, near_, kArea), GASNET_OK);
          loop->late_polls = 250;
        };
        EXPECT_EQ(move(is_put, bytes, 1), "");
        loop->at_post = nullptr;
        EXPECT_EQ(loop->late_polls, 0u);
        EXPECT_GT(statistics().recalled, recalled) << "while it waited";
        EXPECT_EQ(hits(), before + 1);
        EXPECT_EQ(refused_operation_count(), refused);
        for (int polls = 0; statistics().zombies != 0 && polls < 100; ++polls) poll_all();
        EXPECT_EQ(statistics().zombies, 0u);
      });
    }
  }
}

// A put announces data as a message does, and a get may fetch such an announcement. So both wait for
// recalled memory.
TEST_F(RmaPinnedHitRules, PostsWaitUntilRecallsComplete) {
  for (const bool is_put : {true, false}) {
    in_new_thread([&] {
      warm();
      std::byte* const gone = map_vouched(8192);
      transfer(true, true, gone, near_, 8);
      ASSERT_EQ(hydrant_invalidate(the_firehose.domain, gone, 8192), GASNET_OK);
      uint32_t posts = 0;
      loop->at_post = [&] {
        ++posts;
        EXPECT_TRUE(are_exports_quiet());
      };
      EXPECT_EQ(move(is_put, 8, 1), "");
      loop->at_post = nullptr;
      EXPECT_EQ(posts, 1u);
    });
  }
}

// A put must not use a firehose for reading, and a get must not use memory that was pinned for sending.
TEST_F(RmaPinnedHitRules, AccessRightsAreChecked) {
  constexpr size_t kBytes = 20000;
  const uint64_t refused = refused_operation_count();
  for (const bool waits : {true, false}) {
    for (const bool first : {true, false}) {
      in_new_thread([&] {
        std::byte* const far = map(kBytes);
        std::byte* const near = map_vouched(kBytes);
        for (int i = 0; i < 3; ++i) transfer(true, first, far, near, kBytes);
        const std::vector<std::byte> wanted = pattern(kBytes, 5);
        std::copy(wanted.begin(), wanted.end(), first ? far : near);
        transfer(waits, !first, far, near, kBytes);
        EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), first ? near : far));
      });
    }
  }
  EXPECT_EQ(refused_operation_count(), refused);
}

// An operation that ends with an error was not executed: it is repeated, or the caller gets the error.
TEST_F(RmaPinnedHitRules, FailedOperationIsRepeatedOrReported) {
  for (const Status breakage : {Status::kBroken, Status::kBadArg, Status::kResource}) {
    in_new_thread([&] {
      warm();
      for (const bool is_put : {true, false}) {
        std::byte* const from = is_put ? near_ : far_;
        std::byte* const to = is_put ? far_ : near_;
        from[0] = std::byte{1};
        to[0] = std::byte{2};
        loop->breakage = breakage;
        loop->broken_completion = loop->completions + 1;
        const int code = is_put ? gex_RMA_PutBlocking(team(), kPeer, to, from, 8, 0)
                                : gex_RMA_GetBlocking(team(), to, kPeer, from, 8, 0);
        EXPECT_TRUE(code != GASNET_OK || to[0] == from[0]) << status_name(breakage);
      }
    });
  }
}

// ... and so is an operation that the network does not accept.
TEST_F(RmaPinnedHitRules, OperationNotAcceptedIsRestarted) {
  in_new_thread([&] {
    warm();
    for (const Status refusal : {Status::kBroken, Status::kRefused, Status::kNotReady}) {
      for (const bool is_put : {true, false}) {
        const std::vector<std::byte> wanted = pattern(4096, is_put ? 1 : 2);
        std::copy(wanted.begin(), wanted.end(), is_put ? near_ : far_);
        loop->refusal = refusal;
        loop->refused_call = loop->calls + 1;
        const uint64_t before = hits();
        gex_Event_Wait(start(is_put, far_, near_, wanted.size()));
        loop->refusal = Status::kOk;
        EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), is_put ? far_ : near_))
            << status_name(refusal);
        EXPECT_EQ(hits(), before + 1);
      }
    }
  });
}

// If the source may change at return, it must not be sent from its place, even if it is pinned.
TEST_F(RmaPinnedHitRules, FreeSourceIsCopied) {
  in_new_thread([&] {
    warm();
    for (const size_t bytes : {size_t{8}, size_t{64}, size_t{65}, size_t{4096}}) {
      const std::vector<std::byte> wanted = pattern(bytes, 9);
      std::copy(wanted.begin(), wanted.end(), near_);
      const gex_Event_t event = gex_RMA_PutNB(team(), kPeer, far_, near_, bytes, GEX_EVENT_NOW, 0);
      std::fill(near_, near_ + bytes, std::byte{0xee});
      gex_Event_Wait(event);
      EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), far_)) << bytes;
    }
  });
}

TEST_F(RmaPinnedHitRules, DepthLimitsOperationsUnderWay) {
  choose({{"GASNET_NETWORKDEPTH", "2"}});
  in_new_thread([&] {
    warm();
    loop->max_under_way = 0;
    for (int i = 0; i < 10; ++i)
      EXPECT_EQ(gex_RMA_GetNBI(team(), near_ + 8 * i, kPeer, far_, 8, 0), GASNET_OK);
    // No room: an immediate operation must not start.
    const gex_Event_t event = gex_RMA_GetNB(team(), near_, kPeer, far_, 8, GEX_FLAG_IMMEDIATE);
    EXPECT_EQ(event, GEX_EVENT_NO_OP);
    gex_NBI_Wait(GEX_EC_ALL, 0);
    EXPECT_EQ(loop->max_under_way, 2u);
  });
}

TEST_F(RmaPinnedHitRules, LongTransferIsSplitIntoPieces) {
  constexpr size_t kBytes = kMaxPieceBytes + 100000;
  in_new_thread([&] {
    std::byte* const far = map(kBytes);
    std::byte* const near = map_vouched(kBytes);
    ASSERT_EQ(hydrant_prefetch(kPeer, far, kBytes), GASNET_OK);
    for (int polls = 0; polls < 100; ++polls) poll_all();
    const hydrant_pin_t pin =
        hydrant_pin(the_firehose.domain, near, kBytes, HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_WRITE);
    ASSERT_NE(pin.region, nullptr);
    EXPECT_EQ(hydrant_release(pin), GASNET_OK);
    // Make one firehose that is longer than a piece.
    for (int i = 0; i < 3; ++i) {
      hydrant_pin_t all =
          hydrant_try_remote_pin(the_firehose.end, kPeer, reinterpret_cast<uintptr_t>(far), kBytes,
                                 HYDRANT_REMOTE_WRITE | HYDRANT_REMOTE_READ);
      ASSERT_NE(all.region, nullptr);
      EXPECT_EQ(hydrant_remote_release(all), GASNET_OK);
    }
    loop->longest = 0;
    for (const bool is_put : {true, false}) {
      for (const bool waits : {true, false}) transfer(waits, is_put, far, near, kBytes);
    }
    EXPECT_EQ(loop->longest, kMaxPieceBytes);
  });
}

uint32_t count_turns(void* turns) {
  ++*static_cast<uint32_t*>(turns);
  return 0;
}

// A rank that never waits long still serves others.
TEST_F(RmaPinnedHitRules, ProgressFunctionsStillRun) {
  static uint32_t turns = 0;
  job().progress.add(count_turns, &turns);
  in_new_thread([&] {
    warm();
    turns = 0;
    for (int i = 0; i < 32; ++i) transfer(true, true, far_, near_, 8);
    EXPECT_GE(turns, 4u);
    turns = 0;
    loop->late_polls = 100;
    transfer(true, true, far_, near_, 8);
    EXPECT_GE(turns, 10u) << "while it waits";
  });
  job().progress.remove(count_turns, &turns);
}

// The fast path must refuse what the slow path refuses.
TEST_F(RmaPinnedHitRules, InvalidCallsAreRejected) {
  in_new_thread([&] {
    warm();
    const uint64_t calls = loop->calls;
    for (const bool is_put : {true, false}) {
      const auto call = [&](std::byte* far, std::byte* near) {
        return is_put ? gex_RMA_PutBlocking(team(), kPeer, far, near, 8, 0)
                      : gex_RMA_GetBlocking(team(), near, kPeer, far, 8, 0);
      };
      ++handler_depth;
      EXPECT_EQ(call(far_, near_), GASNET_ERR_BAD_ARG);
      --handler_depth;
      auto* const last = reinterpret_cast<std::byte*>(UINTPTR_MAX - 3);
      EXPECT_EQ(call(far_, nullptr), GASNET_ERR_BAD_ARG);
      EXPECT_EQ(call(nullptr, near_), GASNET_ERR_BAD_ARG);
      EXPECT_EQ(call(far_, last), GASNET_ERR_BAD_ARG);
      EXPECT_EQ(call(last, near_), GASNET_ERR_BAD_ARG);
    }
    EXPECT_EQ(loop->calls, calls);
  });
}

// Calls of a debug client have checks that the fast path lacks.
TEST_F(RmaPinnedHitRules, DebugClientHasNoFastPath) {
  EXPECT_TRUE(paths(kPeer).hits);
  job().debug = true;
  choose({});
  EXPECT_FALSE(paths(kPeer).hits);
  job().debug = false;
  choose({{"HYDRANT_PATH", "am"}});
  EXPECT_FALSE(paths(kPeer).hits);
}

}  // namespace
}  // namespace hydrant
