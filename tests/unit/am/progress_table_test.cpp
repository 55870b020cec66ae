// The table of progress functions.
#include "am/job/progress_table.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace hydrant {
namespace {

uint32_t count_up(void* context) {
  ++*static_cast<std::atomic<uint32_t>*>(context);
  return 1;
}
uint32_t count_tens(void* context) {
  *static_cast<std::atomic<uint32_t>*>(context) += 10;
  return 2;
}

TEST(Progress, RunsAFunctionUntilItsRemoval) {
  ProgressTable table;
  std::atomic<uint32_t> calls{0};
  EXPECT_EQ(table.run(), 0u);
  table.add(count_up, &calls);
  EXPECT_EQ(table.run(), 1u);
  EXPECT_EQ(table.run(), 1u);
  table.remove(count_up, &calls);
  EXPECT_EQ(table.run(), 0u);
  EXPECT_EQ(calls, 2u);
}

TEST(Progress, AddingAPairTwiceCountsOnce) {
  ProgressTable table;
  std::atomic<uint32_t> calls{0};
  table.add(count_up, &calls);
  table.add(count_up, &calls);
  EXPECT_EQ(table.run(), 1u);
  table.remove(count_up, &calls);
  EXPECT_EQ(table.run(), 0u);
}

TEST(Progress, SilentWorkIsToldFromOther) {
  ProgressTable table;
  std::atomic<uint32_t> calls{0}, others{0};
  table.add(count_up, &others);
  EXPECT_FALSE(table.silent_work().is_there);
  EXPECT_EQ(table.silent_work().added, 0u);
  table.add(count_up, &calls, true);
  EXPECT_TRUE(table.silent_work().is_there);
  table.remove(count_up, &calls);
  EXPECT_FALSE(table.silent_work().is_there);
  table.add(count_up, &calls);
  EXPECT_FALSE(table.silent_work().is_there) << "the row is of its last use";
  table.add(count_up, &calls, true);
  EXPECT_EQ(table.silent_work().added, 2u);
}

TEST(Progress, TwoFunctionsOfOneContextDoNotReplaceEachOther) {
  ProgressTable table;
  std::atomic<uint32_t> calls{0};
  table.add(count_up, &calls);
  table.add(count_tens, &calls);
  EXPECT_EQ(table.run(), 3u);
  EXPECT_EQ(calls, 11u);
  table.remove(count_up, &calls);
  EXPECT_EQ(table.run(), 2u);
}

TEST(Progress, AddingAndRemovingUsesNoMoreRows) {
  ProgressTable table;
  std::vector<std::atomic<uint32_t>> calls(ProgressTable::kRows);
  for (int round = 0; round < 100; ++round) {
    for (auto& context : calls) table.add(count_up, &context);
    EXPECT_EQ(table.run(), ProgressTable::kRows);
    for (auto& context : calls) table.remove(count_up, &context);
    EXPECT_EQ(table.run(), 0u);
  }
  std::atomic<uint32_t> one_more{0};
  table.add(count_up, &one_more);
  EXPECT_EQ(table.run(), 0u) << "functions beyond kRows contexts must not run";
}

TEST(Progress, FunctionsGetTheirOwnContextDuringChanges) {
  ProgressTable table;
  std::atomic<uint32_t> ups{0};
  std::atomic<uint32_t> tens{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> pollers;
  for (int i = 0; i < 3; ++i) {
    pollers.emplace_back([&] {
      while (!stop) table.run();
    });
  }
  for (int i = 0; i < 20000; ++i) {
    table.add(count_up, &ups);
    table.add(count_tens, &tens);
    table.remove(count_up, &ups);
    table.remove(count_tens, &tens);
  }
  stop = true;
  for (std::thread& poller : pollers) poller.join();
  EXPECT_EQ(tens % 10, 0u) << "a function ran with another function's context";
}

}  // namespace
}  // namespace hydrant
