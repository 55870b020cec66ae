// Tables of the cache are not watched with memory of the program: unmapping one would look like a release
// past the hooks, and end free hits in the whole process. Each test is to be run in a process of its own.
#include "firehose/base/table_space.hpp"
#include "firehose/base/watch_windows.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <gtest/gtest.h>

#include <sched.h>

namespace hydrant::testing {
namespace {

#if HYDRANT_MUTANTS

constexpr unsigned kLongWindowUs = 200'000;
constexpr size_t kTableBytes = size_t{64} << 20;
constexpr size_t kHole = kTableBytes / 4;
// The kernel aligns whole huge pages, for which the hole would be too small.
constexpr size_t kTable = kHole - kPage;
constexpr size_t kGaps = 64;

class Tables : public WatchedPinCache {
 protected:
  void SetUp() override {
    WatchedPinCache::SetUp();
    if (IsSkipped()) return;
    // A registrar that accepts every pin.
    hydrant_registrar_t registrar{};
    registrar.size = sizeof registrar;
    registrar.name = "anything";
    registrar.pin = [](void*, uintptr_t, size_t, uint32_t, void*) { return int{GASNET_OK}; };
    registrar.unpin = [](void*, uintptr_t, size_t, const void*) { return int{HYDRANT_UNPIN_DONE}; };
    hydrant_domain_options_t options = watching();
    options.registrar = &registrar;
    create(options);
    pin_and_release(arena_.page(0));  // the watch runs
  }
  void pin_and_release(void* memory) {
    const hydrant_pin_t pin = hydrant_pin(domain_, memory, kPage, HYDRANT_LOCAL_WRITE);
    if (pin.region == nullptr) return;
    EXPECT_EQ(hydrant_release(pin), GASNET_OK);
  }
  bool take_while_registering();
  void TearDown() override {
    set_mutant(Mutant::kNone, 0);
    WatchedPinCache::TearDown();
  }
};

// Fills other gaps that are large enough for the table: the kernel takes the highest.
class FilledGaps {
 public:
  FilledGaps() {
    for (void*& gap : gaps_)
      gap = mmap(nullptr, kTable, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~FilledGaps() {
    for (void* gap : gaps_) munmap(gap, kTable);
  }
  FilledGaps(const FilledGaps&) = delete;
  FilledGaps& operator=(const FilledGaps&) = delete;

 private:
  void* gaps_[kGaps];
};

// Takes a table while memory around a hole is being registered. True: the kernel offered the hole first, and
// it was refused. False: the range to register was read after the hole was made, or another gap was offered.
bool Tables::take_while_registering() {
  const FilledGaps filled;
  auto* memory = static_cast<char*>(
      mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  EXPECT_NE(memory, MAP_FAILED);
  set_mutant(Mutant::kNone, kLongWindowUs);
  Threads threads;
  threads.start([this, memory] { pin_and_release(memory); });
  while (g_watch_windows.now() % 2 == 0) sched_yield();
  char* const hole = memory + kTableBytes / 2;
  EXPECT_EQ(munmap(hole, kHole), 0);
  void* const table = g_table_space.take(kTable);
  EXPECT_NE(table, nullptr);
  const bool was_refused =
      table != hole + kPage && msync(hole + kPage, kPage, MS_ASYNC) == 0;  // it stays reserved
  threads.join();
  set_mutant(Mutant::kNone, 0);
  g_table_space.give(table, kTable);
  the_monitor().settle();
  munmap(memory, kTableBytes / 2);
  munmap(hole + kHole, kTableBytes / 4);
  return was_refused;
}

TEST_F(Tables, AreNotMappedIntoMemoryThatIsBeingRegistered) {
  constexpr int kAttempts = 20;
  int attempts = 0;
  while (!take_while_registering() && ++attempts < kAttempts) {
  }
  EXPECT_EQ(stats_of(domain_).raw_releases, 0u);
  EXPECT_EQ(stats_of(domain_).hits_are_checked, 0u);
  if (attempts == kAttempts)
    GTEST_SKIP() << "the kernel offered no address in memory that was being registered, "
                 << kAttempts << " times";
}

// An extension of the request may reach into a mapping beside it.
TEST_F(Tables, AreNotWatchedBesideTheMemoryThatIsPinned) {
  constexpr size_t kBytesOfTable = size_t{4} << 20;
  auto* table = static_cast<char*>(g_table_space.take(kBytesOfTable));
  ASSERT_NE(table, nullptr);
  void* const beside = mmap(table + kBytesOfTable, kPage, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  void* const below = mmap(table - kPage, kPage, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_TRUE(beside != MAP_FAILED || below != MAP_FAILED) << "both neighbours are taken";
  if (beside != MAP_FAILED) {
    const auto end = reinterpret_cast<uintptr_t>(beside);
    EXPECT_EQ(the_monitor().cover(end, kPage, 0), uint32_t{HYDRANT_COVER_WATCHED});
    EXPECT_EQ(the_monitor().cover(end - kPage, 2 * kPage, 0), uint32_t{HYDRANT_COVER_NONE});
    munmap(beside, kPage);
  }
  if (below != MAP_FAILED) {
    const auto start = reinterpret_cast<uintptr_t>(below);
    EXPECT_EQ(the_monitor().cover(start, kPage, 0), uint32_t{HYDRANT_COVER_WATCHED});
    EXPECT_EQ(the_monitor().cover(start, 2 * kPage, 0), uint32_t{HYDRANT_COVER_NONE});
    munmap(below, kPage);
  }
  g_table_space.give(table, kBytesOfTable);
  the_monitor().settle();
  EXPECT_EQ(stats_of(domain_).raw_releases, 0u);
}

#else

TEST(Tables, AreNotMappedIntoMemoryThatIsBeingRegistered) {
  GTEST_SKIP() << "this build cannot lengthen the time of a registration";
}

#endif

}  // namespace
}  // namespace hydrant::testing
