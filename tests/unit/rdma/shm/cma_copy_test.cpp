// Copies that the kernel refuses, or carries out only in part.
#include "firehose/base/log.hpp"
#include "tests/unit/rdma/shm/fake_kernel.hpp"

#include <cstdio>
#include <cstdlib>
#include <sys/prctl.h>

namespace hydrant::testing {
namespace {

using Piece = MemoryAccess::Piece;

TEST(ShmKernelCopy, PartialCopiesContinue) {
  Pair pair;
  for (int64_t most = 1; most < 40; ++most) {
    const Kernel kernel({most});
    const std::string source = pattern(200);
    std::string target(200, '.');
    std::vector<Piece> pieces;
    for (size_t i = 0, length = 1; i < source.size(); i += length, length = length % 13 + 1) {
      length = std::min(length, source.size() - i);
      pieces.push_back({const_cast<char*>(source.data()) + i, address(target.data() + i), length});
    }
    ASSERT_EQ(pair.a.transport->memory().put_pieces(1, pieces), Status::kOk);
    ASSERT_EQ(target, source) << most;
    target.assign(200, '.');
    ASSERT_EQ(get(pair, source.data(), target.data(), 200), Status::kOk);
    ASSERT_EQ(target, source) << most;
  }
}

// No such memory is touched: the fake kernel only counts.
TEST(ShmKernelCopy, BytesBeyondOneCallAreSplit) {
  Pair pair;
  const Kernel kernel({INT64_MAX, INT64_MAX, 4096, INT64_MAX}, false);
  constexpr size_t kBytes = (size_t{5} << 30) + 123;
  char nothing = 0;
  EXPECT_EQ(pair.a.transport->memory().put(1, 0x100000, &nothing, kBytes, nullptr), Status::kOk);
  EXPECT_EQ(Kernel::calls, 7u);
  EXPECT_EQ(Kernel::asked, 123u);
  const Piece pieces[] = {{&nothing, 1, kBytes}, {&nothing, 2, 10}, {&nothing, 3, kBytes}};
  Kernel::calls = 0;
  Kernel::answers = {};
  EXPECT_EQ(pair.a.transport->memory().get_pieces(1, pieces), Status::kOk);
  EXPECT_EQ(Kernel::calls, 11u);
}

TEST(ShmKernelCopy, KernelErrorIsReported) {
  struct Case {
    int error;
    Status answer;
    bool is_remembered;
  };
  for (const Case& now :
       {Case{EPERM, Status::kUnsupported, true}, Case{EACCES, Status::kUnsupported, true},
        Case{ENOSYS, Status::kUnsupported, true}, Case{EFAULT, Status::kUnsupported, false},
        Case{ENOMEM, Status::kUnsupported, false}, Case{EINVAL, Status::kUnsupported, false},
        Case{ESRCH, Status::kBroken, false}}) {
    SCOPED_TRACE(now.error);
    Pair pair;
    const Kernel kernel({-now.error});
    char word[8] = {};
    ::testing::internal::CaptureStderr();
    set_log_level(LogLevel::kInfo);
    EXPECT_EQ(put(pair, word, word, 8), now.answer);
    EXPECT_EQ(put(pair, word, word, 8), now.answer);
    EXPECT_EQ(Kernel::calls, now.is_remembered ? 1u : 2u);
    reset_log_level();
    const std::string said = ::testing::internal::GetCapturedStderr();
    const size_t first = said.find("process_vm_writev between");
    EXPECT_EQ(first != std::string::npos, now.is_remembered) << said;
    EXPECT_EQ(said.find("process_vm_writev between", first + 1), std::string::npos) << said;
    // The other direction is another system call, which is found out by itself.
    EXPECT_EQ(get(pair, word, word, 8), now.answer);
    EXPECT_EQ(Kernel::calls, now.is_remembered ? 2u : 3u);
  }
}

TEST(ShmKernelCopy, FailureMidwayFailsTheCopy) {
  Pair pair;
  const Kernel kernel({100, -EFAULT});
  const std::string source = pattern(200);
  std::string target(200, '.');
  EXPECT_EQ(put(pair, target.data(), source.data(), 200), Status::kUnsupported);
  Kernel::calls = 0;
  Kernel::answers = {100, 0};  // a kernel that makes no progress does not make us spin
  EXPECT_EQ(put(pair, target.data(), source.data(), 200), Status::kUnsupported);
  EXPECT_EQ(Kernel::calls, 2u);
}

TEST(ShmKernelCopy, KnobForbidsKernelCopies) {
  ASSERT_EQ(setenv("HYDRANT_CMA", "n", 1), 0);
  Pair pair;
  ASSERT_EQ(unsetenv("HYDRANT_CMA"), 0);
  const Kernel kernel({});
  char word[8] = {};
  EXPECT_EQ(put(pair, word, word, 8), Status::kUnsupported);
  EXPECT_EQ(get(pair, word, word, 8), Status::kUnsupported);
  EXPECT_EQ(Kernel::calls, 0u);
  std::string there(8, '.');
  ASSERT_EQ(pair.a.transport->memory().add_segment(1, 0x10000, there.size(), there.data()),
            Status::kOk);
  EXPECT_EQ(pair.a.transport->memory().put(1, 0x10000, "mapped", 6, nullptr), Status::kOk);
}

TEST(ShmKernelCopy, NeverAcrossPidNamespaces) {
  Pair pair;
  pair.b.memory.area(1).pid_namespace.fetch_add(1);
  const Kernel kernel({});
  char word[8] = {};
  EXPECT_EQ(put(pair, word, word, 8), Status::kUnsupported);
  EXPECT_EQ(get(pair, word, word, 8), Status::kUnsupported);
  EXPECT_EQ(Kernel::calls, 0u);
}

TEST(ShmKernelCopy, UnreachableAndDisconnectedPeers) {
  Pair pair;
  char word[8] = {};
  EXPECT_EQ(pair.a.transport->memory().put(2, address(word), word, 8, nullptr),
            Status::kUnsupported);
  EXPECT_EQ(pair.a.transport->memory().get(UINT32_MAX, address(word), word, 8, nullptr),
            Status::kUnsupported);
  pair.a.transport->disconnect(1);
  EXPECT_EQ(put(pair, word, word, 8), Status::kBroken);
  EXPECT_EQ(get(pair, word, word, 8), Status::kBroken);
}

TEST(ShmKernelCopy, YamaPermissionIsRequested) {
  char path[] = "/tmp/hydrant_yama_XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  const auto scope = [&](const char* text) {
    EXPECT_EQ(pwrite(fd, text, 2, 0), 2);
    return shm::allow_cma(path);
  };
  EXPECT_TRUE(scope("0\n"));
  EXPECT_EQ(scope("2\n"), geteuid() == 0);
  EXPECT_EQ(scope("3\n"), geteuid() == 0);
  // With Yama in the kernel the call succeeds; without it, the error is reported.
  EXPECT_EQ(scope("1\n"), prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0) == 0);
  close(fd);
  unlink(path);
  EXPECT_TRUE(shm::allow_cma(path));
}

}  // namespace
}  // namespace hydrant::testing
