// Each error text of a buffer pool names the pool, the request, the limit, and the remedy.
#include "tests/unit/firehose/base/buffer_pool_util.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hydrant::testing {
namespace {

using ::testing::HasSubstr;

struct Row {
  const char* cause;
  void (*change)(BufferPoolOptions&);
  std::vector<const char*> words;
};

const Row kOptions[] = {
    {"SizesAreNoPowersOfTwo",
     [](BufferPoolOptions& options) { options.smallest_bytes = 100; },
     {"sizes from 100 to 256", "powers of two from 64"}},
    {"TooManyClasses",
     [](BufferPoolOptions& options) { options.largest_bytes = size_t{1} << 40; },
     {"size classes", "raise smallest_bytes"}},
    {"TooDeepMagazines",
     [](BufferPoolOptions& options) { options.magazine_depth = 1 << 20; },
     {"magazines of depth 1048576", "exceed the limits", "lower them"}},
    {"NoLargestBuffer",
     [](BufferPoolOptions& options) { options.counts[2] = 0; },
     {"the largest size has no buffers", "lower largest_bytes"}},
    {"TooManyBytes",
     [](BufferPoolOptions& options) { options.total_bytes = size_t{1} << 41; },
     {"total_bytes = 2199023255552", "2^40", "lower it"}},
    {"ClassBeyondTheLargest",
     [](BufferPoolOptions& options) { options.counts[3] = 1; },
     {"class 3", "3 classes", "raise largest_bytes"}},
};

class BufferPoolTexts : public BufferPoolTest, public ::testing::WithParamInterface<Row> {};

TEST_P(BufferPoolTexts, NameThePoolTheLimitAndTheRemedy) {
  BufferPoolOptions options = pool_options(64, {1, 1, 1});
  GetParam().change(options);
  EXPECT_EQ(BufferPool::create(registrar_, options, &pool_), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("test pool: "));
  for (const char* word : GetParam().words) EXPECT_THAT(last_error_text(), HasSubstr(word));
}

INSTANTIATE_TEST_SUITE_P(Options, BufferPoolTexts, ::testing::ValuesIn(kOptions),
                         [](const auto& row) { return row.param.cause; });

class BufferPoolTextsOfCalls : public BufferPoolTest {};

TEST_F(BufferPoolTextsOfCalls, NameThePoolTheLimitAndTheRemedy) {
  create(pool_options(64, {1, 1, 1}));
  PoolBuffer none;
  EXPECT_EQ(pool_->take(0, &none), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("test pool: cannot take a buffer of 0 bytes"));
  EXPECT_EQ(pool_->take(257, &none), Status::kResource);
  for (const char* word :
       {"test pool: cannot take 257 bytes", "largest buffer has 256", "largest_bytes"})
    EXPECT_THAT(last_error_text(), HasSubstr(word));
  if (HYDRANT_DEBUG) return;  // a wrong address ends the process
  int elsewhere = 0;
  EXPECT_EQ(pool_->release_buffer(reinterpret_cast<std::byte*>(&elsewhere)), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("does not belong to this pool: return it to the pool"));
}

}  // namespace
}  // namespace hydrant::testing
