// The fence of this program: one thread needs none, so that it only counts.
#include "tests/unit/firehose/cache/parts_fixture.hpp"

namespace hydrant {
namespace testing {
unsigned g_fences = 0;
}  // namespace testing
void asymmetric_fence::heavy() noexcept { ++testing::g_fences; }
}  // namespace hydrant
