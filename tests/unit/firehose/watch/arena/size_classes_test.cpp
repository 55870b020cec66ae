#include "firehose/watch/arena/size_classes.hpp"

#include <gtest/gtest.h>

namespace hydrant::arena {
namespace {

TEST(SizeClasses, EverySizeGetsTheSmallestClassThatHoldsIt) {
  for (size_t bytes = 1; bytes <= kMaxSmallBytes; ++bytes) {
    const unsigned index = class_of(bytes);
    ASSERT_LT(index, kSizeClasses);
    EXPECT_GE(class_bytes(index), bytes);
    if (index > 0) {
      EXPECT_LT(class_bytes(index - 1), bytes);
    }
    EXPECT_EQ(class_bytes(index) % kMinAlignment, 0u);
  }
}

TEST(SizeClasses, PaddedSizeIsAMultipleOfItsAlignment) {
  for (size_t alignment = 16; alignment <= kPageBytes; alignment *= 2) {
    for (size_t bytes = alignment; bytes <= kMaxSmallBytes; bytes += alignment) {
      EXPECT_EQ(class_bytes(class_of(bytes)) % alignment, 0u) << bytes << " " << alignment;
    }
  }
}

TEST(SizeClasses, SlabsHoldNoMoreObjectsThanTheirBits) {
  for (unsigned index = 0; index < kSizeClasses; ++index) {
    const size_t objects = slab_pages(index) * kPageBytes / class_bytes(index);
    EXPECT_LE(objects, kMaxSlabObjects);
    EXPECT_GE(objects, 4u);
  }
}

}  // namespace
}  // namespace hydrant::arena
