// Reductions and copies of vectors that all members have mapped, against naive models: any number of
// members, elements of any size, the order of combination, results in place.
#include "extended/collective/node/mapped_vectors.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <gasnet_coll.h>
#include <numeric>
#include <random>
#include <vector>

namespace hydrant::testing {
namespace {

// Neither associative nor commutative: another tree of combinations gives another result.
uint8_t mix(uint8_t left, uint8_t right) {
  return static_cast<uint8_t>(31 * left + 17 * right + 1);
}
void mix_all(const void* arg1, void* arg2_and_out, size_t count, const void* unit) {
  const size_t bytes = count * *static_cast<const size_t*>(unit);
  for (size_t i = 0; i < bytes; ++i) {
    auto* right = static_cast<uint8_t*>(arg2_and_out) + i;
    *right = mix(static_cast<const uint8_t*>(arg1)[i], *right);
  }
}

// The tree over consecutive ranks: the pairs that no power of two holds, then a balanced one.
template <typename Combine>
uint8_t combine_tree(std::vector<uint8_t> values, Combine&& combine) {
  const size_t vertices = std::bit_floor(values.size());
  const size_t pairs = values.size() - vertices;
  for (size_t i = 0; i < pairs; ++i) values[i] = combine(values[2 * i], values[2 * i + 1]);
  values.erase(values.begin() + static_cast<ptrdiff_t>(pairs),
               values.begin() + static_cast<ptrdiff_t>(2 * pairs));
  for (size_t half = vertices / 2; half != 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) values[i] = combine(values[2 * i], values[2 * i + 1]);
  }
  return values[0];
}

struct Case {
  Rank size;
  size_t unit;
  size_t count;
  bool in_place;
  bool to_one;  // only member `root` has a destination
  bool by_user;
  Rank root = 0;

  size_t bytes() const { return unit * count; }
};

class Members {
 public:
  explicit Members(const Case& what) : what_(what) {
    std::minstd_rand random(static_cast<uint32_t>(what.size * 131 + what.bytes()));
    for (Rank rank = 0; rank < what.size; ++rank) {
      members_.emplace_back(rank, what.size);
      std::vector<std::byte> source(what.bytes());
      for (std::byte& each : source) each = static_cast<std::byte>(random());
      sources_.push_back(source);
      memory_.push_back(std::move(source));
      dests_.emplace_back(what.bytes(), std::byte{7});
    }
    reduction_.unit = what.unit;
    if (what.by_user) {
      reduction_.user_function = mix_all;
      reduction_.user_data = &what_.unit;
    } else {
      EXPECT_EQ(find_reduction(GEX_DT_U64, 8, GEX_OP_XOR, nullptr, nullptr, &reduction_),
                Status::kOk);
    }
  }

  // Members work in turns, a piece at a time.
  void run(std::minstd_rand& random) {
    std::vector<size_t> progress(what_.size);
    std::vector<bool> done(what_.size);
    for (size_t left = what_.size; left != 0;) {
      const auto rank = static_cast<Rank>(random() % what_.size);
      if (done[rank]) continue;
      MappedVectors& member = members_[rank];
      ASSERT_TRUE(member.reserve(reduction_));
      for (Rank other = 0; other < what_.size; ++other) {
        member.sources[other] = memory_[other].data();
        const bool has_dest = !what_.to_one || other == what_.root;
        member.dests[other] = has_dest ? dest(other).data() : nullptr;
      }
      done[rank] = member.reduce(
          reduction_, MappedVectors::range_of(rank, what_.size, what_.unit, what_.bytes()),
          random() % 40000, &progress[rank]);
      left -= done[rank] ? 1 : 0;
    }
  }

  void check() {
    std::vector<uint8_t> operands(what_.size);
    for (size_t i = 0; i < what_.bytes(); ++i) {
      for (Rank rank = 0; rank < what_.size; ++rank)
        operands[rank] = static_cast<uint8_t>(sources_[rank][i]);
      const uint8_t expected = what_.by_user ? combine_tree(operands, mix)
                                             : combine_tree(operands, [](uint8_t a, uint8_t b) {
                                                 return static_cast<uint8_t>(a ^ b);
                                               });
      for (Rank rank = 0; rank < what_.size; ++rank) {
        const bool has_dest = !what_.to_one || rank == what_.root;
        const auto result = static_cast<uint8_t>(dest(rank)[i]);
        const std::byte before = what_.in_place ? sources_[rank][i] : std::byte{7};
        ASSERT_EQ(result, has_dest ? expected : static_cast<uint8_t>(before)) << "byte " << i;
        ASSERT_TRUE(what_.in_place || memory_[rank][i] == sources_[rank][i]) << "byte " << i;
      }
    }
  }

 private:
  std::vector<std::byte>& dest(Rank rank) { return what_.in_place ? memory_[rank] : dests_[rank]; }

  const Case what_;
  Reduction reduction_;
  std::vector<MappedVectors> members_;
  std::vector<std::vector<std::byte>> sources_, memory_, dests_;
};

TEST(MappedVectors, ReductionsAgreeWithAModel) {
  std::minstd_rand random(3);
  for (const Rank size : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 13u, 16u}) {
    for (const bool in_place : {false, true}) {
      for (const bool to_one : {false, true}) {
        const auto root = static_cast<Rank>(random() % size);
        for (const size_t unit : {1u, 3u, 24u, 9000u}) {
          const size_t count = random() % (unit < 10 ? 3000 : 4) + 1;
          Members members({size, unit, count, in_place, to_one, true, root});
          members.run(random);
          members.check();
        }
        Members members({size, 8, random() % 9000 + 1, in_place, to_one, false, root});
        members.run(random);
        members.check();
      }
    }
  }
}

TEST(MappedVectors, RangesCoverTheVectorAndBeginAtCacheLines) {
  for (const Rank size : {1u, 2u, 3u, 7u, 64u}) {
    for (const size_t unit : {1u, 8u, 12u, 100u}) {
      for (const size_t count : {1u, 7u, 100u, 4097u}) {
        size_t end = 0;
        for (Rank rank = 0; rank < size; ++rank) {
          const MappedVectors::Range range =
              MappedVectors::range_of(rank, size, unit, unit * count);
          EXPECT_EQ(range.first, end);
          EXPECT_LE(range.first, range.end);
          EXPECT_EQ(range.first % unit, 0u);
          EXPECT_TRUE(range.first % 64 == 0 || range.first == unit * count);
          end = range.end;
        }
        EXPECT_EQ(end, unit * count);
      }
    }
  }
}

TEST(MappedVectors, CopiesWithinTheBudget) {
  std::vector<std::byte> source(100'000, std::byte{3});
  std::vector<std::byte> dest(source.size());
  MappedVectors member(1, 2);
  member.sources[0] = source.data();
  size_t progress = 0;
  EXPECT_FALSE(member.copy(0, dest.data(), dest.size(), 60'000, &progress));
  EXPECT_EQ(progress, 60'000u);
  EXPECT_EQ(dest[60'000], std::byte{});
  EXPECT_TRUE(member.copy(0, dest.data(), dest.size(), 60'000, &progress));
  EXPECT_EQ(dest, source);
}

}  // namespace
}  // namespace hydrant::testing
