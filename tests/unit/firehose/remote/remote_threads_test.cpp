// Remote pins with threads: what happens between two steps of one thread when another is quicker. The hunt
// (tests/stale/remote) has them all at once.
#include "firehose/base/thread.hpp"
#include "firehose/watch/mutant.hpp"
#include "tests/support/patience.hpp"
#include "tests/support/remote_pin_cluster.hpp"
#include "tests/support/threads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

namespace hydrant::testing {
namespace {

RemotePinCluster::Settings exact_for_threads(uint32_t ranks = 2) {
  RemotePinCluster::Settings settings = exact(ranks);
  settings.pages = 64;
  settings.options.max_peer_regions = 64;
  return settings;
}

#if HYDRANT_MUTANTS
// The memory is released after it was registered for a peer and before the export is recorded: quiet() finds
// no export and returns OK, so the registration must not be granted any more.
TEST(RemoteThreads, MemoryReleasedDuringAMoveIsNotGranted) {
  int met = 0;
  const uint64_t limit = now_ns() + patient_ns(60'000'000'000);
  for (int round = 0; round < 40 ? met < 5 : met == 0 && now_ns() < limit; ++round) {
    RemotePinCluster world(exact_for_threads());
    auto& target = world[1];
    RemoteResult a;
    remote_pin(world, 0, 1, target.arena.addr(3), kPage, &a);
    set_mutant(Mutant::kNone, 2000u << std::min(round / 4, 6));
    uint64_t oldest = 0;
    {
      Threads threads;
      threads.start([&world] { world.deliver(); });
      ASSERT_TRUE(wait_until([&target] { return target.registrar.live() == 1; }));
      // (Most often the other thread is in the window now; otherwise this round tests nothing.)
      hydrant_invalidate(target.domain, target.arena.page(3), kPage);
      oldest = target.registrar.next_serial();
      const bool is_quiet = hydrant_remote_quiet(target.end) == GASNET_OK;
      met += is_quiet;
      if (!is_quiet) oldest = 0;
    }
    set_mutant(Mutant::kNone, 0);
    world.settle();
    ASSERT_TRUE(a.done);
    if (!a.held()) continue;
    EXPECT_GE(target.registrar.serial_of(a.pin.region->key), oldest)
        << "reported quiet, and granted";
    hydrant_remote_release(a.pin);
  }
  EXPECT_GT(met, 0);
}
#endif

// The peer is reported lost while a messenger has not read the move yet: its request completes, and the
// message stays in memory until send() returns.
TEST(RemoteThreads, MoveStaysInMemoryUntilItIsSent) {
  for (const uint32_t flags : {uint32_t{0}, uint32_t{HYDRANT_REMOTE_INLINE_DONE}}) {
    RemotePinCluster::Settings settings = exact_for_threads();
    settings.options.flags = flags;
    RemotePinCluster world(settings);
    const std::vector<std::byte> args(3000, std::byte{0x5a});
    bool is_gone = false;
    world.before_reading = [&] {
      if (std::exchange(is_gone, true)) return;
      Threads threads;
      threads.start([&world] {
        EXPECT_EQ(hydrant_remote_peer_gone(world[0].end, 1), GASNET_OK);
        hydrant_remote_poll(world[0].end);
      });
    };
    RemoteResult a;
    remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a, HYDRANT_REMOTE_WRITE,
               HYDRANT_REMOTE_CALL, args.data(), args.size());
    ASSERT_TRUE(a.done);
    EXPECT_EQ(a.status, HYDRANT_ERR_BROKEN);
    ASSERT_EQ(world.pending(), 1u);
    const std::vector<std::byte>& sent = world.message(0).bytes;
    ASSERT_GT(sent.size(), args.size());
    EXPECT_EQ(sent[0], std::byte{0x46});
    EXPECT_EQ(sent[1], std::byte{0x48});
    EXPECT_TRUE(std::equal(args.rbegin(), args.rend(), sent.rbegin()));
    world.settle();
  }
}

// Pins that meet the loss of their peer complete all the same, once each.
TEST(RemoteThreads, PinsDuringPeerFailureCompleteOnce) {
  struct Answers {
    std::atomic<int> n{0};
  };
  for (int round = 0; round < 60; ++round) {
    RemotePinCluster world(exact_for_threads());
    constexpr int kThreads = 3, kEach = 20;
    std::vector<Answers> answers(size_t{kThreads} * kEach);
    std::atomic<int> begun{0};
    {
      Threads threads;
      for (int t = 0; t < kThreads; ++t) {
        threads.start([&, t] {
          for (int i = 0; i < kEach; ++i) {
            ++begun;
            Answers& of = answers[static_cast<size_t>(t * kEach + i)];
            hydrant_remote_call_t call{};
            call.context = &of;
            call.done = [](void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t*) {
              ++static_cast<Answers*>(context)->n;
              if (pin.region != nullptr) hydrant_remote_release(pin);
            };
            hydrant_pin_t pin{};
            const auto page = static_cast<size_t>(i % 8);
            const int code = hydrant_remote_pin(world[0].end, 1, world[1].arena.addr(page), kPage,
                                                HYDRANT_REMOTE_WRITE, &call, &pin);
            if (code != GASNET_OK || pin.region != nullptr) ++of.n;
            if (pin.region != nullptr) hydrant_remote_release(pin);
            if (i % 4 == t) hydrant_remote_poll(world[0].end);
          }
        });
      }
      threads.start([&] {
        (void)wait_until([&] { return begun.load() > 10 + round % 40; });
        hydrant_remote_peer_gone(world[0].end, 1);
      });
    }
    world.settle();
    for (const Answers& of : answers) ASSERT_EQ(of.n.load(), 1) << "round " << round;
    EXPECT_EQ(world.stats(0).firehose_bytes, 0u);
    hydrant_remote_peer_gone(world[1].end, 0);
    hydrant_flush(world[1].domain);
    EXPECT_EQ(world[1].registrar.live(), 0u);
  }
}

// Threads of one end that pin the same and different pages while messages go straight through.
TEST(RemoteThreads, ThreadsShareAnEnd) {
  RemotePinCluster::Settings settings = exact_for_threads(3);
  settings.inline_delivery = true;
  settings.options.budget_bytes = 24 * kPage;
  RemotePinCluster world(settings);
  std::atomic<bool> over{false};
  std::atomic<int> granted{0}, answered{0}, asked{0};
  struct Counts {
    std::atomic<int>*granted, *answered;
  } counts{&granted, &answered};
  {
    Threads polls;
    {
      Threads threads;
      for (uint32_t t = 0; t < 4; ++t) {
        threads.start([&, t] {
          const uint32_t from = t % 3;
          for (uint32_t i = 0; i < 3000; ++i) {
            const uint32_t to = (from + 1 + i % 2) % 3;
            hydrant_remote_call_t call{};
            call.context = &counts;
            call.done = [](void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t*) {
              const auto& of = *static_cast<Counts*>(context);
              ++*of.answered;
              if (pin.region == nullptr) return;
              ++*of.granted;
              hydrant_remote_release(pin);
            };
            hydrant_pin_t pin{};
            ++asked;
            const int code =
                hydrant_remote_pin(world[from].end, to, world[to].arena.addr(i * 7 % 24 + t), kPage,
                                   HYDRANT_REMOTE_WRITE, &call, &pin);
            if (code != GASNET_OK || pin.region != nullptr) ++answered;
            if (pin.region != nullptr) {
              ++granted;
              hydrant_remote_release(pin);
            }
            if (i % 16 == 0)
              hydrant_invalidate(world[from].domain, world[from].arena.page(i % 24), kPage);
            if (i % 8 == 0) hydrant_remote_poll(world[from].end);
          }
        });
      }
      polls.start([&] {
        while (!over.load()) {
          world.poll_all();
          std::this_thread::yield();
        }
      });
    }
    over.store(true);
  }
  world.settle();
  std::this_thread::sleep_for(std::chrono::microseconds(100));
  world.settle();
  EXPECT_EQ(answered.load(), asked.load());
  EXPECT_GT(granted.load(), 1000);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(hydrant_remote_quiet(world[i].end), GASNET_OK);
    EXPECT_EQ(world[i].registrar.problems(), "");
  }
}

// After quiet() a caller may write where a peer has written: the thread sanitizer checks that the unlocked
// reads of quiet() order the two writes. Once with nothing exported afterwards, once with more.
TEST(RemoteThreads, QuietOrdersWhatPeersWroteBefore) {
  for (int more = 0; more < 2; ++more) {
    RemotePinCluster world(exact_for_threads());
    auto& target = world[1];
    RemoteResult a, b;
    remote_pin(world, 0, 1, target.arena.addr(3), kPage, &a);
    if (more != 0) remote_pin(world, 0, 1, target.arena.addr(9), kPage, &b);
    world.settle();
    ASSERT_TRUE(a.held());
    std::byte& byte = *target.arena.page(3);
    std::atomic<bool> told{false};
    Threads threads;
    threads.start([&] {
      (void)hydrant_invalidate(target.domain, target.arena.page(3), kPage);
      EXPECT_EQ(hydrant_remote_quiet(target.end), GASNET_ERR_NOT_READY);
      told.store(true, std::memory_order_relaxed);
      EXPECT_TRUE(wait_until([&] { return hydrant_remote_quiet(target.end) == GASNET_OK; }));
      byte = std::byte{2};
    });
    threads.start([&] {
      byte = std::byte{1};
      EXPECT_TRUE(wait_until([&] { return told.load(std::memory_order_relaxed); }));
      hydrant_remote_release(a.pin);
      EXPECT_TRUE(wait_until([&] {
        world.settle();
        return world.stats(1).zombies == 0;
      }));
    });
    threads.join();
    EXPECT_EQ(byte, std::byte{2});
    if (b.held()) hydrant_remote_release(b.pin);
  }
}

// Ending a domain checks whether any end serves it, while other threads destroy ends: for the thread
// sanitizer.
TEST(RemoteThreads, DomainDestroyIgnoresEndpointsDestroyedMeanwhile) {
  RemotePinCluster other(
      exact_for_threads());  // first: its ends are looked at before those of `world`
  RemotePinCluster world(exact_for_threads());
  std::atomic<bool> over{false};
  Threads threads;
  threads.start([&] {
    for (int round = 0; round < 500; ++round) other.rebuild();
    over.store(true);
  });
  while (!over.load()) {
    ASSERT_EQ(hydrant_domain_destroy(world[0].domain, HYDRANT_FINI_UNPIN), GASNET_ERR_BAD_ARG)
        << "an end serves it";
  }
}

}  // namespace
}  // namespace hydrant::testing
