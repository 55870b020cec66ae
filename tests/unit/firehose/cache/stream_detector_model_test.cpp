// Random walks among each other: properties that advice has whatever came before.
#include "firehose/cache/region/stream_detector.hpp"
#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <algorithm>

namespace hydrant::testing {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr size_t kAreaPages = 1 << 20;

// A client that walks through an area of its own, in one direction and mostly at a constant distance. In some
// areas no registration that crosses the middle is granted.
struct Walk {
  size_t area;
  bool down;
  bool has_border;
  size_t distance;                 // of requests, in pages
  size_t pages;                    // of a request
  size_t page;                     // of the next request
  std::vector<MemoryRange> asked;  // before, in this area
  uintptr_t refused_end = 0;  // of the shortest registration that was refused, in its direction
  uint64_t refused_at = 0;
  size_t refusals = 0;

  size_t middle() const { return area * kAreaPages + kAreaPages / 2; }
  bool crosses(MemoryRange range) const {
    const uintptr_t border = at(middle()).addr;
    return has_border && range.addr < border && border < range.end();
  }
  // So many requests of the area lie wholly behind this one: it continues at most so many.
  size_t behind(MemoryRange m) const {
    return static_cast<size_t>(std::count_if(asked.begin(), asked.end(), [&](MemoryRange r) {
      return down ? r.end() > m.end() : r.addr < m.addr;
    }));
  }
};

class StreamDetectorModel {
 public:
  explicit StreamDetectorModel(uint32_t seed) : random_(seed) {
    for (size_t i = 0; i < 6; ++i) {
      Walk walk{.area = i,
                .down = random_.below(2) == 0,
                .has_border = random_.below(2) == 0,
                .distance = 1 + random_.below(6),
                .pages = 1 + random_.below(4),
                .page = 0,
                .asked = {}};
      restart(walk);
      walks_.push_back(walk);
    }
  }

  void step() {
    now_ns_ += random_.below(kSecond / 200);
    Walk& walk = walks_[random_.below(walks_.size())];
    switch (random_.below(40)) {
      case 0: note_outcome(); break;
      case 1: restart(walk); break;
      case 2: forget_border(walk); break;
      default: miss(walk);
    }
    EXPECT_EQ(detector_.patience(), patience_);
  }

 private:
  void restart(Walk& walk) {
    const size_t far = 100 + random_.below(400);
    walk.page = walk.middle() + (walk.down ? far : 0) - (walk.down ? 0 : far);
    if (random_.below(4) == 0) walk.distance = 1 + random_.below(6);
  }
  void note_outcome() {
    const bool wasted = random_.below(2) == 0;
    detector_.note_outcome(wasted);
    patience_ = wasted ? std::min(2 * patience_, 512u) : std::max(patience_ / 2, 2u);
  }
  void forget_border(Walk& walk) {
    detector_.forget_borders(at(walk.area * kAreaPages, kAreaPages));
    walk.refused_end = 0;
  }
  void miss(Walk& walk) {
    const MemoryRange pages = at(walk.page, walk.pages);
    const size_t most = (1 + random_.below(64)) * kPage;
    const StreamDetector::Advice advice = detector_.note_miss(pages, most, now_ns_);
    check(walk, pages, most, advice);
    walk.asked.push_back(pages);
    if (advice.range == pages) {
      move_on(walk, pages);
    } else if (walk.crosses(advice.range) && !walk.crosses(pages)) {
      detector_.note_refused(pages, advice.range, now_ns_);
      const bool shorter =
          walk.down ? advice.range.addr > walk.refused_end : advice.range.end() < walk.refused_end;
      if (walk.refused_end == 0 || now_ns_ >= walk.refused_at + kSecond || shorter) {
        walk.refused_end = walk.down ? advice.range.addr : advice.range.end();
      }
      walk.refused_at = now_ns_;
      move_on(walk, pages);
    } else if (random_.below(8) == 0) {
      const size_t extra = random_.below((advice.range.len - pages.len) / kPage) * kPage;
      const MemoryRange cut{walk.down ? pages.addr - extra : pages.addr, pages.len + extra};
      detector_.note_cut(pages, cut);
      move_on(walk, cut);
    } else {
      detector_.note_granted(advice.range, advice.down);
      move_on(walk, advice.range);
    }
  }
  void move_on(Walk& walk, MemoryRange registered) {
    // The first request of the walk that is not all registered.
    for (;;) {
      walk.page = walk.down ? walk.page - walk.distance : walk.page + walk.distance;
      if (!registered.covers(at(walk.page, walk.pages))) break;
    }
    const size_t gone = walk.down ? walk.middle() - 500 : walk.middle() + 500;
    if (walk.down ? walk.page < gone : walk.page > gone) restart(walk);
  }
  void check(const Walk& walk, MemoryRange pages, size_t most,
             const StreamDetector::Advice& advice) {
    const MemoryRange range = advice.range;
    ASSERT_TRUE(range.covers(pages));
    ASSERT_EQ(range.addr % kPage, 0u);
    ASSERT_EQ(range.len % kPage, 0u);
    if (range == pages) return;
    EXPECT_LE(range.len, most);
    EXPECT_EQ(advice.down, walk.down);
    if (advice.down) {
      EXPECT_EQ(range.end(), pages.end());
    } else {
      EXPECT_EQ(range.addr, pages.addr);
    }
    EXPECT_GE(walk.behind(pages), patience_) << "too few continuations";
    if (walk.refused_end == 0 || now_ns_ >= walk.refused_at + kSecond) return;
    if (advice.down) {
      EXPECT_TRUE(pages.addr <= walk.refused_end || range.addr > walk.refused_end) << "refused";
    } else {
      EXPECT_TRUE(pages.end() >= walk.refused_end || range.end() < walk.refused_end) << "refused";
    }
  }

  Random random_;
  StreamDetector detector_;
  uint64_t now_ns_ = 1;
  uint32_t patience_ = 2;
  std::vector<Walk> walks_;
};

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

TEST(StreamDetectorModel, AdviceContinuesARunWithinTheLimitAndItsBorders) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    StreamDetectorModel model(seed);
    for (int step = 0; step < 600; ++step) {
      model.step();
      ASSERT_FALSE(::testing::Test::HasFailure()) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace hydrant::testing
