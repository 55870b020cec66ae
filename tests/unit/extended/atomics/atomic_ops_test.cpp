// The operations of atomic domains, on edge values and at random, against a model; and that the checker of
// histories, which the jobs of tests/integration/atomics use, finds what is wrong.
#include "extended/atomics/atomic_ops.hpp"

#include "tests/integration/atomics/history.hpp"
#include "tests/integration/atomics/model_atomic.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace hydrant::testing {
namespace {

template <typename T>
uint64_t bits_of(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

template <typename T>
class AtomicTypes : public ::testing::Test {
 protected:
  // The words beside the target must not change.
  void check(gex_OP_t op, T old, T operand1, T operand2) {
    T words[] = {T{3}, old, T{5}};
    T result = T{9};
    const uint64_t bits =
        apply_atomic(kTypeOf<T>, op, &words[1], bits_of(operand1), bits_of(operand2));
    if (is_fetching(op)) store_atomic_result(&result, bits, sizeof(T));
    const T wanted = model_of(op, old, operand1, operand2);
    EXPECT_TRUE(are_same(words[1], wanted))
        << atomic_op_name(op) << " of " << old << ", " << operand1 << ", " << operand2 << ": "
        << words[1] << ", not " << wanted;
    EXPECT_TRUE(are_same_bits(result, is_fetching(op) ? old : T{9})) << atomic_op_name(op);
    EXPECT_EQ(words[0], T{3});
    EXPECT_EQ(words[2], T{5});
  }
};
using Types = ::testing::Types<int32_t, uint32_t, int64_t, uint64_t, float, double>;
TYPED_TEST_SUITE(AtomicTypes, Types);

TYPED_TEST(AtomicTypes, HasTheOperationsOfItsType) {
  EXPECT_EQ(atomic_ops_of(kTypeOf<TypeParam>), operations_of<TypeParam>());
  EXPECT_EQ(atomic_width(kTypeOf<TypeParam>), sizeof(TypeParam));
}

TYPED_TEST(AtomicTypes, EdgeValuesFollowTheModel) {
  const std::vector<TypeParam> values = edge_values<TypeParam>();
  for (const gex_OP_t op : kAllOperations) {
    if ((atomic_ops_of(kTypeOf<TypeParam>) & op) == 0) continue;
    for (const TypeParam old : values) {
      for (const TypeParam operand1 : values) this->check(op, old, operand1, TypeParam{42});
    }
  }
}

TYPED_TEST(AtomicTypes, RandomValuesFollowTheModel) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const gex_OP_t op = kAllOperations[random() % kAllOperations.size()];
    if ((atomic_ops_of(kTypeOf<TypeParam>) & op) == 0) continue;
    const auto old = random_value<TypeParam>(random);
    const auto operand1 = random() % 4 == 0 ? old : random_value<TypeParam>(random);
    this->check(op, old, operand1, random_value<TypeParam>(random));
  }
}

// Neither an addition nor a multiplication of odd numbers is lost.
TYPED_TEST(AtomicTypes, ThreadsLoseNoUpdate) {
  TypeParam sum{0};
  constexpr int kRounds = 20'000;
  const auto add = [&](gex_OP_t op) {
    for (int i = 0; i < kRounds; ++i)
      (void)apply_atomic(kTypeOf<TypeParam>, op, &sum, bits_of(TypeParam{1}), 0);
  };
  std::thread other(add, GEX_OP_FADD);
  add(GEX_OP_INC);
  other.join();
  EXPECT_EQ(sum, static_cast<TypeParam>(2 * kRounds));
}

TEST(AtomicOperations, UnknownTypesHaveNone) {
  for (const gex_DT_t type :
       {gex_DT_t{0}, GEX_DT_USER, GEX_DT_I32 | GEX_DT_U32, gex_DT_t{1} << 31}) {
    EXPECT_EQ(atomic_ops_of(type), 0u) << type;
    EXPECT_EQ(atomic_width(type), 0u) << type;
    EXPECT_STREQ(atomic_type_name(type), "?") << type;
  }
}

TEST(AtomicOperations, HaveTheirNames) {
  EXPECT_STREQ(atomic_op_name(GEX_OP_AND), "AND");
  EXPECT_STREQ(atomic_op_name(GEX_OP_CAS), "CAS");
  EXPECT_STREQ(atomic_op_name(GEX_OP_FADD), "FADD");
  EXPECT_STREQ(atomic_op_name(GEX_OP_GET), "GET");
  EXPECT_STREQ(atomic_op_name(GEX_OP_USER), "?");
  EXPECT_STREQ(atomic_op_name(GEX_OP_ADD | GEX_OP_SUB), "?");
}

// ---- the checker of histories ----

constexpr HistoryEntry entry(uint64_t called, uint64_t completed, gex_OP_t op, uint64_t operand1,
                             uint64_t operand2, uint64_t old) {
  return {called, completed, op, operand1, operand2, old};
}

TEST(Histories, OperationsAtTheSameTimeTakeAnyOrder) {
  const HistorySearch search(
      {entry(0, 10, GEX_OP_FADD, 1, 0, 6), entry(1, 9, GEX_OP_SWAP, 5, 0, 0),
       entry(2, 12, GEX_OP_INC, 0, 0, 0), entry(13, 14, GEX_OP_GET, 0, 0, 7)},
      0);
  EXPECT_TRUE(search.is_explained());
}

TEST(Histories, LostUpdatesAreFound) {
  EXPECT_FALSE(
      HistorySearch({entry(0, 10, GEX_OP_FADD, 1, 0, 0), entry(0, 10, GEX_OP_FADD, 1, 0, 0)}, 0)
          .is_explained());
  EXPECT_FALSE(HistorySearch({entry(0, 10, GEX_OP_INC, 0, 0, 0), entry(0, 10, GEX_OP_INC, 0, 0, 0),
                              entry(11, 12, GEX_OP_GET, 0, 0, 1)},
                             0)
                   .is_explained());
}

TEST(Histories, StaleReadsAreFound) {
  const std::vector<HistoryEntry> entries = {entry(0, 10, GEX_OP_SET, 4, 0, 0),
                                             entry(11, 12, GEX_OP_GET, 0, 0, 0)};
  EXPECT_FALSE(HistorySearch(entries, 0).is_explained());
  std::vector<HistoryEntry> overlapping = entries;
  overlapping[1].called = 9;
  EXPECT_TRUE(HistorySearch(overlapping, 0).is_explained());
}

TEST(Histories, TwoSwapsThatSucceededAreFound) {
  EXPECT_FALSE(
      HistorySearch({entry(0, 10, GEX_OP_FCAS, 0, 1, 0), entry(0, 10, GEX_OP_FCAS, 0, 2, 0)}, 0)
          .is_explained());
}

}  // namespace
}  // namespace hydrant::testing
