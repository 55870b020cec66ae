// hydrant/alloc.hpp: the memory resource and the allocator, in containers.
#include <hydrant/alloc.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory_resource>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

namespace hydrant::testing {
namespace {

using alloc::Allocator;

bool is_ours(const void* p) { return hydrant_alloc_owns(p) != 0; }

TEST(AllocResource, ContainersLiveInTheArena) {
  std::pmr::vector<uint64_t> numbers(alloc::resource());
  for (uint64_t i = 0; i < 1'000'000; ++i) numbers.push_back(i);
  EXPECT_TRUE(is_ours(numbers.data()));
  uint64_t sum = 0;
  for (const uint64_t number : numbers) sum += number;
  EXPECT_EQ(sum, 499'999'500'000u);
  std::pmr::map<int, std::pmr::string> names(alloc::resource());
  for (int i = 0; i < 1000; ++i) names[i] = "a name that is too long for the string itself";
  EXPECT_TRUE(is_ours(names[500].data()));
}

TEST(AllocResource, IsASingletonAndAligns) {
  EXPECT_EQ(alloc::resource(), alloc::resource());
  EXPECT_TRUE(alloc::resource()->is_equal(*alloc::resource()));
  EXPECT_FALSE(alloc::resource()->is_equal(*std::pmr::new_delete_resource()));
  for (size_t alignment = 1; alignment <= 65536; alignment *= 2) {
    void* p = alloc::resource()->allocate(100, alignment);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % alignment, 0u);
    alloc::resource()->deallocate(p, 100, alignment);
  }
}

TEST(AllocResource, RefusalIsBadAlloc) {
  EXPECT_THROW(static_cast<void>(alloc::resource()->allocate(SIZE_MAX / 2)), std::bad_alloc);
  const volatile size_t no_alignment = 3;  // no compiler is to refuse it first
  EXPECT_THROW(static_cast<void>(alloc::resource()->allocate(1, no_alignment)), std::bad_alloc);
}

struct alignas(256) Wide {
  char bytes[256];
};

TEST(AllocAllocator, StandardContainersUseIt) {
  std::vector<int, Allocator<int>> numbers(100'000, 7);
  EXPECT_TRUE(is_ours(numbers.data()));
  std::list<Wide, Allocator<Wide>> wide(10);
  for (const Wide& one : wide) {
    EXPECT_TRUE(is_ours(&one));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(&one) % 256, 0u);
  }
  const std::basic_string<char, std::char_traits<char>, Allocator<char>> text(1000, 'x');
  EXPECT_TRUE(is_ours(text.data()));
  const auto moved = std::move(numbers);
  EXPECT_EQ(moved.size(), 100'000u);
}

TEST(AllocAllocator, AllAreEqualAndEmpty) {
  const Allocator<int> a;
  const Allocator<double> b(a);
  EXPECT_TRUE(a == b);
  EXPECT_FALSE(a != b);
  EXPECT_TRUE(a == Allocator<int>());
  static_assert(std::is_empty_v<Allocator<int>>);
  static_assert(std::allocator_traits<Allocator<int>>::is_always_equal::value);
}

TEST(AllocAllocator, RefusalIsBadAlloc) {
  Allocator<uint64_t> allocator;
  EXPECT_THROW(static_cast<void>(allocator.allocate(SIZE_MAX / 4)), std::bad_alloc);
  EXPECT_THROW(static_cast<void>(allocator.allocate(SIZE_MAX / 16)), std::bad_alloc);
}

}  // namespace
}  // namespace hydrant::testing
