// Puts and gets over a network between pinned memory: the chosen path, behaviour when the network
// refuses an earlier grant, and persistent operations.
#include "extended/rma/pinned/rma_pinned.hpp"

#include <hydrant/persistent.h>

#include "am/progress/waiting.hpp"
#include "extended/rma/pinned/rma_pinned_piece.hpp"
#include "tests/unit/extended/pinned_fixture.hpp"

#include <gmock/gmock.h>

#include <algorithm>

namespace hydrant {
namespace {

using test::count_of;
using test::pattern;
using ::testing::HasSubstr;

uint64_t operations_by(hydrant_path_t path) {
  const hydrant_path_counts_t counts = count_of(1, path);
  return counts.put_ops + counts.get_ops;
}

class RmaPinned : public test::PinnedFixture {};

TEST_F(RmaPinned, DataArrivesCompletelyOnMissesAndHits) {
  in_new_thread([&] {
    constexpr size_t kMax = 300001;
    std::byte* const far = map(size_t{4} << 20) + 4097;
    const uint64_t hits = operations_by(HYDRANT_PATH_FIREHOSE);
    const uint64_t misses = operations_by(HYDRANT_PATH_IN_MOVE);
    const uint64_t messages = operations_by(HYDRANT_PATH_AM_MEDIUM);
    const uint64_t refused = refused_operation_count();
    for (const size_t bytes :
         {size_t{1}, size_t{64}, size_t{65}, size_t{4096}, size_t{4097}, size_t{20000}, kMax}) {
      for (unsigned round = 0; round < 3; ++round) {
        for (const bool is_free : {false, true}) {
          std::vector<std::byte> near = pattern(bytes, round);
          const std::vector<std::byte> wanted = near;
          const gex_Event_t event = gex_RMA_PutNB(team(), kPeer, far, near.data(), bytes,
                                                  is_free ? GEX_EVENT_NOW : GEX_EVENT_DEFER, 0);
          if (is_free) std::fill(near.begin(), near.end(), std::byte{0xee});
          gex_Event_Wait(event);
          EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), far)) << bytes;
          std::vector<std::byte> back(bytes + 1, std::byte{0x33});
          gex_RMA_GetBlocking(team(), back.data(), kPeer, far, bytes, 0);
          EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), back.begin())) << bytes;
          EXPECT_EQ(back[bytes], std::byte{0x33});
        }
        if (round == 1) {
          EXPECT_EQ(hydrant_evict(kPeer, far, bytes), GASNET_OK);
        }
      }
    }
    EXPECT_GT(operations_by(HYDRANT_PATH_FIREHOSE), hits + 40);
    EXPECT_GE(operations_by(HYDRANT_PATH_IN_MOVE), misses + 4);
    EXPECT_EQ(operations_by(HYDRANT_PATH_AM_MEDIUM), messages);
    EXPECT_EQ(refused_operation_count(), refused);
  });
}

// Each message of a miss finds no memory once: the request is refused, and the target sends its reply later.
TEST_F(RmaPinned, AMissWithoutMemoryForAMessageEnds) {
  in_new_thread([&] {
    std::byte* const far = map(1 << 20);
    std::vector<std::byte> near = pattern(3000, 1);
    loop->refusal = Status::kResource;
    for (uint64_t refused = 1; refused <= 3; ++refused) {
      loop->refused_call = loop->calls + refused;
      EXPECT_EQ(hydrant_prefetch(kPeer, far, 4096), GASNET_OK);
      for (int polls = 0; polls < 1000; ++polls) poll_all();
      gex_RMA_PutBlocking(team(), kPeer, far, near.data(), near.size(), 0);
      EXPECT_TRUE(std::equal(near.begin(), near.end(), far));
      EXPECT_EQ(hydrant_evict(kPeer, far, 1 << 20), GASNET_OK);
      for (int polls = 0; polls < 1000; ++polls) poll_all();
      std::fill_n(far, near.size(), std::byte{0});
    }
  });
}

// The connection is made at the first miss; the peer refuses it while the miss waits.
TEST_F(RmaPinned, AMissThatIsRefusedLaterNamesTheReason) {
  in_new_thread([&] {
    std::byte* const far = map(1 << 20);
    loop->refused_call = 1;
    loop->refused_calls = UINT64_MAX / 2;
    for (const size_t bytes : {size_t{8}, size_t{3000}, size_t{100000}}) {
      std::vector<std::byte> near = pattern(bytes, 1);
      for (const bool is_put : {true, false}) {
        loop->refusal = Status::kNotReady;
        const gex_Event_t event =
            is_put ? gex_RMA_PutNB(team(), kPeer, far, near.data(), bytes, GEX_EVENT_DEFER, 0)
                   : gex_RMA_GetNB(team(), near.data(), kPeer, far, bytes, 0);
        for (int polls = 0; polls < 10; ++polls) poll_all();
        loop->refusal = Status::kResource;
        ::testing::internal::CaptureStderr();
        gex_Event_Wait(event);
        EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                    HasSubstr("refused by the test (GASNET_ERR_RESOURCE)"));
        // From now on the refusal is known at once.
        EXPECT_EQ(is_put ? gex_RMA_PutBlocking(team(), kPeer, far, near.data(), bytes, 0)
                         : gex_RMA_GetBlocking(team(), near.data(), kPeer, far, bytes, 0),
                  GASNET_ERR_RESOURCE);
        EXPECT_STREQ(hydrant_last_error_text(), "refused by the test");
      }
    }
    loop->refusal = Status::kOk;
  });
}

// The peer has deregistered memory whose firehose this process still caches; the source has changed since.
TEST_F(RmaPinned, RefusedPutSendsItsOriginalData) {
  in_new_thread([&] {
    for (const size_t bytes : {size_t{8}, size_t{64}, size_t{65}, size_t{3000}}) {
      std::byte* const far = map(1 << 20);
      std::vector<std::byte> near = pattern(bytes, 1);
      // The second put finds the firehose, the third one hits in the thread's table.
      for (int i = 0; i < 2; ++i) gex_RMA_PutBlocking(team(), kPeer, far, near.data(), bytes, 0);
      near = pattern(bytes, 2);
      const std::vector<std::byte> wanted = near;
      const uint64_t hits = operations_by(HYDRANT_PATH_FIREHOSE);
      const uint64_t refused = refused_operation_count();
      const gex_Event_t event =
          gex_RMA_PutNB(team(), kPeer, far, near.data(), bytes, GEX_EVENT_NOW, 0);
      ASSERT_EQ(operations_by(HYDRANT_PATH_FIREHOSE), hits + 1);
      std::fill(near.begin(), near.end(), std::byte{0xee});
      loop->refused_from_now = 1;
      gex_Event_Wait(event);
      EXPECT_EQ(refused_operation_count(), refused + 1);
      EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), far)) << bytes;
    }
  });
}

TEST_F(RmaPinned, RefusedGetUsesMessages) {
  in_new_thread([&] {
    std::byte* const far = map(1 << 20);
    for (const size_t bytes : {size_t{8}, size_t{3000}, size_t{100000}}) {
      const std::vector<std::byte> wanted = pattern(bytes, 7);
      std::copy(wanted.begin(), wanted.end(), far);
      std::vector<std::byte> near(bytes);
      gex_RMA_GetBlocking(team(), near.data(), kPeer, far, bytes, 0);
      std::fill(near.begin(), near.end(), std::byte{0});
      loop->refused_from_now = 1;
      gex_RMA_GetBlocking(team(), near.data(), kPeer, far, bytes, 0);
      EXPECT_EQ(loop->refused_from_now, 0u);
      EXPECT_EQ(near, wanted);
    }
  });
}

// The limit for data without a key is the piece's, not the network's.
TEST_F(RmaPinned, NetworksInlineLimitMayExceedAPieces) {
  loop->inline_bytes_without_key = 4096;
  in_new_thread([&] {
    std::byte* const far = map(1 << 20);
    for (const size_t bytes : {size_t{64}, size_t{65}, size_t{1000}, size_t{4096}}) {
      for (unsigned round = 0; round < 3; ++round) {
        std::vector<std::byte> near = pattern(bytes, round);
        const std::vector<std::byte> wanted = near;
        const gex_Event_t event =
            gex_RMA_PutNB(team(), kPeer, far, near.data(), bytes, GEX_EVENT_NOW, 0);
        std::fill(near.begin(), near.end(), std::byte{0xee});
        gex_Event_Wait(event);
        EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), far)) << bytes;
      }
    }
  });
}

// The peer is this process, whose segment is small enough or not.
TEST_F(RmaPinned, SmallSegmentIsGrantedCompletely) {
  in_new_thread([&] {
    constexpr size_t kBytes = size_t{8} << 20;
    static hydrant_segment segments[2] = {};
    for (const bool is_small : {false, true}) {
      setenv("GASNET_FIREHOSE_M", is_small ? "8" : "7", 1);
      hydrant_segment& segment = segments[is_small ? 1 : 0];
      segment.addr = map(kBytes);
      segment.size = kBytes;
      job().endpoint.segment = &segment;
      auto* const far = static_cast<std::byte*>(segment.addr);
      std::vector<std::byte> near = pattern(8, 1);
      const uint64_t misses = operations_by(HYDRANT_PATH_IN_MOVE);
      for (size_t at = 0; at < kBytes; at += size_t{2} << 20)
        gex_RMA_PutBlocking(team(), kPeer, far + at, near.data(), near.size(), 0);
      EXPECT_EQ(operations_by(HYDRANT_PATH_IN_MOVE), misses + (is_small ? 1 : 4));
      job().endpoint.segment = nullptr;
      unsetenv("GASNET_FIREHOSE_M");
    }
  });
}

// A store into a peer's memory announces data as a message does. So it must wait until all peers have
// given up released memory of this process.
TEST_F(RmaPinned, StoresWaitUntilRecallsComplete) {
  in_new_thread([&] {
    constexpr size_t kBytes = 8192;
    std::byte* const gone = map(kBytes);
    std::byte* const mapped = map(kBytes);
    ASSERT_EQ(hydrant_vouch(the_firehose.domain, gone, kBytes), GASNET_OK);
    uint64_t word = 5;
    gex_RMA_PutBlocking(team(), kPeer, gone, &word, sizeof word, 0);
    EXPECT_EQ(hydrant_segment_of(team(), kPeer, gone, &word, sizeof word), nullptr)
        << "inline stores would check nothing";
    transport->maps = true;
    choose({});
    hydrant_remote_stats_t stats{};
    stats.size = sizeof stats;
    ASSERT_EQ(hydrant_remote_get_stats(the_firehose.end, &stats), GASNET_OK);
    ASSERT_GT(stats.exports, 0u);
    const uint64_t recalled = stats.recalled;
    ASSERT_EQ(hydrant_invalidate(the_firehose.domain, gone, kBytes), GASNET_OK);
    const uint64_t written = count_of(1, HYDRANT_PATH_MAPPED).put_ops;
    gasnet_memset(kPeer, mapped, 7, kBytes);
    EXPECT_EQ(mapped[kBytes - 1], std::byte{7});
    EXPECT_EQ(count_of(1, HYDRANT_PATH_MAPPED).put_ops, written + 1);
    ASSERT_EQ(hydrant_remote_get_stats(the_firehose.end, &stats), GASNET_OK);
    EXPECT_EQ(stats.recalled, recalled + 1);
    EXPECT_EQ(stats.zombies, 0u);
  });
}

// The same for a message on its fast path.
TEST_F(RmaPinned, ShortsWaitUntilRecallsComplete) {
  in_new_thread([&] {
    constexpr size_t kBytes = 8192;
    std::byte* const gone = map(kBytes);
    ASSERT_EQ(hydrant_vouch(the_firehose.domain, gone, kBytes), GASNET_OK);
    uint64_t word = 5;
    gex_RMA_PutBlocking(team(), kPeer, gone, &word, sizeof word, 0);
    hydrant_remote_stats_t stats{};
    stats.size = sizeof stats;
    ASSERT_EQ(hydrant_remote_get_stats(the_firehose.end, &stats), GASNET_OK);
    ASSERT_GT(stats.exports, 0u);
    ASSERT_EQ(hydrant_invalidate(the_firehose.domain, gone, kBytes), GASNET_OK);
    EXPECT_FALSE(are_exports_quiet());
    ASSERT_EQ(hydrant_request_short(team(), kPeer, kShort0, 0, 0, nullptr), GASNET_OK);
    EXPECT_TRUE(are_exports_quiet());
    ASSERT_EQ(hydrant_remote_get_stats(the_firehose.end, &stats), GASNET_OK);
    EXPECT_EQ(stats.zombies, 0u);
  });
}

// A peer may request any range, even all of the address space but one byte.
TEST_F(RmaPinned, GetBeyondTheReplysRoomIsDeclined) {
  const uint32_t get[4] = {2, 0, 0, 0};  // MoveArgs
  std::byte answer[64] = {};
  for (const size_t bytes : {sizeof answer, SIZE_MAX}) {
    EXPECT_EQ(
        serve_move(nullptr, kPeer, nullptr, {1, bytes}, get, sizeof get, answer, sizeof answer),
        1u);
    EXPECT_EQ(answer[0], std::byte{2}) << bytes;
  }
}

TEST_F(RmaPinned, MemoryThatCannotBePinnedUsesMessages) {
  loop->pins.refuses = true;
  in_new_thread([&] {
    std::byte* const far = map(1 << 20);
    const uint64_t hits = operations_by(HYDRANT_PATH_FIREHOSE);
    for (const size_t bytes : {size_t{1}, size_t{5000}, size_t{100000}}) {
      const std::vector<std::byte> near = pattern(bytes, 1);
      std::vector<std::byte> back(bytes);
      gex_RMA_PutBlocking(team(), kPeer, far, const_cast<std::byte*>(near.data()), bytes, 0);
      gex_RMA_GetBlocking(team(), back.data(), kPeer, far, bytes, 0);
      EXPECT_EQ(back, near);
    }
    EXPECT_EQ(operations_by(HYDRANT_PATH_FIREHOSE), hits);
  });
}

// On a miss the target puts a large get only if puts arrive before the message that follows them.
TEST_F(RmaPinned, LargeGetsAreServedByPutsOnlyWithOrdering) {
  in_new_thread([&] {
    for (const bool ordered : {true, false}) {
      loop->puts_are_ordered = ordered;
      const size_t bytes = 100000;
      std::byte* const far = map(bytes);
      const std::vector<std::byte> wanted = pattern(bytes, 3);
      std::copy(wanted.begin(), wanted.end(), far);
      std::vector<std::byte> near(bytes);
      const uint64_t in_move = operations_by(HYDRANT_PATH_IN_MOVE);
      const uint64_t rendezvous = operations_by(HYDRANT_PATH_RENDEZVOUS);
      gex_RMA_GetBlocking(team(), near.data(), kPeer, far, bytes, 0);
      EXPECT_EQ(operations_by(HYDRANT_PATH_IN_MOVE), in_move + (ordered ? 1 : 0));
      EXPECT_EQ(operations_by(HYDRANT_PATH_RENDEZVOUS), rendezvous + (ordered ? 0 : 1));
      EXPECT_EQ(near, wanted);
    }
  });
}

// The firehose of the peer may end while the network still reads the data that the target puts.
TEST_F(RmaPinned, TargetHoldsTheSourceOfAPutUntilItIsDone) {
  in_new_thread([&] {
    constexpr size_t kBytes = size_t{25} << 12;
    // A hole keeps the cache from making one region of both.
    std::byte* const far = map(3 * kBytes);
    std::byte* const near = far + 2 * kBytes;
    ASSERT_EQ(mprotect(far + kBytes, kBytes, PROT_NONE), 0);
    const std::vector<std::byte> wanted = pattern(kBytes, 3);
    std::copy(wanted.begin(), wanted.end(), far);
    const hydrant_pin_t granted =
        hydrant_pin(the_firehose.domain, far, kBytes, HYDRANT_REMOTE_READ);
    const hydrant_pin_t destination =
        hydrant_pin(the_firehose.domain, near, kBytes, HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_WRITE);
    ASSERT_NE(granted.region, nullptr);
    ASSERT_NE(destination.region, nullptr);
    const auto blob_bytes = static_cast<uint32_t>(the_firehose.key_bytes);
    std::vector<std::byte> asked(sizeof(MoveArgs) + blob_bytes);
    const MoveArgs args{MoveArgs::kPutBack, blob_bytes, reinterpret_cast<uintptr_t>(near)};
    std::memcpy(asked.data(), &args, sizeof args);
    std::memcpy(asked.data() + sizeof args, destination.region->key, blob_bytes);
    std::byte status{0xff};
    ASSERT_EQ(serve_move(nullptr, kPeer, granted.region, {reinterpret_cast<uintptr_t>(far), kBytes},
                         asked.data(), asked.size(), &status, 1),
              1u);
    ASSERT_EQ(status, std::byte{kDone});
    // The grant ends, and nothing but the put keeps the pin.
    const size_t pinned = loop->ranges->size();
    EXPECT_EQ(hydrant_release(granted), GASNET_OK);
    EXPECT_EQ(hydrant_invalidate(the_firehose.domain, far, kBytes), GASNET_OK);
    EXPECT_EQ(loop->ranges->size(), pinned);
    for (int polls = 0; polls < 100 && loop->ranges->size() == pinned; ++polls) poll_all();
    EXPECT_EQ(loop->ranges->size(), pinned - 1) << "the put is done";
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), near));
    EXPECT_EQ(hydrant_release(destination), GASNET_OK);
  });
}

TEST_F(RmaPinned, PersistentOperationsUseTheCurrentFirehoses) {
  in_new_thread([&] {
    const size_t bytes = 8192;
    std::byte* const far = map(bytes);
    std::vector<std::byte> near = pattern(bytes, 0);
    hydrant_operation_t put = nullptr;
    ASSERT_EQ(hydrant_put_init(team(), kPeer, far, near.data(), bytes, &put), GASNET_OK);
    for (unsigned round = 1; round < 8; ++round) {
      const std::vector<std::byte> next = pattern(bytes, round);
      std::copy(next.begin(), next.end(), near.begin());
      // The third start follows an eviction of the firehose, the fourth new memory at the target;
      // others are refused by the network.
      if (round == 3) {
        EXPECT_EQ(hydrant_evict(kPeer, far, bytes), GASNET_OK);
      }
      if (round == 4) {
        EXPECT_EQ(mmap(far, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                       -1, 0),
                  far);
      }
      EXPECT_EQ(hydrant_start(put), GASNET_OK);
      EXPECT_EQ(hydrant_start(put), GASNET_ERR_BAD_ARG) << "it is under way";
      if (round >= 5) loop->refused_from_now = 1;
      EXPECT_EQ(hydrant_wait(put), GASNET_OK);
      EXPECT_TRUE(std::equal(near.begin(), near.end(), far)) << round;
    }
    EXPECT_EQ(hydrant_operation_free(&put), GASNET_OK);
  });
}

TEST_F(RmaPinned, HandlersCannotStartPersistentOperations) {
  in_new_thread([&] {
    std::byte* const far = map(4096);
    uint64_t word = 0;
    hydrant_operation_t put = nullptr;
    hydrant_operation_t own = nullptr;
    ASSERT_EQ(hydrant_put_init(team(), kPeer, far, &word, sizeof word, &put), GASNET_OK);
    ASSERT_EQ(hydrant_put_init(team(), 0, far, &word, sizeof word, &own), GASNET_OK);
    ++handler_depth;
    EXPECT_EQ(hydrant_start(put), GASNET_ERR_BAD_ARG);
    EXPECT_EQ(hydrant_start(own), GASNET_ERR_BAD_ARG);
    --handler_depth;
    EXPECT_EQ(hydrant_start_all(nullptr, 2), GASNET_ERR_BAD_ARG);
    EXPECT_EQ(hydrant_operation_free(&put), GASNET_OK);
    EXPECT_EQ(hydrant_operation_free(&own), GASNET_OK);
  });
}

}  // namespace
}  // namespace hydrant
