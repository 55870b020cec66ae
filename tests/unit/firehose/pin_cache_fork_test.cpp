// The child of a fork starts with an empty cache, cannot use or disturb what its parent holds, and does
// not keep the parent's pins alive; the parent notices nothing.
#include <hydrant/pin_cache.h>

#include "firehose/cache/domain.hpp"
#include "firehose/cache/domain_registry.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/patience.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace hydrant::testing {
namespace {

class PinCacheFork : public PinCacheTest, public ::testing::WithParamInterface<ChildKind> {
 protected:
  // In the child: "" if [page, +pages) can be pinned anew, used and released.
  std::string works(size_t page, size_t pages) {
    const uint64_t before = registrar_.next_serial();
    const hydrant_pin_t held = pin(page, pages);
    if (held.region == nullptr) return failure_text("pin in the child", hydrant_pin_status(held));
    const std::string wrong =
        check_hold(registrar_, held, arena_.addr(page), pages * kPage, HYDRANT_LOCAL_WRITE);
    if (!wrong.empty()) return wrong;
    if (serial(held) < before) return "the child got a key of its parent";
    if (stats_of(domain_).live_holds != 1) return "the child counts holds of its parent";
    const int status = hydrant_release(held);
    return status == GASNET_OK ? "" : failure_text("release in the child", status);
  }
};

TEST_P(PinCacheFork, ChildIsEmptyAndUsable) {
  create();
  const hydrant_pin_t held = pin(0, 2);
  ASSERT_NE(held.region, nullptr);
  EXPECT_EQ(hydrant_release(pin(10)), GASNET_OK);
  const auto child = [&]() -> std::string {
    registrar_.forget_all();
    if (try_pin(10).region != nullptr) return "hit what the parent had cached";
    if (try_pin(0).region != nullptr) return "hit what the parent holds";
    if (hydrant_partial_pin(domain_, arena_.page(0), 20 * kPage, 0).region != nullptr) {
      return "partial_pin found something";
    }
    if (std::string wrong = works(10, 1); !wrong.empty()) return wrong;
    if (std::string wrong = works(0, 4); !wrong.empty()) return wrong;
    if (registrar_.forgotten() != 1) return "forget_in_child ran not once";
    if (hydrant_flush(domain_) != GASNET_OK || registrar_.live() != 0)
      return "flush left something";
    const int status = hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN);
    if (status != GASNET_OK) return failure_text("destroy", status);
    return registrar_.problems();
  };
  EXPECT_EQ(run_in_child(child, GetParam()), "");
  EXPECT_EQ(check_hold(registrar_, held, arena_.addr(0), 2 * kPage, HYDRANT_LOCAL_WRITE), "");
  EXPECT_TRUE(is_cached(10));
  EXPECT_EQ(stats_of(domain_).live_holds, 1u);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_P(PinCacheFork, ParentsHoldIsANoOpInTheChild) {
  create();
  const hydrant_pin_t held = pin(0, 2);
  ASSERT_NE(held.region, nullptr);
  const auto child = [&]() -> std::string {
    registrar_.forget_all();
    int status = hydrant_release(held);
    if (status != GASNET_ERR_NOT_INIT) return failure_text("first release", status);
    if (hydrant_pin_parts(held, 0, nullptr) != 0) return "the parent's pin has parts";
    const hydrant_pin_t fresh = pin(0, 2);  // most likely in the same place
    if (fresh.region == nullptr) return failure_text("pin", hydrant_pin_status(fresh));
    for (int i = 0; i < 3; ++i) {
      status = hydrant_release(held);
      if (status != GASNET_ERR_NOT_INIT) return failure_text("later release", status);
    }
    if (stats_of(domain_).live_holds != 1) return "the parent's pin took the child's hold";
    if (hydrant_flush(domain_) != GASNET_OK) return "flush";
    const std::string wrong =
        check_hold(registrar_, fresh, arena_.addr(0), 2 * kPage, HYDRANT_LOCAL_WRITE);
    if (!wrong.empty()) return wrong;
    status = hydrant_release(fresh);
    return status == GASNET_OK ? registrar_.problems() : failure_text("release", status);
  };
  EXPECT_EQ(run_in_child(child, GetParam()), "");
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_P(PinCacheFork, ReleaseIsTheFirstThingAChildDoes) {
  create();
  const hydrant_pin_t held = pin(0);
  ASSERT_NE(held.region, nullptr);
  const auto child = [&]() -> std::string {
    const int status = hydrant_release(held);
    return status == GASNET_ERR_NOT_INIT ? "" : failure_text("release", status);
  };
  EXPECT_EQ(run_in_child(child, GetParam()), "");
  EXPECT_EQ(check_hold(registrar_, held, arena_.addr(0), kPage, HYDRANT_LOCAL_WRITE), "");
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_P(PinCacheFork, HitIsNotTheFirstThingAChildGets) {
  create();
  const hydrant_pin_t held = pin(0);
  ASSERT_NE(held.region, nullptr);
  const uint64_t parents = serial(held);
  const auto child = [&]() -> std::string {
    const hydrant_pin_t fresh = pin(0);  // the thread's own table still knows the parent's region
    if (fresh.region == nullptr) return failure_text("pin", hydrant_pin_status(fresh));
    return serial(fresh) == parents ? "the child was handed a stale key" : "";
  };
  EXPECT_EQ(run_in_child(child, GetParam()), "");
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_P(PinCacheFork, GrandchildPinsForItself) {
  create();
  EXPECT_EQ(hydrant_release(pin(0)), GASNET_OK);
  const auto child = [&]() -> std::string {
    registrar_.forget_all();
    const hydrant_pin_t held = pin(0);
    if (held.region == nullptr) return failure_text("pin", hydrant_pin_status(held));
    const auto grandchild = [&]() -> std::string {
      registrar_.forget_all();
      if (hydrant_release(held) != GASNET_ERR_NOT_INIT) return "the grandchild released it";
      if (try_pin(0).region != nullptr) return "the grandchild hit it";
      return works(0, 1);
    };
    if (std::string wrong = run_in_child(grandchild, GetParam()); !wrong.empty()) return wrong;
    const int status = hydrant_release(held);
    return status == GASNET_OK ? "" : failure_text("release", status);
  };
  EXPECT_EQ(run_in_child(child, GetParam()), "");
}

TEST_P(PinCacheFork, WaitingRequestsStayWithTheParent) {
  create_with_budget(4);
  const hydrant_pin_t all = pin(0, 4);
  ASSERT_NE(all.region, nullptr);
  std::atomic<int> times{0};
  hydrant_pin_t later{};
  struct Context {
    std::atomic<int>* times;
    hydrant_pin_t* later;
  } context{&times, &later};
  const auto done = [](void* user, hydrant_pin_t p) {
    *static_cast<Context*>(user)->later = p;
    ++*static_cast<Context*>(user)->times;
  };
  ASSERT_EQ(hydrant_pin_async(domain_, arena_.page(50), kPage, 0, done, &context), GASNET_OK);
  const auto child = [&]() -> std::string {
    registrar_.forget_all();
    for (int i = 0; i < 3; ++i) (void)hydrant_poll(domain_);
    if (times != 0) return "the parent's callback ran in the child";
    return works(0, 4);
  };
  EXPECT_EQ(run_in_child(child, GetParam()), "");
  EXPECT_EQ(hydrant_release(all), GASNET_OK);
  EXPECT_TRUE(wait_until([&] { return hydrant_poll(domain_) >= 0 && times != 0; }));
  EXPECT_EQ(hydrant_release(later), GASNET_OK);
}

INSTANTIATE_TEST_SUITE_P(Kinds, PinCacheFork,
                         ::testing::Values(ChildKind::kFork, ChildKind::kRawClone),
                         [](const auto& kind) {
                           return kind.param == ChildKind::kFork ? "Fork" : "RawClone";
                         });

// ---- kernels that do not wipe the slots ----

class PinCacheForkKept : public PinCacheTest {};

TEST_F(PinCacheForkKept, ChildFindsItsParentsSlotsAndUsesNone) {
  create();
  // The first page of slots shows the child that it is one; these two slots lie after that page.
  for (size_t i = 0; i < 100; ++i) ASSERT_EQ(hydrant_release(pin(10 + 2 * i)), GASNET_OK);
  const hydrant_pin_t held = pin(0, 2);
  const hydrant_pin_t released = pin(4);
  ASSERT_NE(held.region, nullptr);
  ASSERT_EQ(hydrant_release(released), GASNET_OK);
  const auto slots = reinterpret_cast<uintptr_t>(held.region) & ~uintptr_t{kPage - 1};
  ASSERT_EQ(madvise(reinterpret_cast<void*>(slots), kPage, MADV_KEEPONFORK), 0);
  const auto child = [&]() -> std::string {
    registrar_.forget_all();
    for (int i = 0; i < 3; ++i) {
      const int status = hydrant_release(held);
      if (status != GASNET_ERR_NOT_INIT) return failure_text("the parent's pin", status);
      if (hydrant_release(released) == GASNET_OK) return "what the parent released was released";
      if (stats_of(domain_).live_holds != 0) return "a release changed the count";
    }
    if (try_pin(0).region != nullptr || try_pin(4).region != nullptr) return "a parent's hit";
    const hydrant_pin_t fresh = pin(4);
    if (fresh.region == nullptr) return failure_text("pin", hydrant_pin_status(fresh));
    if (hydrant_release(held) != GASNET_ERR_NOT_INIT) return "the parent's pin, later";
    const int status = hydrant_release(fresh);
    return status == GASNET_OK ? registrar_.problems() : failure_text("release", status);
  };
  EXPECT_EQ(run_in_child(child), "");
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

// ---- other threads in the parent ----

// A registrar without a lock, since the child of a busy parent could find any lock taken.
hydrant_registrar_t lock_free_registrar() {
  hydrant_registrar_t table{};
  table.size = sizeof table;
  table.name = "lock-free";
  table.pin = [](void*, uintptr_t, size_t, uint32_t, void*) { return GASNET_OK; };
  table.unpin = [](void*, uintptr_t, size_t, const void*) { return HYDRANT_UNPIN_DONE; };
  return table;
}

hydrant_domain_options_t options_over(const hydrant_registrar_t& registrar) {
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.watch = HYDRANT_WATCH_CLIENT;
  options.registrar_name = nullptr;
  options.registrar = &registrar;
  options.budget_bytes = 16 * kPage;
  return options;
}

TEST(PinCacheForkBusy, ForkBesideBusyThreadsIsUsable) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a child inherits AddressSanitizer's allocator as another thread has locked it";
#endif
  const Arena arena(64);
  const hydrant_registrar_t table = lock_free_registrar();
  const hydrant_domain_options_t options = options_over(table);
  hydrant_domain_t domain = 0;
  ASSERT_EQ(hydrant_domain_create(&options, &domain), GASNET_OK) << hydrant_error_text();
  std::atomic<bool> stop{false};
  Threads threads;
  for (size_t t = 0; t < 3; ++t) {
    threads.start([&, t] {
      for (size_t i = t; !stop; ++i) {
        const hydrant_pin_t held = hydrant_pin(domain, arena.page(i * 7 % 60), 3 * kPage, 0);
        int status = held.region != nullptr ? hydrant_release(held) : GASNET_OK;
        EXPECT_EQ(status, GASNET_OK);
        if (i % 16 == 0) status = hydrant_invalidate(domain, arena.page(i % 64), kPage);
        EXPECT_EQ(status, GASNET_OK);
      }
    });
  }
  const auto child = [&]() -> std::string {
    for (size_t i = 0; i < 200; ++i) {
      const hydrant_pin_t held = hydrant_pin(domain, arena.page(i % 50), 4 * kPage, 0);
      if (held.region == nullptr) return failure_text("pin", hydrant_pin_status(held));
      if (hydrant_release(held) != GASNET_OK) return "release";
    }
    if (hydrant_invalidate(domain, arena.page(0), 64 * kPage) != GASNET_OK) return "invalidate";
    const int status = hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN);
    return status == GASNET_OK ? "" : failure_text("destroy", status);
  };
  for (int i = 0; i < 20 && !::testing::Test::HasFailure(); ++i) {
    EXPECT_EQ(run_in_child(child), "") << "fork " << i;
  }
  stop = true;
  threads.join();
  EXPECT_EQ(hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN), GASNET_OK);
}

// ---- forks in signal handlers ----

class PinCacheForkInHandler : public ::testing::Test {
 protected:
  void SetUp() override {
    const hydrant_registrar_t table = lock_free_registrar();
    const hydrant_domain_options_t options = options_over(table);
    ASSERT_EQ(hydrant_domain_create(&options, &domain_), GASNET_OK) << hydrant_error_text();
  }
  void TearDown() override {
    EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
  }
  int pin_and_release(size_t page) const {
    const hydrant_pin_t held = hydrant_pin(domain_, arena_.page(page), 3 * kPage, 0);
    return held.region == nullptr ? hydrant_pin_status(held) : hydrant_release(held);
  }

  const Arena arena_{64};
  hydrant_domain_t domain_ = 0;
};

// As in a handler that has interrupted this thread inside a slow call.
TEST_F(PinCacheForkInHandler, ForkByTheMutexHolderDoesNotWait) {
  hydrant_test_alarm(60);
  EXPECT_EQ(pin_and_release(0), GASNET_OK);
  Domain* domain = find_domain(domain_);
  domain->lock_for_fork();
  const auto child = [&]() -> std::string {
    // The interrupted call never continues in this child.
    for (size_t page = 0; page < 50; ++page) {
      if (const int status = pin_and_release(page); status != GASNET_OK)
        return failure_text("pin", status);
    }
    return Mutex::any_held() ? "forks of the child lock nothing" : "";
  };
  EXPECT_EQ(run_in_child(child), "");
  domain->unlock_after_fork();
  EXPECT_EQ(pin_and_release(0), GASNET_OK);
  EXPECT_EQ(run_in_child(child), "");
}

volatile sig_atomic_t g_forks = 0;

TEST_F(PinCacheForkInHandler, HandlersThatForkEveryMillisecondDoNotHang) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "fork() in a signal handler may wait for the sanitizer's own locks";
#endif
  hydrant_test_alarm(60);
  // A thread's first pin calls malloc(). A handler that interrupts that must not fork: libc's fork() takes
  // malloc's locks.
  ASSERT_EQ(pin_and_release(0), GASNET_OK);
  g_forks = 0;
  struct sigaction action {};
  struct sigaction old {};
  action.sa_handler = [](int) {
    const int kept = errno;
    const pid_t child = fork();
    if (child == 0) _exit(0);
    while (child > 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    g_forks = g_forks + 1;
    errno = kept;
  };
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &old), 0);
  std::atomic<bool> stop{false};
  const pthread_t self = pthread_self();
  Threads threads;
  threads.start([&] {
    while (!stop) {
      const int before = g_forks;
      pthread_kill(self, SIGUSR1);
      // Sleeps after the handler, too: otherwise the thread makes no progress while forks take longer.
      do {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } while (!stop && g_forks == before);
    }
  });
  for (size_t i = 0; g_forks < 300; ++i) ASSERT_EQ(pin_and_release(i * 7 % 60), GASNET_OK);
  stop = true;
  threads.join();
  EXPECT_EQ(sigaction(SIGUSR1, &old, nullptr), 0);
}

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// Steps through a piece of work by the processor's trap flag. The handler forks at one of kEvery instructions
// that the thread executes while it holds a mutex, and the child does work of its own.
class Stepper {
 public:
  explicit Stepper(std::function<int()> work_of_child) {
    work_of_child_ = std::move(work_of_child);
    steps_ = forks_ = 0;
    wrong_ = "";
    struct sigaction action {};
    action.sa_handler = &on_step;
    sigaction(SIGTRAP, &action, &old_);
  }
  ~Stepper() { sigaction(SIGTRAP, &old_, nullptr); }
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  template <class Work>
  void step_through(const Work& work) {
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | kTrapFlag);
    work();
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~kTrapFlag);
  }
  static size_t forks() { return forks_; }
  static const char* wrong() { return wrong_; }

 private:
  static constexpr unsigned long long kTrapFlag = 0x100;
  static constexpr size_t kEvery = 53;

  static void on_step(int) {
    if (!Mutex::any_held() || ++steps_ % kEvery != 0 || wrong_[0] != '\0') return;
    const int kept = errno;
    const pid_t child = fork();
    if (child == 0) {
      hydrant_test_alarm(30);
      _exit(work_of_child_());
    }
    int end = 0;
    if (child < 0 || waitpid(child, &end, 0) != child) wrong_ = "no child";
    if (end != 0) wrong_ = "a child cannot pin";
    ++forks_;
    errno = kept;
  }

  static inline std::function<int()> work_of_child_;
  static inline size_t steps_, forks_;
  static inline const char* wrong_;
  struct sigaction old_ {};
};

// The children find each change of a table, a list or a count half made.
TEST_F(PinCacheForkInHandler, ChildrenOfAForkAtAnyInstructionOfAMissPinAndEvict) {
  hydrant_test_alarm(60);
  const auto pin_all = [this]() -> int {
    for (size_t i = 0; i < 60; ++i) {
      if (pin_and_release(i * 7 % 60) != GASNET_OK) return 1;
    }
    return 0;
  };
  ASSERT_EQ(pin_all(), 0);
  Stepper stepper(pin_all);
  for (size_t i = 0; Stepper::forks() < 500 && Stepper::wrong()[0] == '\0'; ++i) {
    stepper.step_through([&] { (void)pin_and_release(i * 7 % 60); });
  }
  EXPECT_STREQ(Stepper::wrong(), "") << "fork " << Stepper::forks();
}

#endif

// ---- real pins ----

// Pins `pages` through a new uring domain; patient, since the kernel gives charges back late.
std::string pin_with_uring(const Arena& arena, size_t pages, hydrant_domain_t* domain) {
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.watch = HYDRANT_WATCH_CLIENT;
  options.registrar_name = "uring";
  if (hydrant_domain_create(&options, domain) != GASNET_OK) {
    return std::string("SKIP: ") + hydrant_error_text();
  }
  hydrant_pin_t held{};
  wait_until([&] {
    (void)hydrant_poll(*domain);
    held = hydrant_pin(*domain, arena.page(0), pages * kPage, HYDRANT_LOCAL_WRITE);
    return hydrant_pin_status(held) != GASNET_ERR_NOT_READY;
  });
  if (held.region == nullptr) return failure_text("pin", hydrant_pin_status(held));
  const int status = hydrant_release(held);
  return status == GASNET_OK ? "" : failure_text("release", status);
}

TEST(PinCacheForkUring, ChildDoesNotKeepTheParentsPins) {
  // Runs as an unprivileged user, whose pins are charged: charges that the child kept would be missing later.
  const auto user = []() -> std::string {
    constexpr size_t kPages = 1200;  // of 8 MiB = 2048 pages: fits once, not twice
    if (std::string why = become_ordinary_user(8 * kMiB); !why.empty()) return "SKIP: " + why;
    const Arena arena(kPages);
    hydrant_domain_t domain = 0;
    if (std::string wrong = pin_with_uring(arena, kPages, &domain); !wrong.empty()) return wrong;
    int wake[2];
    if (pipe(wake) != 0) return "no pipe";
    const pid_t child = fork();
    if (child == 0) {
      close(wake[1]);
      char byte = 0;
      (void)!read(wake[0], &byte, 1);  // runs on without ever calling the cache
      _exit(0);
    }
    close(wake[0]);
    std::string wrong;
    if (hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN) != GASNET_OK) wrong = "destroy";
    if (wrong.empty()) wrong = pin_with_uring(arena, kPages, &domain);
    if (hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN) != GASNET_OK) wrong += " second destroy";
    close(wake[1]);
    int status = 0;
    waitpid(child, &status, 0);
    return wrong;
  };
  const std::string result = run_in_child(user);
  if (result.rfind("SKIP: ", 0) == 0) GTEST_SKIP() << result.substr(6);
  EXPECT_EQ(result, "");
}

}  // namespace
}  // namespace hydrant::testing
