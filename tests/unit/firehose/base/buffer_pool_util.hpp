// Pools for the tests: over a fake registrar that must be clean in the end.
#pragma once

#include "firehose/base/buffer_pool/buffer_pool.hpp"
#include "firehose/base/buffer_pool/buffer_pool_layout.hpp"
#include "tests/fakes/fake_registrar.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <vector>

namespace hydrant {

// A friend of BufferPool with access to its private state.
struct BufferPoolPeer {
  // Makes owners and thieves use full fences, as without membarrier. Requires: no thread has used the pool
  // yet.
  static void make_symmetric(BufferPool& pool) { pool.asymmetric_ = false; }
  static pool::Magazine& own_magazine(BufferPool& pool) { return *pool.own_magazine(); }
};

namespace testing {

// Options of a pool with size classes from `smallest` up, with `counts` buffers each.
inline BufferPoolOptions pool_options(size_t smallest, std::initializer_list<uint32_t> counts) {
  BufferPoolOptions options;
  options.name = "test pool";
  options.smallest_bytes = smallest;
  options.largest_bytes = smallest << (counts.size() - 1);
  std::copy(counts.begin(), counts.end(), options.counts.begin());
  return options;
}

class BufferPoolTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (uint32_t i = 0; pool_ != nullptr && i < pool_->class_count(); ++i) {
      EXPECT_EQ(pool_->stats(i).out(), 0u) << "buffers of " << pool_->stats(i).bytes << " left out";
    }
    pool_.reset();
    EXPECT_EQ(registrar_.leftovers(), "");
  }

  void create(const BufferPoolOptions& options) {
    ASSERT_EQ(BufferPool::create(registrar_, options, &pool_), Status::kOk) << last_error_text();
  }
  PoolBuffer take(size_t bytes) const {
    PoolBuffer buffer;
    EXPECT_EQ(pool_->take(bytes, &buffer), Status::kOk) << last_error_text();
    return buffer;
  }
  void release_buffer(const PoolBuffer& buffer) const {
    EXPECT_EQ(pool_->release_buffer(buffer.addr), Status::kOk) << last_error_text();
  }
  // Takes all buffers that a request of this size can get.
  std::vector<PoolBuffer> take_all(size_t bytes) const {
    std::vector<PoolBuffer> all;
    PoolBuffer buffer;
    while (pool_->take(bytes, &buffer) == Status::kOk) {
      all.push_back(buffer);
      if (all.size() <= kMax) continue;
      ADD_FAILURE() << "more buffers than the pool has: the stack is a ring";
      std::abort();
    }
    return all;
  }
  // The number of these buffers.
  size_t available(size_t bytes) const {
    const std::vector<PoolBuffer> all = take_all(bytes);
    put_all(all);
    return all.size();
  }
  void put_all(const std::vector<PoolBuffer>& all) const {
    for (const PoolBuffer& buffer : all) release_buffer(buffer);
  }

  static constexpr size_t kMax = 100000;
  FakeRegistrar registrar_;
  std::unique_ptr<BufferPool> pool_;
};

}  // namespace testing
}  // namespace hydrant
