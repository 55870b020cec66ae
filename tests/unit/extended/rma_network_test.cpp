// Puts and gets over a network with delayed completion: data, reuse of sources, limits of operations
// under way, behaviour without room, counts, and reuse of objects.
#include "am/progress/waiting.hpp"
#include "extended/event/event.hpp"
#include "tests/unit/extended/rma_fixture.hpp"

#include <gmock/gmock.h>

#include <algorithm>

namespace hydrant {
namespace {

using test::count_of;
using test::LoopNetwork;
using test::pattern;
using test::RmaFixture;

struct Way {
  const char* path;
  LoopNetwork::Order order;
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << way.path << ' ' << static_cast<int>(way.order);
}

class RmaNetwork : public RmaFixture, public ::testing::WithParamInterface<Way> {
 protected:
  void SetUp() override {
    RmaFixture::SetUp();
    network->order = GetParam().order;
    choose({{"HYDRANT_PATH", GetParam().path}});
  }
};

constexpr size_t kSizes[] = {1, 7, 8, 100, 4095, 4096, 4097, 20000, 300001};

TEST_P(RmaNetwork, SourcesMayChangeAtReturn) {
  in_new_thread([&] {
    for (const size_t bytes : kSizes) {
      std::vector<std::byte> far(bytes + 2);
      std::vector<std::byte> near = pattern(bytes, 3);
      const std::vector<std::byte> wanted = near;
      const gex_Event_t event =
          gex_RMA_PutNB(team(), kPeer, far.data() + 1, near.data(), bytes, GEX_EVENT_NOW, 0);
      std::fill(near.begin(), near.end(), std::byte{0xee});
      gex_Event_Wait(event);
      EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), far.begin() + 1)) << bytes;
      EXPECT_EQ(far.front(), std::byte{0});
      EXPECT_EQ(far.back(), std::byte{0});

      near = pattern(bytes, 4);
      const std::vector<std::byte> next = near;
      gex_Event_t leaf = GEX_EVENT_INVALID;
      EXPECT_EQ(gex_RMA_PutNBI(team(), kPeer, far.data() + 1, near.data(), bytes, &leaf, 0),
                GASNET_OK);
      gex_Event_Wait(leaf);
      std::fill(near.begin(), near.end(), std::byte{0xee});
      gex_NBI_Wait(GEX_EC_PUT, 0);
      EXPECT_TRUE(std::equal(next.begin(), next.end(), far.begin() + 1)) << bytes;

      near = pattern(bytes, 5);
      EXPECT_EQ(
          gex_RMA_PutNBI(team(), kPeer, far.data() + 1, near.data(), bytes, GEX_EVENT_GROUP, 0),
          GASNET_OK);
      gex_NBI_Wait(GEX_EC_LC, 0);
      const std::vector<std::byte> last = near;
      std::fill(near.begin(), near.end(), std::byte{0xee});
      gex_NBI_Wait(GEX_EC_PUT, 0);
      EXPECT_TRUE(std::equal(last.begin(), last.end(), far.begin() + 1)) << bytes;
    }
  });
}

TEST_P(RmaNetwork, GetsAreCompleteAfterTheWait) {
  in_new_thread([&] {
    for (const size_t bytes : kSizes) {
      const std::vector<std::byte> far = pattern(bytes, 9);
      std::vector<std::byte> near[3];
      for (auto& one : near) one.resize(bytes + 2);
      gex_Event_t events[] = {gex_RMA_GetNB(team(), near[0].data() + 1, kPeer,
                                            const_cast<std::byte*>(far.data()), bytes, 0),
                              gex_RMA_GetNB(team(), near[1].data() + 1, kPeer,
                                            const_cast<std::byte*>(far.data()), bytes, 0)};
      gasnet_get_nbi(near[2].data() + 1, kPeer, const_cast<std::byte*>(far.data()), bytes);
      while (gex_Event_TestAll(events, 2, 0) != GASNET_OK) gex_Event_WaitSome(events, 2, 0);
      gasnet_wait_syncnbi_gets();
      for (const auto& one : near) {
        EXPECT_TRUE(std::equal(far.begin(), far.end(), one.begin() + 1)) << bytes;
        EXPECT_EQ(one.front(), std::byte{0});
        EXPECT_EQ(one.back(), std::byte{0});
      }
    }
  });
}

TEST_P(RmaNetwork, RegionsAndManyOperationsShareOneEvent) {
  in_new_thread([&] {
    std::vector<std::byte> far(50 * 1000);
    std::vector<std::byte> near = pattern(far.size(), 2);
    std::vector<hydrant_rma_op_t> ops;
    for (size_t i = 0; i < 50; ++i) ops.push_back({kPeer, &far[i * 1000], &near[i * 1000], i * 20});
    size_t total = 0;
    for (const auto& op : ops) total += op.bytes;
    gex_Event_t event = GEX_EVENT_INVALID;
    ASSERT_EQ(hydrant_put_many(team(), ops.data(), ops.size(), total, &event), GASNET_OK);
    gex_Event_Wait(event);
    for (const auto& op : ops)
      EXPECT_TRUE(std::equal(static_cast<std::byte*>(op.local),
                             static_cast<std::byte*>(op.local) + op.bytes,
                             static_cast<std::byte*>(op.remote)));
    std::vector<std::byte> back(far.size());
    gasnet_begin_nbi_accessregion();
    for (size_t i = 0; i < 50; ++i) gasnet_get_nbi(&back[i * 1000], kPeer, &far[i * 1000], 1000);
    gasnet_memset_nbi(kPeer, &near[0], 0x77, 5000);
    event = gasnet_end_nbi_accessregion();
    // Operations of the region do not count outside of it.
    EXPECT_EQ(gex_NBI_Test(GEX_EC_ALL, 0), GASNET_OK);
    gex_Event_Wait(event);
    EXPECT_EQ(back, far);
    EXPECT_EQ(std::count(near.begin(), near.begin() + 5000, std::byte{0x77}), 5000);
  });
}

// Operations up to the depth start without waiting for a completion; each further one waits for one.
TEST_P(RmaNetwork, BurstUpToTheDepthDoesNotStall) {
  // Other paths run out of buffers or credits first.
  if (std::string_view(GetParam().path) != "direct") return;
  constexpr size_t kBurst = 20;
  std::vector<std::byte> far(kBurst * 5000);
  std::vector<std::byte> near = pattern(far.size());
  for (const auto& [depth, started] : {std::pair{"4", size_t{4}}, {"20", kBurst}, {"64", kBurst}}) {
    choose({{"HYDRANT_PATH", GetParam().path}, {"GASNET_NETWORKDEPTH", depth}});
    in_new_thread([&, depth = depth, started = started] {
      std::vector<gex_Event_t> events;
      for (size_t i = 0; i < kBurst; ++i)
        events.push_back(gasnet_put_nb_bulk(kPeer, &far[i * 5000], &near[i * 5000], 5000));
      EXPECT_EQ(network->under_way(), started) << "no operation has completed, depth " << depth;
      gex_Event_WaitAll(events.data(), events.size(), 0);
      EXPECT_EQ(far, near);
    });
  }
}

TEST_P(RmaNetwork, DepthAndThrottleLimitOperationsUnderWay) {
  std::vector<std::byte> far(100000);
  std::vector<std::byte> near = pattern(far.size());
  for (const auto& [depth, throttle, bound_nb, bound_nbi] :
       {std::tuple{"2", "1", 2, 1}, {"3", "0", 3, 3}, {"1", "7", 1, 1}}) {
    choose({{"HYDRANT_PATH", GetParam().path},
            {"GASNET_NETWORKDEPTH", depth},
            {"GASNET_NBI_THROTTLE", throttle}});
    in_new_thread([&, bound_nb = bound_nb, bound_nbi = bound_nbi] {
      for (const auto& [nbi, is_put] :
           {std::pair{false, true}, {true, true}, {false, false}, {true, false}}) {
        const auto bound = static_cast<size_t>(nbi ? bound_nbi : bound_nb);
        network->max_under_way = 0;
        std::vector<gex_Event_t> events;
        for (size_t i = 0; i < 20; ++i) {
          std::byte* const there = far.data() + i * 5000;
          std::byte* const here = near.data() + i * 5000;
          if (nbi && is_put) gasnet_put_nbi_bulk(kPeer, there, here, 5000);
          if (nbi && !is_put) gasnet_get_nbi_bulk(here, kPeer, there, 5000);
          if (!nbi && is_put) events.push_back(gasnet_put_nb_bulk(kPeer, there, here, 5000));
          if (!nbi && !is_put) events.push_back(gasnet_get_nb_bulk(here, kPeer, there, 5000));
          EXPECT_LE(network->sent.size(), bound);
        }
        gex_Event_WaitAll(events.data(), events.size(), 0);
        gex_NBI_Wait(GEX_EC_ALL, 0);
        EXPECT_LE(network->max_under_way, bound);
        // The limit is also reached.
        if (std::string_view(GetParam().path) != "am") {
          EXPECT_EQ(network->max_under_way, bound);
        }
      }
      // An event that was used for a region before has the same limit as any other.
      for (int round = 0; round < 3; ++round) {
        gasnet_begin_nbi_accessregion();
        gasnet_put_nbi_bulk(kPeer, far.data(), near.data(), 50000);
        gex_Event_Wait(gasnet_end_nbi_accessregion());
        network->max_under_way = 0;
        gex_Event_Wait(gasnet_put_nb_bulk(kPeer, far.data(), near.data(), 50000));
        if (std::string_view(GetParam().path) == "bounce") {
          EXPECT_EQ(network->max_under_way, static_cast<size_t>(bound_nb));
        }
      }
    });
  }
}

TEST_P(RmaNetwork, ImmediateOperationsStartCompletelyOrNotAtAll) {
  choose({{"HYDRANT_PATH", GetParam().path}, {"GASNET_NETWORKDEPTH", "1"}});
  in_new_thread([&] {
    std::vector<std::byte> far(100);
    std::vector<std::byte> near = pattern(far.size());
    std::vector<std::byte> other(far.size());
    network->frozen = true;
    const gex_Event_t first = gasnet_put_nb_bulk(kPeer, far.data(), near.data(), 100);
    ASSERT_NE(first, GEX_EVENT_INVALID);
    EXPECT_EQ(gex_RMA_PutNB(team(), kPeer, other.data(), near.data(), 100, GEX_EVENT_NOW,
                            GEX_FLAG_IMMEDIATE),
              GEX_EVENT_NO_OP);
    EXPECT_EQ(gex_RMA_GetNB(team(), near.data(), kPeer, other.data(), 100, GEX_FLAG_IMMEDIATE),
              GEX_EVENT_NO_OP);
    EXPECT_NE(gex_RMA_PutNBI(team(), kPeer, other.data(), near.data(), 100, GEX_EVENT_NOW,
                             GEX_FLAG_IMMEDIATE),
              GASNET_OK);
    EXPECT_NE(
        gex_RMA_PutBlocking(team(), kPeer, other.data(), near.data(), 100, GEX_FLAG_IMMEDIATE),
        GASNET_OK);
    network->frozen = false;
    gex_Event_Wait(first);
    gex_NBI_Wait(GEX_EC_ALL, 0);
    EXPECT_EQ(std::count(other.begin(), other.end(), std::byte{0}), 100) << "part of it was put";
    EXPECT_EQ(near, pattern(100));
    const gex_Event_t again = gex_RMA_PutNB(team(), kPeer, other.data(), near.data(), 100,
                                            GEX_EVENT_NOW, GEX_FLAG_IMMEDIATE);
    ASSERT_NE(again, GEX_EVENT_NO_OP);
    gex_Event_Wait(again);
    EXPECT_EQ(other, near);
  });
}

TEST_P(RmaNetwork, OperationObjectsAreReused) {
  std::vector<std::byte> far(20000);
  std::vector<std::byte> near(far.size());
  uint64_t events = 0;
  size_t records = 0;
  for (int round = 0; round < 300; ++round) {
    gex_Event_t of_ended_thread = GEX_EVENT_INVALID;
    in_new_thread([&] {
      gex_Event_t some[8];
      for (gex_Event_t& event : some)
        event = gex_RMA_PutNB(team(), kPeer, far.data(), near.data(), far.size(), GEX_EVENT_NOW, 0);
      in_new_thread([&] { gex_Event_WaitAll(some, 8, 0); });
      of_ended_thread = gex_RMA_GetNB(team(), near.data(), kPeer, far.data(), far.size(), 0);
    });
    gex_Event_Wait(of_ended_thread);
    if (round == 20) {
      events = event_counts().events;
      records = network->records.size();
    }
  }
  EXPECT_EQ(event_counts().events, events);
  EXPECT_EQ(network->records.size(), records);
}

TEST_P(RmaNetwork, ThreadEndingInARegionLeavesNoRegion) {
  std::vector<std::byte> far(100);
  std::vector<std::byte> near = pattern(far.size());
  network->frozen = true;
  in_new_thread([&] {
    gasnet_begin_nbi_accessregion();
    gasnet_put_nbi_bulk(kPeer, far.data(), near.data(), 100);
  });
  network->frozen = false;
  in_new_thread([&] {
    gasnet_put_nbi(kPeer, far.data(), near.data(), 100);
    gasnet_wait_syncnbi_all();
    EXPECT_EQ(far, near);
    gasnet_begin_nbi_accessregion();
    gasnet_put_nbi(kPeer, far.data(), near.data(), 50);
    gex_Event_Wait(gasnet_end_nbi_accessregion());
  });
  while (network->under_way() != 0 || !network->sent.empty()) poll_all();
}

constexpr Way kWays[] = {
    {"direct", LoopNetwork::Order::kFirst},  {"direct", LoopNetwork::Order::kLast},
    {"bounce", LoopNetwork::Order::kFirst},  {"bounce", LoopNetwork::Order::kLast},
    {"bounce", LoopNetwork::Order::kRandom}, {"am", LoopNetwork::Order::kFirst}};
std::string name_of(const ::testing::TestParamInfo<Way>& way) {
  const char* const orders[] = {"First", "Last", "Random"};
  return std::string(way.param.path) + orders[static_cast<int>(way.param.order)];
}
INSTANTIATE_TEST_SUITE_P(Ways, RmaNetwork, ::testing::ValuesIn(kWays), name_of);

// ---- independent of the completion order ----

class RmaCounts : public RmaFixture {};

TEST_F(RmaCounts, DepthBeyondTheTransportsIsLimitedWithAWarning) {
  network->most = 5;
  ::testing::internal::CaptureStderr();
  choose({{"GASNET_NETWORKDEPTH", "100"}});
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, ::testing::HasSubstr("GASNET_NETWORKDEPTH=100"));
  EXPECT_THAT(text, ::testing::HasSubstr("fake"));
  EXPECT_EQ(paths().depth, 5u);
  EXPECT_EQ(paths().nbi_depth, 5u);
}

TEST_F(RmaCounts, OneMessageAndOneReplyPerPiece) {
  choose({{"HYDRANT_PATH", "am"}});
  in_new_thread([&] {
    std::vector<std::byte> far(100000);
    std::vector<std::byte> near(far.size());
    const size_t most = paths().medium_max;
    for (const size_t bytes : {size_t{1}, most, most + 1, 5 * most}) {
      const uint64_t pieces = (bytes + most - 1) / most;
      network->calls = 0;
      gasnet_put(kPeer, far.data(), near.data(), bytes);
      EXPECT_EQ(network->calls, 2 * pieces) << bytes;
      network->calls = 0;
      gasnet_get(near.data(), kPeer, far.data(), bytes);
      EXPECT_EQ(network->calls, 2 * pieces) << bytes;
      network->calls = 0;
      gasnet_memset(kPeer, far.data(), 1, bytes);
      EXPECT_EQ(network->calls, 2u) << bytes;
    }
    network->calls = 0;
    gasnet_put(kPeer, far.data(), near.data(), 0);
    EXPECT_EQ(network->calls, 0u);
  });
}

TEST_F(RmaCounts, PathOfTheFirstByteCountsForAll) {
  choose({{"HYDRANT_PATH", "bounce"}});
  in_new_thread([&] {
    std::vector<std::byte> far(20000);
    std::vector<std::byte> near = pattern(far.size());
    const auto bounced = count_of(kPeer, HYDRANT_PATH_BOUNCE);
    const auto by_message = count_of(kPeer, HYDRANT_PATH_AM_MEDIUM);
    // From the third piece on the network cannot access the memory.
    network->refusal = Status::kUnsupported;
    network->refused_call = 3;
    gasnet_put(kPeer, far.data(), near.data(), far.size());
    EXPECT_EQ(far, near);
    EXPECT_EQ(count_of(kPeer, HYDRANT_PATH_BOUNCE).put_ops - bounced.put_ops, 1u);
    EXPECT_EQ(count_of(kPeer, HYDRANT_PATH_BOUNCE).put_bytes - bounced.put_bytes, far.size());
    EXPECT_EQ(count_of(kPeer, HYDRANT_PATH_AM_MEDIUM).put_ops, by_message.put_ops);
  });
}

}  // namespace
}  // namespace hydrant
