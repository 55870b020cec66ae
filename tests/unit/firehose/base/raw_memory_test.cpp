// Memory for the cache's tables: apart from the program's mappings, and zero when it is new or cleared.
#include "firehose/base/raw_memory.hpp"

#include "tests/support/sizes.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <sys/mman.h>

namespace hydrant::testing {
namespace {

constexpr size_t kRawBytes = 16 * kPage;

struct Mapping {
  uintptr_t first = 0, end = 0;
};

Mapping mapping_at(const void* p) {
  const auto addr = reinterpret_cast<uintptr_t>(p);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    Mapping found;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &found.first, &found.end) == 2 &&
        found.first <= addr && addr < found.end) {
      return found;
    }
  }
  return {};
}

// A page of the program's memory, of the kind that jemalloc maps; null if the address is already mapped.
void* map_of_program(uintptr_t at) {
  void* p = mmap(reinterpret_cast<void*>(at), kPage, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

// Whether memory could be mapped beside the table, to which it must not be joined. The other side may have
// another table.
bool has_neighbour_apart(uintptr_t table) {
  void* below = map_of_program(table - kPage);
  void* above = map_of_program(table + kRawBytes);
  const Mapping found = mapping_at(reinterpret_cast<void*>(table));
  if (below != nullptr) {
    EXPECT_EQ(found.first, table);
    munmap(below, kPage);
  }
  if (above != nullptr) {
    EXPECT_EQ(found.end, table + kRawBytes);
    munmap(above, kPage);
  }
  return below != nullptr || above != nullptr;
}

TEST(RawMemory, IsNotMergedWithMemoryOfTheProgram) {
  constexpr size_t kTables = 16;  // one may fill a gap in the address space
  std::array<void*, kTables> tables{};
  size_t apart = 0;
  for (void*& table : tables) {
    table = raw_map(kRawBytes);
    ASSERT_NE(table, nullptr);
    apart += has_neighbour_apart(reinterpret_cast<uintptr_t>(table)) ? 1 : 0;
  }
  EXPECT_GT(apart, 0u);
  for (void* table : tables) raw_unmap(table, kRawBytes);
}

TEST(RawMemory, IsZeroWhenItIsNewAndWhenItWasCleared) {
  auto* bytes = static_cast<unsigned char*>(raw_map(kRawBytes));
  ASSERT_NE(bytes, nullptr);
  EXPECT_EQ(bytes[0], 0);
  std::memset(bytes, 1, kRawBytes);
  raw_clear(bytes, kRawBytes);
  EXPECT_EQ(bytes[0], 0);
  EXPECT_EQ(bytes[kRawBytes - 1], 0);
  raw_unmap(bytes, kRawBytes);
}

TEST(RawMemory, IsRefusedWhereThereAreNoAddresses) { EXPECT_EQ(raw_map(SIZE_MAX / 2), nullptr); }

}  // namespace
}  // namespace hydrant::testing
