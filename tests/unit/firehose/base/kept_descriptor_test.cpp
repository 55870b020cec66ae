#include "firehose/base/kept_descriptor.hpp"

#include "tests/support/descriptors.hpp"

#include <gtest/gtest.h>

#include <utility>

namespace hydrant {
namespace {

using testing::is_open;
using testing::ProgramsFiles;

int open_null() { return ::open("/dev/null", O_RDWR | O_CLOEXEC); }

TEST(KeptDescriptor, IsClosedWithItsKeeper) {
  int fd = -1;
  {
    const KeptDescriptor kept(open_null());
    fd = kept.get();
    ASSERT_GE(fd, 0);
    EXPECT_EQ(kept.number(), fd);
    EXPECT_FALSE(kept.is_lost());
  }
  EXPECT_FALSE(is_open(fd));
}

TEST(KeptDescriptor, NoneIsNotLost) {
  KeptDescriptor none;
  EXPECT_EQ(none.get(), -1);
  EXPECT_FALSE(none.is_lost());
  none.keep(-1);
  EXPECT_EQ(none.number(), -1);
  EXPECT_FALSE(none.is_lost());
}

TEST(KeptDescriptor, ForeignFileUnderTheDescriptorIsLeftAlone) {
  const int fd = eventfd(0, EFD_CLOEXEC);
  KeptDescriptor kept(fd);
  ASSERT_EQ(kept.get(), fd);
  const ProgramsFiles program({fd});
  EXPECT_EQ(kept.get(), -1);
  EXPECT_TRUE(kept.is_lost());
  EXPECT_EQ(kept.number(), fd);
  kept.keep(open_null());
  EXPECT_NE(kept.get(), fd);
  EXPECT_FALSE(kept.is_lost());
  EXPECT_EQ(program.harm(), "");
}

TEST(KeptDescriptor, ClosedNumberIsLost) {
  const int fd = open_null();
  KeptDescriptor kept(fd);
  close(fd);
  EXPECT_TRUE(kept.is_lost());
  kept.close();
  EXPECT_FALSE(kept.is_lost());
}

TEST(KeptDescriptor, MoveTransfersTheDescriptor) {
  const int fd = open_null();
  KeptDescriptor first(fd);
  KeptDescriptor second(std::move(first));
  EXPECT_EQ(second.get(), fd);
  const int other = open_null();
  KeptDescriptor third(other);
  third = std::move(second);
  EXPECT_EQ(third.get(), fd);
  EXPECT_FALSE(is_open(other));
}

}  // namespace
}  // namespace hydrant
