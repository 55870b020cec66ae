// The process's switch for membarrier(2). What is built on it is tested where it is: the fence, the pool.
#include "firehose/base/machine/membarrier.hpp"

#include <gtest/gtest.h>

namespace hydrant {
namespace {

TEST(Membarrier, IsSwitchedOnOnceAndStays) {
  const bool works = membarrier::enable();
  EXPECT_EQ(membarrier::is_enabled(), works);
  EXPECT_EQ(membarrier::enable(), works);
  if (!works) GTEST_SKIP() << "the kernel, the environment or a sanitizer refuses membarrier";
  EXPECT_TRUE(membarrier::barrier());
}

}  // namespace
}  // namespace hydrant
