#include "firehose/gasnet_compat/firehose_rules.hpp"

#include <gtest/gtest.h>

namespace hydrant {
namespace {

// The depth at which the thread was not inside, or 0.
int find_gap(int depth) {
  if (depth > 600) return 0;
  const CompatScope scope(CompatInside::kHandler);
  if (!is_in_callback(CompatInside::kHandler)) return depth;
  const int gap = find_gap(depth + 1);
  return gap == 0 && !is_in_callback(CompatInside::kHandler) ? depth : gap;
}

TEST(FirehoseRules, ThreadIsInsideAtAnyDepth) {
  EXPECT_EQ(find_gap(1), 0);
  EXPECT_FALSE(is_in_callback(CompatInside::kHandler));
}

TEST(FirehoseRules, CallbackScopesAreDistinguished) {
  const CompatScope outer(CompatInside::kRemote);
  {
    const CompatScope inner(CompatInside::kMove);
    EXPECT_TRUE(is_in_callback(CompatInside::kMove));
    EXPECT_TRUE(is_in_callback(CompatInside::kRemote));
    EXPECT_FALSE(is_in_callback(CompatInside::kArgs));
  }
  EXPECT_FALSE(is_in_callback(CompatInside::kMove));
  EXPECT_TRUE(is_in_callback(CompatInside::kRemote));
}

}  // namespace
}  // namespace hydrant
