// Puts and gets between the processes of a node: what is mapped, what the kernel copies, alone and in pieces.
#include "tests/unit/rdma/shm/fake_kernel.hpp"

#include <algorithm>
#include <csignal>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

namespace hydrant::testing {
namespace {

using shm::CmaCopy;
using Piece = MemoryAccess::Piece;

TEST(ShmOneSided, ReportsItsCapabilities) {
  Pair pair;
  EXPECT_EQ(pair.a.transport->capabilities(), Transport::kOneSided | Transport::kCompletesAtOnce |
                                                  Transport::kPutsBeforeMessages |
                                                  Transport::kMapped);
  EXPECT_EQ(pair.a.transport->depth(), 0u);
}

TEST(ShmOneSided, MappedMemoryNeedsNoKernel) {
  Pair pair;
  const Kernel kernel({-EPERM});
  std::string there = pattern(64);
  ASSERT_EQ(pair.a.transport->memory().add_segment(1, 0x10000, there.size(), there.data()),
            Status::kOk);
  ASSERT_EQ(pair.a.transport->memory().put(1, 0x10008, "hydrant", 7, nullptr), Status::kOk);
  EXPECT_EQ(there.substr(8, 7), "hydrant");
  std::string here(15, '.');
  ASSERT_EQ(pair.a.transport->memory().get(1, 0x10000, here.data(), here.size(), nullptr),
            Status::kOk);
  EXPECT_EQ(here, pattern(8) + "hydrant");
  EXPECT_EQ(Kernel::calls, 0u);
}

TEST(ShmOneSided, StartBlocksAreSharedAndApartFromThoseOfBarriers) {
  Pair pair;
  std::byte* const written = pair.a.transport->memory().start_block(0);
  const std::byte* const read = pair.b.transport->memory().start_block(0);
  ASSERT_NE(written, nullptr);
  ASSERT_NE(read, nullptr);
  const auto are = [read](std::byte value) {
    return std::all_of(read, read + MemoryAccess::kStartBytes,
                       [value](std::byte one) { return one == value; });
  };
  EXPECT_TRUE(are(std::byte{0}));
  std::memset(written, 7, MemoryAccess::kStartBytes);
  EXPECT_TRUE(are(std::byte{7}));
  EXPECT_EQ(pair.b.transport->memory().shared_block(0)[255], std::byte{0});
  EXPECT_EQ(pair.b.transport->memory().start_block(1)[0], std::byte{0});
  EXPECT_EQ(pair.a.transport->memory().start_block(2), nullptr);
}

// The other rank is this process: the kernel's own calls.
TEST(ShmOneSided, OtherMemoryIsCopiedByTheKernel) {
  Pair pair;
  for (const size_t bytes : {size_t{1}, size_t{7}, size_t{4096}, size_t{100'001}}) {
    const std::string source = pattern(bytes);
    std::string target(bytes + 2, '.');
    ASSERT_EQ(put(pair, target.data() + 1, source.data(), bytes), Status::kOk) << last_error_text();
    EXPECT_EQ(target, "." + source + ".");
    std::string back(bytes + 2, '.');
    ASSERT_EQ(get(pair, source.data(), back.data() + 1, bytes), Status::kOk) << last_error_text();
    EXPECT_EQ(back, "." + source + ".");
  }
}

TEST(ShmOneSided, InaccessibleMemoryIsUnsupported) {
  Pair pair;
  const long page = sysconf(_SC_PAGESIZE);
  const auto size = static_cast<size_t>(page);
  auto* at = static_cast<char*>(
      mmap(nullptr, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(at, MAP_FAILED);
  ASSERT_EQ(munmap(at + size, size), 0);
  const std::string source = pattern(16);
  // Half of it is there.
  EXPECT_EQ(put(pair, at + size - 8, source.data(), 16), Status::kUnsupported);
  char here[16];
  EXPECT_EQ(get(pair, at + size - 8, here, 16), Status::kUnsupported);
  ASSERT_EQ(mprotect(at, size, PROT_READ), 0);
  EXPECT_EQ(put(pair, at, source.data(), 16), Status::kUnsupported);
  EXPECT_NE(std::string(last_error_text()).find("process_vm_writev"), std::string::npos);
  // The failure concerned that address alone.
  EXPECT_EQ(get(pair, at, here, 8), Status::kOk);
  std::string target(16, '.');
  EXPECT_EQ(put(pair, target.data(), source.data(), 16), Status::kOk);
  EXPECT_EQ(target, source);
  munmap(at, size);
}

TEST(ShmOneSided, PiecesOfOneCallShareASystemCall) {
  Pair pair;
  std::string mapped(16, '.');
  ASSERT_EQ(pair.a.transport->memory().add_segment(1, 0x10000, mapped.size(), mapped.data()),
            Status::kOk);
  for (const bool to_peer : {true, false}) {
    const Kernel kernel({});
    const std::string source = pattern(1000);
    std::string target(1000, '.');
    std::string expected = target;
    std::vector<Piece> pieces;
    for (size_t i = 0; i < 50; ++i) {
      auto* from = const_cast<char*>(source.data()) + 20 * i;
      char* to = target.data() + 20 * (49 - i) + 3;
      pieces.push_back(to_peer ? Piece{from, address(to), i % 17}
                               : Piece{to, address(from), i % 17});
      expected.replace(20 * (49 - i) + 3, i % 17, source, 20 * i, i % 17);
    }
    char other[8] = "mapped!";
    pieces.insert(pieces.begin() + 25, Piece{other, 0x10004, sizeof other});
    const Status status = to_peer ? pair.a.transport->memory().put_pieces(1, pieces)
                                  : pair.a.transport->memory().get_pieces(1, pieces);
    ASSERT_EQ(status, Status::kOk) << last_error_text();
    EXPECT_EQ(target, expected);
    EXPECT_STREQ(to_peer ? mapped.data() + 4 : "mapped!", "mapped!");
    EXPECT_EQ(Kernel::calls, 1u);
  }
}

TEST(ShmOneSided, PiecesThatAreAllMappedNeedNoKernelAndNoneIsFine) {
  Pair pair;
  const Kernel kernel({-EPERM});
  std::string there(16, '.');
  ASSERT_EQ(pair.a.transport->memory().add_segment(1, 0x10000, there.size(), there.data()),
            Status::kOk);
  char first = 'x';
  char second = 'y';
  const Piece pieces[] = {{&first, 0x10001, 1}, {&second, 0x1000f, 1}};
  EXPECT_EQ(pair.a.transport->memory().put_pieces(1, pieces), Status::kOk);
  EXPECT_EQ(there, ".x.............y");
  EXPECT_EQ(pair.a.transport->memory().put_pieces(1, {}), Status::kOk);
  EXPECT_EQ(pair.a.transport->memory().get_pieces(1, {}), Status::kOk);
}

TEST(ShmOneSided, PiecesBeyondOneCallAreSplit) {
  Pair pair;
  const std::string source = pattern(3000);
  std::string target(3000, '.');
  std::vector<Piece> pieces;
  for (size_t i = 0; i < source.size(); ++i) {
    pieces.push_back({const_cast<char*>(source.data()) + i, address(target.data() + i), 1});
  }
  ASSERT_EQ(pair.a.transport->memory().put_pieces(1, pieces), Status::kOk);  // the real kernel
  EXPECT_EQ(target, source);
  target.assign(3000, '.');
  const Kernel kernel({1, 5, -EINTR, 100, -EINTR, -EINTR, 3, INT64_MAX});
  ASSERT_EQ(pair.a.transport->memory().put_pieces(1, pieces), Status::kOk);
  EXPECT_EQ(target, source);
  EXPECT_EQ(Kernel::vectors, CmaCopy::kMaxVectors);
}

// ---- processes of their own ----

// The child's memory is at the same address, with other contents.
char shared_name[1 << 20];

int put_and_get_with_a_child(int fd, const std::function<void()>& child_does, Status expected) {
  NodeRank self(fd, 0, 2);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    child_does();
    std::memset(shared_name, 'c', sizeof shared_name);
    NodeRank other(fd, 1, 2);
    if (other.try_send(0, Lane::kRequest, 1, 1) != Status::kOk) _exit(3);
    Inbox inbox;
    const uint64_t deadline = in_seconds(20);
    while (other.transport->poll(inbox, 1, false) == 0 && now_ns() < deadline) sched_yield();
    const bool all = std::memchr(shared_name, 'c', sizeof shared_name) == nullptr;
    _exit(all == (expected == Status::kOk) ? 0 : 4);
  }
  Inbox inbox;
  while (self.transport->poll(inbox, 1, false) == 0) sched_yield();
  static char mine[sizeof shared_name];
  int wrong = 0;
  if (self.transport->memory().get(1, address(shared_name), mine, sizeof mine, nullptr) != expected)
    wrong = 5;
  if (expected == Status::kOk &&
      std::string_view(mine, sizeof mine).find_first_not_of('c') != std::string_view::npos)
    wrong = 6;
  std::memset(mine, 'p', sizeof mine);
  if (self.transport->memory().put(1, address(shared_name), mine, sizeof mine, nullptr) != expected)
    wrong = 7;
  (void)self.try_send(1, Lane::kRequest, 1, 1);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) wrong = 8;
  // The process has exited; the number of a peer that was lost names no peer.
  if (expected == Status::kOk &&
      self.transport->memory().put(1, address(shared_name), mine, 8, nullptr) != Status::kBroken)
    wrong = 9;
  return wrong;
}

TEST(ShmOneSided, BetweenProcesses) {
  NodeFile file(2);
  EXPECT_EQ(run_ranks(1,
                      [&](uint32_t) {
                        return put_and_get_with_a_child(
                            file.fd, [] {}, Status::kOk);
                      }),
            "");
}

TEST(ShmOneSided, ForbiddenCopyCallsAreUnsupported) {
  NodeFile file(2);
  EXPECT_EQ(run_ranks(1,
                      [&](uint32_t) {
                        if (!refuse_system_call(SYS_process_vm_writev, EPERM) ||
                            !refuse_system_call(SYS_process_vm_readv, ENOSYS))
                          return 77;
                        return put_and_get_with_a_child(
                            file.fd, [] {}, Status::kUnsupported);
                      }),
            "");
}

}  // namespace
}  // namespace hydrant::testing
