// The log's cause for hits that are checked.
#include "firehose/watch/hooks_state.hpp"

#include <gmock/gmock.h>

namespace hydrant {
namespace {

using ::testing::HasSubstr;

TEST(HooksState, CompleteHooksHaveNoReason) {
  hydrant_hooks_t hooks{};
  hooks.families = HYDRANT_HOOKS_ALL;
  EXPECT_EQ(hit_check_reason(&hooks, true), nullptr);
}

TEST(HooksState, FaultOfMallocIsTheReason) {
  hydrant_hooks_t hooks{};
  hooks.families = HYDRANT_HOOKS_ALL & ~HYDRANT_HOOKS_MALLOC;
  hooks.malloc_fault = "no memory was left";
  EXPECT_STREQ(hit_check_reason(&hooks, true), "no memory was left");
  hooks.malloc_fault = nullptr;
  EXPECT_THAT(hit_check_reason(&hooks, true), HasSubstr("stand before some of the hooks"));
}

}  // namespace
}  // namespace hydrant
