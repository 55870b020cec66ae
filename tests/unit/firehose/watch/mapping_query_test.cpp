#include "firehose/watch/mapping_query.hpp"

#include "tests/support/child_process.hpp"
#include "tests/support/descriptors.hpp"
#include "tests/support/mapped_memory.hpp"
#include "tests/support/threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <random>
#include <string>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

namespace hydrant::testing {
namespace {

// PROCMAP_QUERY of linux/fs.h, Linux 6.11.
constexpr auto kProcmapQuery = static_cast<uint32_t>(_IOC(_IOC_READ | _IOC_WRITE, 'f', 17, 104));

std::string text_of(MemoryRange range) {
  return std::to_string(range.addr) + "+" + std::to_string(range.len);
}

// "" if the mapping at addr is found to be exactly this one.
std::string expect(const MappingQuery& query, uintptr_t addr, MemoryRange range,
                   bool anonymous_private) {
  Mapping found{};
  if (!query.find(addr, &found)) return "nothing found at " + std::to_string(addr);
  if (found.range != range) return "found " + text_of(found.range) + " not " + text_of(range);
  if (found.anonymous_private == anonymous_private) return "";
  return anonymous_private ? "private anonymous memory was taken for something else"
                           : "something else was taken for private anonymous memory";
}

MemoryRange part(const MappedMemory& memory, size_t page, size_t n) {
  return {memory.addr(page), n * kPage};
}

// How the kernel is queried: by the request, or by the text of maps if the kernel does not know the request.
enum class Path { kRequest, kText };

class MappingQueryTest : public ::testing::TestWithParam<Path> {
 protected:
  // Runs `body` with an open query: "" or the complaint.
  static std::string with_query(const std::function<std::string(const MappingQuery&)>& body) {
    const auto whole = [&]() -> std::string {
      if (GetParam() == Path::kText) {
        const std::string refusal = refuse_system_call(SYS_ioctl, ENOTTY, kProcmapQuery);
        if (!refusal.empty()) return refusal;
      }
      MappingQuery query;
      if (!query.open()) return "it does not open";
      std::string wrong = body(query);
      query.close();
      return wrong;
    };
    return GetParam() == Path::kText ? run_in_child(whole) : whole();
  }
};

TEST_P(MappingQueryTest, PrivateAnonymousMappingIsFoundWhole) {
  MappedMemory memory(16);
  memory.replace(4, 8);
  EXPECT_EQ(
      with_query([&](const MappingQuery& query) {
        for (const uintptr_t addr : {memory.addr(4), memory.addr(7) + 13, memory.addr(12) - 1}) {
          std::string wrong = expect(query, addr, part(memory, 4, 8), true);
          if (!wrong.empty()) return wrong;
        }
        Mapping before{};
        if (!query.find(memory.addr(4) - 1, &before)) return std::string("no guard before it");
        if (before.range.end() != memory.addr(4)) return std::string("the guard goes on");
        return std::string();
      }),
      "");
}

TEST_P(MappingQueryTest, FilesAndSharedMemoryAreNotPrivateAnonymous) {
  MappedMemory memory(16);
  const MemoryFile file(4);
  memory.replace_by_file(1, 2, file.fd(), MAP_SHARED);
  memory.replace_by_file(5, 2, file.fd(), MAP_PRIVATE);
  memory.replace_by_file(9, 2, -1, MAP_SHARED | MAP_ANONYMOUS);
  const int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
  ASSERT_GE(zero, 0);
  memory.replace_by_file(13, 2, zero, MAP_PRIVATE);
  close(zero);
  EXPECT_EQ(with_query([&](const MappingQuery& query) {
              for (const size_t page : {1u, 5u, 9u, 13u}) {
                std::string wrong = expect(query, memory.addr(page), part(memory, page, 2), false);
                if (!wrong.empty()) return "page " + std::to_string(page) + ": " + wrong;
              }
              return std::string();
            }),
            "");
}

TEST_P(MappingQueryTest, HugePagesOfAPoolAreNotPrivateAnonymous) {
  constexpr size_t kHuge = size_t{2} << 20;
  void* huge = mmap(nullptr, kHuge, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
  if (huge == MAP_FAILED) GTEST_SKIP() << "no huge pages from a pool: " << strerror(errno);
  const auto addr = reinterpret_cast<uintptr_t>(huge);
  EXPECT_EQ(with_query([&](const MappingQuery& query) {
              Mapping found{};
              if (!query.find(addr, &found)) return std::string("not found");
              return std::string(found.anonymous_private ? "taken for ordinary memory" : "");
            }),
            "");
  munmap(huge, kHuge);
}

TEST_P(MappingQueryTest, HolesAndTheEndsOfTheAddressSpaceHaveNoMapping) {
  MappedMemory memory(16);
  memory.replace(0, 16);
  memory.unmap(6, 4);
  EXPECT_EQ(with_query([&](const MappingQuery& query) {
              Mapping found{};
              for (const uintptr_t addr :
                   {memory.addr(6), memory.addr(8) + 5, memory.addr(10) - 1, uintptr_t{0},
                    uintptr_t{1}, uintptr_t{1} << 62, (uintptr_t{1} << 47) - 1}) {
                if (query.find(addr, &found)) return "found " + text_of(found.range);
              }
              std::string wrong = expect(query, memory.addr(5), part(memory, 0, 6), true);
              return wrong.empty() ? expect(query, memory.addr(10), part(memory, 10, 6), true)
                                   : wrong;
            }),
            "");
}

TEST_P(MappingQueryTest, OneOfThousandsIsFound) {
  constexpr size_t kMappings = 4000;
  MappedMemory memory(kMappings);
  memory.replace(0, kMappings);
  for (size_t i = 0; i < kMappings; i += 2) {
    ASSERT_EQ(mprotect(memory.page(i), kPage, PROT_READ), 0);
  }
  EXPECT_EQ(with_query([&](const MappingQuery& query) {
              std::mt19937 random(7);
              for (int i = 0; i < 200; ++i) {
                const size_t page = random() % kMappings;
                std::string wrong = expect(query, memory.addr(page) + random() % kPage,
                                           part(memory, page, 1), true);
                if (!wrong.empty()) return "page " + std::to_string(page) + ": " + wrong;
              }
              return std::string();
            }),
            "");
}

TEST_P(MappingQueryTest, NamedMemoryAndTheStackArePrivateAnonymous) {
  MappedMemory memory(4);
  memory.replace(0, 4);
  // Kernels without CONFIG_ANON_VMA_NAME refuse; then it is ordinary memory.
  (void)prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, memory.addr(), memory.bytes(),
              "a b c [x] 7f-8f rw-s");
  const int on_stack = 0;
  EXPECT_EQ(with_query([&](const MappingQuery& query) {
              std::string wrong = expect(query, memory.addr(2), part(memory, 0, 4), true);
              if (!wrong.empty()) return wrong;
              Mapping found{};
              if (!query.find(reinterpret_cast<uintptr_t>(&on_stack), &found)) {
                return std::string("no stack");
              }
              return std::string(found.anonymous_private ? "" : "the stack is not private");
            }),
            "");
}

// A line of the text can be longer than any buffer: each byte of a path may be written as four.
TEST_P(MappingQueryTest, FileWithAVeryLongNameHidesNoMapping) {
  char directory[] = "/tmp/hydrant-mapping-query-XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  const int start = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(chdir(directory), 0);
  const std::string name(250, '\n');
  size_t depth = 0;
  while (depth < 13 && mkdir(name.c_str(), 0700) == 0 && chdir(name.c_str()) == 0) ++depth;
  MappedMemory memory(6);
  const int file = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, kPage), 0);
  memory.replace(1, 1);
  memory.replace_by_file(2, 1, file, MAP_PRIVATE);
  memory.replace(3, 1, PROT_READ);
  EXPECT_EQ(with_query([&](const MappingQuery& query) {
              std::string wrong = expect(query, memory.addr(3), part(memory, 3, 1), true);
              return wrong.empty() ? expect(query, memory.addr(1), part(memory, 1, 1), true)
                                   : wrong;
            }),
            "");
  close(file);
  EXPECT_EQ(unlink("f"), 0);
  for (; depth > 0; --depth) {
    EXPECT_EQ(chdir(".."), 0);
    EXPECT_EQ(rmdir(name.c_str()), 0);
  }
  EXPECT_EQ(fchdir(start), 0);
  close(start);
  EXPECT_EQ(rmdir(directory), 0);
}

// Neighbours joined, cut at the edges, in order.
TEST_P(MappingQueryTest, MappedRunsAreReportedOnceEach) {
  MappedMemory memory(16);
  memory.replace(0, 16);
  ASSERT_EQ(mprotect(memory.page(4), 2 * kPage, PROT_READ), 0);  // a mapping of its own
  memory.unmap(7, 2);
  memory.unmap(12, 1);
  EXPECT_EQ(with_query([&](const MappingQuery&) {
              std::string runs;
              const auto note = [](void* text, MemoryRange run) {
                *static_cast<std::string*>(text) += text_of(run) + " ";
              };
              if (!for_each_mapped(part(memory, 2, 13), note, &runs))
                return std::string("no /proc");
              const std::string right = text_of(part(memory, 2, 5)) + " " +
                                        text_of(part(memory, 9, 3)) + " " +
                                        text_of(part(memory, 13, 2)) + " ";
              if (runs != right) return runs + "not " + right;
              runs.clear();
              if (!for_each_mapped(part(memory, 7, 2), note, &runs)) return std::string("no /proc");
              return runs.empty() ? runs : runs + "where nothing is mapped";
            }),
            "");
}

// The program has closed the descriptor and opened its parent's maps under its number.
TEST_P(MappingQueryTest, AnotherProcesssMapsUnderTheNumberAreNotBelieved) {
  EXPECT_EQ(run_in_child([] {
              const OwnDescriptors own;
              return with_query([&](const MappingQuery& query) -> std::string {
                const std::vector<int> numbers = own.close_others();
                const std::string parent = "/proc/" + std::to_string(getppid()) + "/maps";
                (void)OwnDescriptors::fill(numbers, [&] { return open(parent.c_str(), O_RDONLY); });
                MappedMemory memory(4);
                memory.replace(1, 2);
                return expect(query, memory.addr(1), part(memory, 1, 2), true);
              });
            }),
            "");
}

// The same file of /proc, opened by the program, has the same inode.
TEST_P(MappingQueryTest, ProgramsOwnMapsAreNotClosed) {
  EXPECT_EQ(run_in_child([]() -> std::string {
              const OwnDescriptors own;
              std::vector<int> numbers;
              const std::string wrong = with_query([&](const MappingQuery&) -> std::string {
                numbers = own.close_others();
                (void)OwnDescriptors::fill(numbers,
                                           [] { return open("/proc/self/maps", O_RDONLY); });
                return "";
              });
              for (const int number : numbers) {
                if (!is_open(number)) return "closed";
              }
              return wrong;
            }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Paths, MappingQueryTest, ::testing::Values(Path::kRequest, Path::kText),
                         [](const auto& path) {
                           return path.param == Path::kText ? "Text" : "Request";
                         });

TEST(MappingQuery, AnswersAreCorrectWhileThreadsMapAndUnmap) {
  MappingQuery query;
  ASSERT_TRUE(query.open());
  MappedMemory own(8);
  own.replace(2, 4);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  Threads threads;
  for (int i = 0; i < 2; ++i) {
    threads.start([&stop] {
      while (!stop) {
        MappedMemory other(32);
        other.replace(4, 20);
        other.unmap(8, 4);
      }
    });
  }
  for (int i = 0; i < 2; ++i) {
    threads.start([&] {
      for (int k = 0; k < 500; ++k) {
        if (!expect(query, own.addr(3), part(own, 2, 4), true).empty()) ++wrong;
      }
      stop = true;
    });
  }
  threads.join();
  EXPECT_EQ(wrong, 0);
  query.close();
}

TEST(MappingQuery, ClosedFindsNothingAndOpensAgain) {
  MappedMemory memory(2);
  memory.replace(0, 2);
  MappingQuery query;
  Mapping found{};
  EXPECT_FALSE(query.find(memory.addr(), &found));
  ASSERT_TRUE(query.open());
  EXPECT_TRUE(query.find(memory.addr(), &found));
  query.close();
  query.close();
  EXPECT_FALSE(query.find(memory.addr(), &found));
  ASSERT_TRUE(query.open());
  EXPECT_TRUE(query.find(memory.addr(), &found));
  query.close();
}

}  // namespace
}  // namespace hydrant::testing
