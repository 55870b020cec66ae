// Ranks as processes, over the guest's device: all-to-all traffic, a killed rank, a stopped rank, and a rank
// with very little memlock.
#include "rdma/ibv/ibv_transport.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/verbs/device_counters.hpp"
#include "tests/verbs/forked_job.hpp"
#include "tests/verbs/rank_process.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <sys/resource.h>

namespace hydrant {
namespace {

using ::testing::AllOf;
using testing::DeviceCounters;
using testing::ForkedBootstrap;
using ::testing::HasSubstr;
using testing::kLongSeconds;
using testing::PinnedMemory;
using testing::read_device_counters;
using testing::run_ranks;
using testing::SharedJob;
using testing::Told;

// The transport of one process.
struct Here : testing::RankProcess {
  Here(SharedJob& shared, Rank rank, Rank size, uint64_t probe_ns) : bootstrap(shared, rank, size) {
    IbvTransport::Options options;
    options.single_threaded = true;
    options.probe_ns = probe_ns;
    options.patience_ns = 1'000'000'000;  // a killed rank is noticed sooner than by default
    open(bootstrap, options);
  }
  ~Here() { transport.reset(); }  // before the bootstrap, which it uses at first contact
  // Sends the value, and optionally 4 KiB of it in a cell.
  Status send(Rank to, Lane lane, uint64_t value, bool has_cell) {
    const std::string_view head(reinterpret_cast<const char*>(&value), sizeof value);
    const std::string payload(has_cell ? 4096 : 0, static_cast<char>(value));
    return RankProcess::send(to, lane, has_cell ? 2 : 1, head, payload);
  }

  ForkedBootstrap bootstrap;
};

TEST(VerbsProcesses, AllToAllMessagesAndPuts) {
  constexpr Rank kRanks = 4;
  constexpr uint64_t kCount = 200;
  const DeviceCounters before = read_device_counters();
  const std::vector<int> ends = run_ranks(kRanks, [](SharedJob& shared, Rank rank) {
    Here here(shared, rank, kRanks, 2'000'000'000);
    if (here.transport == nullptr) return 1;
    uint64_t next[kRanks][kLaneCount] = {};
    uint64_t wrong = 0;
    here.inbox.then = [&](const Incoming& message) {
      uint64_t value = 0;
      std::memcpy(&value, message.head, sizeof value);
      if (value != next[message.from][static_cast<uint32_t>(message.lane)]++) ++wrong;
      if ((message.tag == 2) != (message.payload != nullptr)) ++wrong;
      if (message.payload != nullptr &&
          (message.payload_room != 4096 || message.payload[4095] != static_cast<std::byte>(value)))
        ++wrong;
    };
    for (uint64_t i = 0; i < kCount; ++i) {
      for (Rank to = 0; to < kRanks; ++to) {
        if (to == rank) continue;
        for (const Lane lane : {Lane::kRequest, Lane::kReply}) {
          if (here.send(to, lane, i, i % 5 == 0) != Status::kOk) return 2;
        }
      }
    }
    if (!here.until([&] { return here.inbox.count == 2 * kCount * (kRanks - 1); })) return 3;
    if (wrong != 0) return 4;

    // Each rank puts a word into the memory of the next; the test passes the key.
    PinnedMemory memory(*here.transport, Access::kRemoteWrite, 4096);
    std::byte blob[64];
    size_t length = sizeof blob;
    if (memory.registrar->export_key({memory.address(), 4096}, memory.key.data(), blob, &length) !=
        Status::kOk)
      return 5;
    auto& mine = shared.slots[rank].words;
    for (size_t i = 0; i < length / 8; ++i) {
      uint64_t word = 0;
      std::memcpy(&word, blob + 8 * i, 8);
      mine[i].store(word);
    }
    mine[7].store(1);
    auto& theirs = shared.slots[(rank + 1) % kRanks].words;
    if (!here.until([&] { return theirs[7].load() != 0; })) return 6;
    for (size_t i = 0; i < length / 8; ++i) {
      const uint64_t word = theirs[i].load();
      std::memcpy(blob + 8 * i, &word, 8);
    }
    std::byte key[64];
    if (memory.registrar->import_key(blob, length, key) != Status::kOk) return 7;
    uint64_t address = 0;
    std::memcpy(&address, blob + 8, 8);
    const uint64_t value = rank + 100;
    Told told;
    const PinnedOperations::Pinned local{reinterpret_cast<uintptr_t>(&value), nullptr};
    if (here.transport->pinned()->put((rank + 1) % kRanks, {address, key}, local, sizeof value,
                                      &told) != Status::kOk)
      return 8;
    const auto word = [&] {
      uint64_t now = 0;
      std::memcpy(&now, memory.data.get(), sizeof now);
      return now;
    };
    if (!here.until([&] { return told.times != 0 && word() != 0; })) return 9;
    if (told.status != Status::kOk || word() != (rank + kRanks - 1) % kRanks + 100) return 10;
    // Waits until no rank needs this one any more.
    here.transport->flush(testing::in_seconds(kLongSeconds));
    shared.slots[rank].words[6].store(1);
    return here.until([&] {
      uint64_t ready = 0;
      for (const SharedJob::Slot& slot : shared.slots) ready += slot.words[6].load();
      return ready == kRanks;
    })
               ? 0
               : 11;
  });
  for (const int end : ends) EXPECT_EQ(end, 0);
  EXPECT_EQ(read_device_counters().not_ready, before.not_ready);
}

// Two ranks concurrently add to their halves of a word at a third rank, and increment another word by compare
// and swap. No update is lost, and each answer has the caller's earlier additions.
TEST(VerbsProcesses, TwoRanksUpdateWordsOfAThirdConcurrently) {
  constexpr uint64_t kCount = 500;
  const std::vector<int> ends = run_ranks(3, [](SharedJob& shared, Rank rank) {
    Here here(shared, rank, 3, 2'000'000'000);
    if (here.transport == nullptr) return 1;
    if ((here.transport->capabilities() & Transport::kAtomics) == 0) return 2;
    PinnedMemory memory(*here.transport, Access::kRemoteAtomic | Access::kRemoteRead, 4096);
    const auto word = [&](size_t at) {
      uint64_t now = 0;
      std::memcpy(&now, memory.data.get() + at, sizeof now);
      return now;
    };
    auto& owners = shared.slots[0].words;
    std::byte blob[64];
    size_t length = sizeof blob;
    if (memory.registrar->export_key({memory.address(), 4096}, memory.key.data(), blob, &length) !=
            Status::kOk ||
        length > 56)
      return 3;
    if (rank == 0) {
      for (size_t i = 0; i < length / 8; ++i) {
        uint64_t part = 0;
        std::memcpy(&part, blob + 8 * i, 8);
        owners[i].store(part);
      }
      owners[7].store(1);
      if (!here.until([&] {
            return shared.slots[1].words[0].load() != 0 && shared.slots[2].words[0].load() != 0;
          }))
        return 4;
      return word(0) == kCount * (1 + (uint64_t{1} << 32)) && word(8) == 2 * kCount ? 0 : 5;
    }
    if (!here.until([&] { return owners[7].load() != 0; })) return 6;
    for (size_t i = 0; i < length / 8; ++i) {
      const uint64_t part = owners[i].load();
      std::memcpy(blob + 8 * i, &part, 8);
    }
    std::byte key[64];
    if (memory.registrar->import_key(blob, length, key) != Status::kOk) return 7;
    uint64_t address = 0;
    std::memcpy(&address, blob + 8, 8);
    const auto change = [&](size_t at, const PinnedOperations::Atomic& what, uint64_t* before) {
      Told told;
      Status status = Status::kNotReady;
      if (!here.until([&] {
            status = here.transport->pinned()->start_atomic(0, {address + at, key}, memory.local(),
                                                            what, &told);
            return status != Status::kNotReady;
          }) ||
          status != Status::kOk || !here.until([&] { return told.times != 0; }) ||
          told.status != Status::kOk)
        return false;
      *before = word(0);
      return true;
    };
    using Kind = PinnedOperations::Atomic::Kind;
    const uint64_t mine = rank == 1 ? 1 : uint64_t{1} << 32;
    const uint32_t shift = rank == 1 ? 0 : 32;
    uint64_t before = 0;
    for (uint64_t i = 0; i < kCount; ++i) {
      if (!change(0, {Kind::kFetchAdd, mine, 0}, &before)) return 8;
      // The answer has exactly this rank's earlier additions.
      if ((before >> shift & UINT32_MAX) != i) return 9;
    }
    uint64_t guess = 0;
    for (uint64_t i = 0; i < kCount;) {
      if (!change(8, {Kind::kCompareSwap, guess + 1, guess}, &before)) return 10;
      if (before == guess) ++i;
      guess = before == guess ? guess + 1 : before;
    }
    here.transport->flush(testing::in_seconds(kLongSeconds));
    shared.slots[rank].words[0].store(1);
    return 0;
  });
  for (const int end : ends) EXPECT_EQ(end, 0);
}

TEST(VerbsProcesses, ARankReachesItsOwnWordsThroughTheAdapter) {
  testing::IbvWorld world(2);
  world.connect(0, 1);
  IbvTransport& transport = *world[0].transport;
  PinnedMemory memory(transport, Access::kRemoteAtomic | Access::kLocalWrite, 4096);
  const PinnedOperations::Pinned word = memory.for_peer();
  using Atomic = PinnedOperations::Atomic;
  for (uint64_t i = 0; i < 200; ++i) {
    const Atomic what = i % 2 == 0 ? Atomic{Atomic::Kind::kFetchAdd, 1, 0}
                                   : Atomic{Atomic::Kind::kCompareSwap, i + 1, i};
    Told told;
    ASSERT_EQ(world.insist([&] {
      return transport.pinned()->start_atomic(0, word, memory.local(2048), what, &told);
    }),
              Status::kOk)
        << last_error_text();
    ASSERT_TRUE(world.until([&] { return told.times != 0; }));
    ASSERT_EQ(told.status, Status::kOk);
    uint64_t old = 0;
    std::memcpy(&old, memory.data.get() + 2048, sizeof old);
    ASSERT_EQ(old, i);
  }
}

TEST(VerbsProcesses, AKilledRankIsDetectedByTheOthers) {
  const std::vector<int> ends = run_ranks(3, [](SharedJob& shared, Rank rank) {
    Here here(shared, rank, 3, 200'000'000);
    if (here.transport == nullptr) return 1;
    const Rank next = (rank + 1) % 3;
    if (here.send(next, Lane::kRequest, 1, false) != Status::kOk) return 2;
    if (!here.until([&] { return here.inbox.count == 1; })) return 3;
    // Waits until all are connected both ways.
    shared.slots[rank].words[0].store(1);
    if (!here.until([&] {
          return shared.slots[0].words[0].load() + shared.slots[1].words[0].load() +
                     shared.slots[2].words[0].load() ==
                 3;
        }))
      return 4;
    if (rank == 1) raise(SIGKILL);
    // No rank sends, so only the probe can detect it.
    if (!here.until([&] { return here.transport->counts().lost == 1; })) return 5;
    if (here.send(1, Lane::kRequest, 2, false) != Status::kBroken) return 6;
    if (std::strstr(last_error_text(), "rank 1 is gone") == nullptr) return 7;
    // The two surviving ranks continue.
    if (here.send(2 - rank, Lane::kRequest, 3, true) != Status::kOk) return 8;
    if (!here.until([&] { return here.inbox.count == 2; })) return 9;
    here.transport->flush(testing::in_seconds(kLongSeconds));
    shared.slots[rank].words[1].store(1);
    return here.until([&] { return shared.slots[2 - rank].words[1].load() == 1; }) ? 0 : 10;
  });
  ASSERT_EQ(ends.size(), 3U);
  EXPECT_EQ(ends[0], 0);
  EXPECT_TRUE(WIFSIGNALED(ends[1]));
  EXPECT_EQ(ends[2], 0);
}

TEST(VerbsProcesses, ARankStoppedForSecondsIsNotDead) {
  const std::vector<int> ends = run_ranks(2, [](SharedJob& shared, Rank rank) {
    Here here(shared, rank, 2, 100'000'000);
    if (here.transport == nullptr) return 1;
    if (here.send(1 - rank, Lane::kRequest, 1, false) != Status::kOk) return 2;
    if (!here.until([&] { return here.inbox.count == 1; })) return 3;
    if (rank == 1) {
      shared.slots[1].words[0].store(static_cast<uint64_t>(getpid()));
      return here.until([&] { return here.inbox.count == 101; }) ? 0 : 4;
    }
    if (!here.until([&] { return shared.slots[1].words[0].load() != 0; })) return 5;
    const auto other = static_cast<pid_t>(shared.slots[1].words[0].load());
    kill(other, SIGSTOP);
    // Sends as many messages as there are credits, then is silent for five seconds.
    uint32_t sent = 0;
    for (; sent < IbvTransport::Options().credits - 1; ++sent) {
      if (here.send(1, Lane::kRequest, sent, false) != Status::kOk) return 6;
    }
    const uint64_t end = testing::in_seconds(5);
    (void)here.until([&] { return now_ns() > end; });
    kill(other, SIGCONT);
    if (here.transport->counts().lost != 0 || here.transport->counts().probes == 0) return 7;
    for (; sent < 100; ++sent) {
      if (here.send(1, Lane::kRequest, sent, false) != Status::kOk) return 8;
    }
    here.transport->flush(testing::in_seconds(kLongSeconds));
    return 0;
  });
  for (const int end : ends) EXPECT_EQ(end, 0);
}

// Runs as an ordinary user with 64 KiB of memlock (verbs.memlock).
TEST(VerbsMemlock, TooLittleMemlockIsReportedWithTheRemedy) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  ASSERT_EQ(limit.rlim_cur, 64U << 10);
  ASSERT_NE(getuid(), 0U);
  testing::CardBox box;
  const testing::IbvRank rank(box, 0, 2, testing::IbvWorld::single());
  EXPECT_EQ(rank.opened, Status::kResource);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("cells"), HasSubstr("ulimit -l")));
}

}  // namespace
}  // namespace hydrant
