// The ids of released firehoses on their way to a peer, against a set; and the peer's limit.
#include "firehose/remote/initiator/released_ids.hpp"

#include "firehose/remote/channel/remote_wire.hpp"
#include "firehose/remote/initiator/peer_limit.hpp"
#include "tests/support/sizes.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

namespace hydrant {
namespace {

using remote_wire::kReclaimed;
using testing::kPage;

constexpr size_t kMost = 100;

TEST(ReleasedIds, NoneIsLostOrSentTwice) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    ReleasedIds ids;
    ASSERT_TRUE(ids.map(kMost));
    const size_t room = kMost;
    std::set<uint64_t> listed;
    std::set<uint64_t> sent;
    bool is_reclaiming = false;
    uint64_t next = 1;
    const auto check_taken = [&](const uint64_t* taken, size_t n) {
      for (size_t i = 0; i < n; ++i) {
        EXPECT_EQ(listed.erase(taken[i]), 1u) << taken[i];
        EXPECT_TRUE(sent.insert(taken[i]).second) << taken[i];
      }
    };
    for (int step = 0; step < 3000; ++step) {
      uint64_t taken[50] = {};
      switch (random() % 6) {
        case 0:
        case 1:
        case 2:
          if (ids.is_full()) break;
          ids.add(next);
          listed.insert(next++);
          break;
        case 3: check_taken(taken, ids.take(taken, random() % 20)); break;
        case 4:
          ids.begin_reclaim();
          is_reclaiming = true;
          break;
        default: {
          size_t n = ids.take_and_end(taken, 1 + random() % 20);
          const bool has_mark = n != 0 && taken[n - 1] == kReclaimed;
          if (random() % 3 == 0) {
            ids.put_back(taken, n);
            EXPECT_TRUE(ids.is_due()) << "the peer waits for them";
            break;
          }
          EXPECT_EQ(has_mark, is_reclaiming && listed.size() == n - (has_mark ? 1 : 0));
          if (has_mark) {
            --n;
            is_reclaiming = false;
          }
          check_taken(taken, n);
        }
      }
      ASSERT_EQ(ids.empty(), listed.empty());
      ASSERT_EQ(ids.is_full(), listed.size() == room);
      ASSERT_EQ(ids.is_half_full(), listed.size() > room / 2);
      ASSERT_EQ(ids.is_reclaiming(), is_reclaiming);
    }
  }
}

TEST(ReleasedIds, AreDueWhenManyOrUrgent) {
  ReleasedIds ids;
  ASSERT_TRUE(ids.map(kMost));
  for (uint64_t id = 1; id < 64; ++id) ids.add(id);
  EXPECT_FALSE(ids.is_due());
  ids.add(64);
  EXPECT_TRUE(ids.is_due());
  uint64_t taken[64];
  EXPECT_EQ(ids.take(taken, 60), 60u);
  EXPECT_FALSE(ids.is_due());
  ids.make_urgent();
  EXPECT_TRUE(ids.is_due());
  EXPECT_EQ(ids.take(taken, 64), 4u);
  EXPECT_FALSE(ids.is_due()) << "nothing is left to send";
  ids.begin_reclaim();
  ids.add(1);
  ids.clear();
  EXPECT_TRUE(ids.empty());
  EXPECT_FALSE(ids.is_reclaiming());
}

TEST(PeerLimit, ForbidsWhatThePeerNeverGrants) {
  PeerLimit limit;
  const MemoryRange pages{16 * kPage + 1, 3 * kPage};  // parts of four pages
  EXPECT_FALSE(limit.forbids(pages, kPage)) << "none is known";
  limit.adopt(0, true);
  EXPECT_FALSE(limit.forbids(pages, kPage)) << "none was sent";
  limit.adopt(3 * kPage, true);
  EXPECT_TRUE(limit.forbids(pages, kPage));
  EXPECT_FALSE(limit.forbids({16 * kPage, 3 * kPage}, kPage));
  EXPECT_EQ(limit.fail(7, pages), Status::kResource);
  EXPECT_NE(std::string(last_error_text()).find("rank 7"), std::string::npos);
  EXPECT_NE(std::string(last_error_text()).find("its largest region"), std::string::npos);
  limit.adopt(8 * kPage, false);
  EXPECT_FALSE(limit.forbids(pages, kPage));
  EXPECT_EQ(limit.fail(7, pages), Status::kResource);
  EXPECT_NE(std::string(last_error_text()).find("never grants"), std::string::npos);
}

}  // namespace
}  // namespace hydrant
