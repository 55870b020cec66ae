#include "firehose/cache/region/stream_detector.hpp"
#include "tests/unit/firehose/cache/parts_fixture.hpp"

namespace hydrant::testing {
namespace {

// It is another border if more was granted there.
TEST(StreamDetector, RefusalAtOtherAddressesReplacesNoBorder) {
  StreamDetector detector;
  const auto walk = [&](size_t first, size_t pages) {
    MemoryRange range;
    for (size_t i = 0; i < 3; ++i) {
      range = detector.note_miss(at(first + i * pages, pages), 64 * kPage, 1).range;
    }
    return range;
  };
  EXPECT_EQ(walk(1000, 1), at(1002, 2));
  detector.note_refused(at(1002), at(1002, 2), 1);
  EXPECT_EQ(walk(0, 1), at(2, 2));
  detector.note_refused(at(2), at(2, 2), 1);
  EXPECT_EQ(walk(997, 2), at(1001, 2)) << "more was refused a moment ago";
}

}  // namespace
}  // namespace hydrant::testing
