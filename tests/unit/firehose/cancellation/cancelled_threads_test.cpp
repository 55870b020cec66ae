// Threads that are cancelled inside the library, at random and at chosen places, while others go on.
#include <hydrant/pin_cache.h>

#include "tests/support/child_process.hpp"
#include "tests/support/remote_pin_cluster.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/cancellation/cancelled_thread.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <random>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant::testing {
namespace {

constexpr size_t kPages = 64;

class CancelledThreads : public ::testing::Test {
 protected:
  void SetUp() override {
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.registrar = &registrar_.table;
    options.budget_bytes = 40 * kPage;
    options.merge_bytes = 1;
    ASSERT_EQ(hydrant_domain_create(&options, &domain_), GASNET_OK) << hydrant_error_text();
  }
  void TearDown() override {
    EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
    EXPECT_EQ(registrar_.live(), 0u);
    EXPECT_EQ(registrar_.problems(), "");
  }
  hydrant_pin_t pin(size_t page) {
    return hydrant_pin(domain_, arena_.page(page), kPage, HYDRANT_LOCAL_WRITE);
  }
  hydrant_stats_t stats() const {
    hydrant_stats_t stats{};
    stats.size = sizeof stats;
    EXPECT_EQ(hydrant_get_stats(domain_, &stats), GASNET_OK);
    return stats;
  }
  uint64_t live_holds() const { return stats().live_holds; }

  Arena arena_{2 * kPages};
  RecordingRegistrar registrar_{arena_};
  hydrant_domain_t domain_ = 0;
};

TEST_F(CancelledThreads, FirstPinOfAProcessLeavesNoLockHeld) {
  hydrant_pin_t first{};
  EXPECT_EQ(run_to_be_cancelled([&] { first = pin(3); }), "");
  EXPECT_EQ(hydrant_pin_status(first), GASNET_OK);
  Threads threads;
  threads.start([&] {
    const hydrant_pin_t second = pin(9);
    EXPECT_EQ(hydrant_pin_status(second), GASNET_OK);
    EXPECT_EQ(hydrant_release(second), GASNET_OK);
  });
  threads.join();
  // The state of the thread is freed; its hold remains.
  EXPECT_EQ(live_holds(), 1u);
  EXPECT_EQ(hydrant_release(first), GASNET_OK);
}

// A thread that returns from its function can be cancelled in the destructors of its keys.
TEST_F(CancelledThreads, ThreadMayBeCancelledWhileItEnds) {
  struct Ending {
    hydrant_domain_t domain;
    void* memory;
    hydrant_pin_t held{};
  } ending{domain_, arena_.page(3)};
  const auto run = [](void* argument) -> void* {
    auto& self = *static_cast<Ending*>(argument);
    self.held = hydrant_pin(self.domain, self.memory, kPage, HYDRANT_LOCAL_WRITE);
    pthread_cancel(pthread_self());
    return nullptr;
  };
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, nullptr, run, &ending), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  EXPECT_EQ(stats().threads, 0u) << "the state of the thread is still there";
  EXPECT_EQ(live_holds(), 1u);
  Threads threads;
  threads.start([&] { EXPECT_EQ(hydrant_release(pin(9)), GASNET_OK); });
  threads.join();
  EXPECT_EQ(hydrant_release(ending.held), GASNET_OK);
}

TEST_F(CancelledThreads, CancelledForkStillReturns) {
  ASSERT_EQ(hydrant_release(pin(3)), GASNET_OK);
  pid_t child = -1;
  EXPECT_EQ(run_to_be_cancelled([&] {
              child = fork();
              if (child == 0) _exit(7);
            }),
            "");
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  EXPECT_EQ(hydrant_release(pin(9)), GASNET_OK);
}

// ---- at random ----

struct Worker {
  hydrant_domain_t domain;
  const Arena* arena;
  RemotePinCluster* world;
  uint32_t seed;
};

void release(void* pin) { (void)hydrant_release(*static_cast<hydrant_pin_t*>(pin)); }
void pin_something(const Worker& worker, std::minstd_rand& random) {
  const size_t page = random() % kPages;
  const size_t pages = 1 + random() % 8;
  hydrant_pin_t pin{};
  pthread_cleanup_push(release, &pin);
  switch (random() % 4) {
    case 0:
      pin = hydrant_pin_wait(worker.domain, worker.arena->page(page), pages * kPage,
                             HYDRANT_LOCAL_WRITE, 300'000);
      break;
    case 1:
      pin =
          hydrant_partial_pin(worker.domain, worker.arena->page(page), kPage, HYDRANT_LOCAL_WRITE);
      break;
    default:
      pin =
          hydrant_pin(worker.domain, worker.arena->page(page), pages * kPage, HYDRANT_LOCAL_WRITE);
  }
  pthread_testcancel();
  pthread_cleanup_pop(1);
}

struct Answer {
  std::atomic<bool> came{false};
  hydrant_pin_t pin{};
};

// Messages are delivered inside each send; the callback runs in a poll, of any thread.
void pin_remotely(const Worker& worker, std::minstd_rand& random) {
  const hydrant_remote_t end = (*worker.world)[0].end;
  const uintptr_t addr = (*worker.world)[1].arena.addr(random() % kPages);
  Answer answer;
  hydrant_remote_call_t call{};
  call.context = &answer;
  call.done = [](void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t*) {
    auto& of = *static_cast<Answer*>(context);
    of.pin = pin;
    of.came = true;
  };
  pthread_cleanup_push(release, &answer.pin);
  hydrant_pin_t hit{};
  const int code = hydrant_remote_pin(end, 1, addr, kPage, HYDRANT_REMOTE_WRITE, &call, &hit);
  if (code == GASNET_OK && hit.region != nullptr) {
    answer.pin = hit;
  } else if (code == GASNET_OK) {
    // The completion is on this thread's stack: the thread is not cancelled before it arrived.
    int before = 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    EXPECT_TRUE(wait_until([&] { return hydrant_remote_poll(end) >= 0 && answer.came; }));
    pthread_setcancelstate(before, nullptr);
  }
  pthread_testcancel();
  pthread_cleanup_pop(1);
}

void* work(void* argument) {
  const Worker worker = *static_cast<Worker*>(argument);
  std::minstd_rand random(worker.seed);
  for (;;) {
    switch (random() % 16) {
      case 0: (void)hydrant_flush(worker.domain); break;
      case 1: (void)hydrant_poll(worker.domain); break;
      case 2:
        (void)hydrant_invalidate(worker.domain, worker.arena->page(random() % kPages), kPage);
        break;
      case 3:
        // The release of watched memory waits for the reader.
        (void)madvise(worker.arena->page(kPages + random() % kPages), kPage, MADV_DONTNEED);
        break;
      case 4: (void)hydrant_remote_quiet((*worker.world)[1].end); break;
      case 5:
      case 6:
      case 7: pin_remotely(worker, random); break;
      default: pin_something(worker, random);
    }
    pthread_testcancel();
  }
}

TEST_F(CancelledThreads, OthersGoOnWhileThreadsAreCancelledAtRandom) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer keeps red zones of frames that a cancelled thread has left";
#endif
  RemotePinCluster::Settings settings;
  settings.inline_delivery = true;
  settings.options.merge_bytes = 1;
  settings.options.stream_bytes = 1;
  RemotePinCluster world(settings);
  Threads threads;
  std::atomic<bool> stop{false};
  std::array<std::atomic<uint64_t>, 2> done{};
  for (auto& count : done) {
    threads.start([&] {
      size_t page = 0;
      while (!stop) {
        const hydrant_pin_t held = pin(++page % (2 * kPages));
        if (held.region != nullptr) (void)hydrant_release(held);
        ++count;
      }
    });
  }
  std::minstd_rand random(20261123);
  const int rounds = std::getenv("HYDRANT_TEST_LONG") != nullptr ? 20000 : 400;
  for (int round = 0; round < rounds; ++round) {
    std::array<Worker, 3> workers;
    std::array<pthread_t, 3> running;
    for (size_t i = 0; i < workers.size(); ++i) {
      workers[i] = {domain_, &arena_, &world, static_cast<uint32_t>(random())};
      ASSERT_EQ(pthread_create(&running[i], nullptr, work, &workers[i]), 0);
    }
    for (const pthread_t thread : running) {
      usleep(static_cast<useconds_t>(random() % 1000));
      ASSERT_EQ(pthread_cancel(thread), 0);
    }
    for (const pthread_t thread : running) {
      timespec deadline{};
      clock_gettime(CLOCK_REALTIME, &deadline);
      deadline.tv_sec += std::chrono::ceil<std::chrono::seconds>(patiently(kDeadline)).count();
      void* end = nullptr;
      ASSERT_EQ(pthread_timedjoin_np(thread, &end, &deadline), 0) << "a thread hangs";
      EXPECT_EQ(end, PTHREAD_CANCELED);
    }
    for (auto& count : done) {
      const uint64_t before = count;
      ASSERT_TRUE(wait_until([&] { return count != before; })) << "another thread hangs";
    }
  }
  stop = true;
  threads.join();
  EXPECT_EQ(live_holds(), 0u);
  world.settle();
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(world[rank].registrar.problems(), "");
    EXPECT_EQ(hydrant_flush(world[rank].domain), GASNET_OK);
  }
}

}  // namespace
}  // namespace hydrant::testing
