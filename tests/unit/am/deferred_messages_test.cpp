// Messages to this process itself that a no-interrupt section holds: without memory for one, and so many that
// their end must not recurse.
#include <gasnet.h>

#include "tests/unit/am/job_fixture.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

// ---- allocations of the library that may fail ----

namespace {
// The allocation that finds 1 fails. 0: none.
thread_local uint64_t held_fails_in = 0;

bool is_held_to_fail() { return held_fails_in != 0 && --held_fails_in == 0; }
}  // namespace

void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return is_held_to_fail() ? nullptr : ::operator new(bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return is_held_to_fail() ? nullptr : ::operator new[](bytes);
}

namespace hydrant::test {
namespace {

using DeferredMessagesCalls = JobFixture;

TEST_F(DeferredMessagesCalls, WithoutMemoryTheCallFailsAndTheOthersAreRun) {
  const auto data = pattern(50);
  gasnet_hold_interrupts();
  EXPECT_EQ(gex_AM_RequestShort2(team(), 0, kShort2, 0, 1, 2), GASNET_OK);
  held_fails_in = 1;
  EXPECT_EQ(gex_AM_RequestShort2(team(), 0, kShort2, 0, 3, 4), GASNET_ERR_RESOURCE);
  EXPECT_EQ(held_fails_in, 0u);
  for (const uint64_t nth : {1u, 2u}) {  // the message, its payload
    held_fails_in = nth;
    EXPECT_EQ(
        gex_AM_RequestMedium1(team(), 0, kMedium1, data.data(), data.size(), GEX_EVENT_NOW, 0, 5),
        GASNET_ERR_RESOURCE);
    EXPECT_EQ(held_fails_in, 0u);
  }
  EXPECT_EQ(gex_AM_RequestShort2(team(), 0, kShort2, 0, 6, 7), GASNET_OK);
  gasnet_resume_interrupts();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].args, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(calls[1].args, (std::vector<int32_t>{6, 7}));
}

TEST(DeferredMessages, AreTakenInOrderAndEndOneByOne) {
  constexpr size_t kMany = 200'000;
  DeferredMessages messages;
  EXPECT_EQ(messages.take_first(), nullptr);
  const auto append = [&messages](size_t bytes) {
    auto message = std::make_unique<DeferredMessage>();
    message->bytes = bytes;
    messages.append(std::move(message));
  };
  for (size_t i = 0; i < kMany; ++i) append(i);
  DeferredMessages taken(std::move(messages));
  append(kMany);  // as a handler may hold while what was held is run
  for (size_t i = 0; i < 3; ++i) {
    const auto first = taken.take_first();
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(first->bytes, i);
  }
  const auto only = messages.take_first();  // NOLINT(bugprone-use-after-move): it is empty then
  ASSERT_NE(only, nullptr);
  EXPECT_EQ(only->bytes, kMany);
  EXPECT_EQ(messages.take_first(), nullptr);
}

}  // namespace
}  // namespace hydrant::test
