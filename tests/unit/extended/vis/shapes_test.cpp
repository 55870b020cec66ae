// Canonical forms, walks, descriptions and copies of random shapes, against naive models. Fixed seeds.
#include "extended/vis/copy_grid.hpp"
#include "extended/vis/copy_list.hpp"
#include "extended/vis/description.hpp"
#include "tests/unit/extended/vis/random_shapes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>

namespace hydrant::testing {
namespace {

constexpr size_t kRoom = 64 << 10;

std::vector<std::byte> numbered(size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * 7 + i / 251);
  return made;
}
uintptr_t start_of(std::vector<std::byte>& memory) {
  return reinterpret_cast<uintptr_t>(memory.data());
}
std::byte read_byte(uintptr_t at) { return *reinterpret_cast<const std::byte*>(at); }

Addresses walked(const Side& side) {
  Addresses all;
  for (Cursor cursor(side); !cursor.at_end(); cursor.advance(cursor.rest().bytes)) {
    for (size_t i = 0; i < cursor.rest().bytes; ++i) all.push_back(cursor.rest().addr + i);
  }
  return all;
}

std::vector<std::pair<uintptr_t, uintptr_t>> pairs_of(const GridPair& pair) {
  RandomGrid same;
  same.dest = pair.dest;
  same.source = pair.source;
  same.element = pair.element;
  for (uint32_t i = 0; i < pair.count; ++i) {
    same.counts.push_back(pair.dimensions[i].count);
    same.dest_strides.push_back(pair.dimensions[i].dest);
    same.source_strides.push_back(pair.dimensions[i].source);
  }
  return same.pairs();
}

TEST(Shapes, CanonicalFormsKeepAllPairsAndAreSorted) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const RandomGrid grid = random_grid(random, 1 << 20, 8 << 20, kRoom);
    GridPair pair;
    ASSERT_EQ(canonicalise(grid.arguments(), pair), Status::kOk);
    auto expected = grid.pairs();
    ASSERT_EQ(pair.bytes, expected.size());
    if (pair.bytes == 0) continue;
    auto found = pairs_of(pair);
    std::sort(expected.begin(), expected.end());
    std::sort(found.begin(), found.end());
    ASSERT_EQ(found, expected) << round;
    for (uint32_t i = 0; i < pair.count; ++i) {
      EXPECT_GE(pair.dimensions[i].count, 2U);
      EXPECT_GE(pair.dimensions[i].dest, i == 0 ? 0 : pair.dimensions[i - 1].dest);
    }
    MemoryRange to;
    MemoryRange from;
    ASSERT_EQ(dest_box(pair, &to), Status::kOk);
    ASSERT_EQ(source_box(pair, &from), Status::kOk);
    const auto by_source = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto [low, high] = std::minmax_element(expected.begin(), expected.end(), by_source);
    EXPECT_EQ(to.addr, expected.front().first);
    EXPECT_EQ(to.last(), expected.back().first);
    EXPECT_EQ(from.addr, low->second);
    EXPECT_EQ(from.last(), high->second);
    // Both sides alone have the bytes in the same order.
    Grid dest;
    Grid source;
    dest_grid(pair, dest);
    source_grid(pair, source);
    const Addresses dests = walked(Side::of(dest));
    const Addresses sources = walked(Side::of(source));
    ASSERT_EQ(dests.size(), expected.size());
    std::vector<std::pair<uintptr_t, uintptr_t>> zipped;
    for (size_t i = 0; i < dests.size(); ++i) zipped.emplace_back(dests[i], sources[i]);
    std::sort(zipped.begin(), zipped.end());
    ASSERT_EQ(zipped, expected) << round;
  }
}

TEST(Shapes, AContiguousGridIsOnePiece) {
  const size_t counts[] = {3, 1, 5, 2};
  const ptrdiff_t strides[] = {8, -999, 24, 120};
  GridPair pair;
  char* const to = reinterpret_cast<char*>(4096);
  char* const from = reinterpret_cast<char*>(65536);
  ASSERT_EQ(canonicalise({to, strides, from, strides, 8, counts, 4}, pair), Status::kOk);
  EXPECT_EQ(pair.count, 0U);
  EXPECT_EQ(pair.element, 240U);
}

TEST(Shapes, GridsThatExceedTheAddressSpaceAreRefused) {
  const size_t huge[] = {size_t{1} << 40, size_t{1} << 40};
  const ptrdiff_t strides[] = {1, ptrdiff_t{1} << 40};
  char place = 0;
  GridPair pair;
  EXPECT_EQ(canonicalise({&place, strides, &place, strides, 1, huge, 2}, pair), Status::kBadArg);
  const size_t two[] = {3};
  const ptrdiff_t far[] = {PTRDIFF_MAX};
  ASSERT_EQ(canonicalise({&place, far, &place, far, 1, two, 1}, pair), Status::kOk);
  MemoryRange box;
  EXPECT_EQ(dest_box(pair, &box), Status::kBadArg);
  EXPECT_EQ(canonicalise({&place, nullptr, &place, far, 1, two, 1}, pair), Status::kBadArg);
}

TEST(Shapes, GridsWithoutBytesNeedNoStrides) {
  const size_t counts[] = {5, 0};
  const size_t one[] = {5, 1};
  const ptrdiff_t strides[] = {8, 40};
  char place = 0;
  GridPair pair;
  EXPECT_EQ(canonicalise({nullptr, nullptr, &place, nullptr, 8, counts, 2}, pair), Status::kOk);
  EXPECT_EQ(pair.bytes, 0U);
  EXPECT_EQ(canonicalise({nullptr, nullptr, nullptr, nullptr, 0, nullptr, 2}, pair), Status::kOk);
  EXPECT_EQ(pair.bytes, 0U);
  EXPECT_EQ(canonicalise({&place, strides, &place, strides, 8, nullptr, 2}, pair), Status::kBadArg);
  EXPECT_EQ(canonicalise({&place, nullptr, &place, strides, 8, one, 2}, pair), Status::kBadArg);
  EXPECT_EQ(canonicalise({&place, strides, &place, nullptr, 8, one, 2}, pair), Status::kBadArg);
}

TEST(Shapes, WalksSkipEmptyPiecesAndMergeNeighbours) {
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    const auto list = random_vector(random, 1 << 20, kRoom, 60);
    const Addresses expected = bytes_of(list);
    const Side side = Side::of(list.data(), list.size());
    ASSERT_EQ(walked(side), expected);
    // From any place that a walk reports.
    Cursor cursor(side);
    size_t done = 0;
    while (!cursor.at_end()) {
      const size_t step = pick(random, 1, cursor.rest().bytes);
      cursor.advance(step);
      done += step;
      const Cursor again(side, cursor.position());
      ASSERT_EQ(again.rest().bytes, cursor.rest().bytes);
      if (cursor.at_end()) break;
      ASSERT_EQ(again.rest().addr, expected[done]);
    }
    ASSERT_EQ(done, expected.size());
  }
}

// Describes all of a side in packets, and reads them.
void check_descriptions(const Side& side, const Addresses& expected, std::mt19937& random) {
  std::vector<std::byte> packet(pick(random, 400, 3000));
  const bool with_data = random() % 2 == 0;
  const size_t most = with_data ? packet.size() : pick(random, 1, 3000);
  Addresses found;
  Cursor cursor(side);
  while (!cursor.at_end()) {
    const Described described =
        describe(side, cursor, packet.data(), packet.size(), most, with_data);
    ASSERT_GT(described.data, 0U);
    ASSERT_LE(described.bytes + (with_data ? described.data : 0), packet.size());
    ASSERT_LE(described.data, most);
    DescribedPieces pieces(packet.data(), described.bytes, described.data);
    const size_t before = found.size();
    for (Piece piece; pieces.next(&piece);) {
      for (size_t i = 0; i < piece.bytes; ++i) found.push_back(piece.addr + i);
    }
    ASSERT_EQ(found.size() - before, described.data);
  }
  ASSERT_EQ(found, expected);
}

TEST(Shapes, DescriptionsNameTheSameBytes) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    const auto list = random_vector(random, 1 << 20, kRoom, random() % 2 == 0 ? 8 : 700);
    check_descriptions(Side::of(list.data(), list.size()), bytes_of(list), random);
    const RandomGrid grid = random_grid(random, 1 << 20, 8 << 20, kRoom);
    GridPair pair;
    ASSERT_EQ(canonicalise(grid.arguments(), pair), Status::kOk);
    if (pair.bytes == 0) continue;
    Grid side;
    source_grid(pair, side);
    check_descriptions(Side::of(side), walked(Side::of(side)), random);
  }
}

TEST(Shapes, DamagedDescriptionsEnd) {
  std::mt19937 random(4);
  for (int round = 0; round < 20000; ++round) {
    std::byte bytes[64];
    const size_t count = pick(random, 0, sizeof bytes);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 4 == 0 ? random() : 1);
    DescribedPieces pieces(bytes, count, 4096);
    size_t sum = 0;
    for (Piece piece; pieces.next(&piece);) sum += piece.bytes;
    ASSERT_LE(sum, 4096U);
  }
}

TEST(Shapes, GridsAreCopiedAsByteByByte) {
  std::mt19937 random(5);
  std::vector<std::byte> source = numbered(kRoom);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> dest(kRoom);
    std::vector<std::byte> expected(kRoom);
    const RandomGrid grid = random_grid(random, start_of(dest), start_of(source), kRoom);
    for (const auto& [to, from] : grid.pairs()) expected[to - start_of(dest)] = read_byte(from);
    GridPair pair;
    ASSERT_EQ(canonicalise(grid.arguments(), pair), Status::kOk);
    if (pair.bytes == 0) continue;
    // The peer's addresses differ from those here.
    pair.dest -= 4096;
    copy_grid(pair, 4096, 0);
    ASSERT_EQ(dest, expected) << round;
  }
}

TEST(Shapes, TransposesAreCopiedInBlocks) {
  for (const size_t element : std::initializer_list<size_t>{1, 2, 4, 8, 16, 24}) {
    const size_t rows = 77;
    const size_t columns = 45;
    std::vector<std::byte> source = numbered(rows * columns * element * 2);
    std::vector<std::byte> dest(source.size());
    std::vector<std::byte> expected(source.size());
    RandomGrid grid;
    grid.dest = start_of(dest);
    grid.source = start_of(source);
    grid.element = element;
    grid.counts = {columns, rows, 2};
    const auto bytes = static_cast<ptrdiff_t>(element);
    grid.source_strides = {bytes, bytes * 45, bytes * 45 * 77};
    grid.dest_strides = {bytes * 77, bytes, bytes * 45 * 77};
    for (const auto& [to, from] : grid.pairs()) expected[to - start_of(dest)] = read_byte(from);
    GridPair pair;
    ASSERT_EQ(canonicalise(grid.arguments(), pair), Status::kOk);
    copy_grid(pair, 0, 0);
    EXPECT_EQ(dest, expected) << element;
  }
}

// Pieces of sizes that have loops of their own, and of their neighbours. In the end the last one lies beyond
// the peer's memory.
TEST(Shapes, EqualPiecesAreCopiedByRowsAndByLists) {
  constexpr size_t kPieces = 20;
  for (const size_t element : std::initializer_list<size_t>{8, 63, 64, 65, 127, 128, 129, 256}) {
    const size_t apart = element + 24;
    std::vector<std::byte> source = numbered(kPieces * apart);
    std::vector<std::byte> expected(source.size());
    std::vector<void*> to(kPieces);
    std::vector<void*> from(kPieces);
    std::vector<std::byte> by_row(source.size());
    std::vector<std::byte> by_list(source.size());
    for (size_t i = 0; i < kPieces; ++i) {
      to[i] = by_list.data() + i * apart;
      from[i] = source.data() + i * apart;
      std::memcpy(expected.data() + i * apart, from[i], element);
    }
    const auto stride = static_cast<ptrdiff_t>(apart);
    copy_row({by_row.data(), source.data(), element, {stride, stride, kPieces}});
    EXPECT_EQ(by_row, expected) << element;

    KnownPeer peer = {};
    peer.addr = start_of(by_list);
    peer.size = by_list.size() - 24;
    EXPECT_EQ(copy_indexed(to.data(), from.data(), kPieces, element, peer, true), kPieces);
    EXPECT_EQ(by_list, expected) << element;
    peer.size -= 1;
    EXPECT_EQ(copy_indexed(to.data(), from.data(), kPieces, element, peer, true), kPieces - 1);
  }
}

// Copies with copy_list(), then the rest by pairs of cursors, as transfers do.
void copy_all(const Side& dest, const Side& source, const Shifts& shifts) {
  const ListPositions at = copy_list(dest, source, shifts);
  Cursor to(dest, at.dest);
  Cursor from(source, at.source);
  walk(to, from, [&](uintptr_t a, uintptr_t b, size_t bytes) {
    std::memcpy(reinterpret_cast<void*>(a + shifts.dest),
                reinterpret_cast<void*>(b + shifts.source), bytes);
    return true;
  });
  EXPECT_TRUE(to.at_end() && from.at_end());
}

// Cuts the longer of two lists.
void make_equal(std::vector<gex_Memvec_t>& one, std::vector<gex_Memvec_t>& two) {
  size_t sums[2] = {bytes_of(one).size(), bytes_of(two).size()};
  auto& longer = sums[0] > sums[1] ? one : two;
  size_t excess = std::max(sums[0], sums[1]) - std::min(sums[0], sums[1]);
  while (excess != 0) {
    const size_t cut = std::min(excess, longer.back().gex_len);
    longer.back().gex_len -= cut;
    excess -= cut;
    if (longer.back().gex_len == 0) longer.pop_back();
  }
}

TEST(Shapes, ListsAreCopiedAsByteByByte) {
  std::mt19937 random(6);
  std::vector<std::byte> source = numbered(kRoom);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> dest(kRoom);
    std::vector<std::byte> expected(kRoom);
    auto to = random_vector(random, start_of(dest), kRoom, round % 2 == 0 ? 8 : 200);
    auto from = random_vector(random, start_of(source), kRoom, round % 3 == 0 ? 8 : 200);
    make_equal(to, from);
    const Addresses dests = bytes_of(to);
    const Addresses sources = bytes_of(from);
    for (size_t i = 0; i < dests.size(); ++i)
      expected[dests[i] - start_of(dest)] = read_byte(sources[i]);
    // A part of the peer's memory may be unmapped.
    const bool peer_is_dest = random() % 2 == 0;
    const uintptr_t start = peer_is_dest ? start_of(dest) : start_of(source);
    const MemoryRange mapped = {start, random() % 3 == 0 ? kRoom / 16 : kRoom};
    copy_all(Side::of(to.data(), to.size()), Side::of(from.data(), from.size()),
             Shifts::of(mapped, 0, peer_is_dest));
    ASSERT_EQ(dest, expected) << round;
  }
}

TEST(Shapes, IndexedListsAreCopiedAsByteByByte) {
  std::mt19937 random(7);
  std::vector<std::byte> source = numbered(kRoom);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> dest(kRoom);
    std::vector<std::byte> expected(kRoom);
    const size_t unit = pick(random, 1, round % 2 == 0 ? 8 : 40);
    const size_t lengths[2] = {unit * pick(random, 1, 4), unit * pick(random, 1, 4)};
    const size_t block = lengths[0] * lengths[1];
    const size_t bytes = block * pick(random, 1, kRoom / block);
    std::vector<void*> lists[2];
    Addresses all[2];
    for (int side = 0; side < 2; ++side) {
      size_t length = lengths[side];
      if (random() % 8 == 0) length = bytes;
      const uintptr_t start = side == 0 ? start_of(dest) : start_of(source);
      const size_t pieces = bytes / length;
      const size_t gap = random() % 2 == 0 ? 0 : std::min<size_t>(3, (kRoom - bytes) / pieces);
      for (size_t i = 0; i < pieces; ++i)
        lists[side].push_back(reinterpret_cast<void*>(start + i * (length + gap)));
      if (gap != 0) std::shuffle(lists[side].begin(), lists[side].end(), random);
      for (void* piece : lists[side]) {
        for (size_t i = 0; i < length; ++i)
          all[side].push_back(reinterpret_cast<uintptr_t>(piece) + i);
      }
    }
    for (size_t i = 0; i < bytes; ++i) expected[all[0][i] - start_of(dest)] = read_byte(all[1][i]);
    copy_all(Side::of(lists[0].data(), lists[0].size(), bytes / lists[0].size()),
             Side::of(lists[1].data(), lists[1].size(), bytes / lists[1].size()),
             Shifts::of({start_of(dest), kRoom}, 0, true));
    ASSERT_EQ(dest, expected) << round;
  }
}

}  // namespace
}  // namespace hydrant::testing
