// The operations of reductions: results of each type and operation, and refused combinations.
#include "extended/collective/steps/reduction.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace hydrant::testing {
namespace {

template <typename T>
T combined(gex_DT_t type, gex_OP_t op, T left, T right) {
  Reduction reduction;
  EXPECT_EQ(find_reduction(type, sizeof(T), op, nullptr, nullptr, &reduction), Status::kOk) << op;
  // Unaligned operands.
  constexpr size_t kCount = 3;
  std::vector<std::byte> memory(3 * kCount * sizeof(T) + 1);
  std::byte* a = memory.data() + 1;
  std::byte* b = a + kCount * sizeof(T);
  std::byte* c = b + kCount * sizeof(T);
  for (size_t i = 0; i < kCount; ++i) {
    std::memcpy(a + i * sizeof(T), &left, sizeof(T));
    std::memcpy(b + i * sizeof(T), &right, sizeof(T));
  }
  reduction.combine(a, b, c, kCount * sizeof(T));
  T results[kCount];
  std::memcpy(results, c, sizeof results);
  EXPECT_EQ(results[0], results[kCount - 1]);
  // The result may replace either operand.
  reduction.combine(a, b, a, kCount * sizeof(T));
  EXPECT_EQ(std::memcmp(a, c, sizeof results), 0);
  return results[0];
}

template <typename T>
void check_arithmetic(gex_DT_t type) {
  EXPECT_EQ(combined<T>(type, GEX_OP_ADD, 7, 5), T{12});
  EXPECT_EQ(combined<T>(type, GEX_OP_MULT, 7, 5), T{35});
  EXPECT_EQ(combined<T>(type, GEX_OP_MIN, 7, 5), T{5});
  EXPECT_EQ(combined<T>(type, GEX_OP_MIN, 5, 7), T{5});
  EXPECT_EQ(combined<T>(type, GEX_OP_MAX, 7, 5), T{7});
}
template <typename T>
void check_bits(gex_DT_t type) {
  EXPECT_EQ(combined<T>(type, GEX_OP_AND, 12, 10), T{8});
  EXPECT_EQ(combined<T>(type, GEX_OP_OR, 12, 10), T{14});
  EXPECT_EQ(combined<T>(type, GEX_OP_XOR, 12, 10), T{6});
}

TEST(Reductions, AllTypesAndOperationsGiveTheirResults) {
  check_arithmetic<int32_t>(GEX_DT_I32);
  check_arithmetic<uint32_t>(GEX_DT_U32);
  check_arithmetic<int64_t>(GEX_DT_I64);
  check_arithmetic<uint64_t>(GEX_DT_U64);
  check_arithmetic<float>(GEX_DT_FLT);
  check_arithmetic<double>(GEX_DT_DBL);
  check_bits<int32_t>(GEX_DT_I32);
  check_bits<uint32_t>(GEX_DT_U32);
  check_bits<int64_t>(GEX_DT_I64);
  check_bits<uint64_t>(GEX_DT_U64);
}

TEST(Reductions, SignedTypesCompareAndWrapAround) {
  EXPECT_EQ(combined<int32_t>(GEX_DT_I32, GEX_OP_MIN, -1, 1), -1);
  EXPECT_EQ(combined<uint32_t>(GEX_DT_U32, GEX_OP_MIN, UINT32_MAX, 1), 1u);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(combined<int64_t>(GEX_DT_I64, GEX_OP_ADD, kMost, 1),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(combined<int32_t>(GEX_DT_I32, GEX_OP_MULT, 65536, 65536), 0);
}

void subtract(const void* arg1, void* arg2_and_out, size_t count, const void* cdata) {
  ASSERT_EQ(cdata, &subtract);
  for (size_t i = 0; i < count; ++i)
    static_cast<int*>(arg2_and_out)[i] =
        static_cast<const int*>(arg1)[i] - static_cast<int*>(arg2_and_out)[i];
}

TEST(Reductions, FunctionsOfTheClientGetLeftAndRight) {
  Reduction reduction;
  for (const gex_OP_t op : {GEX_OP_USER, GEX_OP_USER_NC}) {
    ASSERT_EQ(find_reduction(GEX_DT_USER, sizeof(int), op, subtract,
                             reinterpret_cast<const void*>(&subtract), &reduction),
              Status::kOk);
    int left[2] = {10, 20};
    int right[2] = {1, 2};
    reduction.combine(reinterpret_cast<std::byte*>(left), reinterpret_cast<std::byte*>(right),
                      reinterpret_cast<std::byte*>(left), sizeof left);
    EXPECT_EQ(left[0], 9);
    EXPECT_EQ(left[1], 18);
  }
}

TEST(Reductions, UndefinedCombinationsAreRefusedWithATextThatNamesThem) {
  Reduction reduction;
  const auto refused = [&](gex_DT_t type, size_t unit, gex_OP_t op, gex_Coll_ReduceFn_t function,
                           const char* why) {
    EXPECT_EQ(find_reduction(type, unit, op, function, nullptr, &reduction), Status::kBadArg);
    EXPECT_NE(std::string(last_error_text()).find(why), std::string::npos) << last_error_text();
  };
  refused(GEX_DT_FLT, 4, GEX_OP_XOR, nullptr,
          "the operation 0x4 is not defined for reductions of type 0x10");
  refused(GEX_DT_I32, 4, GEX_OP_SUB, nullptr, "not defined");
  refused(GEX_DT_I32, 4, GEX_OP_FADD, nullptr, "not defined");
  refused(GEX_DT_I32, 8, GEX_OP_ADD, nullptr, "8 bytes (dt_sz), but its type has 4");
  refused(GEX_DT_I32, 0, GEX_OP_ADD, nullptr, "dt_sz) is 0");
  refused(GEX_DT_USER, 4, GEX_OP_ADD, nullptr, "need the operation GEX_OP_USER");
  refused(GEX_DT_USER, 4, GEX_OP_USER, nullptr, "its function is NULL");
  refused(12345, 4, GEX_OP_ADD, nullptr, "not a data type");
}

}  // namespace
}  // namespace hydrant::testing
