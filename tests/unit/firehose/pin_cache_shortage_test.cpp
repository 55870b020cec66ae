// Refused system calls. No descriptor or no thread while the first domain is made: nothing is watched until
// there is one again, and memory that was pinned before is not hit afterwards. A call that the reader needs:
// watching ends, and no release of memory sleeps for ever.
#include <hydrant/pin_cache.h>

#include "tests/support/child_process.hpp"
#include "tests/support/fstat_call.hpp"
#include "tests/support/mapped_memory.hpp"
#include "tests/support/refused_calls.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <iterator>
#include <linux/userfaultfd.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

namespace hydrant::testing {
namespace {

enum Kind : size_t { kUserfaultfd, kClone3, kOpenMaps, kPoll, kRead, kIoctl, kFstat, kFcntl };

std::vector<CallKind> calls_of_the_monitor() {
  return {
      {"userfaultfd", SYS_userfaultfd},
      {"clone3", SYS_clone3},
      {"openat", SYS_openat},
      {"poll", SYS_poll},
      {"read", SYS_read, [](const seccomp_data& call) { return call.args[2] >= sizeof(uffd_msg); }},
      {"ioctl", SYS_ioctl,
       [](const seccomp_data& call) { return _IOC_TYPE(call.args[1]) == UFFDIO; }},
      {"fstat", kFstatCall},
      {"fcntl", SYS_fcntl}};
}

size_t threads_here() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

// A domain that is made while a call of the monitor's start is refused.
class Scarce {
 public:
  explicit Scarce(RefusedCalls& calls) : calls_(calls) {}
  ~Scarce() {
    if (domain_ != 0) (void)hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN);
  }

  std::string make(Kind kind, int error) {
    calls_.refuse(kind, 0, RefusedCalls::kForEver, error);
    return make();
  }
  std::string make() {
    hydrant_domain_options_t options = options_for(own_);
    options.watch = HYDRANT_WATCH_AUTO;
    const int status = hydrant_domain_create(&options, &domain_);
    return status == GASNET_OK ? "" : failure_text("create", status);
  }
  uint32_t coverage() {
    uint32_t answer = ~0u;
    (void)hydrant_coverage(domain_, arena_.page(0), kPage, &answer);
    return answer;
  }
  // The number of the registration that a pin of this page uses, 0 if it fails.
  uint64_t use(size_t page) {
    const hydrant_pin_t held = pin(page);
    if (held.region == nullptr) return 0;
    const uint64_t serial = own_.serial_of(held.region->key);
    return hydrant_release(held) == GASNET_OK ? serial : 0;
  }
  hydrant_pin_t pin(size_t page) {
    return hydrant_pin(domain_, arena_.page(page), kPage, HYDRANT_LOCAL_WRITE);
  }
  bool is_cached(size_t page) {
    const uint64_t first = use(page);
    return first != 0 && use(page) == first;
  }
  // Other memory at the page's address.
  std::string renew(size_t page) {
    void* at = arena_.page(page);
    if (munmap(at, kPage) != 0) return "munmap";
    return mmap(at, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                0) == at
               ? ""
               : "mmap";
  }
  hydrant_domain_t domain() const { return domain_; }

 private:
  RefusedCalls& calls_;
  Arena arena_{64};
  const RecordingRegistrar own_{arena_};
  hydrant_domain_t domain_ = 0;
};

// Runs the body in a child, which has no monitor yet.
std::string in_new_process(const std::function<std::string(RefusedCalls&)>& body) {
  return run_in_child([&] { return RefusedCalls::run(calls_of_the_monitor(), body); });
}

#define HYDRANT_NEEDS_NEW_PROCESSES()                                         \
  if (!kThreadsInChildren)                                                    \
    GTEST_SKIP() << "the thread sanitizer ends a child that starts a thread"; \
  HYDRANT_NEEDS_USERFAULTFD()

struct Shortage {
  const char* name;
  Kind kind;
  int error;
};

class PinCacheShortage : public ::testing::TestWithParam<Shortage> {};

TEST_P(PinCacheShortage, WatchingComesBackAndNothingOldIsHit) {
  HYDRANT_NEEDS_NEW_PROCESSES();
  const std::string wrong = in_new_process([](RefusedCalls& calls) -> std::string {
    const Shortage& shortage = GetParam();
    Scarce scarce(calls);
    const size_t threads = threads_here();
    if (std::string failed = scarce.make(shortage.kind, shortage.error); !failed.empty())
      return failed;
    if (scarce.coverage() != HYDRANT_COVERAGE_NONE) return "covered without a monitor";
    if (scarce.is_cached(0)) return "cached without a monitor";
    const hydrant_pin_t before = scarce.pin(1);
    if (before.region == nullptr) return hydrant_error_text();
    const uint64_t first = scarce.use(1);
    if (calls.allow() == 0) return "nothing was refused";
    // A miss starts it, when some time has passed.
    if (!wait_until([&] { return scarce.is_cached(2); })) return "watching does not come back";
    if (scarce.coverage() < HYDRANT_COVERAGE_CHECKED) return "not covered";
    // A miss tries each thread again 100 ms after its own failure: the second may need a later miss.
    const auto both_run = [&] {
      if (threads_here() >= threads + 2) return true;
      (void)scarce.renew(3);
      (void)scarce.use(3);
      return false;
    };
    if (!wait_until(both_run)) return "the reader or the upkeep thread is missing";
    const uint64_t now = scarce.use(1);
    if (now == 0 || now == first) return "a registration from before is hit";
    if (std::string failed = scarce.renew(1); !failed.empty()) return failed;
    const uint64_t renewed = scarce.use(1);
    if (renewed == 0 || renewed == now) return "stale";
    if (hydrant_release(before) != GASNET_OK) return hydrant_error_text();
    const uint64_t last = scarce.use(1);
    return last != 0 && last != first ? "" : "the pin from before was kept";
  });
  if (wrong == RefusedCalls::kNoFilter) GTEST_SKIP() << wrong;
  EXPECT_EQ(wrong, "");
}

TEST_P(PinCacheShortage, ALaterDomainTriesAtOnce) {
  HYDRANT_NEEDS_NEW_PROCESSES();
  const std::string wrong = in_new_process([](RefusedCalls& calls) -> std::string {
    Scarce first(calls), second(calls);
    if (std::string failed = first.make(GetParam().kind, GetParam().error); !failed.empty())
      return failed;
    if (first.coverage() != HYDRANT_COVERAGE_NONE) return "covered without a monitor";
    calls.allow();
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    hydrant_domain_t domain = 0;
    if (hydrant_domain_create(&options, &domain) != GASNET_OK) return hydrant_error_text();
    const bool is_covered = first.coverage() >= HYDRANT_COVERAGE_CHECKED;
    (void)hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN);
    return is_covered ? "" : "the next domain did not start the monitor";
  });
  if (wrong == RefusedCalls::kNoFilter) GTEST_SKIP() << wrong;
  EXPECT_EQ(wrong, "");
}

INSTANTIATE_TEST_SUITE_P(Of, PinCacheShortage,
                         ::testing::Values(Shortage{"Descriptors", kUserfaultfd, EMFILE},
                                           Shortage{"FilesOfTheSystem", kUserfaultfd, ENFILE},
                                           Shortage{"Memory", kUserfaultfd, ENOMEM},
                                           Shortage{"DescriptorsForMaps", kOpenMaps, EMFILE},
                                           Shortage{"Threads", kClone3, EAGAIN}),
                         [](const auto& test) { return std::string(test.param.name); });

// A call that is forbidden is made once.
TEST(PinCacheRefusal, IsForGood) {
  HYDRANT_NEEDS_NEW_PROCESSES();
  for (const int error : {EPERM, ENOSYS, EINVAL}) {
    const std::string wrong = in_new_process([error](RefusedCalls& calls) -> std::string {
      Scarce scarce(calls);
      if (std::string failed = scarce.make(kUserfaultfd, error); !failed.empty()) return failed;
      constexpr useconds_t kLongerThanAShortage = 120'000;
      usleep(kLongerThanAShortage);
      if (scarce.is_cached(0)) return "cached";
      hydrant_domain_options_t options;
      hydrant_domain_options_init(&options);
      hydrant_domain_t domain = 0;
      if (hydrant_domain_create(&options, &domain) != GASNET_OK) return hydrant_error_text();
      (void)hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN);
      const int refused = calls.allow();
      return refused == 1 ? "" : std::to_string(refused) + " calls";
    });
    if (wrong == RefusedCalls::kNoFilter) GTEST_SKIP() << wrong;
    EXPECT_EQ(wrong, "") << strerrorname_np(error);
  }
}

class PinCacheReader : public ::testing::TestWithParam<Shortage> {};

// The second release would sleep in the kernel for ever if its report stayed unread.
TEST_P(PinCacheReader, EndsWatchingWhenItsCallIsRefused) {
  HYDRANT_NEEDS_NEW_PROCESSES();
  const std::string wrong = in_new_process([](RefusedCalls& calls) -> std::string {
    Scarce scarce(calls);
    if (std::string failed = scarce.make(); !failed.empty()) return failed;
    const uint64_t before[] = {scarce.use(0), scarce.use(1), scarce.use(2)};
    if (!wait_until([&] { return scarce.is_cached(3); })) return "not cached at first";
    calls.refuse(GetParam().kind, 0, RefusedCalls::kForEver, GetParam().error);
    for (size_t page = 0; page < 2; ++page) {
      if (std::string failed = scarce.renew(page); !failed.empty()) return failed;
      if (scarce.use(page) == before[page]) return "stale";
    }
    if (!wait_until([&] { return scarce.coverage() == HYDRANT_COVERAGE_NONE; }))
      return "still covered";
    if (calls.allow() == 0) return "nothing was refused";
    if (scarce.use(2) == before[2]) return "not forgotten";
    if (scarce.is_cached(3)) return "cached without a reader";
    return scarce.renew(4);
  });
  if (wrong == RefusedCalls::kNoFilter) GTEST_SKIP() << wrong;
  EXPECT_EQ(wrong, "");
}

INSTANTIATE_TEST_SUITE_P(Of, PinCacheReader,
                         ::testing::Values(Shortage{"PollForbidden", kPoll, EPERM},
                                           Shortage{"PollAbsent", kPoll, ENOSYS},
                                           Shortage{"PollNeverReady", kPoll, EAGAIN},
                                           Shortage{"ReadForbidden", kRead, EPERM},
                                           Shortage{"ReadAbsent", kRead, ENOSYS},
                                           Shortage{"ReadNeverReady", kRead, EAGAIN},
                                           Shortage{"IoctlForbidden", kIoctl, EPERM},
                                           Shortage{"FstatForbidden", kFstat, EPERM},
                                           Shortage{"FcntlForbidden", kFcntl, EPERM}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(PinCacheReaderOnce, GoesOnAfterAFewFailures) {
  HYDRANT_NEEDS_NEW_PROCESSES();
  for (const Kind kind : {kPoll, kRead}) {
    for (const int error : {EINTR, EAGAIN, ENOMEM}) {
      const std::string wrong = in_new_process([kind, error](RefusedCalls& calls) -> std::string {
        Scarce scarce(calls);
        if (std::string failed = scarce.make(); !failed.empty()) return failed;
        const uint64_t before = scarce.use(0);
        constexpr int kTimes = 3;
        calls.refuse(kind, 0, kTimes, error);
        if (std::string failed = scarce.renew(0); !failed.empty()) return failed;
        if (scarce.use(0) == before) return "stale";
        if (!wait_until([&] { return calls.refused() == kTimes; })) return "not tried again";
        if (scarce.coverage() < HYDRANT_COVERAGE_CHECKED) return "no longer covered";
        return wait_until([&] { return scarce.is_cached(0); }) ? "" : "no longer cached";
      });
      if (wrong == RefusedCalls::kNoFilter) GTEST_SKIP() << wrong;
      EXPECT_EQ(wrong, "") << strerrorname_np(error);
    }
  }
}

}  // namespace
}  // namespace hydrant::testing
