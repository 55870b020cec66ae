// Signal handlers that release memory while the thread they interrupt is inside the cache. The handler's
// calls return when the monitor's reader has read, and the reader must not wait for what the interrupted code
// holds. Each test runs in a child, which is ended if it stands still.
#include <hydrant/pin_cache.h>

#include "tests/support/child_process.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::testing {
namespace {

// The handler runs this function once; it is set before the signal is raised.
std::atomic<void (*)(void*)> g_work{nullptr};
std::atomic<void*> g_context{nullptr};

void on_signal(int) {
  const int saved = errno;
  if (const auto work = g_work.exchange(nullptr)) work(g_context.load());
  errno = saved;
}

void nap(long ns) {
  const timespec rest{0, ns};
  nanosleep(&rest, nullptr);
}

// A policy whose insert(), which the cache calls with the domain's mutex held, lets a signal arrive.
const hydrant_policy_t& raising_policy() {
  static const hydrant_policy_t policy = [] {
    hydrant_policy_t functions{};
    functions.size = sizeof functions;
    functions.insert = [](void*, uint32_t, size_t, uint64_t) {
      if (g_work.load() != nullptr) raise(SIGUSR1);
    };
    functions.touch = functions.erase = [](void*, uint32_t) {};
    functions.watch = functions.evict = [](void*, uint32_t*, size_t) { return size_t{0}; };
    return functions;
  }();
  return policy;
}

// All public: handlers are functions.
class PinCacheSignals : public WatchedPinCache, public ::testing::WithParamInterface<uint32_t> {
 public:
  using WatchedPinCache::arena_;
  static constexpr size_t kPages = 64;  // that the handlers replace, from page 0 on
  static constexpr size_t kElsewhere = 256;

  void SetUp() override {
    WatchedPinCache::SetUp();
    if (!kThreadsInChildren) GTEST_SKIP() << "the thread sanitizer allows no threads in a child";
  }

  // body() in a child, with a domain whose mutex is held when the handler runs.
  std::string in_child(const std::function<std::string()>& body) {
    return run_in_child([&]() -> std::string {
      struct sigaction action {};
      action.sa_handler = &on_signal;
      sigaction(SIGUSR1, &action, nullptr);
      hydrant_domain_options_t options = watching(GetParam());
      options.policy = &raising_policy();
      options.merge_bytes = options.stream_bytes = 1;
      create(options);
      std::string wrong = body();
      destroy();
      return wrong;
    });
  }
  // Runs `work` in a handler that interrupts the holder of the domain's mutex.
  void interrupt(void (*work)(void*)) {
    g_context = this;
    g_work = work;
    use(kElsewhere + interrupted_++ * 4);
  }
  // Replaces four pages by a system call that no hook sees.
  void renew_in_handler(size_t page, size_t how) {
    constexpr int kDontUnmap = 4;  // MREMAP_DONTUNMAP
    void* at = arena_.page(page);
    constexpr size_t kBytes = 4 * kPage;
    constexpr int kMine = MAP_PRIVATE | MAP_ANONYMOUS;
    switch (how % 4) {
      case 0:
        (void)munmap(at, kBytes);
        (void)mmap(at, kBytes, PROT_READ | PROT_WRITE, kMine | MAP_FIXED_NOREPLACE, -1, 0);
        break;
      case 1: (void)madvise(at, kBytes, MADV_DONTNEED); break;
      case 2:
        (void)mremap(at, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED | kDontUnmap,
                     arena_.page(128));
        break;
      default: (void)mmap(at, kBytes, PROT_READ | PROT_WRITE, kMine | MAP_FIXED, -1, 0); break;
    }
  }

  // "" if the other thread's pin is served by a registration of the new mapping.
  std::string hit_beside_the_handler() {
    std::atomic<uint64_t> served{0};
    Threads threads;
    threads.start([&] {
      (void)use(0, 4);
      (void)use(0, 4);  // through this thread's own table from now on
      stage_ = 1;
      while (stage_ != 2) nap(100'000);
      served = use(0, 4);  // waits for the mutex, or hits
      stage_ = 3;
    });
    while (stage_ != 1) nap(100'000);
    const uint64_t oldest = registrar_.next_serial();
    interrupt([](void* self) {
      auto* test = static_cast<PinCacheSignals*>(self);
      test->renew_in_handler(0, 0);
      test->renew_in_handler(4, 0);
      test->stage_ = 2;
      // A hit completes at once; otherwise the other thread waits for the mutex, and this loop times out.
      for (int i = 0; i < 200 && test->stage_ != 3; ++i) nap(1'000'000);
    });
    threads.join();
    return served > oldest ? "" : "a hit on what a handler had released";
  }

  size_t interrupted_ = 0;
  std::atomic<int> stage_{0};
};

TEST_P(PinCacheSignals, HandlerThatReleasesUnderTheMutexReturnsAndNothingIsStale) {
  EXPECT_EQ(in_child([this]() -> std::string {
              uint64_t before[kPages] = {};
              for (size_t page = 0; page < kPages; page += 4) before[page] = use(page, 4);
              for (size_t page = 0; page < kPages; page += 4) {
                if (use(page, 4) != before[page]) return "not kept";
              }
              const uint64_t oldest = registrar_.next_serial();
              interrupt([](void* self) {
                auto* test = static_cast<PinCacheSignals*>(self);
                for (size_t page = 0; page < kPages; page += 4) {
                  test->renew_in_handler(page, page / 4);
                }
              });
              for (size_t page = 0; page < kPages; page += 4) {
                if (use(page, 4) < oldest) return "stale at page " + std::to_string(page);
              }
              // Memory that was reported so is cached again, once the monitor is quiet.
              if (!becomes_quiet()) return "the reader does not read";
              const uint64_t again = use(kPages, 4);
              return use(kPages, 4) == again ? "" : "nothing is kept any more";
            }),
            "");
}

// More ranges than are recorded separately.
TEST_P(PinCacheSignals, TooManyReleasesForgetEverything) {
  EXPECT_EQ(in_child([this]() -> std::string {
              constexpr size_t kMany = 100;
              for (size_t page = 0; page < kMany; ++page) (void)use(page);
              const uint64_t oldest = registrar_.next_serial();
              interrupt([](void* self) {
                auto* test = static_cast<PinCacheSignals*>(self);
                for (size_t page = 0; page < kMany; ++page) {
                  (void)mmap(test->arena_.page(page), kPage, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
                }
              });
              for (size_t page = 0; page < kMany; ++page) {
                if (use(page) < oldest) return "stale at page " + std::to_string(page);
              }
              return "";
            }),
            "");
}

// Another thread hits memory that the handler has released, while the holder of the mutex is interrupted.
TEST_P(PinCacheSignals, AnotherThreadsHitIsNotStaleWhileTheHolderIsInterrupted) {
  EXPECT_EQ(in_child([this] { return hit_beside_the_handler(); }), "");
}

#if HYDRANT_MUTANTS
TEST_P(PinCacheSignals, HitThroughAGateThatWasLeftOpenIsFound) {
  EXPECT_EQ(in_child([this]() -> std::string {
              set_mutant(Mutant::kNoMarks, 0);
              std::string found = hit_beside_the_handler();
              set_mutant(Mutant::kNone, 0);
              return found;
            }),
            "a hit on what a handler had released");
}
#endif

TEST_P(PinCacheSignals, OtherMonitorCallsReturnUnderTheMutex) {
  EXPECT_EQ(in_child([this]() -> std::string {
              (void)use(0, 4);
              const uint64_t oldest = registrar_.next_serial();
              static std::atomic<int> answers;
              answers = 0;
              interrupt([](void* self) {
                auto* test = static_cast<PinCacheSignals*>(self);
                const hydrant_monitor_t& monitor = the_monitor();
                monitor.invalidate(test->arena_.addr(0), kPage);
                monitor.replaced(test->arena_.addr(1), kPage);
                monitor.files_changed();
                monitor.settle();
                monitor.sync();
                answers = 1 + (monitor.pinned(test->arena_.addr(0), kPage) != 0 ? 1 : 0);
              });
              if (answers != 2) return "the handler did not end, or said that nothing is pinned";
              if (use(0, 4) < oldest) return "not forgotten";
              if (the_monitor().pinned(arena_.addr(0), kPage) == 0) return "not pinned";
              return the_monitor().pinned(arena_.addr(kPages), kPage) == 0 ? "" : "pinned";
            }),
            "");
}

// Releases by a thread's handler at 1 kHz: ranges of four pages, with the first serial of each generation.
class Releases {
 public:
  static constexpr size_t kRanges = 4;  // the last is where the others are moved to

  Releases(std::byte* memory, const RecordingRegistrar& registrar)
      : memory_(memory), registrar_(registrar) {}
  Releases(const Releases&) = delete;
  Releases& operator=(const Releases&) = delete;
  ~Releases() { stop(); }

  static void install() {
    struct sigaction action {};
    action.sa_handler = [](int) {
      const int saved = errno;
      if (t_releases != nullptr) t_releases->renew();
      errno = saved;
    };
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR2, &action, nullptr);
  }
  // In the calling thread.
  bool start() {
    t_releases = this;
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGUSR2;
    event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
    started_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
    const itimerspec rate{{0, 1'000'000}, {0, 1'000'000}};
    return started_ && timer_settime(timer_, 0, &rate, nullptr) == 0;
  }
  void stop() {
    if (started_) timer_delete(timer_);
    started_ = false;
    t_releases = nullptr;
  }
  uint64_t lives() const { return lives_; }
  // Registrations of the range's memory have this serial or a later one.
  uint64_t first_serial(size_t range) const { return first_[range]; }
  std::byte* page(size_t i) const { return memory_ + i * kPage; }

 private:
  void renew() {
    constexpr int kDontUnmap = 4;  // MREMAP_DONTUNMAP
    constexpr size_t kBytes = 4 * kPage;
    constexpr int kMine = MAP_PRIVATE | MAP_ANONYMOUS;
    const size_t range = turn_ / 4 % (kRanges - 1);
    const size_t target = kRanges - 1;
    std::byte* at = page(range * 4);
    bool renewed = false;
    switch (turn_++ % 4) {
      case 0: renewed = madvise(at, kBytes, MADV_DONTNEED) == 0; break;
      case 1:
        renewed = mmap(at, kBytes, PROT_READ | PROT_WRITE, kMine | MAP_FIXED, -1, 0) == at;
        break;
      case 2:
        renewed = mremap(at, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED | kDontUnmap,
                         page(4 * target)) != MAP_FAILED;
        if (renewed) first_[target] = registrar_.next_serial();
        break;
      default: {
        void* got = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, kMine, -1, 0);
        renewed = got != MAP_FAILED && munmap(got, kBytes) == 0 &&
                  madvise(at, kBytes, MADV_DONTNEED) == 0;
      }
    }
    if (!renewed) return;
    first_[range] = registrar_.next_serial();
    lives_ = lives_ + 1;
  }

  static thread_local Releases* volatile t_releases;
  std::byte* const memory_;
  const RecordingRegistrar& registrar_;
  timer_t timer_{};
  bool started_ = false;
  size_t turn_ = 0;
  std::atomic<uint64_t> lives_{0};
  std::atomic<uint64_t> first_[kRanges] = {};
};
thread_local Releases* volatile Releases::t_releases = nullptr;

TEST_P(PinCacheSignals, HandlersThatReleaseAtAKilohertzNeitherHangNorLeaveAStalePin) {
  constexpr uint64_t kLives = 1000;
  constexpr size_t kPagesEach = 32;
  EXPECT_EQ(run_in_child([this]() -> std::string {
              hydrant_domain_options_t options = watching(GetParam());
              options.max_regions = 48;  // the cache searches for victims all the time
              create(options);
              Releases::install();
              std::atomic<uint64_t> stale{0}, failed{0}, held_pins{0};
              Threads threads;
              for (size_t t = 0; t < 4; ++t) {
                threads.start([&, t] {
                  Releases releases(arena_.page(t * kPagesEach), registrar_);
                  if (!releases.start()) ++failed;
                  std::mt19937_64 random(t);
                  while (releases.lives() < kLives && failed == 0) {
                    const size_t page = random() % kPagesEach;
                    const size_t range = page / 4;
                    const bool renewed = range < Releases::kRanges;
                    const uint64_t oldest = renewed ? releases.first_serial(range) : 0;
                    const hydrant_pin_t held =
                        hydrant_pin(domain_, releases.page(page), kPage, HYDRANT_LOCAL_WRITE);
                    if (held.region == nullptr) continue;
                    ++held_pins;
                    if (serial(held) < oldest) ++stale;
                    if (hydrant_release(held) != GASNET_OK) ++failed;
                  }
                });
              }
              threads.join();
              destroy();
              if (held_pins < kLives) return "only " + std::to_string(held_pins) + " pins";
              if (stale != 0) return std::to_string(stale) + " stale";
              return failed == 0 ? "" : std::to_string(failed) + " failed";
            }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Modes, PinCacheSignals,
                         ::testing::Values(HYDRANT_MODE_REGION, HYDRANT_MODE_PAGE),
                         [](const auto& mode) {
                           return mode.param == HYDRANT_MODE_PAGE ? "Page" : "Region";
                         });

}  // namespace
}  // namespace hydrant::testing
