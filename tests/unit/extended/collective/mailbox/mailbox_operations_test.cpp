// Reductions and barriers in mailboxes against a naive model: members in random order, adapters that write
// single bytes in any order, several operations under way, teams that follow each other in the same memory.
#include "extended/collective/mailbox/mailbox_operations.hpp"

#include "extended/collective/steps/hypercube.hpp"
#include "tests/unit/extended/collective/mailbox/mailbox_network.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace hydrant {
namespace {

using test::MailboxNetwork;
using Words = std::vector<uint64_t>;

// Neither associative nor commutative.
uint64_t mix(uint64_t left, uint64_t right) {
  return (left * 0x9e3779b97f4a7c15 ^ right >> 7) + right * 3 + 1;
}
void mix_all(const void* left, const void* right, void* out, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i)
    static_cast<uint64_t*>(out)[i] =
        mix(static_cast<const uint64_t*>(left)[i], static_cast<const uint64_t*>(right)[i]);
}

// Combines neighbours first, as all reductions do.
uint64_t combined(std::vector<uint64_t> of_members) {
  const Hypercube cube(static_cast<Rank>(of_members.size()));
  std::vector<uint64_t> at(cube.vertices());
  for (uint32_t vertex = 0; vertex < cube.vertices(); ++vertex) {
    const Rank member = cube.member_at(vertex);
    at[vertex] = of_members[member];
    if (cube.represents(member)) at[vertex] = mix(of_members[member - 1], at[vertex]);
  }
  for (uint32_t bit = 1; bit < cube.vertices(); bit *= 2) {
    for (uint32_t vertex = 0; vertex < cube.vertices(); vertex += 2 * bit)
      at[vertex] = mix(at[vertex], at[vertex + bit]);
  }
  return at[0];
}

uint64_t value_of(Rank member, size_t operation, size_t word) {
  return (member + 1) * 1000003 + operation * 7919 + word * 31;
}

// The operations that a member has begun, of 0 to 6 words each.
struct Progress {
  struct One {
    Words source;
    Words dest;
    MailboxOperations::Pending* pending = nullptr;
  };
  std::deque<One> begun;
};

class MailboxOperationsTest : public ::testing::Test {
 protected:
  // Runs `count` operations with up to `most` of a member under way.
  static void run_team(MailboxNetwork& network, const std::vector<Rank>& ranks, size_t count,
                       size_t most) {
    std::mt19937& random = network.random();
    const auto size = static_cast<Rank>(ranks.size());
    // Members at both ends know whether an edge has mailboxes.
    std::set<std::pair<Rank, Rank>> without;
    const bool some_without = random() % 3 == 0;
    const uint32_t node_bits = random() % 2 == 0 ? 0 : static_cast<uint32_t>(random() % 4);
    std::vector<std::unique_ptr<MailboxNetwork::Member>> members;
    for (Rank rank = 0; rank < size; ++rank) {
      uint64_t edges = 0;
      for (uint32_t edge = 0; edge < TeamMailboxes::edges_of(size); ++edge) {
        const Rank peer = TeamMailboxes::peer_at(rank, size, edge);
        if (peer == kNoRank) continue;
        if (peer > rank && some_without && random() % 3 == 0) without.insert({rank, peer});
        if (!without.contains({std::min(rank, peer), std::max(rank, peer)}))
          edges |= uint64_t{1} << edge;
      }
      members.push_back(
          std::make_unique<MailboxNetwork::Member>(network, ranks, rank, edges, node_bits));
    }
    std::vector<size_t> words(count);
    for (size_t& each : words) each = random() % 7;
    std::vector<Progress> progress(size);
    std::vector<size_t> under_way(size);
    std::vector<size_t> completed(size);
    size_t idle_turns = 0;
    while (std::any_of(completed.begin(), completed.end(), [&](size_t n) { return n < count; })) {
      ASSERT_LT(++idle_turns, 200'000u) << "operations wait for each other";
      if (random() % 3 == 0 && network.deliver()) idle_turns = 0;
      const auto rank = static_cast<Rank>(random() % size);
      Progress& mine = progress[rank];
      MailboxOperations& operations = members[rank]->operations;
      if (mine.begun.size() < count && under_way[rank] < most && random() % 2 == 0) {
        const size_t number = mine.begun.size();
        auto& one = mine.begun.emplace_back();
        for (size_t i = 0; i < words[number]; ++i) one.source.push_back(value_of(rank, number, i));
        one.dest.resize(words[number]);
        ASSERT_TRUE(
            operations.start({.source = reinterpret_cast<const std::byte*>(one.source.data()),
                              .dest = reinterpret_cast<std::byte*>(one.dest.data()),
                              .bytes = words[number] * 8,
                              .reduction = {.function = mix_all, .unit = 8},
                              .signature = static_cast<uint32_t>(words[number]) << 8 | 4,
                              .operation = static_cast<uint32_t>(number)},
                             &one.pending));
        // The source may change now; the result must not.
        std::fill(one.source.begin(), one.source.end(), ~uint64_t{0});
        if (one.pending == nullptr)
          ++completed[rank];
        else
          ++under_way[rank];
        idle_turns = 0;
      } else {
        operations.advance();
        for (auto& one : mine.begun) {
          if (one.pending == nullptr) continue;
          if (!one.pending->is_done) {
            (void)operations.is_ready(*one.pending);
            continue;
          }
          operations.release(std::exchange(one.pending, nullptr));
          ++completed[rank];
          --under_way[rank];
        }
      }
    }
    EXPECT_TRUE(network.is_idle());
    EXPECT_TRUE(network.is_clear()) << "another team could not use the memory";
    for (size_t number = 0; number < count; ++number) {
      for (size_t word = 0; word < words[number]; ++word) {
        std::vector<uint64_t> values;
        for (Rank rank = 0; rank < size; ++rank) values.push_back(value_of(rank, number, word));
        const uint64_t expected = combined(values);
        for (Rank rank = 0; rank < size; ++rank)
          ASSERT_EQ(progress[rank].begun[number].dest[word], expected)
              << size << " members, rank " << rank << ", operation " << number;
      }
    }
  }
};

TEST_F(MailboxOperationsTest, MembersInAnyOrderGetTheCombinationOfTheTree) {
  for (Rank size = 2; size <= 16; ++size) {
    for (uint32_t seed = 1; seed <= 3; ++seed) {
      MailboxNetwork network(size, seed == 1 ? 3 : 1000, seed * 100 + size);
      std::vector<Rank> ranks(size);
      std::iota(ranks.begin(), ranks.end(), 0);
      run_team(network, ranks, 3 * TeamMailboxes::kLines, seed == 2 ? 60 : seed);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(MailboxOperationsTest, TeamsFollowEachOtherInTheSameMemory) {
  constexpr Rank kRanks = 9;
  MailboxNetwork network(kRanks, 20, 5);
  for (uint32_t round = 0; round < 30; ++round) {
    std::vector<Rank> ranks(kRanks);
    std::iota(ranks.begin(), ranks.end(), 0);
    std::shuffle(ranks.begin(), ranks.end(), network.random());
    ranks.resize(2 + network.random()() % (kRanks - 1));
    run_team(network, ranks, 1 + network.random()() % 70, 1 + network.random()() % 40);
    if (HasFatalFailure()) return;
  }
}

TEST_F(MailboxOperationsTest, AStoppedMemberStopsTheOthersWithinTheWindow) {
  const std::vector<Rank> ranks = {0, 1};
  MailboxNetwork network(2, 1000, 1);
  MailboxNetwork::Member member(network, ranks, 0, 1);
  MailboxOperations::Pending* pending = nullptr;
  for (uint32_t i = 0; i < 2 * TeamMailboxes::kLines; ++i) {
    ASSERT_TRUE(member.operations.start({.signature = 1, .operation = i}, &pending));
    ASSERT_NE(pending, nullptr);
    EXPECT_EQ(member.operations.awaited_edge(*pending),
              i < TeamMailboxes::kWindow ? 0 : TeamMailboxes::kNoEdge);
  }
  uint32_t lines = 0;
  for (size_t i = 0; i < TeamMailboxes::kLines; ++i) {
    while (network.deliver()) {
    }
    lines += network.memory_of(1)[i].words[0] != 0 ? 1 : 0;
  }
  EXPECT_EQ(lines, TeamMailboxes::kWindow);
}

TEST_F(MailboxOperationsTest, AnotherCallOfThePeerIsRefused) {
  const std::vector<Rank> ranks = {0, 1};
  for (const uint32_t differs : {0u, 1u}) {
    MailboxNetwork network(2, 1000, 1);
    MailboxNetwork::Member first(network, ranks, 0, 1);
    MailboxNetwork::Member second(network, ranks, 1, 1);
    MailboxOperations::Pending* pending = nullptr;
    uint64_t data[6] = {};
    ASSERT_TRUE(first.operations.start({.source = reinterpret_cast<std::byte*>(data),
                                        .dest = reinterpret_cast<std::byte*>(data),
                                        .bytes = 8,
                                        .reduction = {.function = mix_all, .unit = 8},
                                        .signature = 7,
                                        .operation = 3},
                                       &pending));
    while (network.deliver()) {
    }
    EXPECT_EXIT((void)second.operations.start({.source = reinterpret_cast<std::byte*>(data),
                                               .dest = reinterpret_cast<std::byte*>(data),
                                               .bytes = 48,
                                               .reduction = {.function = mix_all, .unit = 8},
                                               .signature = 7 + differs,
                                               .operation = 4 - differs},
                                              &pending),
                ::testing::ExitedWithCode(3), "edge 0: ");
  }
}

TEST(TeamMailboxesTest, EdgesJoinTwoMembers) {
  for (Rank size = 2; size <= 40; ++size) {
    for (Rank rank = 0; rank < size; ++rank) {
      TeamMailboxes mailboxes({.rank = rank, .size = size, .edges = ~uint64_t{0}});
      std::set<Rank> peers;
      for (uint32_t edge = 0; edge < TeamMailboxes::edges_of(size); ++edge) {
        const Rank peer = TeamMailboxes::peer_at(rank, size, edge);
        if (peer == kNoRank) continue;
        ASSERT_LT(peer, size);
        EXPECT_TRUE(peers.insert(peer).second);
        EXPECT_EQ(TeamMailboxes::peer_at(peer, size, edge), rank);
        EXPECT_EQ(mailboxes.edge_to(peer), edge);
      }
      for (Rank other = 0; other < size; ++other) {
        if (other != rank && !peers.contains(other)) {
          EXPECT_EQ(mailboxes.edge_to(other), TeamMailboxes::kNoEdge);
        }
      }
    }
  }
}

TEST(MailboxLineTest, ALineIsNotReadBeforeItsLastByte) {
  for (const size_t bytes : {0u, 1u, 7u, 8u, 13u, 48u}) {
    std::byte data[MailboxLine::kMaxBytes] = {};
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(255 - 5 * i);
    const mailbox_line::Header header = mailbox_line::header_of(0x1ff'ffff, 0xfedc'ba98);
    EXPECT_EQ(header.number, 0xff'ffffu);
    uint64_t words[MailboxLine::kWords] = {};
    mailbox_line::write(words, header, data, bytes);
    const size_t written = mailbox_line::words_of(bytes) * 8;
    for (size_t missing = 0; missing <= written; ++missing) {
      auto lines = std::make_unique<MailboxLine[]>(TeamMailboxes::kLines);
      uint64_t partial[MailboxLine::kWords];
      std::memcpy(partial, words, sizeof words);
      if (missing < written) reinterpret_cast<uint8_t*>(partial)[missing] = 0;
      for (uint32_t i = 0; i < MailboxLine::kWords; ++i) lines[5].words[i] = partial[i];
      TeamMailboxes mailboxes({.rank = 0, .size = 2, .lines = lines.get(), .edges = 1});
      std::byte read[MailboxLine::kMaxBytes] = {};
      mailbox_line::Header theirs;
      const auto found =
          mailboxes.receive(0, 5 + TeamMailboxes::kLines, bytes, header, read, &theirs);
      EXPECT_EQ(found,
                missing < written ? TeamMailboxes::Found::kNothing : TeamMailboxes::Found::kLine);
      if (missing < written) continue;
      EXPECT_EQ(std::memcmp(read, data, sizeof data), 0);
      for (const auto& word : lines[5].words) EXPECT_EQ(word.load(), 0u);
    }
  }
}

}  // namespace
}  // namespace hydrant
