#include "firehose/pin/ticket_set.hpp"

#include "tests/support/test_seed.hpp"

#include <gtest/gtest.h>

#include <random>
#include <unordered_set>

namespace hydrant {
namespace {

TEST(TicketSet, AgreesWithAnUnorderedSet) {
  const auto seed = static_cast<unsigned>(testing::test_seed());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  static TicketSet tickets;  // it never frees its table, so its owner must be static
  std::unordered_set<uint64_t> model;
  EXPECT_FALSE(tickets.erase(1));
  // Far apart as well as in a row, so that some searches are long.
  const auto draw = [&] { return random() % 2 == 0 ? 1 + random() % 2000 : random() | 1; };
  for (int step = 0; step < 200'000; ++step) {
    const uint64_t ticket = draw();
    if (random() % 2 == 0 && model.size() < 1500) {
      if (model.insert(ticket).second) {
        ASSERT_TRUE(tickets.insert(ticket));
      }
    } else {
      const uint64_t gone = random() % 4 != 0 && !model.empty() ? *model.begin() : ticket;
      ASSERT_EQ(tickets.erase(gone), model.erase(gone) == 1) << "step " << step;
    }
  }
  for (const uint64_t ticket : model) ASSERT_TRUE(tickets.erase(ticket));
  for (const uint64_t ticket : model) ASSERT_FALSE(tickets.erase(ticket));
}

}  // namespace
}  // namespace hydrant
