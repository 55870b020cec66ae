// The layout of messages: tags and heads of every category and number of arguments.
#include "am/wire/message.hpp"

#include <gtest/gtest.h>

namespace hydrant {
namespace {

TEST(Message, TagsSurvivePackingAndUnpacking) {
  for (const Category category : {Category::kShort, Category::kMedium, Category::kLong}) {
    for (uint32_t nargs = 0; nargs <= kMaxArgs; ++nargs) {
      for (uint32_t handler = 0; handler < 256; handler += 5) {
        for (const bool deposit : {false, true}) {
          const Tag tag = {
              .handler = handler, .nargs = nargs, .category = category, .deposit = deposit};
          const uint32_t bits = tag.pack();
          EXPECT_EQ(bits >> MessageChannel::kTagBits, 0u);
          const Tag back = Tag::unpack(bits);
          EXPECT_EQ(back.handler, handler);
          EXPECT_EQ(back.nargs, nargs);
          EXPECT_EQ(back.category, category);
          EXPECT_EQ(back.deposit, deposit);
        }
      }
    }
  }
}

TEST(Message, AddressedTagsExceedTheLimitOfArguments) {
  for (uint32_t nargs = 1; nargs <= kMaxArgs + 1; ++nargs) {
    const uint32_t bits = Tag{.handler = 255, .nargs = nargs | Tag::kAddressed}.pack();
    EXPECT_EQ(bits >> MessageChannel::kTagBits, 0u);
    const Tag back = Tag::unpack(bits);
    EXPECT_EQ(back.handler, 255u);
    EXPECT_EQ(back.nargs, nargs | Tag::kAddressed);
    EXPECT_GT(back.nargs, kMaxArgs);
    EXPECT_EQ(back.category, Category::kShort);
  }
  const EndpointPair pair = EndpointPair::unpack(EndpointPair{.to = 32, .from = 0xffff}.pack());
  EXPECT_EQ(pair.to, 32);
  EXPECT_EQ(pair.from, 0xffff);
}

TEST(Message, HeadFieldsDoNotOverlap) {
  for (const Category category : {Category::kMedium, Category::kLong}) {
    for (uint32_t nargs = 0; nargs <= kMaxArgs; ++nargs) {
      alignas(8) std::byte head[MessageChannel::kMaxHeadBytes + 8];
      std::memset(head, 0x5a, sizeof head);
      int32_t args[kMaxArgs];
      for (uint32_t i = 0; i < kMaxArgs; ++i) args[i] = static_cast<int32_t>(i) - 8;
      write_args(head, category, nargs, args);
      write_length(head, category, 0x7fffffff);
      if (category == Category::kLong) write_dest(head, 0xfedcba9876543210);
      EXPECT_EQ(read_length(head, category), 0x7fffffffu);
      if (category == Category::kLong) {
        EXPECT_EQ(read_dest(head), 0xfedcba9876543210u);
      }
      EXPECT_EQ(std::memcmp(head + args_offset(category), args, 4 * nargs), 0);
      EXPECT_EQ(head[head_bytes(category, nargs)], std::byte{0x5a}) << "beyond the head";
    }
  }
}

TEST(Message, PayloadsAreAlignedAndFollowTheHead) {
  for (const Category category : {Category::kMedium, Category::kLong}) {
    for (uint32_t nargs = 0; nargs <= kMaxArgs; ++nargs) {
      const uint32_t offset = payload_offset(category, nargs);
      EXPECT_GE(offset, head_bytes(category, nargs));
      EXPECT_LT(offset, head_bytes(category, nargs) + 16);
      EXPECT_EQ((offset + 8) % 16, 0u);  // heads stand at 8 modulo 16
    }
  }
}

}  // namespace
}  // namespace hydrant
