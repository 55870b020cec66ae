// Test cases for the atomics of one thread mode. The including file selects the mode and defines
// HYDRANT_SUITE, the suite's name.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <gasnet_tools.h>
#include <type_traits>

#ifndef HYDRANT_SUITE
#define HYDRANT_SUITE Atomics
#endif

namespace {

constexpr int kAllFlags = GASNETT_ATOMIC_MB_PRE | GASNETT_ATOMIC_WMB_PRE | GASNETT_ATOMIC_RMB_PRE |
                          GASNETT_ATOMIC_MB_POST | GASNETT_ATOMIC_WMB_POST |
                          GASNETT_ATOMIC_RMB_POST;
// No flag, each flag alone, and all flags: every branch of the implementation.
constexpr int kFlags[] = {0,
                          GASNETT_ATOMIC_REL,
                          GASNETT_ATOMIC_ACQ,
                          GASNETT_ATOMIC_RMB_PRE,
                          GASNETT_ATOMIC_WMB_POST,
                          GASNETT_ATOMIC_MB_PRE,
                          GASNETT_ATOMIC_MB_POST,
                          GASNETT_ATOMIC_ACQ_IF_TRUE,
                          GASNETT_ATOMIC_ACQ_IF_FALSE,
                          kAllFlags};

// The same sequence of operations for each type: X is the prefix of the names, T the value type.
#define HYDRANT_WALK(X, T)                                            \
  for (const int flags : kFlags) {                                    \
    X##_t a = X##_init(10);                                           \
    static_assert(sizeof a == sizeof(T));                             \
    EXPECT_EQ(X##_read(&a, flags), T{10});                            \
    X##_set(&a, 20, flags);                                           \
    EXPECT_EQ(X##_read(&a, flags), T{20});                            \
    EXPECT_EQ(X##_add(&a, 5, flags), T{25});                          \
    EXPECT_EQ(X##_subtract(&a, 23, flags), T{2});                     \
    X##_increment(&a, flags);                                         \
    EXPECT_EQ(X##_read(&a, 0), T{3});                                 \
    X##_decrement(&a, flags);                                         \
    EXPECT_FALSE(X##_decrement_and_test(&a, flags));                  \
    EXPECT_TRUE(X##_decrement_and_test(&a, flags));                   \
    X##_decrement(&a, flags);                                         \
    EXPECT_EQ(X##_read(&a, 0), static_cast<T>(-1)) << "wraps around"; \
    EXPECT_EQ(X##_swap(&a, 7, flags), static_cast<T>(-1));            \
    EXPECT_FALSE(X##_compare_and_swap(&a, 6, 8, flags));              \
    EXPECT_EQ(X##_read(&a, 0), T{7});                                 \
    EXPECT_TRUE(X##_compare_and_swap(&a, 7, 8, flags));               \
    EXPECT_EQ(X##_read(&a, 0), T{8});                                 \
    const T top = static_cast<T>(T{1} << (8 * sizeof(T) - 1));        \
    X##_set(&a, top, flags);                                          \
    EXPECT_EQ(X##_add(&a, top, flags), T{0}) << "all bits take part"; \
  }

TEST(HYDRANT_SUITE, EveryOperationWithEveryFlag){
    HYDRANT_WALK(gasnett_atomic, uint32_t)} TEST(HYDRANT_SUITE, EveryOperationOf32Bits){
    HYDRANT_WALK(gasnett_atomic32, uint32_t)} TEST(HYDRANT_SUITE, EveryOperationOf64Bits){
    HYDRANT_WALK(gasnett_atomic64, uint64_t)} TEST(HYDRANT_SUITE, EveryStrongOperation){
    HYDRANT_WALK(gasnett_strongatomic, uint32_t)} TEST(HYDRANT_SUITE, EveryStrongOperationOf32Bits){
    HYDRANT_WALK(gasnett_strongatomic32, uint32_t)} TEST(HYDRANT_SUITE,
                                                         EveryStrongOperationOf64Bits){
    HYDRANT_WALK(gasnett_strongatomic64, uint64_t)}

TEST(HYDRANT_SUITE, LimitsAreThoseOfTheValue) {
  gasnett_atomic_t a = gasnett_atomic_init(GASNETT_ATOMIC_MAX);
  EXPECT_EQ(gasnett_atomic_read(&a, 0), GASNETT_ATOMIC_MAX);
  gasnett_atomic_set(&a, static_cast<gasnett_atomic_val_t>(GASNETT_ATOMIC_SIGNED_MIN), 0);
  EXPECT_EQ(gasnett_atomic_signed(gasnett_atomic_read(&a, 0)), GASNETT_ATOMIC_SIGNED_MIN);
  gasnett_atomic_decrement(&a, 0);
  EXPECT_EQ(gasnett_atomic_signed(gasnett_atomic_read(&a, 0)), GASNETT_ATOMIC_SIGNED_MAX);
}

TEST(HYDRANT_SUITE, ArgumentsAreEvaluatedOnce) {
  gasnett_atomic_t array[3] = {gasnett_atomic_init(1), gasnett_atomic_init(2),
                               gasnett_atomic_init(3)};
  gasnett_atomic_t* p = array;
  uint32_t value = 5;
  gasnett_atomic_set(p++, value++, 0);
  EXPECT_EQ(p, array + 1);
  EXPECT_EQ(value, 6u);
  EXPECT_EQ(gasnett_atomic_add(p++, value++, 0), 8u);
  EXPECT_EQ(p, array + 2);
  EXPECT_EQ(value, 7u);
}

TEST(HYDRANT_SUITE, FloatingPointStorageMayBeUsed) {
  double number = -1.0;
  auto* const bits = reinterpret_cast<gasnett_atomic64_t*>(&number);
  EXPECT_EQ(gasnett_atomic64_read(bits, 0), UINT64_C(0xbff0000000000000));
  gasnett_atomic64_set(bits, UINT64_C(0x4000000000000000), 0);
  EXPECT_EQ(number, 2.0);
}

}  // namespace
