// Forks while memory is registered with the guest's device. Some kernels copy pinned pages for the child; on
// others the transport has activated libibverbs' protection, and the child lacks them.
#include "tests/unit/rdma/ibv/ibv_world.hpp"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant {
namespace {

using testing::IbvWorld;
using testing::PinnedMemory;
using testing::Told;

// A child that lives until the object ends.
class Child {
 public:
  Child() {
    EXPECT_EQ(pipe(ends_), 0);
    pid_ = fork();
    if (pid_ != 0) return;
    close(ends_[1]);
    char end;
    _exit(read(ends_[0], &end, 1) == 0 ? 0 : 1);
  }
  ~Child() {
    close(ends_[1]);
    int status = -1;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    EXPECT_EQ(status, 0);
    close(ends_[0]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  int ends_[2] = {-1, -1};
  pid_t pid_ = -1;
};

bool new_child_has(void* page) {
  const pid_t child = fork();
  if (child == 0) {
    unsigned char is_resident;
    _exit(mincore(page, 1, &is_resident) == 0 ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status) == 1;
}

TEST(VerbsFork, AdapterReadsWhatTheParentWritesAfterwards) {
  IbvWorld world(2);
  world.connect(0, 1);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, 4096);
  PinnedMemory there(*world[1].transport, Access::kRemoteWrite, 4096);
  const Child child;
  here.data.get()[8] = std::byte{42};
  Told told;
  ASSERT_EQ(world[0].transport->pinned()->put(1, there.for_peer(), here.local(), 1024, &told),
            Status::kOk);
  ASSERT_TRUE(world.until([&] { return told.times != 0; }));
  EXPECT_EQ(told.status, Status::kOk);
  EXPECT_EQ(there.data.get()[8], std::byte{42});
  // The queues of the device's library work, too, in both directions.
  world.connect(1, 0);
}

TEST(VerbsFork, ChildLacksRegisteredMemoryOnlyWhereTheKernelNeedsIt) {
  IbvWorld world(2);
  const ibv_fork_status status = ibv_is_fork_initialized();
  ASSERT_NE(status, IBV_FORK_DISABLED) << "the transport activates what the kernel needs";
  const bool is_protected = status == IBV_FORK_ENABLED;
  const std::unique_ptr<Registrar> registrar = world[0].transport->pinned()->make_registrar();
  EXPECT_EQ(registrar->traits().unpin_before_release, is_protected);
  alignas(4096) static std::byte page[4096];
  const MemoryRange range{reinterpret_cast<uintptr_t>(page), sizeof page};
  alignas(8) std::byte key[64];
  ASSERT_EQ(registrar->pin(range, Access::kLocalWrite, key), Status::kOk) << last_error_text();
  EXPECT_EQ(new_child_has(page), !is_protected);
  EXPECT_EQ(registrar->unpin(range, key), UnpinResult::kDone);
  EXPECT_TRUE(new_child_has(page));
}

}  // namespace
}  // namespace hydrant
