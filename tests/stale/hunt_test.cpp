// Short hunts for stale pins: in the unmodified library, in clients that must be caught, and with less
// watching, which must show as lower coverage. bench/stale_hunt is the long version.
#include "tests/stale/hunt/hunt.hpp"

#include "tests/stale/hunt/hydrant_cache.hpp"
#include "tests/stale/hunt/mutants.hpp"
#include "tests/stale/hunt/stacks.hpp"
#include "tests/support/patience.hpp"
#include "tests/support/refused_calls.hpp"
#include "tests/support/test_seed.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant::stale {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr uint64_t kOperations = 20'000;
constexpr uint64_t kMillion = 50'000;
#elif defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kOperations = 80'000;
constexpr uint64_t kMillion = 200'000;
#else
constexpr uint64_t kOperations = 150'000;
constexpr uint64_t kMillion = 1'000'000;
#endif
// A hunt ends with its first finding, mostly after some thousand operations, but later with sanitizers.
constexpr uint64_t kMutantOperations = kMillion;

uint64_t chosen_seed() {
  const char* text = std::getenv("STALE_HUNT_SEED");
  if (text != nullptr) return std::strtoull(text, nullptr, 10);
  return testing::test_seed();
}

HuntOptions short_hunt(uint64_t operations = kOperations) {
  HuntOptions options;
  options.operations = operations;
  options.seed = chosen_seed();
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  // ThreadSanitizer ends children of programs with threads; AddressSanitizer's allocator locks are copied.
  options.sources.drop(Source::kFork);
#endif
  std::printf("seed %llu (STALE_HUNT_SEED)\n", static_cast<unsigned long long>(options.seed));
  return options;
}

std::string words_of(const HuntResult& result) {
  std::string text = result.failure;
  for (const std::string& finding : result.findings) text += "\n" + finding;
  return text;
}

uint64_t pins_with(const HuntResult& result, Coverage coverage) {
  return result.counts.pins_by_coverage[static_cast<size_t>(coverage)];
}

class StaleHunt : public ::testing::Test {
 protected:
  // Runs a hunt in a domain; skips the test without io_uring.
  void hunt(const HydrantCacheOptions& cache, HuntOptions options) {
#if defined(__SANITIZE_THREAD__)
    // A thread that has caught a signal ends with a munmap() under ThreadSanitizer's lock. Next to watched
    // memory the call waits for the reader thread, which needs that lock.
    options.sources.drop(Source::kSignal);
    options.stopped = HuntOptions::Stopped::kNone;
#endif
    std::string error;
    const std::unique_ptr<Cache> subject = make_hydrant_cache(cache, &error);
    if (subject == nullptr) GTEST_SKIP() << error;
    result_ = run_hunt(options, *subject);
    for (const std::string& text : result_.skipped) std::printf("without %s\n", text.c_str());
    std::printf("%llu operations, %llu opportunities, %llu stale\n",
                static_cast<unsigned long long>(result_.counts.operations),
                static_cast<unsigned long long>(result_.counts.opportunities),
                static_cast<unsigned long long>(result_.counts.stale));
  }
  void expect_clean(uint64_t min_opportunities_percent = 1) {
    if (IsSkipped()) return;
    EXPECT_TRUE(result_.clean()) << words_of(result_);
    EXPECT_GE(result_.counts.opportunities * 100,
              result_.counts.operations * min_opportunities_percent)
        << "a run with too few opportunities proves nothing";
  }

  HuntResult result_;
};

HydrantCacheOptions watching(uint32_t watch) {
  HydrantCacheOptions options;
  options.watch = watch;
  return options;
}

TEST_F(StaleHunt, AClientThatAnnouncesIsClean) {
  hunt(watching(HYDRANT_WATCH_CLIENT), short_hunt());
  expect_clean(5);
}

TEST_F(StaleHunt, ClientWithoutAnnouncementsIsDetected) {
  HuntOptions options = short_hunt(kMutantOperations);
  options.sources = {Source::kMmap, Source::kFixed, Source::kMadvise};
  options.forget_per_mille = 1000;
  options.stop_when_stale = true;
  hunt(watching(HYDRANT_WATCH_CLIENT), options);
  if (IsSkipped()) return;
  EXPECT_NE(result_.counts.stale, 0u);
}

TEST_F(StaleHunt, AClientThatOmitsOneAnnouncementInAThousandIsCaught) {
  HuntOptions options = short_hunt(kMutantOperations);
  options.sources = {Source::kMmap};
  options.slots = 24;
  options.forget_per_mille = 1;
  options.stop_when_stale = true;
  hunt(watching(HYDRANT_WATCH_CLIENT), options);
  if (IsSkipped()) return;
  EXPECT_NE(result_.counts.stale, 0u);
}

TEST_F(StaleHunt, AMillionOperationsOnWatchedMemoryAreClean) {
  hunt(watching(HYDRANT_WATCH_AUTO), short_hunt(kMillion));
  expect_clean();
}

TEST_F(StaleHunt, PageModeIsClean) {
  HydrantCacheOptions cache = watching(HYDRANT_WATCH_AUTO);
  cache.mode = HYDRANT_MODE_PAGE;
  hunt(cache, short_hunt());
  expect_clean();
}

TEST_F(StaleHunt, ABudgetThatIsAlwaysFullIsClean) {
  HydrantCacheOptions cache = watching(HYDRANT_WATCH_AUTO);
  cache.budget_bytes = size_t{2} << 20;
  HuntOptions options = short_hunt(kOperations / 5);
  options.sources.drop(Source::kHuge);
  hunt(cache, options);
  expect_clean();
}

TEST_F(StaleHunt, FewSlotsAndManyThreadsAreClean) {
  HuntOptions options = short_hunt();
  options.sources = {Source::kMmap, Source::kFixed, Source::kMremap, Source::kOnto,
                     Source::kMadvise};
  options.threads = 6;
  options.slots = 8;
  options.blocks = 2;
  options.bystander_threads = 2;
  options.stopped = HuntOptions::Stopped::kBystanders;
  hunt(watching(HYDRANT_WATCH_AUTO), options);
  expect_clean();
}

// Mostly memory that handlers replace, with a budget that forces constant evictions.
TEST_F(StaleHunt, HandlersThatReleaseMemoryAreClean) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer calls handlers late, and deadlocks with threads that have "
                  "caught a signal";
#endif
  HydrantCacheOptions cache = watching(HYDRANT_WATCH_AUTO);
  cache.budget_bytes = size_t{2} << 20;
  HuntOptions options = short_hunt(kOperations / 5);
  options.sources = {Source::kSmall,  Source::kLarge,   Source::kMmap,  Source::kFixed,
                     Source::kMremap, Source::kMadvise, Source::kSignal};
  options.slots = 24;
  options.blocks = 8;
  options.stopped = HuntOptions::Stopped::kOwners;
  hunt(cache, options);
  expect_clean();
  if (IsSkipped()) return;
  EXPECT_GT(result_.counts.opportunities_by_source[static_cast<size_t>(Source::kSignal)], 0u);
}

TEST_F(StaleHunt, UnwatchedMemoryIsNotKept) {
  HuntOptions options = short_hunt();
  options.sources = {Source::kMemfd, Source::kShared, Source::kShm};
  hunt(watching(HYDRANT_WATCH_AUTO), options);
  expect_clean(0);
  if (IsSkipped()) return;
  EXPECT_GT(pins_with(result_, Coverage::kNone), 0u);
  EXPECT_EQ(result_.counts.opportunities, 0u);
}

TEST_F(StaleHunt, WithoutWatchingOnlyVouchedMemoryIsKept) {
  hunt(watching(HYDRANT_WATCH_NONE), short_hunt());
  expect_clean();
  if (IsSkipped()) return;
  EXPECT_EQ(pins_with(result_, Coverage::kChecked), 0u);
  EXPECT_EQ(pins_with(result_, Coverage::kWatched), 0u);
  EXPECT_GT(pins_with(result_, Coverage::kNone), 0u);
  EXPECT_GT(pins_with(result_, Coverage::kVouched), 0u);
}

// Makes the system call fail with EPERM in this process, as in many containers.
bool forbid_userfaultfd() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_F(StaleHunt, WithoutUserfaultfdCoverageFallsAndNothingIsStale) {
  if (!forbid_userfaultfd()) GTEST_SKIP() << "this kernel has no seccomp filters";
  hunt(watching(HYDRANT_WATCH_AUTO), short_hunt());
  expect_clean();
  if (IsSkipped()) return;
  EXPECT_EQ(pins_with(result_, Coverage::kChecked), 0u);
  EXPECT_EQ(pins_with(result_, Coverage::kWatched), 0u);
  EXPECT_GT(pins_with(result_, Coverage::kNone), pins_with(result_, Coverage::kVouched));
}

// No descriptor is left for the monitor at first: it starts in the midst of the hunt, in a miss.
TEST_F(StaleHunt, TheChangeFromUnwatchedToWatchedIsClean) {
  const std::string wrong = testing::RefusedCalls::run(
      {{"userfaultfd", SYS_userfaultfd}}, [&](testing::RefusedCalls& calls) -> std::string {
        constexpr int kRefused = 3;  // by the domain and two misses, in 200 ms
        calls.refuse(0, 0, kRefused, EMFILE);
        hunt(watching(HYDRANT_WATCH_AUTO), short_hunt(kOperations / 3));
        return calls.allow() == kRefused ? "" : "the monitor was not started again";
      });
  if (wrong == testing::RefusedCalls::kNoFilter) GTEST_SKIP() << wrong;
  expect_clean();
  if (IsSkipped()) return;
  EXPECT_EQ(wrong, "");
  EXPECT_GT(pins_with(result_, Coverage::kNone), 0u);
  EXPECT_GT(pins_with(result_, Coverage::kChecked) + pins_with(result_, Coverage::kWatched), 0u);
}

// A child that hangs is asked by its parent, because only the parent prints what the kernel shows of a child
// that no signal reaches.
TEST(HuntStacks, AChildWritesItsOwnToItsStderr) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer calls handlers late";
#endif
  prepare_stacks();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    hydrant_test_alarm(60);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    (void)!write(STDERR_FILENO, "ready\n", 6);
    for (;;) pause();
  }
  close(ends[1]);
  std::string text;
  char bytes[512];
  // Ends without the text when the child's alarm has ended it.
  const auto read_until = [&](const char* wanted) {
    ssize_t n = 1;
    while (n > 0 && text.find(wanted) == std::string::npos) {
      n = read(ends[0], bytes, sizeof bytes);
      if (n > 0) text.append(bytes, static_cast<size_t>(n));
    }
    return n > 0;
  };
  ASSERT_TRUE(child > 0 && read_until("ready"));
  ::testing::internal::CaptureStderr();
  show_stacks(child);
  const std::string by_parent = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(read_until(program_invocation_short_name)) << text;
  EXPECT_NE(by_parent.find("thread " + std::to_string(child) + ": "), std::string::npos);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[0]);
}

// The hunt must find each defect.
class StaleHuntMutants : public StaleHunt, public ::testing::WithParamInterface<std::string> {};

TEST_P(StaleHuntMutants, AreCaught) {
  const MutantHunt* mutant = find_mutant_hunt(GetParam());
  ASSERT_NE(mutant, nullptr);
  std::string reason;
  if (!has_mutants()) GTEST_SKIP() << "this build has no mutants (HYDRANT_MUTANTS)";
  if (!has_needed(mutant->needs, &reason)) GTEST_SKIP() << reason;
  HuntOptions options = mutant->hunt;
  options.seed = short_hunt().seed;
  options.operations = kMutantOperations;
  // Threads meet a defect by chance, more rarely where a sanitizer slows them down: only failures take all
  // hunts.
  constexpr uint64_t kMaxHunts = 10;
  set_mutant_by_name(mutant->name, mutant->delay_us);
  for (uint64_t i = 0; i < kMaxHunts && result_.counts.stale == 0 && !IsSkipped(); ++i) {
    hunt(mutant->cache, options);
    ++options.seed;
  }
  set_mutant_by_name("none", 0);
  if (IsSkipped()) return;
  EXPECT_NE(result_.counts.stale, 0u) << mutant->what << ": not found";
}

INSTANTIATE_TEST_SUITE_P(All, StaleHuntMutants, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const MutantHunt& mutant : mutant_hunts()) {
                             if (mutant.needs != Needs::kHooks) names.push_back(mutant.name);
                           }
                           return names;
                         }()),
                         [](const auto& test) {
                           std::string name;
                           bool capital = true;
                           for (const char c : test.param) {
                             if (c != '-') name += capital ? static_cast<char>(std::toupper(c)) : c;
                             capital = c == '-';
                           }
                           return name;
                         });

}  // namespace
}  // namespace hydrant::stale
