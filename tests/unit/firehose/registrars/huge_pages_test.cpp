#include "firehose/registrars/charge/huge_pages.hpp"

#include "tests/support/child_process.hpp"
#include "tests/support/descriptors.hpp"
#include "tests/support/recording_registrar.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

namespace hydrant {
namespace {

using testing::kPageBytes;
using testing::MappedPages;

TEST(HugePages, SmallPagesAreChargedTheirLength) {
  const HugePages pages;
  MappedPages memory(8 * kPageBytes);
  memory.fill('A');
  EXPECT_EQ(pages.charge(memory.pages(1, 3)), 3 * kPageBytes);
  EXPECT_EQ(pages.charge(memory.pages(1, 3)), 3 * kPageBytes) << "remembered";
  EXPECT_EQ(pages.charge({0x1000, kPageBytes}), kPageBytes) << "not mapped at all";
}

// Two huge pages side by side, or null if the kernel gives none.
class HugeMemory {
 public:
  explicit HugeMemory(size_t huge_bytes) : memory_(3 * huge_bytes) {
    const uintptr_t start = (memory_.all().addr + huge_bytes - 1) & ~(huge_bytes - 1);
    range_ = {start, 2 * huge_bytes};
    auto* data = reinterpret_cast<void*>(start);
    madvise(data, range_.len, MADV_HUGEPAGE);
    std::memset(data, 'A', range_.len);
  }
  MemoryRange part(size_t from_page, size_t pages) const {
    return {range_.addr + from_page * kPageBytes, pages * kPageBytes};
  }
  MemoryRange all() const { return range_; }
  // Bytes in huge pages, as the kernel counts them: memory may be too fragmented for both.
  uint64_t bytes_in_huge_pages() const {
    std::ifstream maps("/proc/self/smaps");
    bool is_inside = false;
    uint64_t kilobytes = 0;
    for (std::string line; std::getline(maps, line);) {
      uintptr_t start = 0, end = 0;
      uint64_t number = 0;
      if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2) {
        is_inside = start < range_.end() && end > range_.addr;
      } else if (is_inside && std::sscanf(line.c_str(), "AnonHugePages: %" SCNu64, &number) == 1) {
        kilobytes += number;
      }
    }
    return kilobytes << 10;
  }

 private:
  MappedPages memory_;
  MemoryRange range_;
};

TEST(HugePages, PartOfAHugePageIsChargedWhole) {
  const HugePages pages;
  if (!pages.known()) GTEST_SKIP() << "this kernel (before 6.7) does not tell where huge pages are";
  const size_t huge = pages.huge_bytes(), count = huge / kPageBytes;
  const HugeMemory memory(huge);
  if (memory.bytes_in_huge_pages() != 2 * huge) GTEST_SKIP() << "no transparent huge pages here";
  EXPECT_EQ(pages.charge(memory.part(1, 1)), huge);
  EXPECT_EQ(pages.charge(memory.part(0, count)), huge);
  EXPECT_EQ(pages.charge(memory.part(1, count)), 2 * huge);
  EXPECT_EQ(pages.charge(memory.part(count - 1, 2)), 2 * huge);
  EXPECT_EQ(pages.charge(memory.all()), 2 * huge);
  // Page sizes are queried from the kernel again within 0.2 s.
  mprotect(reinterpret_cast<void*>(memory.part(1, 1).addr), kPageBytes, PROT_READ);
  madvise(reinterpret_cast<void*>(memory.all().addr), huge, MADV_DONTNEED);
  EXPECT_TRUE(testing::wait_until([&] { return pages.charge(memory.part(1, 1)) == kPageBytes; }));
}

// All opens of the same file of /proc have the same inode.
TEST(HugePages, ProgramsOwnPagemapIsNotClosed) {
  EXPECT_EQ(testing::run_in_child([]() -> std::string {
              const testing::OwnDescriptors own;
              std::vector<int> numbers;
              for (const bool in_child : {false, true}) {
                HugePages pages;
                if (!pages.known()) return "";
                numbers = own.close_others();
                (void)testing::OwnDescriptors::fill(
                    numbers, [] { return open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC); });
                if (in_child) pages.reopen_in_child();
                const int number = numbers.front();
                if (in_child && !testing::is_open(number)) return "closed in the child";
              }
              return testing::is_open(numbers.front()) ? "" : "closed at the end";
            }),
            "");
}

TEST(HugePages, ChildQueriesItsOwnMemory) {
  HugePages pages;
  if (!pages.known()) GTEST_SKIP() << "this kernel (before 6.7) does not tell where huge pages are";
  EXPECT_EQ(testing::run_in_child([&]() -> std::string {
              pages.reopen_in_child();
              if (!pages.known()) return "not known in the child";
              const HugeMemory memory(pages.huge_bytes());
              HugePages fresh;
              return pages.charge(memory.part(1, 1)) == fresh.charge(memory.part(1, 1))
                         ? ""
                         : "the child does not see its own memory";
            }),
            "");
}

}  // namespace
}  // namespace hydrant
