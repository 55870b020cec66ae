// The child of a fork allocates, writes and frees; its parent's memory is as it was, and no lock is left
// behind.
#include <hydrant/alloc.h>

#include "tests/support/child_process.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watch/arena/fake_monitor.hpp"
#include "tests/unit/firehose/watch/arena/tagged.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <unistd.h>
#include <vector>

namespace hydrant::testing {
namespace {

constexpr size_t kSizes[] = {40, 900, 16000, 70'000, 3 * kMiB, 40 * kMiB};

std::vector<void*> allocate_all(uint64_t tag, void* (*allocate)(size_t)) {
  std::vector<void*> all;
  for (const size_t bytes : kSizes) {
    all.push_back(allocate(bytes));
    if (all.back() != nullptr) write_marks(all.back(), bytes, tag);
  }
  return all;
}

bool all_marked(const std::vector<void*>& all, uint64_t tag) {
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == nullptr || !has_marks(all[i], kSizes[i], tag)) return false;
  }
  return true;
}

void free_all(const std::vector<void*>& all) {
  for (void* p : all) hydrant_free(p);
}

void* shared(size_t bytes) { return hydrant_alloc_shared(1, bytes); }

TEST(AllocFork, ChildUsesPrivateMemoryOfItsOwn) {
  const auto all = allocate_all(1, hydrant_alloc);
  ASSERT_TRUE(all_marked(all, 1));
  const auto child = [&]() -> std::string {
    if (!all_marked(all, 1)) return "what the parent wrote is not there";
    for (size_t i = 0; i < all.size(); ++i) write_marks(all[i], kSizes[i], 2);
    const auto more = allocate_all(3, hydrant_alloc);
    if (!all_marked(all, 2) || !all_marked(more, 3)) return "the two are mixed up";
    void* grown = hydrant_realloc(all[0], 50'000);
    if (grown == nullptr || !has_marks(grown, kSizes[0], 2)) return "realloc lost something";
    hydrant_free(grown);
    free_all({all.begin() + 1, all.end()});
    free_all(more);
    (void)hydrant_alloc_trim();
    const auto again = allocate_all(4, hydrant_alloc);
    if (!all_marked(again, 4)) return "not usable after trim";
    free_all(again);
    return "";
  };
  EXPECT_EQ(run_in_child(child), "");
  EXPECT_TRUE(all_marked(all, 1));
  free_all(all);
}

TEST(AllocFork, ChildHasSharedMemoryOfItsOwn) {
  const auto all = allocate_all(1, shared);
  ASSERT_TRUE(all_marked(all, 1));
  const auto child = [&]() -> std::string {
    hydrant_alloc_location_t location{};
    if (hydrant_alloc_shared_location(all[0], &location) == 0) return "the parent's is located";
    const auto more = allocate_all(2, shared);
    if (!all_marked(more, 2)) return "no shared memory of its own";
    for (void* p : more) {
      for (size_t i = 0; i < all.size(); ++i) {
        const auto* start = static_cast<const char*>(all[i]);
        if (p >= start && p < start + kSizes[i]) return "it lies where the parent's lies";
      }
    }
    errno = 0;
    if (hydrant_realloc(all[1], 100) != nullptr || errno != EINVAL)
      return "realloc of the parent's";
    if (hydrant_alloc_usable_size(all[1]) != 0) return "the parent's is usable";
    free_all(all);  // no effect
    free_all(more);
    (void)hydrant_alloc_trim();
    const auto again = allocate_all(3, shared);
    if (!all_marked(again, 3)) return "not usable after trim";
    return "";
  };
  EXPECT_EQ(run_in_child(child), "");
  EXPECT_TRUE(all_marked(all, 1));
  free_all(all);
}

TEST(AllocFork, ChildCannotTouchItsParentsSharedMemory) {
  for (const ChildKind kind : {ChildKind::kFork, ChildKind::kRawClone}) {
    auto* p = static_cast<char*>(shared(100));
    ASSERT_NE(p, nullptr);
    std::strcpy(p, "the parent's");
    const std::string end = run_in_child(
        [p] {
          std::strcpy(p, "the child's");
          return std::string("wrote");
        },
        kind);
    EXPECT_NE(end, "wrote");
    EXPECT_STREQ(p, "the parent's");
    hydrant_free(p);
  }
}

TEST(AllocFork, ChildWithoutHandlersUsesPrivateMemory) {
  const auto all = allocate_all(1, hydrant_alloc);
  const auto child = [&]() -> std::string {
    const auto more = allocate_all(2, hydrant_alloc);
    if (!all_marked(all, 1) || !all_marked(more, 2)) return "mixed up";
    free_all(all);
    free_all(more);
    return "";
  };
  EXPECT_EQ(run_in_child(child, ChildKind::kRawClone), "");
  EXPECT_TRUE(all_marked(all, 1));
  free_all(all);
}

TEST(AllocFork, NoLockIsLeftBehindByThreadsThatWereAllocating) {
  // Made by a thread that the fork leaves behind, it would never be finished in the child.
  (void)FakeMonitor::instance();
  std::atomic<bool> stop{false};
  Threads threads;
  for (int i = 0; i < 3; ++i) {
    threads.start([&stop] {
      while (!stop) {
        for (const size_t bytes : {size_t{40}, size_t{70'000}, 3 * kMiB}) {
          hydrant_free(hydrant_alloc(bytes));
          hydrant_free(shared(bytes));
        }
        (void)hydrant_alloc_trim();
      }
    });
  }
  for (int i = 0; i < 15; ++i) {
    const std::string wrong = run_in_child([]() -> std::string {
      const auto own = allocate_all(5, hydrant_alloc);
      const auto ours = allocate_all(6, shared);
      if (!all_marked(own, 5) || !all_marked(ours, 6)) return "mixed up";
      free_all(own);
      free_all(ours);
      (void)hydrant_alloc_trim();
      return "";
    });
    EXPECT_EQ(wrong, "");
    if (!wrong.empty()) break;
  }
  stop = true;
}

}  // namespace
}  // namespace hydrant::testing
