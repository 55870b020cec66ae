#include "firehose/cache/coherence/patience.hpp"

#include <gtest/gtest.h>

namespace hydrant::testing {
namespace {

TEST(Patience, StartsAtTheLongestWait) { EXPECT_EQ(Patience().ns(), Patience::kMaxNs); }

TEST(Patience, FailuresHalveItDownToASingleLook) {
  Patience patience;
  uint64_t expected = Patience::kMaxNs;
  while (patience.ns() != 0) {
    ASSERT_EQ(patience.ns(), expected);
    expected /= 2;
    patience.note(false);
  }
  EXPECT_LT(expected, 20'000u);
  patience.note(false);
  EXPECT_EQ(patience.ns(), 0u);
}

TEST(Patience, SuccessesBringItBack) {
  Patience patience;
  for (int i = 0; i < 100; ++i) patience.note(false);
  for (int i = 0; i < 8; ++i) patience.note(true);
  EXPECT_EQ(patience.ns(), Patience::kMaxNs);
  patience.note(true);
  EXPECT_EQ(patience.ns(), Patience::kMaxNs);
}

}  // namespace
}  // namespace hydrant::testing
