// Longs over a network between pinned memory: which payloads the adapter carries, and how the rest is sent.
#include "extended/rma/long_payload.hpp"

#include "am/progress/waiting.hpp"
#include "extended/binding/segment_pins.hpp"
#include "extended/rma/paths/bounce_pool.hpp"
#include "extended/rma/pinned/rma_pinned.hpp"
#include "tests/unit/extended/pinned_fixture.hpp"

#include <algorithm>
#include <cstring>

namespace hydrant {
namespace {

using test::calls;
using test::pattern;

class LongPayload : public test::PinnedFixture {
 protected:
  void SetUp() override {
    PinnedFixture::SetUp();
    job().hooks.put_long = put_long_payload;
  }
  void TearDown() override {
    job().hooks.put_long = nullptr;
    PinnedFixture::TearDown();
  }
  // Polls until the peer's handler has run `count` times.
  void await(size_t count) {
    while (calls.size() < count) poll_all();
  }
  void make_firehose(std::byte* far, size_t bytes) {
    ASSERT_EQ(hydrant_prefetch(kPeer, far, bytes), GASNET_OK);
    for (int i = 0; i < 20; ++i) poll_all();
  }
  int send(std::byte* far, std::vector<std::byte>& near, gex_Flags_t flags = 0) {
    return gex_AM_RequestLong1(team(), kPeer, kLong1, near.data(), near.size(), far, GEX_EVENT_NOW,
                               flags, 7);
  }
  size_t puts() const { return loop->locals.size(); }
};

// The handler sees the complete payload, although the source has changed since.
TEST_F(LongPayload, IsPutIfAFirehoseIsCached) {
  in_new_thread([&] {
    for (const size_t bytes : {size_t{1}, size_t{64}, size_t{3000}, size_t{4096}, size_t{20001}}) {
      calls.clear();
      std::byte* const far = map(1 << 20) + 13;
      make_firehose(far, bytes);
      const size_t before = puts();
      std::vector<std::byte> near = pattern(bytes, 3);
      const std::vector<std::byte> wanted = near;
      ASSERT_EQ(send(far, near), GASNET_OK);
      std::fill(near.begin(), near.end(), std::byte{0xee});
      await(1);
      EXPECT_EQ(calls[0].payload, wanted) << bytes;
      EXPECT_GT(puts(), before) << bytes;
      EXPECT_EQ(transport->cells_out, 0u);
    }
  });
}

TEST_F(LongPayload, WithoutAFirehoseUsesMessagesAndRequestsOne) {
  in_new_thread([&] {
    std::byte* const far = map(1 << 20);
    std::vector<std::byte> near = pattern(9000, 1);
    ASSERT_EQ(send(far, near), GASNET_OK);
    await(1);
    EXPECT_EQ(calls[0].payload, near);
    EXPECT_EQ(puts(), 0u);
    for (int i = 0; i < 20; ++i) poll_all();
    near = pattern(9000, 2);
    ASSERT_EQ(send(far, near), GASNET_OK);
    await(2);
    EXPECT_EQ(calls[1].payload, near);
    EXPECT_GT(puts(), 0u);
  });
}

// A large pinned payload is not copied, and has been sent when the call returns.
TEST_F(LongPayload, PinnedPayloadIsNotCopied) {
  in_new_thread([&] {
    constexpr size_t kBytes = 100000;
    std::byte* const far = map(1 << 20);
    std::byte* const here = map(1 << 20);
    make_firehose(far, kBytes);
    const hydrant_pin_t pin = hydrant_pin(firehose().domain, here, kBytes, HYDRANT_LOCAL_READ);
    ASSERT_NE(pin.region, nullptr);
    (void)hydrant_release(pin);
    const std::vector<std::byte> wanted = pattern(kBytes, 5);
    std::copy(wanted.begin(), wanted.end(), here);
    ASSERT_EQ(gex_AM_RequestLong1(team(), kPeer, kLong1, here, kBytes, far, GEX_EVENT_NOW, 0, 7),
              GASNET_OK);
    ASSERT_EQ(loop->locals.size(), 1u);
    EXPECT_EQ(loop->locals[0], here);
    EXPECT_EQ(loop->under_way(), 0u);
    std::memset(here, 0xee, kBytes);
    await(1);
    EXPECT_EQ(calls[0].payload, wanted);
  });
}

// With a place for local completion the call does not wait, and pins the source for the first time.
TEST_F(LongPayload, CallReturnsBeforeItsSourceIsRead) {
  in_new_thread([&] {
    constexpr size_t kBytes = 100000;
    for (const bool is_implicit : {false, true}) {
      calls.clear();
      std::byte* const far = map(1 << 20);
      std::byte* const here = map(1 << 20);
      make_firehose(far, kBytes);
      const std::vector<std::byte> wanted = pattern(kBytes, 5);
      std::copy(wanted.begin(), wanted.end(), here);
      gex_Event_t leaf = GEX_EVENT_NO_OP;
      ASSERT_EQ(gex_AM_RequestLong1(team(), kPeer, kLong1, here, kBytes, far,
                                    is_implicit ? GEX_EVENT_GROUP : &leaf, 0, 7),
                GASNET_OK);
      EXPECT_EQ(loop->under_way(), 1u) << "the call waited";
      EXPECT_EQ(loop->locals.back(), here) << "the payload was copied";
      if (is_implicit) {
        gex_NBI_Wait(GEX_EC_AM, 0);
      } else {
        ASSERT_NE(leaf, GEX_EVENT_INVALID);
        gex_Event_Wait(leaf);
      }
      EXPECT_EQ(loop->under_way(), 0u);
      std::memset(here, 0xee, kBytes);
      await(1);
      EXPECT_EQ(calls[0].payload, wanted);
      // The source is not held any more.
      const size_t pins = loop->ranges->size();
      EXPECT_EQ(hydrant_invalidate(firehose().domain, here, kBytes), GASNET_OK);
      EXPECT_EQ(loop->ranges->size(), pins - 1);
    }
  });
}

// The own segment is vouched for by a Long too, so a second one finds its source pinned.
TEST_F(LongPayload, SourcesInTheOwnSegmentStayPinned) {
  in_new_thread([&] {
    constexpr size_t kBytes = 50000;
    // First: serving the move vouches for the segment, too.
    std::byte* const far = map(1 << 20);
    make_firehose(far, kBytes);
    setenv("GASNET_FIREHOSE_M", "4096", 1);  // smaller than the segment
    static hydrant_segment segment = {};
    segment.size = 1 << 20;
    // Shared, as segments are: no source watches it.
    segment.addr =
        mmap(nullptr, segment.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(segment.addr, MAP_FAILED);
    job().endpoint.segment = &segment;
    size_t pins[2] = {};
    for (size_t& each : pins) {
      gex_Event_t leaf = GEX_EVENT_INVALID;
      ASSERT_EQ(gex_AM_RequestLong1(team(), kPeer, kLong1, segment.addr, kBytes, far, &leaf, 0, 7),
                GASNET_OK);
      gex_Event_Wait(leaf);
      hydrant_stats_t stats{};
      stats.size = sizeof stats;
      ASSERT_EQ(hydrant_get_stats(firehose().domain, &stats), GASNET_OK);
      each = stats.pins;
    }
    EXPECT_EQ(pins[1], pins[0]);
    await(2);
    job().endpoint.segment = nullptr;
    forget_segment(segment.addr, segment.size);
    munmap(segment.addr, segment.size);
    unsetenv("GASNET_FIREHOSE_M");
  });
}

TEST_F(LongPayload, ShortPayloadsAndLongsWithoutRoomAreCompleteAtReturn) {
  in_new_thread([&] {
    for (const bool has_room : {true, false}) {
      calls.clear();
      const size_t bytes = has_room ? 3000 : 50000;
      std::byte* const far = map(1 << 20);
      make_firehose(far, bytes);
      if (!has_room) loop->most = 0;
      std::vector<std::byte> near = pattern(bytes, 6);
      const std::vector<std::byte> wanted = near;
      gex_Event_t leaf = GEX_EVENT_NO_OP;
      ASSERT_EQ(gex_AM_RequestLong1(team(), kPeer, kLong1, near.data(), bytes, far, &leaf,
                                    has_room ? 0 : GEX_FLAG_IMMEDIATE, 7),
                GASNET_OK);
      EXPECT_EQ(leaf, GEX_EVENT_INVALID);
      std::fill(near.begin(), near.end(), std::byte{0xee});
      loop->most = 64;
      await(1);
      EXPECT_EQ(calls[0].payload, wanted);
    }
  });
}

// No room for puts, from the first or a later one on: messages carry the rest.
TEST_F(LongPayload, ImmediateLongsUseTheRoomThereIs) {
  in_new_thread([&] {
    for (const uint32_t room : {0u, 1u, 2u}) {
      calls.clear();
      std::byte* const far = map(1 << 20);
      constexpr size_t kBytes = 15000;
      make_firehose(far, kBytes);
      const size_t before = puts();
      loop->most = room;
      std::vector<std::byte> near = pattern(kBytes, room);
      ASSERT_EQ(send(far, near, GEX_FLAG_IMMEDIATE), GASNET_OK);
      EXPECT_EQ(puts(), before + room);
      await(1);
      EXPECT_EQ(calls[0].payload, near) << room;
      loop->most = 64;
    }
  });
}

// A handler cannot wait for buffers, so it uses only free ones.
TEST_F(LongPayload, PayloadsOfRepliesArePutToo) {
  in_new_thread([&] {
    std::byte* const far = map(1 << 20);
    constexpr size_t kBytes = 60000;
    make_firehose(far, kBytes);
    std::vector<std::byte> near = pattern(kBytes, 9);
    const size_t before = puts();
    test::in_handler = [&](gex_Token_t token) {
      test::in_handler = nullptr;
      EXPECT_EQ(gex_AM_ReplyLong1(token, kLong1, near.data(), kBytes, far, GEX_EVENT_NOW, 0, 7),
                GASNET_OK);
    };
    ASSERT_EQ(gex_AM_RequestShort0(team(), kPeer, kShort0, 0), GASNET_OK);
    await(2);
    EXPECT_EQ(calls[1].payload, near);
    EXPECT_GT(puts(), before);
  });
}

TEST_F(LongPayload, WithoutOrderingMessagesCarryThePayload) {
  in_new_thread([&] {
    loop->puts_are_ordered = false;
    std::byte* const far = map(1 << 20);
    make_firehose(far, 5000);
    std::vector<std::byte> near = pattern(5000, 4);
    ASSERT_EQ(send(far, near), GASNET_OK);
    await(1);
    EXPECT_EQ(calls[0].payload, near);
    EXPECT_EQ(puts(), 0u);
  });
}

}  // namespace
}  // namespace hydrant
