// Two separately started jobs of two processes connect over the guest's device. Their endpoint addresses
// travel over a socket between the jobs, and as messages within each job.
#include "rdma/ibv/ibv_transport.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/verbs/device_counters.hpp"
#include "tests/verbs/forked_job.hpp"
#include "tests/verbs/rank_process.hpp"

#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <new>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <utility>
#include <vector>

namespace hydrant {
namespace {

using testing::ForkedBootstrap;
using testing::kLongSeconds;
using testing::PinnedMemory;
using testing::SharedJob;
using testing::Told;

constexpr Rank kGroupRanks = 2;  // ranks of each group
constexpr uint64_t kGroupMessages = 100;
enum Tag : uint32_t { kCard = 1, kOthersCards, kNumbered, kKey, kLast };

// Each group's private state, and the socket between them.
struct TwoJobs {
  TwoJobs() {
    for (SharedJob*& job : jobs) {
      void* mapped = mmap(nullptr, sizeof(SharedJob), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      if (mapped != MAP_FAILED) job = new (mapped) SharedJob;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) sockets[0] = -1;
    timeval patience{static_cast<time_t>(kLongSeconds), 0};
    for (const int end : sockets)
      (void)setsockopt(end, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~TwoJobs() {
    for (SharedJob* job : jobs) {
      if (job != nullptr) munmap(job, sizeof(SharedJob));
    }
    if (sockets[0] < 0) return;
    close(sockets[0]);
    close(sockets[1]);
  }
  TwoJobs(const TwoJobs&) = delete;
  TwoJobs& operator=(const TwoJobs&) = delete;

  SharedJob* jobs[2] = {};
  int sockets[2] = {-1, -1};
};

// A process of a group. Numbers of the other group's ranks are those that rank 0 has sent.
struct Process : testing::RankProcess {
  Process(SharedJob& job, Rank rank, uint64_t probe_ns)
      : bootstrap(job, rank, kGroupRanks), self(rank) {
    IbvTransport::Options options;
    options.single_threaded = true;
    options.probe_ns = probe_ns;
    options.patience_ns = 1'000'000'000;  // a killed process is noticed sooner than by default
    options.max_joined = kGroupRanks;
    open(bootstrap, options);
    inbox.then = [this](const Incoming& message) {
      const auto* text = reinterpret_cast<const char*>(message.head);
      if (message.tag == kNumbered) {
        uint64_t value = 0;
        std::memcpy(&value, message.head, sizeof value);
        if (message.from >= next.size() || value != next[message.from]++) ++wrong;
      } else {
        letters[message.from][message.tag] = {text, message.head_room};
      }
    };
  }
  ~Process() { transport.reset(); }  // before the bootstrap, which it uses at first contact
  std::string wait_for(Rank from, Tag tag) {
    (void)until([&] { return !letters[from][tag].empty(); });
    return letters[from][tag];
  }
  // Sends this process's endpoint address to rank 0, and gets the other group's endpoint addresses, which
  // come over the socket.
  bool meet(int socket) {
    std::byte endpoint[IbvTransport::kMaxGroupAddressBytes];
    size_t bytes = 0;
    if (transport->group_address(endpoint, &bytes) != Status::kOk) return false;
    std::string endpoints(reinterpret_cast<const char*>(endpoint), bytes);
    if (self == 0) {
      endpoints += wait_for(1, kCard);
      if (endpoints.size() != kGroupRanks * bytes) return false;
      std::string answer(endpoints.size() + 1, '\0');
      if (::send(socket, endpoints.data(), endpoints.size(), MSG_NOSIGNAL) < 0) return false;
      const ssize_t received = recv(socket, answer.data(), answer.size(), 0);
      if (received != static_cast<ssize_t>(endpoints.size())) return false;
      endpoints = answer.substr(0, endpoints.size());
      if (send(1, Lane::kRequest, kOthersCards, endpoints) != Status::kOk) return false;
    } else {
      if (send(0, Lane::kRequest, kCard, endpoints) != Status::kOk) return false;
      endpoints = wait_for(0, kOthersCards);
      if (endpoints.size() != kGroupRanks * bytes) return false;
    }
    std::array<std::span<const std::byte>, kGroupRanks> list;
    for (Rank i = 0; i < kGroupRanks; ++i)
      list[i] = std::as_bytes(std::span(endpoints)).subspan(i * bytes, bytes);
    if (self == 1) std::swap(list[0], list[1]);  // each process chooses its own numbering
    std::array<Rank, kGroupRanks> numbers{};
    if (transport->join(list, numbers) != Status::kOk) return false;
    if (self == 1) std::swap(numbers[0], numbers[1]);
    theirs = numbers;
    return numbers[self] == kGroupRanks && numbers[1 - self] == kGroupRanks + 1;
  }

  ForkedBootstrap bootstrap;
  Rank self;
  std::array<Rank, kGroupRanks> theirs{};  // numbers of the other group's ranks
  std::array<uint64_t, 2 * kGroupRanks> next{};
  uint64_t wrong = 0;
  std::array<std::array<std::string, kLast + 1>, 2 * kGroupRanks> letters;
};

// Process `index` of four: the first two are one group.
int talk(TwoJobs& two, SharedJob& shared, Rank index) {
  const Rank group = index / kGroupRanks;
  Process here(*two.jobs[group], index % kGroupRanks, 2'000'000'000);
  if (here.transport == nullptr) return 1;
  if (!here.meet(two.sockets[group])) {
    std::printf("process %u cannot join the other group: %s\n", index, last_error_text());
    return 2;
  }
  for (uint64_t i = 0; i < kGroupMessages; ++i) {
    const std::string_view value(reinterpret_cast<const char*>(&i), sizeof i);
    const std::string payload(i % 5 == 0 ? 4096 : 0, 'x');
    for (Rank to = 0; to < 2 * kGroupRanks; ++to) {
      if (to != here.self &&
          here.send(to, Lane::kRequest, kNumbered, value, payload) != Status::kOk)
        return 3;
    }
  }
  const auto all_are_there = [&] {
    uint64_t came = 0;
    for (const uint64_t count : here.next) came += count;
    return came == kGroupMessages * (2 * kGroupRanks - 1);
  };
  if (!here.until(all_are_there)) return 4;
  if (here.wrong != 0 || here.next[here.self] != 0) return 5;

  // Puts a word into the memory of the same rank in the other group, with a key that it has sent.
  PinnedMemory memory(*here.transport, Access::kRemoteWrite, 4096);
  const Rank other = here.theirs[here.self];
  std::string key(72, '\0');
  size_t length = 64;
  if (memory.registrar->export_key({memory.address(), 4096}, memory.key.data(),
                                   reinterpret_cast<std::byte*>(key.data()) + 8,
                                   &length) != Status::kOk)
    return 6;
  const uint64_t own = memory.address();
  std::memcpy(key.data(), &own, sizeof own);
  if (here.send(other, Lane::kReply, kKey, std::string_view(key).substr(0, 8 + length)) !=
      Status::kOk)
    return 7;
  const std::string theirs = here.wait_for(other, kKey);
  if (theirs.size() != 8 + length) return 8;
  std::byte imported[64];
  if (memory.registrar->import_key(reinterpret_cast<const std::byte*>(theirs.data()) + 8, length,
                                   imported) != Status::kOk)
    return 9;
  uint64_t address = 0;
  std::memcpy(&address, theirs.data(), sizeof address);
  const uint64_t value = index + 100;
  Told told;
  const PinnedOperations::Pinned local{reinterpret_cast<uintptr_t>(&value), nullptr};
  if (here.transport->pinned()->put(other, {address, imported}, local, sizeof value, &told) !=
      Status::kOk)
    return 10;
  const auto word = [&] {
    uint64_t now = 0;
    std::memcpy(&now, memory.data.get(), sizeof now);
    return now;
  };
  if (!here.until([&] { return told.times != 0 && word() != 0; })) return 11;
  if (told.status != Status::kOk || word() != (index + kGroupRanks) % (2 * kGroupRanks) + 100)
    return 12;
  // Waits until no process needs this one any more.
  here.transport->flush(testing::in_seconds(kLongSeconds));
  shared.slots[index].words[0].store(1);
  const auto all_are_done = [&] {
    uint64_t done = 0;
    for (const SharedJob::Slot& slot : shared.slots) done += slot.words[0].load();
    return done == 2 * kGroupRanks;
  };
  return here.until(all_are_done) ? 0 : 13;
}

TEST(VerbsGroups, ConnectThroughASocketAndExchangeAllToAll) {
  TwoJobs two;
  ASSERT_TRUE(two.sockets[0] >= 0 && two.jobs[0] != nullptr && two.jobs[1] != nullptr);
  const testing::DeviceCounters before = testing::read_device_counters();
  const std::vector<int> ends = testing::run_ranks(
      2 * kGroupRanks, [&](SharedJob& shared, Rank index) { return talk(two, shared, index); });
  ASSERT_EQ(ends.size(), 2 * kGroupRanks);
  for (const int end : ends) EXPECT_EQ(end, 0);
  EXPECT_EQ(testing::read_device_counters().not_ready, before.not_ready);
}

// Only the killed process of the other group is reported as lost.
TEST(VerbsGroups, AKilledRankOfTheOtherGroupIsDetected) {
  TwoJobs two;
  ASSERT_TRUE(two.sockets[0] >= 0 && two.jobs[0] != nullptr && two.jobs[1] != nullptr);
  const std::vector<int> ends =
      testing::run_ranks(2 * kGroupRanks, [&](SharedJob& shared, Rank index) {
        const Rank group = index / kGroupRanks;
        Process here(*two.jobs[group], index % kGroupRanks, 200'000'000);
        if (here.transport == nullptr) return 1;
        if (!here.meet(two.sockets[group])) return 2;
        const auto tell_all = [&](Rank but) {
          const uint64_t value = 0;
          const std::string_view text(reinterpret_cast<const char*>(&value), sizeof value);
          for (Rank to = 0; to < 2 * kGroupRanks; ++to) {
            if (to == here.self || to == but) continue;
            if (here.send(to, Lane::kRequest, kLast, text) != Status::kOk) return false;
          }
          return true;
        };
        if (!tell_all(kNoRank)) return 3;
        for (Rank from = 0; from < 2 * kGroupRanks; ++from) {
          if (from != here.self && here.wait_for(from, kLast).empty()) return 4;
          here.letters[from][kLast].clear();
        }
        here.transport->flush(testing::in_seconds(kLongSeconds));
        shared.slots[index].words[0].store(1);
        const auto all_have = [&](size_t word, uint64_t wanted) {
          return here.until([&] {
            uint64_t have = 0;
            for (const SharedJob::Slot& slot : shared.slots) have += slot.words[word].load();
            return have == wanted;
          });
        };
        if (!all_have(0, 2 * kGroupRanks)) return 5;
        if (index == 3) raise(SIGKILL);
        // No rank sends, so only the probe can detect it.
        if (!here.until([&] { return here.transport->counts().lost == 1; })) return 6;
        const Rank gone = group == 1 ? 1 : here.theirs[1];
        if (here.send(gone, Lane::kRequest, kLast, "12345678") != Status::kBroken) return 7;
        const char* name = group == 1 ? "rank 1 is gone" : "(rank 1 of group";
        if (std::strstr(last_error_text(), name) == nullptr) return 8;
        if (!tell_all(gone)) return 9;
        for (Rank from = 0; from < 2 * kGroupRanks; ++from) {
          if (from != here.self && from != gone && here.wait_for(from, kLast).empty()) return 10;
        }
        here.transport->flush(testing::in_seconds(kLongSeconds));
        shared.slots[index].words[1].store(1);
        return all_have(1, 2 * kGroupRanks - 1) ? 0 : 11;
      });
  ASSERT_EQ(ends.size(), 2 * kGroupRanks);
  for (Rank index = 0; index < 3; ++index) EXPECT_EQ(ends[index], 0) << index;
  EXPECT_TRUE(WIFSIGNALED(ends[3]));
}

}  // namespace
}  // namespace hydrant
