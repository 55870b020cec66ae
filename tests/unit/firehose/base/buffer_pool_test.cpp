// A pool used by a single thread: sizes, memory, registration, "not now", statistics, misuse.
// buffer_pool_threads_test.cpp has the threads, buffer_pool_fork_test.cpp the forks.
#include "firehose/base/buffer_pool/buffer_pool.hpp"

#include "tests/unit/firehose/base/buffer_pool_util.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <malloc.h>
#include <map>
#include <string>

namespace hydrant::testing {
namespace {

constexpr size_t kHuge = size_t{2} << 20;

class BufferPoolSingle : public BufferPoolTest {};

// ---- sizes ----

TEST_F(BufferPoolSingle, SizeGetsTheSmallestClassThatFits) {
  create(pool_options(64, {4, 4, 4, 4}));
  const std::map<size_t, size_t> expected = {{1, 64},    {63, 64},   {64, 64},   {65, 128},
                                             {128, 128}, {129, 256}, {257, 512}, {512, 512}};
  for (const auto& [asked, size] : expected) {
    const PoolBuffer buffer = take(asked);
    EXPECT_EQ(buffer.size, size) << "for " << asked;
    release_buffer(buffer);
  }
}

TEST_F(BufferPoolSingle, EmptyClassUsesTheNextLarger) {
  create(pool_options(64, {0, 0, 2, 0, 1}));
  const std::vector<PoolBuffer> held = {take(1), take(100), take(257)};
  EXPECT_EQ(held[0].size, 256u);
  EXPECT_EQ(held[1].size, 256u);
  EXPECT_EQ(held[2].size, 1024u);
  PoolBuffer none;
  EXPECT_EQ(pool_->take(1, &none), Status::kNotReady);
  EXPECT_EQ(pool_->stats(2).exhausted, 1u);
  put_all(held);
}

TEST_F(BufferPoolSingle, LargerClassServesOnlyWhenConfigured) {
  BufferPoolOptions options = pool_options(64, {1, 1, 0, 1, 1});
  options.larger_classes = 2;
  create(options);
  std::vector<PoolBuffer> held;
  for (const size_t size : {64u, 128u, 512u}) {
    held.push_back(take(64));
    EXPECT_EQ(held.back().size, size);
  }
  PoolBuffer none;
  EXPECT_EQ(pool_->take(64, &none), Status::kNotReady) << "1024 is three classes away";
  EXPECT_EQ(pool_->stats(0).borrowed, 2u);
  EXPECT_EQ(pool_->stats(0).taken, 1u);
  EXPECT_EQ(pool_->stats(1).taken, 1u);
  EXPECT_EQ(pool_->stats(0).exhausted, 1u);
  held.push_back(take(1024));
  put_all(held);
}

TEST_F(BufferPoolSingle, SizesOutsideTheClassesAreErrors) {
  create(pool_options(64, {1, 1}));
  PoolBuffer untouched{nullptr, 7, nullptr};
  EXPECT_EQ(pool_->take(0, &untouched), Status::kBadArg);
  EXPECT_EQ(pool_->take(129, &untouched), Status::kResource);
  EXPECT_NE(std::string(last_error_text()).find("128"), std::string::npos) << last_error_text();
  EXPECT_EQ(pool_->take(SIZE_MAX, &untouched), Status::kResource);
  EXPECT_EQ(untouched.size, 7u);
}

TEST_F(BufferPoolSingle, SharesDivideTheBytes) {
  BufferPoolOptions options;
  options.smallest_bytes = 4096;
  options.largest_bytes = 16384;
  options.total_bytes = 100 * 4096;
  options.shares = {2, 1, 1};
  create(options);
  // 50, 25 and 25 pages: 50, 12 and 6 buffers and two pages over, which make no large buffer but one of
  // 8 KiB.
  EXPECT_EQ(pool_->stats(0).count, 50u);
  EXPECT_EQ(pool_->stats(1).count, 13u);
  EXPECT_EQ(pool_->stats(2).count, 6u);
  EXPECT_EQ(pool_->memory().len, options.total_bytes);
}

// ---- memory and registration ----

TEST_F(BufferPoolSingle, BuffersAreDisjointAlignedAndRegistered) {
  create(pool_options(64, {40, 0, 17, 3, 9, 2, 1, 4}));
  std::vector<PoolBuffer> all;
  for (size_t bytes = 64; bytes <= 8192; bytes *= 2) {
    for (const PoolBuffer& buffer : take_all(bytes)) all.push_back(buffer);
  }
  ASSERT_EQ(all.size(), 76u);
  std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.addr < b.addr; });
  for (size_t i = 0; i < all.size(); ++i) {
    const auto addr = reinterpret_cast<uintptr_t>(all[i].addr);
    EXPECT_EQ(addr % std::min<size_t>(all[i].size, 4096), 0u);
    EXPECT_TRUE(pool_->memory().covers({addr, all[i].size}));
    EXPECT_TRUE(
        registrar_.is_pinned({addr & ~uintptr_t{4095}, 4096}, Access::kLocalWrite, all[i].key));
    if (i > 0) {
      EXPECT_LE(all[i - 1].addr + all[i - 1].size, all[i].addr);
    }
    std::memset(all[i].addr, 1, all[i].size);
  }
  EXPECT_EQ(registrar_.pin_calls(), 1u);
  put_all(all);
}

TEST_F(BufferPoolSingle, LargePoolLiesOnHugePages) {
  create(pool_options(4096, {1024}));
  EXPECT_EQ(pool_->memory().addr % kHuge, 0u);
  EXPECT_EQ(pool_->memory().len, 1024u * 4096u);
}

TEST(BufferPool, GranuleAndMissingKeysOfTheRegistrarAreRespected) {
  FakeOptions fake;
  fake.granule_bytes = 65536;
  fake.key_bytes = 0;
  FakeRegistrar registrar(fake);
  std::unique_ptr<BufferPool> pool;
  ASSERT_EQ(BufferPool::create(registrar, pool_options(4096, {3}), &pool), Status::kOk);
  EXPECT_EQ(pool->memory().addr % 65536, 0u);
  EXPECT_EQ(pool->memory().len, 65536u);
  PoolBuffer buffer;
  ASSERT_EQ(pool->take(1, &buffer), Status::kOk);
  EXPECT_EQ(buffer.key, nullptr);
  EXPECT_EQ(pool->release_buffer(buffer.addr), Status::kOk);
  pool.reset();
  EXPECT_EQ(registrar.leftovers(), "");
}

TEST_F(BufferPoolSingle, RefusalsOfTheRegistrarLeaveNothing) {
  for (const Status refusal :
       {Status::kNotReady, Status::kRefused, Status::kResource, Status::kBroken}) {
    registrar_.fail_call(FakeCall::kPin, 1, refusal);
    EXPECT_EQ(BufferPool::create(registrar_, pool_options(64, {8}), &pool_), refusal);
    EXPECT_EQ(pool_, nullptr);
    EXPECT_NE(std::string(last_error_text()).find("test pool"), std::string::npos)
        << last_error_text();
    EXPECT_EQ(registrar_.leftovers(), "");
  }
  create(pool_options(64, {8}));
}

TEST(BufferPool, PoolBeyondTheLargestRegionIsRejectedWithoutAPin) {
  FakeOptions fake;
  fake.max_region_bytes = 65536;
  FakeRegistrar registrar(fake);
  std::unique_ptr<BufferPool> pool;
  EXPECT_EQ(BufferPool::create(registrar, pool_options(4096, {17}), &pool), Status::kResource);
  EXPECT_EQ(registrar.pin_calls(), 0u);
  EXPECT_EQ(BufferPool::create(registrar, pool_options(4096, {16}), &pool), Status::kOk);
}

TEST_F(BufferPoolSingle, EndsWithAWarningWhenBuffersAreOut) {
  create(pool_options(64, {8}));
  take(1);
  take(1);
  ::testing::internal::CaptureStderr();
  pool_.reset();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("2 buffers still out"), std::string::npos) << said;
}

TEST_F(BufferPoolSingle, BadOptionsAreNamed) {
  const auto refused = [&](const char* what, auto change) {
    BufferPoolOptions options = pool_options(4096, {8, 8});
    change(options);
    EXPECT_EQ(BufferPool::create(registrar_, options, &pool_), Status::kBadArg) << what;
    EXPECT_EQ(pool_, nullptr);
  };
  using Options = BufferPoolOptions;
  refused("not a power", [](Options& o) { o.smallest_bytes = 4097; });
  refused("not a power", [](Options& o) { o.largest_bytes = 12288; });
  refused("zero", [](Options& o) { o.smallest_bytes = 0; });
  refused("too small", [](Options& o) { o.smallest_bytes = 32; });
  refused("the wrong way round", [](Options& o) { o.largest_bytes = 2048; });
  refused("too many classes", [](Options& o) { o.smallest_bytes = 64, o.largest_bytes = 1 << 30; });
  refused("a count beyond the classes", [](Options& o) { o.counts[2] = 1; });
  refused("a share beyond the classes",
          [](Options& o) { o.total_bytes = 1 << 20, o.shares[5] = 1; });
  refused("largest size without buffers", [](Options& o) { o.counts[1] = 0; });
  refused("too many buffers", [](Options& o) { o.counts[0] = Options::kMaxBuffers; });
  refused("too many bytes", [](Options& o) { o.total_bytes = SIZE_MAX; });
  refused("too few bytes", [](Options& o) { o.total_bytes = 4096; });
  refused("depth", [](Options& o) { o.magazine_depth = Options::kMaxDepth + 1; });
  refused("threads", [](Options& o) { o.threads = Options::kMaxThreads + 1; });
  EXPECT_EQ(registrar_.pin_calls(), 0u);
}

// ---- "not now" ----

TEST_F(BufferPoolSingle, ExhaustionIsNotReadyWithoutAText) {
  create(pool_options(64, {16}));
  const std::vector<PoolBuffer> all = take_all(64);
  EXPECT_EQ(all.size(), 16u);
  EXPECT_EQ(fail(Status::kBroken, "an earlier failure"), Status::kBroken);
  PoolBuffer untouched{nullptr, 7, nullptr};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pool_->take(64, &untouched), Status::kNotReady);
  EXPECT_STREQ(last_error_text(), "an earlier failure");
  EXPECT_EQ(untouched.size, 7u);
  release_buffer(all[5]);
  EXPECT_EQ(take(64).addr, all[5].addr);
  put_all(all);
}

TEST_F(BufferPoolSingle, AllBuffersCanBeReused) {
  for (const uint32_t depth : {0u, 1u, 8u, 31u}) {
    BufferPoolOptions options = pool_options(64, {5, 64, 1, 256});
    options.magazine_depth = depth;
    create(options);
    for (int round = 0; round < 5; ++round) {
      std::vector<PoolBuffer> held;
      for (uint32_t i = 0; i < 4; ++i) {
        const auto all = take_all(size_t{64} << i);
        EXPECT_EQ(all.size(), pool_->stats(i).count);
        EXPECT_EQ(pool_->stats(i).out(), all.size());
        held.insert(held.end(), all.begin(), all.end());
      }
      std::reverse(held.begin(), held.begin() + round * 20);
      put_all(held);
    }
    pool_.reset();
  }
}

TEST_F(BufferPoolSingle, NothingIsAllocatedAfterCreation) {
  const size_t before = mallinfo2().uordblks;
  const auto probe = std::make_unique<char[]>(5000);
  if (mallinfo2().uordblks < before + 5000) GTEST_SKIP() << "this allocator does not count";
  create(pool_options(64, {64, 64}));
  std::vector<PoolBuffer> held;
  held.reserve(200);
  const size_t created = mallinfo2().uordblks;
  PoolBuffer buffer;
  for (int round = 0; round < 100; ++round) {
    while (pool_->take(static_cast<size_t>(round) + 1, &buffer) == Status::kOk) {
      held.push_back(buffer);
    }
    for (; !held.empty(); held.pop_back())
      ASSERT_EQ(pool_->release_buffer(held.back().addr), Status::kOk);
  }
  EXPECT_EQ(mallinfo2().uordblks, created);
}

// ---- statistics ----

TEST_F(BufferPoolSingle, StatisticsCountOperations) {
  BufferPoolOptions options = pool_options(64, {64, 8});
  options.magazine_depth = 0;
  create(options);
  std::vector<PoolBuffer> held;
  for (int i = 0; i < 10; ++i) held.push_back(take(64));
  put_all({held.begin() + 4, held.end()});
  for (int i = 0; i < 3; ++i) release_buffer(take(64));
  const BufferPoolClassStats small = pool_->stats(0);
  EXPECT_EQ(small.bytes, 64u);
  EXPECT_EQ(small.count, 64u);
  EXPECT_EQ(small.taken, 13u);
  EXPECT_EQ(small.returned, 9u);
  EXPECT_EQ(small.out(), 4u);
  EXPECT_EQ(small.high_water, 10u);
  EXPECT_EQ(small.exhausted + small.borrowed + small.stolen + small.cached, 0u);
  EXPECT_EQ(pool_->stats(1).taken, 0u);
  EXPECT_EQ(pool_->stats(1).high_water, 0u);
  put_all({held.begin(), held.begin() + 4});
}

TEST_F(BufferPoolSingle, HighWaterIncludesCachedBuffers) {
  create(pool_options(64, {64}));
  release_buffer(take(64));
  const BufferPoolClassStats stats = pool_->stats(0);
  EXPECT_EQ(stats.cached, stats.high_water);
  EXPECT_GE(stats.high_water, 1u);
  EXPECT_LE(stats.high_water, 5u) << "one, and half a magazine";
  put_all(take_all(64));
  EXPECT_EQ(pool_->stats(0).high_water, 64u);
}

// ---- misuse ----

// Returning `addr` is detected and has no effect.
void expect_refused(BufferPool& pool, void* addr, const char* words) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  if (HYDRANT_DEBUG) {
    EXPECT_DEATH((void)pool.release_buffer(addr), words);
  } else {
    EXPECT_EQ(pool.release_buffer(addr), Status::kBadArg) << words;
    EXPECT_NE(std::string(last_error_text()).find(words), std::string::npos) << last_error_text();
  }
}

TEST_F(BufferPoolSingle, DoubleReturnIsDetectedWhereverTheBufferIs) {
  for (const uint32_t depth : {0u, 8u}) {
    BufferPoolOptions options = pool_options(64, {64});
    options.magazine_depth = depth;
    create(options);
    const PoolBuffer buffer = take(64);
    const PoolBuffer other = take(64);
    release_buffer(buffer);
    expect_refused(*pool_, buffer.addr, "returned before");
    release_buffer(other);
    expect_refused(*pool_, buffer.addr, "returned before");
    EXPECT_EQ(available(64), 64u) << "no buffer is there twice";
    pool_.reset();
  }
}

TEST_F(BufferPoolSingle, ForeignAddressesAreNoticed) {
  create(pool_options(64, {3, 0, 1}));
  const PoolBuffer buffer = take(256);
  int local = 0;
  expect_refused(*pool_, nullptr, "does not belong");
  expect_refused(*pool_, &local, "does not belong");
  expect_refused(*pool_, buffer.addr + 1, "not the start");
  expect_refused(*pool_, buffer.addr + 64, "not the start");
  const MemoryRange memory = pool_->memory();
  expect_refused(*pool_, reinterpret_cast<void*>(memory.end() - 64), "not the start");
  expect_refused(*pool_, reinterpret_cast<void*>(memory.end()), "does not belong");
  release_buffer(buffer);
}

TEST_F(BufferPoolSingle, ReturnOfAFreeBufferIsRejected) {
  create(pool_options(64, {8}));
  expect_refused(*pool_, reinterpret_cast<void*>(pool_->memory().addr), "returned before");
  EXPECT_TRUE(pool_->owns(reinterpret_cast<void*>(pool_->memory().addr)));
  EXPECT_FALSE(pool_->owns(&pool_));
  EXPECT_EQ(available(64), 8u);
}

}  // namespace
}  // namespace hydrant::testing
