// The atomics of a program without threads.
#define GASNETT_THREAD_SINGLE 1
#include <gasnet_tools.h>

#define HYDRANT_SUITE AtomicsSingle
#include "tests/unit/am/tools/atomics_cases.hpp"

namespace {

TEST(AtomicsSingle, WeakBarriersHaveNoEffect) {
  // Expressions of type void.
  static_assert(std::is_void_v<decltype(gasnett_weak_mb())>);
  gasnett_weak_wmb();
  gasnett_weak_rmb();
}

}  // namespace
