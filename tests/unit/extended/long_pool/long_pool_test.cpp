// Longs and the pool of buffers for their payload: created at job start, on first use, or not at all.
// The pool exists once per process, so each case has its own process.
#include "extended/rma/rma.hpp"
#include "tests/support/child_process.hpp"
#include "tests/unit/extended/pinned_fixture.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <dlfcn.h>
#include <new>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

// ---- failing allocations of the library (none of which throw) and its mappings ----

namespace {
struct Counts {
  uint64_t seen = 0;
  uint64_t failed = 0;
};
std::atomic<bool> counting{false};
uint64_t fail_from = 0;  // counted from 1; 0: no failure
uint64_t fail_to = 0;
std::atomic<uint64_t> seen{0}, failed{0};

bool is_to_fail() {
  if (!counting) return false;
  const uint64_t n = ++seen;
  if (fail_from == 0 || n < fail_from || n > fail_to) return false;
  ++failed;
  return true;
}
}  // namespace

void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return is_to_fail() ? nullptr : ::operator new(bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return is_to_fail() ? nullptr : ::operator new[](bytes);
}
void* operator new(size_t bytes, std::align_val_t align, const std::nothrow_t&) noexcept {
  return is_to_fail() ? nullptr : ::operator new(bytes, align);
}
void* operator new[](size_t bytes, std::align_val_t align, const std::nothrow_t&) noexcept {
  return is_to_fail() ? nullptr : ::operator new[](bytes, align);
}

// Replaces libc's function in this program, because pools map their memory with it. Reads six arguments, of
// which the caller may have passed fewer: the address sanitizer must not look.
extern "C" __attribute__((no_sanitize("address"))) long syscall(long number, ...) noexcept {
  using Function = long (*)(long, ...);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "syscall"));
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& one : a) one = va_arg(list, long);
  va_end(list);
  if (number == SYS_mmap && is_to_fail()) {
    errno = ENOMEM;
    return -1;
  }
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

namespace hydrant {
namespace {

using test::calls;
using test::pattern;

// A job of this process, started like a real job.
class World : public test::PinnedFixture {
 public:
  // With `counts_start`, allocations of the start are counted, and fail as chosen.
  explicit World(bool counts_start = false) {
    RmaFixture::SetUp();
    counting = counts_start;
    const Status status = start_rma();
    counting = false;
    EXPECT_EQ(status, Status::kOk);
  }
  ~World() override {
    job().hooks.put_long = nullptr;
    if (is_firehose_enabled()) {
      PinnedFixture::TearDown();
    } else {
      RmaFixture::TearDown();
    }
  }
  void SetUp() override {}
  void TearDown() override {}
  void TestBody() override {}

  using PinnedFixture::map;
  using RmaFixture::in_new_thread;
  size_t pinned() const { return loop->ranges->size(); }
  size_t puts() const { return loop->locals.size(); }
  static std::byte* make_firehose(size_t bytes) {
    std::byte* const far = map(1 << 20);
    EXPECT_EQ(hydrant_prefetch(kPeer, far, bytes), GASNET_OK);
    for (int i = 0; i < 20; ++i) poll_all();
    return far;
  }
  // Returns "" if the Long arrived complete, although its source changed as soon as that was allowed.
  std::string send_long(std::byte* far, size_t bytes, gex_Flags_t flags = 0) {
    calls.clear();
    std::vector<std::byte> near = pattern(bytes, 3);
    const std::vector<std::byte> wanted = near;
    const int code = gex_AM_RequestLong1(team(), kPeer, kLong1, near.data(), bytes, far,
                                         GEX_EVENT_NOW, flags, 7);
    if (code != GASNET_OK) return std::string("refused: ") + hydrant_last_error_text();
    std::fill(near.begin(), near.end(), std::byte{0xee});
    for (int polls = 0; calls.empty() && polls < 100'000; ++polls) poll_all();
    if (calls.empty()) return "no handler ran";
    return calls[0].payload == wanted ? "" : "the payload is not what was sent";
  }
};

// Runs `body` in a child process; returns its text, or the failed expectation.
std::string in_own_process(const char* prealloc, const std::function<std::string()>& body) {
  return testing::run_in_child([&] {
    if (prealloc != nullptr) {
      setenv("HYDRANT_AMLONG_PREALLOC", prealloc, 1);
    } else {
      unsetenv("HYDRANT_AMLONG_PREALLOC");
    }
    const std::string text = body();
    if (!text.empty() || !::testing::Test::HasFailure()) return text;
    return std::string("an expectation did not hold (see above)");
  });
}

TEST(BouncePoolAtStart, IsCreatedAtStartUnlessDisabled) {
  struct {
    const char* prealloc;
    bool at_start;
  } const cases[] = {{nullptr, true}, {"y", true}, {"n", false}};
  for (const auto& one : cases) {
    EXPECT_EQ(in_own_process(one.prealloc,
                             [&] {
                               World world;
                               EXPECT_EQ(world.pinned(), one.at_start ? 1u : 0u);
                               std::byte* const far = World::make_firehose(9000);
                               const size_t before = world.pinned();
                               counting = true;
                               const std::string text = world.send_long(far, 9000);
                               counting = false;
                               EXPECT_EQ(world.pinned() - before, one.at_start ? 0u : 1u);
                               EXPECT_GT(world.puts(), 0u) << "no put used the pool";
                               // Allocations of the pool, its counters, and other state for the first Long.
                               EXPECT_EQ(seen == 0, one.at_start) << seen;
                               return text;
                             }),
              "")
        << (one.prealloc != nullptr ? one.prealloc : "(not set)");
  }
}

// A Long whose source is neither pinned nor small, with failing allocations from the n-th on: one, or
// all that follow. The remaining means must carry it.
class BouncePoolAtStartFaults : public ::testing::TestWithParam<const char*> {
 protected:
  // Without failures: counts the allocations from the start on, and those before the Long. Returns ""
  // or an error text.
  std::string run(uint64_t from, uint64_t to, bool from_start, Counts* counts) {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) return "no pipe";
    const std::string text = in_own_process(GetParam(), [&] {
      fail_from = from;
      fail_to = to;
      World world(from_start);
      std::byte* far = nullptr;
      if (is_firehose_enabled()) {
        far = World::make_firehose(60000);
      } else {
        far = World::map(1 << 20);
      }
      std::string said;
      counting = true;
      World::in_new_thread([&] {
        for (const size_t bytes : {size_t{60000}, size_t{9000}}) {
          if (said.empty()) said = world.send_long(far, bytes);
          if (said.empty()) said = world.send_long(World::map(1 << 20), bytes);
        }
      });
      counting = false;
      if (said.empty()) said = world.send_long(far, 60000);  // still works
      const Counts told{seen, failed};
      (void)!write(pipe_ends[1], &told, sizeof told);
      return said;
    });
    (void)!write(pipe_ends[1], "", 1);  // a child that died leaves data to read
    if (read(pipe_ends[0], counts, sizeof *counts) != sizeof *counts) *counts = {};
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    return text;
  }
};

TEST_P(BouncePoolAtStartFaults, NthFailedAllocationIsTolerated) {
  for (const bool from_start : {false, true}) {
    Counts none;
    ASSERT_EQ(run(0, 0, from_start, &none), "");
    uint64_t failed = 0;
    // A failed allocation may cause others, so there may be more of them than without failures.
    for (uint64_t n = 1; n <= none.seen + 8; ++n) {
      Counts one;
      EXPECT_EQ(run(n, n, from_start, &one), "") << "allocation " << n << " of " << none.seen;
      failed += one.failed;
      EXPECT_EQ(run(n, UINT64_MAX, from_start, &one), "")
          << "all from " << n << " of " << none.seen;
      failed += one.failed;
    }
    EXPECT_GE(failed, 2 * none.seen) << "not all of them failed";
    std::printf("%llu allocations %s, %llu failures\n", static_cast<unsigned long long>(none.seen),
                from_start ? "from the start on" : "from the first Long on",
                static_cast<unsigned long long>(failed));
  }
}

INSTANTIATE_TEST_SUITE_P(Prealloc, BouncePoolAtStartFaults, ::testing::Values("y", "n"),
                         [](const auto& value) {
                           return std::string(value.param[0] == 'y' ? "AtStart" : "WhenNeeded");
                         });

}  // namespace
}  // namespace hydrant
