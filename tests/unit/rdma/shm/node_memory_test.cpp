// The node's memory after the program has closed its descriptor.
#include "rdma/shm/memory/node_memory.hpp"

#include "tests/support/descriptors.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <sys/mman.h>

namespace hydrant::shm {
namespace {

using testing::OwnDescriptors;
using testing::ProgramsFiles;

class ClosedNodeMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    int made = -1;
    ASSERT_EQ(NodeMemory::create(2, &made), Status::kOk);
    const OwnDescriptors own;
    ASSERT_EQ(memory_.attach(made, 0), Status::kOk);
    kept_ = own.others();
    close(made);
    ASSERT_EQ(kept_.size(), 1U);
  }
  void use() {
    EXPECT_EQ(memory_.reserve_ring(0, 1, Lane::kRequest), Status::kOk) << last_error_text();
    EXPECT_EQ(memory_.reserve_cells(0, Lane::kRequest, 0), Status::kOk) << last_error_text();
    EXPECT_EQ(memory_.reserve_ring(1, 0, Lane::kReply, NodeMemory::Owner::kTheirs), Status::kOk)
        << last_error_text();
    EXPECT_EQ(memory_.reserve_cells(1, Lane::kReply, 0, NodeMemory::Owner::kTheirs), Status::kOk)
        << last_error_text();
    EXPECT_EQ(memory_.reserve_collective_block(0, 5), Status::kOk) << last_error_text();
    std::byte* block = memory_.collective_blocks(0) + size_t{5} * MemoryAccess::kCollectiveBytes;
    std::memset(block, 1, MemoryAccess::kCollectiveBytes);
    std::memset(memory_.lines(0, 1, Lane::kRequest), 1, kLineBytes);
    std::memset(memory_.cell(0, Lane::kRequest, 0), 1, kCellClasses[0].bytes);
  }

  NodeMemory memory_;
  std::vector<int> kept_;
};

TEST_F(ClosedNodeMemory, GivesPagesByItsMapping) {
  close(kept_[0]);
  use();
  EXPECT_EQ(memory_.reserved_bytes(), 0U);
}

TEST_F(ClosedNodeMemory, ForeignMemoryFileIsLeftAlone) {
  const int mine = memfd_create("the program's", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(mine, 1 << 30), 0);
  ASSERT_EQ(dup2(mine, kept_[0]), kept_[0]);
  use();
  struct stat facts {};
  ASSERT_EQ(fstat(mine, &facts), 0);
  EXPECT_EQ(facts.st_blocks, 0) << "it got the node's pages";
  memory_.detach();
  EXPECT_TRUE(testing::is_open(kept_[0]));
  EXPECT_EQ(testing::inode_of(kept_[0]), facts.st_ino);
  close(kept_[0]);
  close(mine);
}

TEST_F(ClosedNodeMemory, ForeignFileIsLeftAlone) {
  const ProgramsFiles program(kept_);
  use();
  memory_.detach();
  EXPECT_EQ(program.harm(), "");
}

}  // namespace
}  // namespace hydrant::shm
