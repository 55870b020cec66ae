// Cells, lazy memory, shortage.
#include "tests/support/refused_calls.hpp"
#include "tests/unit/rdma/shm/node_world.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

namespace hydrant::testing {
namespace {

using shm::kCellClasses;

TEST(ShmCells, CarryEverySizeInBothLanes) {
  Pair pair;
  for (const Lane lane : {Lane::kRequest, Lane::kReply}) {
    for (const uint32_t bytes : {1u, 4096u, 4097u, 65536u}) {
      bool right = false;
      pair.inbox.then = [&](const Incoming& message) {
        right = message.payload != nullptr && word_of(message) == bytes &&
                message.payload_room >= bytes && message.lane == lane;
        for (uint32_t i = 0; right && i < bytes; ++i) right = message.payload[i] == std::byte{0x5a};
      };
      ASSERT_EQ(pair.a.try_send_cell(1, lane, 1, bytes, 0x5a), Status::kOk);
      ASSERT_EQ(pair.poll_b(), 1u);
      EXPECT_TRUE(right) << bytes;
    }
    Cell cell;
    EXPECT_EQ(pair.a.transport->messages(1).take_cell(1, lane, 65537, &cell), Status::kBadArg);
  }
}

TEST(ShmCells, AreLimitedAndReturned) {
  Pair pair;
  for (const auto& kind : kCellClasses) {
    for (uint32_t i = 0; i < kind.count; ++i) {
      ASSERT_EQ(pair.a.try_send_cell(1, Lane::kRequest, 1, kind.bytes, 1), Status::kOk);
    }
    EXPECT_EQ(pair.a.try_send_cell(1, Lane::kRequest, 1, kind.bytes, 1), Status::kNotReady);
    // The other lane has its own.
    EXPECT_EQ(pair.a.try_send_cell(1, Lane::kReply, 1, kind.bytes, 1), Status::kOk);
    EXPECT_EQ(pair.poll_b(1, true), 1u);
    EXPECT_EQ(pair.a.try_send_cell(1, Lane::kRequest, 1, kind.bytes, 1), Status::kNotReady);
    EXPECT_EQ(pair.poll_b(1), 1u);
    EXPECT_EQ(pair.a.try_send_cell(1, Lane::kRequest, 1, kind.bytes, 1), Status::kOk);
    while (pair.poll_b() != 0) {
    }
  }
}

// Cells with two readers, one of which takes its messages late: cells that the other one has read come back.
TEST(ShmCells, ReturnOutOfOrder) {
  NodeFile file(3);
  NodeRank sender(file.fd, 0, 3);
  NodeRank slow(file.fd, 1, 3);
  NodeRank quick(file.fd, 2, 3);
  Inbox inbox;
  for (uint32_t i = 0; i < kCellClasses[0].count / 2; ++i) {
    ASSERT_EQ(sender.try_send_cell(1, Lane::kRequest, 1, 4096, 1), Status::kOk);
    ASSERT_EQ(sender.try_send_cell(2, Lane::kRequest, 1, 4096, 2), Status::kOk);
  }
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(sender.try_send_cell(2, Lane::kRequest, 1, 4096, 2), Status::kNotReady);
    uint32_t got = 0;
    while (const uint32_t now = quick.transport->poll(inbox, 100, false)) got += now;
    EXPECT_EQ(got, kCellClasses[0].count / 2);
    for (uint32_t i = 0; i < got; ++i) {
      ASSERT_EQ(sender.try_send_cell(2, Lane::kRequest, 1, 4096, 2), Status::kOk);
    }
  }
  // A disconnect frees the cells of the reader.
  sender.transport->disconnect(1);
  for (uint32_t i = 0; i < kCellClasses[0].count / 2; ++i) {
    ASSERT_EQ(sender.try_send_cell(2, Lane::kRequest, 1, 4096, 2), Status::kOk);
  }
  // An acknowledgement of the disconnected reader frees no cell that has another reader now.
  inbox.letters.clear();
  while (slow.transport->poll(inbox, 100, false) != 0) {
  }
  EXPECT_EQ(inbox.letters.size(), kCellClasses[0].count / 2);
  EXPECT_EQ(sender.try_send_cell(2, Lane::kRequest, 1, 4096, 2), Status::kNotReady);
}

TEST(ShmCells, DroppedCellIsFree) {
  Pair pair;
  for (uint32_t i = 0; i < 3 * kCellClasses[1].count; ++i) {
    Cell cell;
    ASSERT_EQ(pair.a.transport->messages(1).take_cell(1, Lane::kReply, 65536, &cell), Status::kOk);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(cell.data) % 64, 0u);
    pair.a.transport->messages(1).drop_cell(1, Lane::kReply, cell);
  }
}

// ---- memory ----

TEST(ShmMemory, OnlyCommunicatingPairsUseMemory) {
  NodeFile file(64);
  NodeRank a(file.fd, 0, 64);
  NodeRank b(file.fd, 1, 64);
  const uint64_t common = a.memory.reserved_bytes();
  EXPECT_LE(common, 4096u + 64 * sizeof(shm::RankArea) + 4096);
  ASSERT_EQ(a.try_send(1, Lane::kRequest, 1, 1), Status::kOk);
  // That of the requests and that of their replies, and a page of controls each.
  const uint64_t rings = shm::kPairRingBytes + 2 * shm::kPageBytes;
  EXPECT_EQ(a.memory.reserved_bytes(), common + rings);
  Inbox inbox;
  EXPECT_EQ(b.transport->poll(inbox, 10, false), 1u);
  for (int i = 0; i < 10000; ++i) b.transport->poll(inbox, 10, false);
  EXPECT_EQ(a.memory.reserved_bytes(), common + rings) << "by looking";
  ASSERT_EQ(b.try_send(0, Lane::kReply, 1, 1), Status::kOk);
  EXPECT_EQ(a.memory.reserved_bytes(), common + rings) << "by a reply";
  ASSERT_EQ(a.try_send_cell(1, Lane::kRequest, 1, 100, 1), Status::kOk);
  const uint64_t cells =
      shm::kReceiptsBytes + uint64_t{kCellClasses[0].chunk} * kCellClasses[0].bytes;
  EXPECT_EQ(a.memory.reserved_bytes(), common + rings + cells);
}

TEST(ShmMemory, CreateAndAttachRejectInvalidNodes) {
  shm::NodeMemory memory;
  int fd = -1;
  EXPECT_EQ(shm::NodeMemory::create(0, &fd), Status::kBadArg);
  EXPECT_EQ(shm::NodeMemory::create(shm::kMaxNodeRanks + 1, &fd), Status::kBadArg);
  EXPECT_EQ(fd, -1);
  EXPECT_EQ(memory.attach(-1, 0), Status::kBroken);
  const int null = ::open("/dev/zero", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(memory.attach(null, 0), Status::kBroken);
  close(null);
  NodeFile file(2);
  EXPECT_EQ(memory.attach(file.fd, 2), Status::kBadArg);
  // Another version.
  const uint32_t other = shm::kLayoutVersion + 1;
  ASSERT_EQ(pwrite(file.fd, &other, sizeof other, offsetof(shm::NodeHeader, version)), 4);
  EXPECT_EQ(memory.attach(file.fd, 0), Status::kBroken);
  EXPECT_NE(std::string(last_error_text()).find("version"), std::string::npos);
  // No process can shrink the file under the mappings.
  EXPECT_NE(ftruncate(file.fd, 0), 0);
}

TEST(ShmMemory, LargestNodeIsAHole) {
  NodeFile file(shm::kMaxNodeRanks);
  NodeRank last(file.fd, shm::kMaxNodeRanks - 1, shm::kMaxNodeRanks);
  NodeRank first(file.fd, 0, shm::kMaxNodeRanks);
  ASSERT_EQ(last.try_send(0, Lane::kReply, 1, 1), Status::kOk);
  ASSERT_EQ(last.try_send_cell(0, Lane::kReply, 1, 65536, 1), Status::kOk);
  Inbox inbox;
  EXPECT_EQ(first.transport->poll(inbox, 10, true), 2u);
  EXPECT_LT(first.memory.reserved_bytes(), 2u << 20);
}

TEST(ShmMemory, FileSizeLimitIsAnErrorAndNoSignal) {
  const auto failed = run_ranks(1, [](uint32_t) {
    const rlimit limit{1 << 20, 1 << 20};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    int fd = -1;
    if (shm::NodeMemory::create(64, &fd) != Status::kResource) return 3;
    return std::strstr(last_error_text(), "ulimit -f") != nullptr ? 0 : 4;
  });
  EXPECT_EQ(failed, "");
}

TEST(ShmMemory, AddressSpaceLimitIsAnError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's own memory is beyond such a limit";
#endif
  const auto failed = run_ranks(1, [](uint32_t) {
    int fd = -1;
    if (shm::NodeMemory::create(512, &fd) != Status::kOk) return 2;
    const rlimit limit{uint64_t{1} << 30, uint64_t{1} << 30};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 3;
    shm::NodeMemory memory;
    return memory.attach(fd, 0) == Status::kResource ? 0 : 4;
  });
  EXPECT_EQ(failed, "");
}

// The kernel has no page left: first contact and the first cell are errors with figures, existing
// connections go on working, and no process gets a SIGBUS.
TEST(ShmMemory, KernelRefusalIsAnErrorWithFigures) {
  const auto failed = run_ranks(1, [](uint32_t) {
    NodeFile file(3);
    NodeRank a(file.fd, 0, 3);
    NodeRank b(file.fd, 1, 3);
    if (a.try_send(1, Lane::kRequest, 1, 1) != Status::kOk) return 2;
    if (!refuse_system_call(SYS_fallocate, ENOSPC)) return 77;
    if (a.try_send(2, Lane::kRequest, 1, 1) != Status::kResource) return 3;
    const std::string text = last_error_text();
    if (text.find("16384") == std::string::npos && text.find("4096") == std::string::npos) return 4;
    if (text.find("available") == std::string::npos) return 5;
    Cell cell;
    if (a.transport->messages(1).take_cell(1, Lane::kRequest, 8, &cell) != Status::kResource)
      return 6;
    if (a.try_send(1, Lane::kRequest, 1, 1) != Status::kOk) return 7;
    Inbox inbox;
    if (b.transport->poll(inbox, 10, false) != 2) return 8;
    if (b.try_send(0, Lane::kReply, 1, 1) != Status::kOk) return 9;
    return a.transport->poll(inbox, 10, true) == 1 ? 0 : 10;
  });
  EXPECT_EQ(failed, "");
}

// Memory for a request and for its reply is had before the request is sent, so that no reply is lost.
TEST(ShmMemory, ARequestWithoutMemoryForItsReplyIsNotSent) {
  int refused = 0;
  const std::string wrong =
      RefusedCalls::run({{"fallocate", SYS_fallocate}}, [&](RefusedCalls& calls) -> std::string {
        for (;; ++refused) {
          Pair pair;
          calls.refuse(0, refused, RefusedCalls::kForEver, ENOSPC);
          const Status sent = pair.a.try_send(1, Lane::kRequest, 1, 7);
          const bool was_refused = calls.allow() != 0;
          if (pair.poll_b() != (sent == Status::kOk ? 1u : 0u)) return "it was sent";
          if (sent == Status::kOk) return was_refused ? "sent, though refused" : "";
          if (sent != Status::kResource) return "another error";
          if (pair.a.try_send(1, Lane::kRequest, 1, 7) != Status::kOk) return "not sent later";
        }
      });
  if (wrong == RefusedCalls::kNoFilter) GTEST_SKIP() << wrong;
  EXPECT_EQ(wrong, "") << "with refusals from call " << refused << " on";
  EXPECT_EQ(refused, 4) << "a control and a ring for each lane";
}

// ---- limits read from files: a machine made of files ----

class FakeMachine {
 public:
  FakeMachine() {
    char name[] = "/tmp/hydrant-supply-XXXXXX";
    root_ = mkdtemp(name);
    std::filesystem::create_directories(root_ + "/proc/self");
    std::filesystem::create_directories(root_ + "/cg/job");
    write("/proc/self/cgroup", "0::/job\n");
    write("/proc/self/mountinfo", "30 20 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
    write("/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   8388608 kB\n");
  }
  ~FakeMachine() { std::filesystem::remove_all(root_); }
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;
  void write(const std::string& path, const std::string& text) {
    std::ofstream(root_ + path) << text;
  }
  const char* root() const { return root_.c_str(); }

 private:
  std::string root_;
};

TEST(ShmMemorySupply, ControlGroupShortageNamesFigures) {
  FakeMachine machine;
  machine.write("/cg/job/memory.max", "104857600\n");
  machine.write("/cg/job/memory.current", "94371840\n");
  machine.write("/cg/job/memory.stat", "anon 1\nactive_file 1048576\ninactive_file 1048576\n");
  shm::PageReserver reserver(machine.root());
  EXPECT_EQ(reserver.available().bytes, 12u << 20);
  NodeFile file(64);
  EXPECT_EQ(reserver.reserve(file.fd, 1 << 20, 20 << 20, "a test"), Status::kResource);
  const std::string text = last_error_text();
  EXPECT_NE(text.find("20971520"), std::string::npos) << text;
  EXPECT_NE(text.find("12582912"), std::string::npos) << text;
  EXPECT_NE(text.find("/cg/job"), std::string::npos) << text;
  EXPECT_EQ(reserver.reserve(file.fd, 1 << 20, 1 << 20, "a test"), Status::kOk);
}

TEST(ShmMemorySupply, MachineShortageNamesFigures) {
  FakeMachine machine;
  machine.write("/cg/job/memory.max", "max\n");
  machine.write("/cg/job/memory.current", "0\n");
  machine.write("/proc/meminfo", "MemAvailable:   2048 kB\n");
  shm::PageReserver reserver(machine.root());
  NodeFile file(64);
  EXPECT_EQ(reserver.reserve(file.fd, 1 << 20, 4 << 20, "a test"), Status::kResource);
  EXPECT_NE(std::string(last_error_text()).find("the machine"), std::string::npos);
}

}  // namespace
}  // namespace hydrant::testing
