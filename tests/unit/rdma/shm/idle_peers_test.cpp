// The costs to a rank of peers on its node that it never communicates with.
#include "tests/unit/rdma/shm/node_world.hpp"

#include <malloc.h>

namespace hydrant::testing {
namespace {

TEST(ShmIdlePeers, CostARankAtMostTwoKibibytesEach) {
  constexpr uint32_t kFew = 2;
  constexpr uint32_t kMany = 1024;
  const auto cost_of = [](uint32_t ranks) {
    const NodeFile file(ranks);
    const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    NodeRank rank(file.fd, 0, ranks);
    const uint64_t heap = mallinfo2().uordblks + mallinfo2().hblkhd - before;
    return heap + rank.memory.reserved_bytes();
  };
  const size_t before = mallinfo2().uordblks;
  const std::unique_ptr<char[]> block(new char[5000]);
  if (mallinfo2().uordblks < before + 5000) GTEST_SKIP() << "this allocator does not count";
  const uint64_t few = cost_of(kFew);
  const uint64_t many = cost_of(kMany);
  RecordProperty("bytes_per_peer", static_cast<int>((many - few) / (kMany - kFew)));
  EXPECT_LE((many - few) / (kMany - kFew), 2048u) << many << " bytes beside " << few;
}

}  // namespace
}  // namespace hydrant::testing
