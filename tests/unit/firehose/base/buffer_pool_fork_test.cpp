// A pool in the child of a fork: unusable, harmless, and replaceable.
#include "tests/support/child_process.hpp"
#include "tests/unit/firehose/base/buffer_pool_util.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace hydrant::testing {
namespace {

class BufferPoolFork : public BufferPoolTest, public ::testing::WithParamInterface<ChildKind> {};

TEST_P(BufferPoolFork, ChildGetsAnErrorAndHarmsNothing) {
  create(pool_options(64, {64, 8}));
  const PoolBuffer held = take(64);
  const PoolBuffer large = take(128);
  std::memset(held.addr, 'P', held.size);
  release_buffer(large);  // the forking thread has a magazine with something in it
  const auto child = [&]() -> std::string {
    PoolBuffer buffer;
    if (pool_->take(64, &buffer) != Status::kNotInit) return "take() in the child";
    if (pool_->take(128, &buffer) != Status::kNotInit) return "take() from the parent's magazine";
    if (pool_->release_buffer(held.addr) != Status::kNotInit)
      return "release_buffer() in the child";
    if (pool_->release_buffer(&buffer) != Status::kNotInit)
      return "release_buffer() of a foreign address";
    if (held.addr[0] != std::byte{0}) return "the child sees the parent's buffer";
    std::memset(held.addr, 'C', held.size);
    if (pool_->stats(0).taken != 0) return "the parent's statistics";
    const uint64_t unpins = registrar_.unpin_calls();
    pool_.reset();
    return registrar_.unpin_calls() == unpins ? "" : "the child unpinned the parent's memory";
  };
  EXPECT_EQ(run_in_child(child, GetParam()), "");
  for (size_t i = 0; i < held.size; ++i) ASSERT_EQ(held.addr[i], std::byte{'P'});
  release_buffer(held);
  EXPECT_EQ(available(64), 64u);
  EXPECT_EQ(available(128), 8u);
}

TEST_P(BufferPoolFork, ChildMakesAPoolOfItsOwn) {
  create(pool_options(64, {64}));
  release_buffer(take(64));
  const auto child = [&]() -> std::string {
    FakeRegistrar own;
    {
      std::unique_ptr<BufferPool> pool;
      if (BufferPool::create(own, pool_options(64, {64}), &pool) != Status::kOk) {
        return last_error_text();
      }
      PoolBuffer held[64];
      for (PoolBuffer& buffer : held) {
        if (pool->take(64, &buffer) != Status::kOk) return "take()";
        std::memset(buffer.addr, 'C', buffer.size);
      }
      pool_.reset();  // the parent's pool, while the child's exists
      for (const PoolBuffer& buffer : held) {
        if (pool->release_buffer(buffer.addr) != Status::kOk) return "release_buffer()";
      }
      if (pool->take(64, held) != Status::kOk) return "take() after the parent's pool has gone";
      if (pool->release_buffer(held[0].addr) != Status::kOk) return "release_buffer() after that";
    }
    return own.leftovers();
  };
  EXPECT_EQ(run_in_child(child, GetParam()), "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, BufferPoolFork,
                         ::testing::Values(ChildKind::kFork, ChildKind::kRawClone),
                         [](const auto& one) {
                           return one.param == ChildKind::kFork ? "Fork" : "RawClone";
                         });

}  // namespace
}  // namespace hydrant::testing
