// Peers that die, lie, or keep their memory to themselves.
#include "tests/unit/rdma/shm/node_world.hpp"

#include <cerrno>
#include <csignal>
#include <random>
#include <sched.h>
#include <set>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>

namespace hydrant::testing {
namespace {

TEST(ShmPeers, DisconnectedPeerNeitherSendsNorReceives) {
  Pair pair;
  ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, 1), Status::kOk);
  EXPECT_EQ(pair.poll_b(), 1u);
  ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, 1), Status::kOk);
  pair.b.transport->disconnect(0);
  pair.b.transport->disconnect(0);
  EXPECT_EQ(pair.b.transport->counts().disconnected, 1u);
  EXPECT_EQ(pair.poll_b(), 0u);
  EXPECT_EQ(pair.b.try_send(0, Lane::kReply, 1, 1), Status::kBroken);
  EXPECT_NE(std::string(last_error_text()).find("rank 0"), std::string::npos);
  int word = 0;
  EXPECT_EQ(pair.b.transport->memory().write(0, reinterpret_cast<uintptr_t>(&word), &word, 4),
            Status::kBroken);
  ASSERT_EQ(pair.a.try_send(1, Lane::kReply, 1, 1),
            Status::kOk);  // a doorbell of the disconnected rank
  EXPECT_EQ(pair.poll_b(), 0u);
  EXPECT_EQ(pair.b.transport->active_rings(), 0u);
}

TEST(ShmPeers, HandlerMayDisconnectItsSender) {
  Pair pair;
  for (int i = 0; i < 5; ++i) ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, 1), Status::kOk);
  pair.inbox.then = [&](const Incoming& message) { pair.b.transport->disconnect(message.from); };
  EXPECT_EQ(pair.poll_b(), 1u);
  EXPECT_EQ(pair.poll_b(), 0u);
}

// The thread that detects a peer's exit is not the one that sends to the peer: in the mode for one thread,
// too.
TEST(ShmPeers, AnyThreadMayDisconnectAtAnyTime) {
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    NodeFile file(3);
    NodeRank self(file.fd, 0, 3);
    NodeRank mortal(file.fd, 1, 3);
    NodeRank other(file.fd, 2, 3);
    std::atomic<int> sent{0};
    std::thread undertaker([&] {
      while (sent.load() <= round % 100) sched_yield();
      self.transport->disconnect(1);
    });
    Inbox inbox;
    Inbox others;
    Status status = Status::kOk;
    for (; status != Status::kBroken; ++sent) {
      status = self.try_send_cell(1, Lane::kRequest, 1, 4096, 1);
      (void)self.try_send_cell(2, Lane::kRequest, 1, 4096, 1);
      self.transport->poll(inbox, 4, false);
      if (sent % 2 != 0) other.transport->poll(others, 4, false);
    }
    undertaker.join();
    EXPECT_EQ(self.transport->counts().disconnected, 1u);
    while (other.transport->poll(others, 100, false) != 0) {
    }
    // Each is there once.
    std::set<uint32_t> free;
    Cell cell;
    while (self.transport->messages(1).take_cell(1, Lane::kRequest, 4096, &cell) == Status::kOk) {
      ASSERT_TRUE(free.insert(cell.index).second) << cell.index;
    }
    EXPECT_EQ(free.size(), shm::kCellClasses[0].count);
  }
}

// ---- corrupt memory ----

class ShmCorruptMemory : public ::testing::Test {
 protected:
  // A log line is written for each peer that corrupts memory; the last one is checked.
  void SetUp() override { ::testing::internal::CaptureStderr(); }
  void TearDown() override {
    const std::string lines = ::testing::internal::GetCapturedStderr();
    if (disconnects_) {
      EXPECT_NE(lines.find("rank 1 has corrupted"), std::string::npos);
    }
  }
  bool disconnects_ = false;
};

std::atomic<uint64_t>& word_at(NodeRank& rank, uint32_t from, uint32_t to, Lane lane,
                               uint32_t line) {
  return shm::first_word(rank.memory.lines(from, to, lane) + line * shm::kLineBytes);
}

TEST_F(ShmCorruptMemory, EveryMalformedWordDisconnects) {
  using shm::MessageWord;
  const uint64_t lies[] = {
      MessageWord::make(1, 0, 1, 0),                          // no lines
      MessageWord::make(1, shm::kMaxMessageLines + 1, 1, 0),  // too many
      MessageWord::make(1, 63, 1, 0),
      MessageWord::make(1, 1, 1, shm::kCellCount + 1),  // no such cell
      MessageWord::make(1, 1, 1, 0xffff),
      MessageWord::make(1, 1, 1, 0) | MessageWord::kSkip,  // not to the end
      MessageWord::make(1, 1, 1, 0) | MessageWord::kReserved,
  };
  for (const uint64_t lie : lies) {
    Pair pair;
    ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, 1), Status::kOk);
    ASSERT_EQ(pair.poll_b(), 1u);
    word_at(pair.a, 0, 1, Lane::kRequest, 1).store(lie);
    pair.poll_b();
    EXPECT_EQ(pair.b.transport->counts().disconnected, 1u) << std::hex << lie;
    EXPECT_EQ(pair.b.try_send(0, Lane::kRequest, 1, 1), Status::kBroken);
  }
}

TEST_F(ShmCorruptMemory, MessagePastRingEndDisconnects) {
  Pair pair;
  for (uint32_t i = 0; i < shm::kRingLines[0] - 1; ++i) {
    ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, 1), Status::kOk);
    ASSERT_EQ(pair.poll_b(), 1u);
  }
  word_at(pair.a, 0, 1, Lane::kRequest, 255).store(shm::MessageWord::make(255, 2, 1, 0));
  pair.poll_b();
  EXPECT_EQ(pair.b.transport->counts().disconnected, 1u);
}

TEST_F(ShmCorruptMemory, ReaderPastWriterDisconnects) {
  disconnects_ = true;
  Pair pair;
  for (uint32_t i = 0; i < shm::kRingLines[0]; ++i) {
    ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, 1), Status::kOk);
  }
  pair.b.memory.control(0, 1, Lane::kRequest).taken.store(shm::kRingLines[0] + 1);
  EXPECT_EQ(pair.a.try_send(1, Lane::kRequest, 1, 1), Status::kBroken);
  EXPECT_EQ(pair.a.transport->counts().disconnected, 1u);
  EXPECT_EQ(pair.a.try_send(1, Lane::kReply, 1, 1), Status::kBroken);
}

TEST_F(ShmCorruptMemory, DoorbellsOfUnknownRanksAreIgnored) {
  NodeFile file(3);
  NodeRank self(file.fd, 0, 3);
  NodeRank other(file.fd, 2, 3);
  for (auto& doorbells : other.memory.area(0).doorbells) {
    for (auto& doorbell : doorbells.of_lane) doorbell.store(~uint64_t{0});
  }
  Inbox inbox;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(self.transport->poll(inbox, 10, false), 0u);
  EXPECT_EQ(self.transport->active_rings(), 4u);  // the empty ones of ranks 1 and 2
}

// A peer writes random values to all that it may write, while the reader polls and sends: no crash, no read
// beyond a message, and a correct third rank is served throughout.
TEST_F(ShmCorruptMemory, RandomMemoryIsSurvived) {
  disconnects_ = true;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    NodeFile file(3);
    NodeRank self(file.fd, 0, 3);
    NodeRank liar(file.fd, 1, 3);
    NodeRank honest(file.fd, 2, 3);
    std::mt19937_64 random(seed);
    Inbox inbox;
    uint64_t from_honest = 0;
    uint64_t sum = 0;
    inbox.then = [&](const Incoming& message) {
      if (message.from == 2) ++from_honest;
      for (uint32_t i = 0; i < message.head_room; ++i)
        sum += std::to_integer<uint64_t>(message.head[i]);
      for (uint32_t i = 0; message.payload != nullptr && i < message.payload_room; i += 4095) {
        sum += std::to_integer<uint64_t>(message.payload[i]);
      }
    };
    for (const Lane lane : {Lane::kRequest, Lane::kReply}) {
      ASSERT_EQ(liar.try_send(0, lane, 1, 1), Status::kOk);
      ASSERT_EQ(self.try_send(1, lane, 1, 1), Status::kOk);
    }
    uint32_t next[kLaneCount] = {1, 1};
    for (uint64_t step = 0; step < 200; ++step) {
      const auto lane = static_cast<Lane>(random() % 2);
      const auto index = static_cast<uint32_t>(lane);
      const uint32_t size = shm::kRingLines[index];
      switch (random() % 6) {
        case 0: {  // plausible: the right position, the rest at random
          const uint64_t word =
              shm::MessageWord::make(next[index], static_cast<uint32_t>(random() % 24),
                                     static_cast<uint32_t>(random()),
                                     static_cast<uint32_t>(random() % 90)) |
              (random() % 8 == 0 ? shm::MessageWord::kSkip : 0);
          word_at(liar, 1, 0, lane, next[index] % size).store(word);
          next[index] += shm::MessageWord::lines(word);
          break;
        }
        case 1:
          word_at(liar, 1, 0, lane, static_cast<uint32_t>(random() % size)).store(random());
          break;
        case 2: liar.memory.control(0, 1, lane).taken.store(static_cast<uint32_t>(random())); break;
        case 3:
          liar.memory.control(1, 0, lane).poll_state.store(static_cast<uint32_t>(random() % 3));
          break;
        case 4: liar.memory.area(0).doorbells[random() % 16].of_lane[index].store(random()); break;
        default:
          liar.memory.receipt(0, lane, static_cast<uint32_t>(random() % shm::kCellCount))
              .receipt.store(random());
      }
      (void)self.try_send(1, lane, 1, step);
      (void)self.try_send_cell(1, lane, 1, 100, 1);
      if (step % 16 == 0) {
        ASSERT_EQ(honest.try_send(0, lane, 1, step), Status::kOk);
      }
      self.transport->poll(inbox, 8, false);
      if (step % 32 == 0) self.transport->sleeping().sleep(0);
    }
    while (self.transport->poll(inbox, 8, false) != 0) {
    }
    EXPECT_EQ(from_honest, 13u);
  }
}

// ---- memory of others ----

TEST(ShmPeerMemory, MappedSegmentsAreFoundByTheirAddresses) {
  Pair pair;
  char first[64] = {};
  char second[32] = {};
  ASSERT_EQ(pair.a.transport->memory().add_segment(1, 0x10000, sizeof first, first), Status::kOk);
  ASSERT_EQ(pair.a.transport->memory().add_segment(1, 0x20000, sizeof second, second), Status::kOk);
  EXPECT_EQ(pair.a.transport->memory().mapped(1, 0x10000, 64), first);
  EXPECT_EQ(pair.a.transport->memory().mapped(1, 0x10010, 48), first + 16);
  EXPECT_EQ(pair.a.transport->memory().mapped(1, 0x2001f, 1), second + 31);
  EXPECT_EQ(pair.a.transport->memory().mapped(1, 0x10001, 64), nullptr);
  EXPECT_EQ(pair.a.transport->memory().mapped(1, 0xffff, 1), nullptr);
  EXPECT_EQ(pair.a.transport->memory().mapped(1, 0x10000, SIZE_MAX), nullptr);
  EXPECT_EQ(pair.a.transport->memory().mapped(0, 0x10000, 1), nullptr);
  EXPECT_EQ(pair.a.transport->memory().mapped(9, 0x10000, 1), nullptr);
  EXPECT_EQ(pair.a.transport->memory().write(1, 0x10008, "hydrant", 8), Status::kOk);
  EXPECT_STREQ(first + 8, "hydrant");
  EXPECT_EQ(pair.a.transport->memory().add_segment(1, 0x1000, 0, first), Status::kBadArg);
  EXPECT_EQ(pair.a.transport->memory().add_segment(1, UINTPTR_MAX, 2, first), Status::kBadArg);
}

// The child's stack is no mapping of this process: the kernel copies, or reports that it may not.
TEST(ShmPeerMemory, OtherMemoryIsCopiedByTheKernelOrRefused) {
  for (const bool forbidden : {false, true}) {
    NodeFile file(2);
    const auto failed = run_ranks(1, [&](uint32_t) {
      NodeRank self(file.fd, 0, 2);
      int to_parent[2];
      if (pipe(to_parent) != 0) return 2;
      static char target[100000];  // at the same address in both
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        NodeRank other(file.fd, 1, 2);
        if (other.try_send(0, Lane::kRequest, 1, 1) != Status::kOk) _exit(3);
        Inbox inbox;
        const uint64_t deadline = in_seconds(20);
        while (other.transport->poll(inbox, 1, false) == 0 && now_ns() < deadline) sched_yield();
        _exit(target[0] == 'x' && target[99999] == 'x' ? 0 : 1);
      }
      Inbox inbox;
      while (self.transport->poll(inbox, 1, false) == 0) sched_yield();
      if (forbidden && !refuse_system_call(SYS_process_vm_writev, EPERM)) return 77;
      static char source[sizeof target];
      std::memset(source, 'x', sizeof source);
      const auto dest = reinterpret_cast<uintptr_t>(target);
      const Status written = self.transport->memory().write(1, dest, source, sizeof source);
      // No mapping is at that address: the owner must report that.
      const Status nowhere = self.transport->memory().write(1, 4096, source, 8);
      (void)self.try_send(1, Lane::kRequest, 1, 1);
      int status = 0;
      waitpid(child, &status, 0);
      if (nowhere != Status::kUnsupported) return 4;
      if (forbidden) return written == Status::kUnsupported && status != 0 ? 0 : 5;
      return written == Status::kOk && status == 0 ? 0 : 6;
    });
    EXPECT_EQ(failed, "") << forbidden;
  }
}

TEST(ShmPeers, KilledPeerLeavesNothing) {
  int fd = -1;
  ASSERT_EQ(shm::NodeMemory::create(2, &fd), Status::kOk);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    NodeRank other(fd, 1, 2);
    for (uint64_t i = 0;; ++i) {
      (void)other.try_send(0, Lane::kRequest, 1, i);
      (void)other.try_send_cell(0, Lane::kRequest, 1, 4096, 1);
    }
  }
  {
    NodeRank self(fd, 0, 2);
    Inbox inbox;
    inbox.then = [](const Incoming&) {};
    const uint64_t deadline = in_seconds(30);
    while (inbox.count < 1000 && now_ns() < deadline) self.transport->poll(inbox, 16, false);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    // Messages that it sent completely are still delivered; incomplete ones are not seen.
    while (self.transport->poll(inbox, 16, false) != 0) {
    }
    self.transport->disconnect(1);
    EXPECT_EQ(self.transport->counts().disconnected, 1u);
    EXPECT_EQ(self.try_send(1, Lane::kRequest, 1, 1), Status::kBroken);
  }
  close(fd);
  std::string line;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/maps", getpid());
  FILE* maps = fopen(path, "re");
  char text[512];
  while (fgets(text, sizeof text, maps) != nullptr) {
    EXPECT_EQ(std::strstr(text, "hydrant-node"), nullptr) << text;
  }
  fclose(maps);
}

}  // namespace
}  // namespace hydrant::testing
