#include "firehose/watch/removed_ranges.hpp"

#include "tests/support/sizes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>

namespace hydrant {
namespace {

using testing::kPage;

constexpr size_t kPages = 64;
constexpr uintptr_t kBase = 0x7f0000000000;

MemoryRange range_of(size_t page, size_t n) { return {kBase + page * kPage, n * kPage}; }

// Page by page: which range a page is part of, and that range's number.
class Model {
 public:
  void add(size_t page, size_t n, uint64_t number) {
    const uint32_t id = ++last_id_;
    numbers_[id] = number;
    for (size_t i = page; i < page + n; ++i) {
      const uint32_t old = id_[i];
      if (old != 0 && old != id) {
        numbers_[id] = std::max(numbers_[id], numbers_[old]);
        std::replace(id_.begin(), id_.end(), old, id);
      }
      id_[i] = id;
    }
  }
  void forget(size_t page, size_t n) {
    const uint32_t cut = page + n < kPages ? id_[page + n - 1] : 0;
    std::fill_n(id_.begin() + static_cast<std::ptrdiff_t>(page), n, 0u);
    if (cut == 0) return;
    // The part on the other side becomes a range of its own.
    const uint32_t id = ++last_id_;
    numbers_[id] = numbers_[cut];
    for (size_t i = page + n; i < kPages && id_[i] == cut; ++i) id_[i] = id;
  }
  void forget_up_to(uint64_t number) {
    for (uint32_t& id : id_) {
      if (id != 0 && numbers_[id] <= number) id = 0;
    }
  }
  uint64_t newest(size_t page, size_t n) {
    uint64_t newest = 0;
    for (size_t i = page; i < page + n; ++i) {
      if (id_[i] != 0) newest = std::max(newest, numbers_[id_[i]]);
    }
    return newest;
  }
  size_t size() const {
    size_t n = 0;
    for (size_t i = 0; i < kPages; ++i) {
      if (id_[i] != 0 && (i == 0 || id_[i] != id_[i - 1])) ++n;
    }
    return n;
  }

 private:
  std::array<uint32_t, kPages> id_{};
  std::map<uint32_t, uint64_t> numbers_;
  uint32_t last_id_ = 0;
};

struct Operation {
  enum class Kind { kAdd, kForget, kForgetUpTo } kind;
  size_t page, n;
  uint64_t number;
};

Operation random_operation(std::mt19937_64& random, uint64_t next_number) {
  const uint64_t draw = random() % 100;
  Operation op{};
  op.page = random() % kPages;
  op.n = 1 + random() % std::min<size_t>(kPages - op.page, 6);
  if (draw < 60) {
    op.kind = Operation::Kind::kAdd;
    op.number = next_number;
  } else if (draw < 95) {
    op.kind = Operation::Kind::kForget;
  } else {
    op.kind = Operation::Kind::kForgetUpTo;
    op.number = next_number - std::min<uint64_t>(random() % 20, next_number);
  }
  return op;
}

template <class Ranges>
void apply_to_model(Ranges& model, const Operation& op) {
  switch (op.kind) {
    case Operation::Kind::kAdd: model.add(op.page, op.n, op.number); break;
    case Operation::Kind::kForget: model.forget(op.page, op.n); break;
    case Operation::Kind::kForgetUpTo: model.forget_up_to(op.number); break;
  }
}

void apply(RemovedRanges& ranges, const Operation& op) {
  switch (op.kind) {
    case Operation::Kind::kAdd: ranges.add(range_of(op.page, op.n), op.number); break;
    case Operation::Kind::kForget: ranges.forget(range_of(op.page, op.n)); break;
    case Operation::Kind::kForgetUpTo: ranges.forget_up_to(op.number); break;
  }
}

TEST(RemovedRanges, RoomySetAgreesWithAModel) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    RemovedRanges ranges;
    ASSERT_TRUE(ranges.map(4 * kPages));
    Model model;
    for (uint64_t step = 1; step <= 2000; ++step) {
      const Operation op = random_operation(random, step);
      apply(ranges, op);
      apply_to_model(model, op);
      ASSERT_EQ(ranges.size(), model.size()) << "step " << step;
      for (size_t page = 0; page < kPages; ++page) {
        ASSERT_EQ(ranges.newest(range_of(page, 1)), model.newest(page, 1))
            << "step " << step << " page " << page;
      }
      const size_t page = random() % kPages;
      const size_t n = 1 + random() % (kPages - page);
      ASSERT_EQ(ranges.newest(range_of(page, n)), model.newest(page, n)) << "step " << step;
    }
  }
}

// However small the set's capacity is, it must find each removal that has not ended.
TEST(RemovedRanges, FullSetKeepsAtLeastWhatTheModelKeeps) {
  for (const size_t room : {3u, 4u, 7u, 16u}) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE("room " + std::to_string(room) + " seed " + std::to_string(seed));
      std::mt19937_64 random(seed);
      RemovedRanges ranges;
      ASSERT_TRUE(ranges.map(room));
      Model model;
      for (uint64_t step = 1; step <= 2000; ++step) {
        const Operation op = random_operation(random, step);
        apply(ranges, op);
        apply_to_model(model, op);
        ASSERT_LT(ranges.size(), room) << "step " << step;
        for (size_t page = 0; page < kPages; ++page) {
          ASSERT_GE(ranges.newest(range_of(page, 1)), model.newest(page, 1))
              << "step " << step << " page " << page;
        }
        if (op.kind == Operation::Kind::kForget) {
          ASSERT_EQ(ranges.newest(range_of(op.page, op.n)), 0u) << "step " << step;
        }
        ASSERT_LE(ranges.newest(range_of(0, kPages)), step);
      }
    }
  }
}

TEST(RemovedRanges, FullSetJoinsTheClosestAndKeepsTheNewestNumber) {
  RemovedRanges ranges;
  ASSERT_TRUE(ranges.map(4));
  ranges.add(range_of(0, 1), 5);
  ranges.add(range_of(20, 1), 7);
  ranges.add(range_of(23, 1), 6);
  EXPECT_EQ(ranges.newest(range_of(21, 2)), 0u);
  ranges.add(range_of(50, 1), 8);
  EXPECT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges.newest(range_of(21, 2)), 7u) << "the gap of two pages was the smallest";
  EXPECT_EQ(ranges.newest(range_of(23, 1)), 7u);
  EXPECT_EQ(ranges.newest(range_of(1, 19)), 0u);
  EXPECT_EQ(ranges.newest(range_of(24, 26)), 0u);
  ranges.forget_up_to(7);
  EXPECT_EQ(ranges.size(), 1u);
  EXPECT_EQ(ranges.newest(range_of(50, 1)), 8u);
}

TEST(RemovedRanges, OverlapBecomesOneWithTheNewestNumber) {
  RemovedRanges ranges;
  ASSERT_TRUE(ranges.map(16));
  ranges.add(range_of(0, 4), 9);
  ranges.add(range_of(6, 4), 3);
  ranges.add(range_of(3, 4), 4);
  EXPECT_EQ(ranges.size(), 1u);
  EXPECT_EQ(ranges.newest(range_of(9, 1)), 9u);
  EXPECT_EQ(ranges.newest(range_of(10, 10)), 0u);
}

TEST(RemovedRanges, TouchingRangesStayApart) {
  RemovedRanges ranges;
  ASSERT_TRUE(ranges.map(16));
  ranges.add(range_of(0, 4), 1);
  ranges.add(range_of(4, 4), 2);
  EXPECT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges.newest(range_of(3, 1)), 1u);
  EXPECT_EQ(ranges.newest(range_of(4, 1)), 2u);
  ranges.forget_up_to(1);
  EXPECT_EQ(ranges.newest(range_of(0, 4)), 0u);
}

TEST(RemovedRanges, HoleInTheMiddleLeavesBothEnds) {
  RemovedRanges ranges;
  ASSERT_TRUE(ranges.map(16));
  ranges.add(range_of(0, 10), 3);
  ranges.forget(range_of(4, 2));
  EXPECT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges.newest(range_of(4, 2)), 0u);
  EXPECT_EQ(ranges.newest(range_of(3, 2)), 3u);
  EXPECT_EQ(ranges.newest(range_of(5, 2)), 3u);
  ranges.forget(range_of(0, 20));
  EXPECT_EQ(ranges.size(), 0u);
}

TEST(RemovedRanges, ForgetUnknownKeepsRangesWithAKnownCaller) {
  constexpr uint64_t kUnknown = RemovedRanges::kCallerUnknown;
  RemovedRanges ranges;
  ASSERT_TRUE(ranges.map(16));
  ranges.add(range_of(0, 4), 1);
  ranges.add(range_of(8, 4), kUnknown);
  ranges.add(range_of(16, 4), 2);
  ranges.add(range_of(24, 4), kUnknown);
  ranges.forget_unknown(range_of(2, 24));
  EXPECT_EQ(ranges.newest(range_of(0, 8)), 1u);
  EXPECT_EQ(ranges.newest(range_of(2, 2)), 1u);
  EXPECT_EQ(ranges.newest(range_of(8, 4)), 0u);
  EXPECT_EQ(ranges.newest(range_of(16, 4)), 2u);
  EXPECT_EQ(ranges.newest(range_of(24, 2)), 0u);
  EXPECT_EQ(ranges.newest(range_of(26, 2)), kUnknown);
  EXPECT_EQ(ranges.size(), 3u);
  ranges.forget_unknown(range_of(17, 1));
  EXPECT_EQ(ranges.newest(range_of(17, 1)), 2u);
}

TEST(RemovedRanges, ForgettingOtherRangesChangesNothing) {
  RemovedRanges ranges;
  ASSERT_TRUE(ranges.map(16));
  ranges.forget(range_of(0, 64));
  ranges.add(range_of(10, 2), 1);
  ranges.forget(range_of(0, 10));
  ranges.forget(range_of(12, 5));
  EXPECT_EQ(ranges.newest(range_of(10, 2)), 1u);
  ranges.clear();
  EXPECT_EQ(ranges.newest(range_of(0, 64)), 0u);
}

}  // namespace
}  // namespace hydrant
