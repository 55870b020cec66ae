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

TEST(HooksState, UntestedAllocatorIsNotBlamed) {
  hydrant_hooks_t hooks{};
  hooks.families = HYDRANT_HOOKS_ALL & ~HYDRANT_HOOKS_MALLOC;
  EXPECT_THAT(hit_check_reason(&hooks, true), HasSubstr("let it be libc's or jemalloc's"));
  hooks.malloc_untried = 1;
  EXPECT_THAT(hit_check_reason(&hooks, true), HasSubstr("raise the limit on address space"));
}

}  // namespace
}  // namespace hydrant
