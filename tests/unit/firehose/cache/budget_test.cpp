#include "tests/unit/firehose/cache/parts_fixture.hpp"

namespace hydrant {
namespace {

using testing::kPage;
using testing::Random;

class BudgetTest : public ::testing::Test {
 protected:
  Mutex mu_;
  Budget budget_{{64 * kPage, 8}, kPage};
};

TEST_F(BudgetTest, ShortageIsTheExcessOverTheBudget) {
  const CacheLock lock(mu_);
  budget_.take(lock, {60 * kPage, 7});
  EXPECT_EQ(budget_.shortage(lock, {4 * kPage, 1}).bytes, 0u);
  EXPECT_EQ(budget_.shortage(lock, {10 * kPage, 1}).bytes, 6 * kPage);
  EXPECT_EQ(budget_.shortage(lock, {0, 3}).regions, 2u);
  EXPECT_TRUE(budget_.has_room(lock, 4 * kPage));
  EXPECT_FALSE(budget_.has_room(lock, 4 * kPage + 1));
}

TEST_F(BudgetTest, ShrinksBelowTheRefusedSizeAndRegrowsWithTime) {
  const CacheLock lock(mu_);
  budget_.take(lock, {8 * kPage, 1});
  budget_.shrink(lock, 4 * kPage, 0, 0);
  EXPECT_EQ(budget_.in_force(lock), 11 * kPage) << "less than 12 pages, by one granule";
  EXPECT_FALSE(budget_.regrow(lock, 999'999'999));
  EXPECT_TRUE(budget_.regrow(lock, 1'000'000'000));
  EXPECT_GT(budget_.in_force(lock), 11 * kPage);
  EXPECT_TRUE(budget_.regrow(lock, 60'000'000'000));
  EXPECT_EQ(budget_.in_force(lock), 64 * kPage);
}

TEST_F(BudgetTest, EmptyBudgetRegrowsAtOnce) {
  const CacheLock lock(mu_);
  budget_.shrink(lock, 2 * kPage, 0, 0);
  EXPECT_LT(budget_.in_force(lock), 64 * kPage);
  EXPECT_TRUE(budget_.regrow(lock, 1'000'000'000));
  EXPECT_EQ(budget_.in_force(lock), 64 * kPage);
}

TEST_F(BudgetTest, ReservationUndoesItself) {
  {
    Reservation reservation(budget_, mu_);
    const CacheLock lock(mu_);
    reservation.take(lock, {10 * kPage, 2});
    EXPECT_EQ(budget_.charged(lock), 10 * kPage);
    EXPECT_TRUE(reservation.consume({4 * kPage, 1})) << "belongs to a registration now";
    EXPECT_FALSE(reservation.consume({7 * kPage, 1}));
  }
  const CacheLock lock(mu_);
  EXPECT_EQ(budget_.charged(lock), 4 * kPage);
  EXPECT_EQ(budget_.regions(lock), 1u);
}

TEST_F(BudgetTest, ReservationUsesVictimsChargesAndReleasesTheExcess) {
  Reservation reservation(budget_, mu_);
  const CacheLock lock(mu_);
  budget_.take(lock, {60 * kPage, 6});
  reservation.take(lock, {8 * kPage, 1}, {20 * kPage, 2});
  EXPECT_EQ(budget_.charged(lock), 60 * kPage) << "the victims are charged until they are unpinned";
  EXPECT_TRUE(reservation.has_excess());
  reservation.release_excess(lock);
  EXPECT_EQ(budget_.charged(lock), 48 * kPage);
  EXPECT_EQ(budget_.regions(lock), 5u);
  EXPECT_TRUE(reservation.consume({8 * kPage, 1}));
}

// Random reservations against sums in plain numbers.
TEST_F(BudgetTest, ChargesAreTheSumOfHeldShares) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    Budget budget({1000 * kPage, 1000}, kPage);
    struct Held {
      std::unique_ptr<Reservation> reservation;
      Budget::Share share, excess;
    };
    std::vector<Held> held;
    Budget::Share drawn;
    for (int step = 0; step < 500; ++step) {
      if (held.empty() || random.below(3) == 0) {
        Held next{std::make_unique<Reservation>(budget, mu_), {}, {}};
        next.share = {random.below(20) * kPage, static_cast<uint32_t>(random.below(4))};
        const CacheLock lock(mu_);
        next.reservation->take(lock, next.share);
        held.push_back(std::move(next));
      } else {
        Held& one = held[random.below(held.size())];
        const Budget::Share part{random.below(10) * kPage, static_cast<uint32_t>(random.below(3))};
        const bool fits = part.bytes <= one.share.bytes && part.regions <= one.share.regions;
        switch (random.below(3)) {
          case 0:
            ASSERT_EQ(one.reservation->consume(part), fits) << "seed " << seed;
            if (!fits) break;
            one.share = {one.share.bytes - part.bytes, one.share.regions - part.regions};
            drawn = {drawn.bytes + part.bytes, drawn.regions + part.regions};
            break;
          case 1:
            if (part.bytes > drawn.bytes || part.regions > drawn.regions) break;
            one.reservation->refund(part);
            one.share = {one.share.bytes + part.bytes, one.share.regions + part.regions};
            drawn = {drawn.bytes - part.bytes, drawn.regions - part.regions};
            break;
          default: std::swap(one, held.back()); held.pop_back();
        }
      }
      Budget::Share sum = drawn;
      for (const Held& one : held) {
        sum = {sum.bytes + one.share.bytes, sum.regions + one.share.regions};
      }
      const CacheLock lock(mu_);
      ASSERT_EQ(budget.charged(lock), sum.bytes) << "seed " << seed;
      ASSERT_EQ(budget.regions(lock), sum.regions) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace hydrant
