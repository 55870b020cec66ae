#include "rdma/bootstrap/bootstrap_pmi2_text.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <random>

namespace hydrant {
namespace {

TEST(Base64, EveryLengthRoundTrips) {
  std::mt19937 random(1);
  for (size_t bytes = 0; bytes < 70; ++bytes) {
    std::vector<std::byte> entry(bytes);
    for (std::byte& one : entry) one = static_cast<std::byte>(random());
    const std::string text = encode_base64(entry);
    EXPECT_EQ(text.find_first_of(";=\n") == text.npos, bytes % 3 == 0);
    std::vector<std::byte> back;
    ASSERT_TRUE(decode_base64(text, &back));
    EXPECT_EQ(back, entry);
  }
}

TEST(Base64, MalformedTextIsRejected) {
  std::vector<std::byte> back;
  for (const char* text :
       {"A", "AAA", "A===", "====", "AA=A", "AA==AAAA", "AA!A", "AAAA\n", "AB==", "AAB="}) {
    EXPECT_FALSE(decode_base64(text, &back)) << text;
  }
}

TEST(Pmi2Entry, EveryLengthRoundTrips) {
  for (const size_t bytes : std::initializer_list<size_t>{0, 1, 599, 600, 601, 1023, 1024}) {
    const std::vector<std::byte> entry(bytes, std::byte{0x5a});
    Pmi2Entry back;
    for (size_t piece = 0; piece < pmi2_pieces(bytes); ++piece) {
      EXPECT_FALSE(back.is_whole());
      ASSERT_TRUE(back.add(encode_pmi2_piece(entry, piece))) << bytes << " bytes, piece " << piece;
    }
    ASSERT_TRUE(back.is_whole());
    EXPECT_TRUE(std::equal(entry.begin(), entry.end(), back.bytes().begin(), back.bytes().end()));
  }
}

TEST(Pmi2Entry, MissingFirstPieceIsRejected) {
  for (const char* text : {"", "0", "0x", "00:", "0:AAAA", "3", "3:", "03:AAAA", "+3:AAAA",
                           " 3:AAAA", "3;AAAA", "3:AAA=", "3:AAAAAAAA", "4:AAAA", "1025:AAAA",
                           "99999999999999999999:AAAA", "-1:AAAA", ":AAAA", "AAAA"}) {
    Pmi2Entry entry;
    EXPECT_FALSE(entry.add(text)) << text;
    EXPECT_FALSE(entry.is_whole()) << text;
  }
}

TEST(Pmi2Entry, LaterPieceOfWrongLengthIsRejected) {
  const std::vector<std::byte> entry(601, std::byte{7});
  for (const char* text : {"", "AAA=", "1:BwAA", "Bw", "B", "BwcH"}) {
    Pmi2Entry back;
    ASSERT_TRUE(back.add(encode_pmi2_piece(entry, 0)));
    EXPECT_FALSE(back.add(text)) << text;
  }
}

JobTopology place_by_map(std::string_view mapping, Rank rank, Rank size) {
  JobTopology place;
  place.rank = rank;
  place.size = size;
  EXPECT_EQ(read_process_mapping(mapping, &place), Status::kOk) << mapping;
  return place;
}

TEST(ProcessMapping, BlocksAndTheirRepetition) {
  auto place = place_by_map("(vector,(0,1,4))", 2, 4);
  EXPECT_EQ(place.node_ranks, (std::vector<Rank>{0, 1, 2, 3}));
  EXPECT_EQ(place.node_count, 1u);
  EXPECT_EQ(place.node_rank, 2u);
  EXPECT_EQ(place.leaders, (std::vector<Rank>{0}));
  place = place_by_map("(vector,(0,2,2),(2,1,1))", 3, 5);
  EXPECT_EQ(place.node_ranks, (std::vector<Rank>{2, 3}));
  EXPECT_EQ(place.node, 1u);
  EXPECT_EQ(place.node_count, 3u);
  EXPECT_EQ(place.leaders, (std::vector<Rank>{0, 2, 4}));
  place = place_by_map("(vector,(0,2,1))", 3, 6);  // round robin
  EXPECT_EQ(place.node_ranks, (std::vector<Rank>{1, 3, 5}));
  EXPECT_EQ(place.node_rank, 1u);
  EXPECT_EQ(place.leaders, (std::vector<Rank>{0, 1}));
  place = place_by_map("(vector,(7,1,1),(3,1,2))", 1, 3);  // by the first rank on each
  EXPECT_EQ(place.node, 1u);
  EXPECT_EQ(place.leaders, (std::vector<Rank>{0, 1}));
}

// A search among all nodes for each rank would be 5e11 steps.
TEST(ProcessMapping, MillionNodesAreNumberedQuickly) {
  constexpr Rank kMany = 1u << 20;
  const JobTopology place = place_by_map("(vector,(0,1048576,1))", kMany - 1, kMany);
  EXPECT_EQ(place.node_count, kMany);
  EXPECT_EQ(place.node, kMany - 1);
  EXPECT_EQ(place.leaders.back(), kMany - 1);
  EXPECT_EQ(place.node_ranks, (std::vector<Rank>{kMany - 1}));
}

TEST(ProcessMapping, UnreadableTextIsRejected) {
  JobTopology place;
  place.size = 4;
  for (const char* text :
       {"", "(vector)", "(vector,(0,1))", "(vector,(0,0,1))", "(vector,(0,1,0))", "(vector,(0,1,4)",
        "(vector,(0,1,4)) ", "(vector,(-1,1,4))", "(vector,(0,99999999999,4))", "vector"}) {
    EXPECT_EQ(read_process_mapping(text, &place), Status::kBroken) << text;
  }
}

}  // namespace
}  // namespace hydrant
