// The monitor under load, and in children: no deadlock, everybody served in bounded time.
#include <hydrant/monitor.h>

#include "tests/support/child_process.hpp"
#include "tests/support/mapped_memory.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watch/listener.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

namespace hydrant::testing {
namespace {

// Starts threads that watch memory and replace it until `stop`.
void start_releasing(Threads* threads, int count, const std::atomic<bool>* stop) {
  for (int t = 0; t < count; ++t) {
    threads->start([stop] {
      MappedMemory memory(4);
      memory.replace(0, 4);
      while (!*stop) {
        (void)cover(memory, 0, 4);
        memory.replace(0, 4);
      }
    });
  }
}

class MonitorThreads : public ::testing::Test {
 protected:
  void SetUp() override {
    HYDRANT_NEEDS_USERFAULTFD();
    ASSERT_EQ(the_monitor().start(), 0) << the_monitor().reason();
  }
};

TEST_F(MonitorThreads, ConcurrentReleasesAndQueries) {
  constexpr int kRounds = 100;
  std::atomic<int> told_late{0};
  std::atomic<int> running{24};
  Listener listener;
  Threads threads;
  for (int t = 0; t < 24; ++t) {
    threads.start([&, t] {
      MappedMemory memory(16);
      memory.replace(0, 16);
      for (int i = 0; i < kRounds; ++i) {
        (void)cover(memory, 0, 16);
        std::memset(memory.page(), i, memory.bytes());
        if ((i + t) % 3 == 0) {
          memory.replace(4, 4);
        } else if ((i + t) % 3 == 1) {
          (void)madvise(memory.page(8), 4 * kPage, MADV_DONTNEED);
        } else {
          // MREMAP_DONTUNMAP: leaves no hole that another thread might map
          (void)mremap(memory.page(0), 4 * kPage, 4 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED | 4,
                       memory.page(12));
        }
        the_monitor().settle();
      }
      --running;
    });
  }
  for (int t = 0; t < 8; ++t) {
    threads.start([&] {
      MappedMemory memory(4);
      memory.replace(0, 4);
      while (running != 0) {
        // A thread's own memory is covered, whatever the others do.
        if (cover(memory, 0, 4) != HYDRANT_COVER_CHECKED) ++told_late;
        (void)the_monitor().quiet(100'000);
        (void)the_monitor().pinned(memory.addr(), 1);
        the_monitor().note_pinned(memory.addr(), kPage);
      }
    });
  }
  threads.join();
  EXPECT_EQ(told_late, 0);
  EXPECT_TRUE(wait_until([] { return the_monitor().quiet(0) == 0; }));
  EXPECT_EQ(shown(the_monitor().sequence) % 2, 0u);
}

// quiet() must succeed although other threads release all the time: otherwise memory would not be cached in a
// program whose other threads allocate.
TEST_F(MonitorThreads, QuietSucceedsUnderConstantReleases) {
  std::atomic<bool> stop{false};
  std::atomic<int> quiet{0};
  Threads threads;
  start_releasing(&threads, 8, &stop);
  threads.start([&] {
    for (int i = 0; i < 200; ++i) {
      if (the_monitor().quiet(100'000'000) == 0) ++quiet;
    }
    (void)wait_until(
        [&] {
          if (quiet == 0 && the_monitor().quiet(100'000'000) == 0) ++quiet;
          return quiet != 0;
        },
        std::chrono::seconds(30));
    stop = true;
  });
  threads.join();
  EXPECT_GT(quiet, 0);
}

TEST_F(MonitorThreads, ClientsSubscribeAndLeaveConcurrently) {
  std::atomic<bool> stop{false};
  Threads threads;
  start_releasing(&threads, 3, &stop);
  threads.start([&] {
    for (int i = 0; i < 300; ++i) {
      Listener one;
      Listener two;
      the_monitor().invalidate(0x1000, 1);
      EXPECT_GE(one.count(), 1u);
    }
    stop = true;
  });
  threads.join();
}

// ---- children ----

std::string watches() {
  MappedMemory memory(8);
  memory.replace(0, 8);
  Listener listener;
  if (listener.number() < 0) return "no place for a client";
  if (cover(memory, 0, 8) != HYDRANT_COVER_CHECKED) {
    return "not covered: " + std::string(the_monitor().reason());
  }
  memory.unmap(2, 2);
  the_monitor().settle();
  return listener.told_of(memory, 2, 2) ? "" : "not told";
}

TEST_F(MonitorThreads, ChildStartsAgainAndTheParentIsUnaffected) {
  if (!kThreadsInChildren) GTEST_SKIP() << "the thread sanitizer allows no threads in a child";
  MappedMemory memory(8);
  memory.replace(0, 8);
  ASSERT_EQ(cover(memory, 0, 8), HYDRANT_COVER_CHECKED);
  EXPECT_EQ(run_in_child([&]() -> std::string {
              if (std::string wrong = watches(); !wrong.empty()) return wrong;
              // Memory that the parent watched is this process's own now.
              Listener listener;
              if (cover(memory, 0, 8) != HYDRANT_COVER_CHECKED) return "inherited: not covered";
              memory.unmap(0, 8);
              the_monitor().settle();
              if (!listener.told_of(memory, 0, 8)) return "inherited: not told";
              return run_in_child(watches);
            }),
            "");
  Listener listener;
  memory.unmap(2, 2);
  the_monitor().settle();
  EXPECT_TRUE(listener.told_of(memory, 2, 2));
  EXPECT_EQ(watches(), "");
}

TEST_F(MonitorThreads, ArenasRemainInAChild) {
  MappedMemory memory(8);
  memory.replace(0, 8);
  ASSERT_EQ(the_monitor().add_arena(memory.addr(), memory.bytes()), 0);
  EXPECT_EQ(run_in_child([&]() -> std::string {
              const uint32_t got = cover(memory, 0, 8, HYDRANT_COVER_ONLY_ARENAS);
              return got == HYDRANT_COVER_ARENA ? "" : "forgotten";
            }),
            "");
  the_monitor().drop_arena(memory.addr(), memory.bytes());
}

// ---- a program that closes what it does not know ----

uint64_t processor_ns() {
  timespec ts{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(ts.tv_nsec);
}

// Daemons close all descriptors. Without its descriptor the monitor gets no reports: it must cover no memory,
// notify clients to forget all that they have, and report the reason.
TEST_F(MonitorThreads, WithoutItsDescriptorNothingIsCovered) {
  if (!kThreadsInChildren) GTEST_SKIP() << "the thread sanitizer allows no threads in a child";
  EXPECT_EQ(run_in_child([]() -> std::string {
              MappedMemory memory(8);
              memory.replace(0, 8);
              Listener listener;
              if (cover(memory, 0, 8) != HYDRANT_COVER_CHECKED) return "not covered at first";
              bool closed = false;
              for (int fd = 3; fd < 256; ++fd) {
                char link[64] = {};
                const std::string path = "/proc/self/fd/" + std::to_string(fd);
                if (readlink(path.c_str(), link, sizeof link - 1) <= 0 ||
                    std::strstr(link, "userfaultfd") == nullptr) {
                  continue;
                }
                close(fd);
                closed = true;
              }
              if (!closed) return "no descriptor found";
              memory.replace(4, 4);  // the kernel may still report this to the thread that polls
              const bool known =
                  wait_until([&] { return cover(memory, 0, 2) == HYDRANT_COVER_NONE; });
              if (!known) return "still said to be covered";
              if (the_monitor().reason()[0] == '\0') return "no reason";
              // (The monitor reports the reason first, then notifies.)
              const bool told = wait_until([&] { return listener.told_of(memory, 0, 2); });
              if (!told) return "not told to forget what was kept";
              const uint64_t begun = processor_ns();
              timespec ts{0, 200'000'000};
              nanosleep(&ts, nullptr);
              return processor_ns() - begun < 100'000'000 ? "" : "the reader spins";
            }),
            "");
}

}  // namespace
}  // namespace hydrant::testing
