// Replaces operator new(std::nothrow) of the whole program, for the scenario "starved" of teams_client.cpp.
#include "tests/integration/teams/failing_new.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> before_failure{-1};
std::atomic<bool> has_failed{false};

void* allocate(size_t bytes) noexcept {
  if (before_failure.load(std::memory_order_relaxed) >= 0 && before_failure.fetch_sub(1) == 0) {
    has_failed = true;
    return nullptr;
  }
  return std::malloc(bytes != 0 ? bytes : 1);
}
}  // namespace

void fail_allocation(int64_t number) { before_failure = number; }
bool has_allocation_failed() { return has_failed; }

void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
