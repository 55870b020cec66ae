// A pool of real pins: what a device reads and writes through the registration is what the buffers hold.
#include "firehose/registrars/uring/uring_registrar.hpp"
#include "tests/support/child_process.hpp"
#include "tests/unit/firehose/base/buffer_pool_util.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace hydrant::testing {
namespace {

// The bytes that a write through the pinned pages of this buffer puts into a file.
std::string sent(UringRegistrar& registrar, const PoolBuffer& buffer) {
  const TestFile file;
  const MemoryRange range{reinterpret_cast<uintptr_t>(buffer.addr), buffer.size};
  if (registrar.move(buffer.key, range, file.fd(), 0, true) != Status::kOk)
    return last_error_text();
  return file.read(buffer.size);
}

TEST(BufferPoolUring, BuffersAreThePinnedPagesAlsoAfterAFork) {
  HYDRANT_URING_OR_SKIP(registrar);
  for (const uint32_t count : {16u, 1024u}) {  // small pages; huge ones where the kernel gives them
    std::unique_ptr<BufferPool> pool;
    const Status status = BufferPool::create(*registrar, pool_options(4096, {count}), &pool);
    if (status == Status::kNotReady) GTEST_SKIP() << "no budget to pin: " << last_error_text();
    ASSERT_EQ(status, Status::kOk) << last_error_text();
    PoolBuffer first;
    PoolBuffer second;
    ASSERT_EQ(pool->take(4096, &first), Status::kOk);
    ASSERT_EQ(pool->take(4096, &second), Status::kOk);
    std::memset(first.addr, '1', first.size);
    std::memset(second.addr, '2', second.size);
    EXPECT_EQ(sent(*registrar, first), std::string(4096, '1'));
    EXPECT_EQ(sent(*registrar, second), std::string(4096, '2'));
    // A copy on write after a fork would part the pinned page from the parent's.
    const auto child = [&]() -> std::string {
      std::memset(first.addr, 'C', first.size);
      return "";
    };
    EXPECT_EQ(run_in_child(child), "");
    EXPECT_EQ(sent(*registrar, first), std::string(4096, '1'));
    std::memset(first.addr, '4', first.size);
    EXPECT_EQ(sent(*registrar, first), std::string(4096, '4'));
    EXPECT_EQ(pool->release_buffer(first.addr), Status::kOk);
    EXPECT_EQ(pool->release_buffer(second.addr), Status::kOk);
  }
}

}  // namespace
}  // namespace hydrant::testing
