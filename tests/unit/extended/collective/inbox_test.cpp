// Inboxes of collectives: order, separation of transfers, and messages for teams that this rank does not
// have yet.
#include "extended/collective/operation/inbox.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

namespace hydrant::testing {
namespace {

std::unique_ptr<Arrival> message(TransferKey key, Rank from, uint32_t offset,
                                 Arrival::Kind kind = Arrival::Kind::kData) {
  auto made = std::make_unique<Arrival>();
  made->key = key;
  made->from = from;
  made->offset = offset;
  made->kind = kind;
  return made;
}

TEST(CollectiveInboxes, MessagesOfATransferKeepTheirOrder) {
  Inboxes inboxes;
  const TransferKey key{.team = 5, .operation = 2, .tag = 1};
  for (uint32_t i = 0; i < 3; ++i) inboxes.put(message(key, 7, i));
  EXPECT_TRUE(inboxes.has(key, 7, false));
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(inboxes.take(key, 7, false)->offset, i);
  EXPECT_EQ(inboxes.take(key, 7, false), nullptr);
  EXPECT_FALSE(inboxes.has(key, 7, false));
}

TEST(CollectiveInboxes, NoticesOfReadersAreTakenApart) {
  Inboxes inboxes;
  const TransferKey key{.team = 5};
  inboxes.put(message(key, 1, 0, Arrival::Kind::kRead));
  EXPECT_EQ(inboxes.take(key, 1, false), nullptr);
  inboxes.put(message(key, 1, 9));
  EXPECT_EQ(inboxes.take(key, 1, true)->kind, Arrival::Kind::kRead);
  EXPECT_EQ(inboxes.take(key, 1, false)->offset, 9u);
  EXPECT_EQ(inboxes.count(), 0u);
}

TEST(CollectiveInboxes, RandomTransfersAgreeWithAModel) {
  Inboxes inboxes;
  std::mt19937 random(3);
  std::map<std::tuple<uint64_t, uint32_t, uint32_t, Rank>, std::deque<uint32_t>> model;
  size_t waiting = 0;
  for (uint32_t i = 0; i < 20'000; ++i) {
    const TransferKey key{.team = random() % 3,
                          .operation = static_cast<uint32_t>(random() % 4),
                          .tag = static_cast<uint32_t>(random() % 2)};
    const auto from = static_cast<Rank>(random() % 3);
    auto& expected = model[{key.team, key.operation, key.tag, from}];
    if (random() % 2 == 0) {
      inboxes.put(message(key, from, i));
      expected.push_back(i);
      ++waiting;
      continue;
    }
    const std::unique_ptr<Arrival> taken = inboxes.take(key, from, false);
    ASSERT_EQ(taken == nullptr, expected.empty());
    if (taken == nullptr) continue;
    EXPECT_EQ(taken->offset, expected.front());
    expected.pop_front();
    --waiting;
  }
  EXPECT_EQ(inboxes.count(), waiting);
}

}  // namespace
}  // namespace hydrant::testing
