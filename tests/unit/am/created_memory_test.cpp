// Memory of created segments: zero, guarded, kept at its place where peers may have mapped it.
#include "am/segment/created_memory.hpp"

#include "am/segment/neighbourhood.hpp"
#include "am/segment/shared_segments.hpp"
#include "rdma/transport/guarded_memory.hpp"
#include "rdma/transport/shared_files.hpp"
#include "tests/support/fake_bootstrap.hpp"
#include "tests/unit/am/job_fixture.hpp"

#include <algorithm>
#include <numeric>
#include <sys/uio.h>
#include <unistd.h>

namespace hydrant::test {
namespace {

constexpr size_t kPage = 4096;

class CreatedMemory : public JobFixture {
 protected:
  // This process as one of `ranks` on its host.
  void stand_among(uint32_t ranks) {
    hydrant::testing::FakeBootstrap bootstrap;
    bootstrap.stands = {};
    bootstrap.stands.size = ranks;
    bootstrap.stands.node_count = 1;
    bootstrap.stands.node_ranks.resize(ranks);
    std::iota(bootstrap.stands.node_ranks.begin(), bootstrap.stands.node_ranks.end(), Rank{0});
    ASSERT_EQ(find_neighbourhood(bootstrap, 0), Status::kOk);
  }
  void TearDown() override {
    stand_among(1);
    JobFixture::TearDown();
  }

  static std::byte* make(size_t bytes) {
    void* addr = nullptr;
    EXPECT_EQ(allocate_created_segment(bytes, &addr), Status::kOk) << last_error_text();
    auto* start = static_cast<std::byte*>(addr);
    EXPECT_TRUE(std::all_of(start, start + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::fill_n(start, bytes, std::byte{0x5a});
    Guarded guarded;
    EXPECT_TRUE(find_guarded(reinterpret_cast<uintptr_t>(start), &guarded));
    EXPECT_STREQ(guarded.label.what, "segment");
    return start;
  }
  static bool is_accessible(const void* at) {
    std::byte byte{};
    const iovec here{&byte, 1};
    const iovec there{const_cast<void*>(at), 1};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1;
  }
  static bool is_shared(const std::byte* at) {
    SharedFile file;
    return find_shared_file(reinterpret_cast<uintptr_t>(at), &file);
  }
};

TEST_F(CreatedMemory, IsPrivateAndReturnedWhereNoOtherRankMapsIt) {
  stand_among(1);
  std::byte* start = make(kPage + 1);
  EXPECT_FALSE(is_shared(start));
  EXPECT_TRUE(is_accessible(start + 2 * kPage - 1));
  EXPECT_FALSE(is_accessible(start + 2 * kPage));
  EXPECT_FALSE(is_accessible(start - 1));
  free_created_segment(start, kPage + 1);
  Guarded guarded;
  EXPECT_FALSE(find_guarded(reinterpret_cast<uintptr_t>(start), &guarded));
  EXPECT_EQ(key_of_segment(reinterpret_cast<uintptr_t>(start), kPage).bytes, 0u);
}

TEST_F(CreatedMemory, IsKeptAndReusedWhereOtherRanksMayHaveMappedIt) {
  stand_among(2);
  std::byte* first = make(3 * kPage);
  std::byte* second = make(kPage);
  EXPECT_NE(first, second);
  EXPECT_TRUE(is_shared(first));
  EXPECT_TRUE(is_shared(first + 3 * kPage - 1));
  free_created_segment(first, 3 * kPage);
  EXPECT_FALSE(is_accessible(first));
  EXPECT_TRUE(is_accessible(second));
  std::byte* const smaller = make(2 * kPage - 5);
  EXPECT_EQ(smaller, first) << "the extent is used again";
  EXPECT_FALSE(is_accessible(first + 2 * kPage)) << "its rest is a guard";
  std::byte* const larger = make(4 * kPage);
  EXPECT_NE(larger, first);
  free_created_segment(smaller, 2 * kPage - 5);
  std::byte* const tiny = make(kPage);
  EXPECT_NE(tiny, first) << "an extent of three times the size stays";
  std::byte* const whole = make(3 * kPage);
  EXPECT_EQ(whole, first) << "... for a segment that needs it, and all of it is zero";
  for (std::byte* each : {tiny, second}) free_created_segment(each, kPage);
  free_created_segment(whole, 3 * kPage);
  free_created_segment(larger, 4 * kPage);
}

TEST_F(CreatedMemory, KeysAreOfWholePagesOfSharedMemoryOnly) {
  stand_among(2);
  static std::byte private_memory[2 * kPage];
  EXPECT_EQ(key_of_segment(reinterpret_cast<uintptr_t>(private_memory), kPage).bytes, 0u);
  constexpr size_t kBytes = 64 * kPage;  // more than the extents of other tests
  std::byte* start = make(kBytes);
  const auto at = reinterpret_cast<uintptr_t>(start);
  EXPECT_NE(key_of_segment(at, kBytes).bytes, 0u);
  EXPECT_NE(key_of_segment(at + 100, kPage).bytes, 0u);
  EXPECT_EQ(key_of_segment(at + 100, kBytes).bytes, 0u) << "it reaches beyond the file";
  free_created_segment(start, kBytes);
}

TEST_F(CreatedMemory, RightKeysOfNeighboursMapTheMemoryAndNoOthers) {
  stand_among(2);
  transport->abilities = Transport::kMapped;
  std::byte* start = make(kPage);
  const auto at = reinterpret_cast<uintptr_t>(start);
  SegmentKey key = key_of_segment(at, kPage);
  map_segment(1, at, kPage, {});
  map_segment(0, at, kPage, key);  // this rank
  SegmentKey wrong = key;
  wrong.bytes = 73;
  map_segment(1, at, kPage, wrong);
  wrong = key;
  wrong.blob[0] = std::byte{0};
  map_segment(1, at, kPage, wrong);
  map_segment(1, at + kPage, kPage, key);  // other memory than the key's
  map_segment(2, at, kPage, key);          // a rank of another node
  EXPECT_TRUE(transport->segments.empty());
  map_segment(1, at + 8, kPage - 8, key);
  ASSERT_EQ(transport->segments.size(), 1u);
  auto* there = static_cast<std::byte*>(transport->segments[0]);
  EXPECT_NE(there, start + 8);
  EXPECT_EQ(*there, std::byte{0x5a});
  start[8] = std::byte{1};
  EXPECT_EQ(*there, std::byte{1});
  free_created_segment(start, kPage);
}

}  // namespace
}  // namespace hydrant::test
