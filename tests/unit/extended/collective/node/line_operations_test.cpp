// Small collectives through lines that all members read: random calls, in random interleavings of the
// members and in threads, against models; reuse of lines and of the memory by another team.
#include "extended/collective/node/line_operations.hpp"

#include "extended/collective/operation/operation.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace hydrant::testing {
namespace {

using Kind = LineOperations::Kind;

// Maps x to multiplier * x + addend modulo a prime: associative, not commutative.
struct Affine {
  uint32_t multiplier = 1;
  uint32_t addend = 0;
  friend bool operator==(const Affine&, const Affine&) = default;
};
Affine compose(Affine left, Affine right) {
  constexpr uint64_t kPrime = 65521;
  return {
      static_cast<uint32_t>(uint64_t{left.multiplier} * right.multiplier % kPrime),
      static_cast<uint32_t>((uint64_t{left.addend} * right.multiplier + right.addend) % kPrime)};
}
void compose_all(const void* arg1, void* arg2_and_out, size_t count, const void*) {
  for (size_t i = 0; i < count; ++i) {
    auto& right = static_cast<Affine*>(arg2_and_out)[i];
    right = compose(static_cast<const Affine*>(arg1)[i], right);
  }
}

// The same on all members: number `index` of a series of calls.
struct CallPlan {
  Kind kind;
  Rank root;
  size_t count;
  uint32_t seed;
  Rank hidden;  // the member whose memory is not shared, or more than the last: all or none are

  CallPlan(uint32_t series, uint32_t index, Rank size) {
    std::minstd_rand random(series * 7919 + index + 1);
    (void)random();
    kind = static_cast<Kind>(random() % 4);
    root = static_cast<Rank>(random() % size);
    count = random() % 6 + 1;
    if (random() % 4 == 0) count = random() % (random() % 8 == 0 ? 5000 : 100) + 7;
    hidden = static_cast<Rank>(random() % (4 * size));
    seed = static_cast<uint32_t>(random());
  }
  bool is_vector() const { return kind != Kind::kBarrier && count > 6; }
  bool is_hidden(Rank rank, Rank size) const { return hidden == rank || hidden >= 3 * size; }
  bool fits_slots() const { return count * sizeof(Affine) <= TeamLines::kSlotBytes; }
  // True if messages have to carry it.
  bool is_not_shared(Rank size) const {
    if (!is_vector()) return false;
    if (kind == Kind::kBroadcast) return is_hidden(root, size) && !fits_slots();
    if (hidden < size && size > 1) return true;
    return is_hidden(0, size) && !fits_slots();
  }
  Affine operand(Rank rank, size_t i) const {
    std::minstd_rand random(seed + rank * 131 + static_cast<uint32_t>(i) * 17 + 1);
    (void)random();
    return {static_cast<uint32_t>(random() % 65520 + 1), static_cast<uint32_t>(random() % 65521)};
  }
  Affine expected(Rank size, size_t i) const {
    if (kind == Kind::kBroadcast) return operand(root, i);
    Affine all;
    for (Rank rank = 0; rank < size; ++rank) all = compose(all, operand(rank, i));
    return all;
  }
  uint32_t signature() const {
    return signature_of(CollectiveKind::kReduceToAll, root, count, static_cast<uint64_t>(kind));
  }
};

// A call of a member, with its memory.
struct MembersCall {
  CallPlan plan;
  std::vector<Affine> source;
  std::vector<Affine> dest;
  LineOperations::Pending* pending = nullptr;
  Rank my_rank;
  Rank team_size;
  bool is_not_shared = false;

  MembersCall(const CallPlan& chosen, Rank rank, Rank size)
      : plan(chosen), dest(chosen.count, Affine{9, 9}), my_rank(rank), team_size(size) {
    for (size_t i = 0; i < plan.count; ++i) source.push_back(plan.operand(rank, i));
  }
  // True: it is complete, and released.
  bool finish(LineOperations& member) {
    while (member.take_not_shared() != nullptr) continue;
    if (pending == nullptr) return true;
    if (!pending->is_done()) return false;
    is_not_shared = pending->stage == LineOperations::Stage::kNotShared;
    member.release(pending);
    pending = nullptr;
    return true;
  }
  LineOperations::Call call() {
    return {.kind = plan.kind,
            .root = plan.root,
            .source = reinterpret_cast<const std::byte*>(source.data()),
            .dest = reinterpret_cast<std::byte*>(dest.data()),
            .bytes = plan.kind == Kind::kBarrier ? 0 : plan.count * sizeof(Affine),
            .signature = plan.signature(),
            .reduction = {.user_function = compose_all, .unit = sizeof(Affine)},
            .is_shared = !plan.is_hidden(my_rank, team_size)};
  }
  void check(Rank rank, Rank size) const {
    EXPECT_EQ(is_not_shared, plan.is_not_shared(size));
    const bool writes = plan.kind == Kind::kBroadcast || plan.kind == Kind::kReduceToAll ||
                        (plan.kind == Kind::kReduceToOne && plan.root == rank);
    for (size_t i = 0; i < plan.count; ++i)
      ASSERT_EQ(dest[i], writes && !is_not_shared ? plan.expected(size, i) : (Affine{9, 9}))
          << "rank " << rank;
  }
};

class LineTeam {
 public:
  explicit LineTeam(Rank size, uint64_t base = 0) : memory_(std::make_unique<TeamLines[]>(size)) {
    std::memset(static_cast<void*>(memory_.get()), 0, size * sizeof(TeamLines));
    for (Rank rank = 0; rank < size; ++rank) lines_.push_back(&memory_[rank]);
    begin(base);
  }
  // Another team in the same memory.
  void begin(uint64_t base) {
    members.clear();
    for (Rank rank = 0; rank < lines_.size(); ++rank) members.push_back(make_member(rank, base));
  }
  std::unique_ptr<LineOperations> make_member(Rank rank, uint64_t base) {
    return std::make_unique<LineOperations>(LineOperations::Config{
        .rank = rank,
        .members = FixedArray<TeamLines*>(std::span<TeamLines* const>(lines_)),
        .base = base,
        .jobrank = [](void*, Rank member) noexcept { return member; },
        .map = [](void*, Rank, uintptr_t address,
                  size_t) noexcept { return reinterpret_cast<std::byte*>(address); }});
  }

  std::vector<std::unique_ptr<LineOperations>> members;

 private:
  std::unique_ptr<TeamLines[]> memory_;
  std::vector<TeamLines*> lines_;
};

// Each member starts its calls in order and finishes them in any order; a member may be far ahead of others.
void run_interleaved(LineTeam& team, uint32_t series, uint32_t calls, std::mt19937& random) {
  const auto size = static_cast<Rank>(team.members.size());
  std::vector<std::deque<MembersCall>> under_way(size);
  std::vector<uint32_t> started(size);
  const auto finish = [&](Rank rank) {
    for (MembersCall& each : under_way[rank]) (void)each.finish(*team.members[rank]);
    while (!under_way[rank].empty() && under_way[rank].front().pending == nullptr) {
      under_way[rank].front().check(rank, size);
      under_way[rank].pop_front();
    }
  };
  for (uint64_t idle = 0; idle < 100'000; ++idle) {
    const auto rank = static_cast<Rank>(random() % size);
    if (started[rank] < calls && random() % 3 != 0) {
      MembersCall& made =
          under_way[rank].emplace_back(CallPlan(series, started[rank]++, size), rank, size);
      ASSERT_TRUE(team.members[rank]->start(made.call(), &made.pending));
      idle = 0;
    } else if (team.members[rank]->advance() != 0) {
      idle = 0;
    }
    finish(rank);
    bool all = true;
    for (Rank each = 0; each < size; ++each)
      all = all && started[each] == calls && under_way[each].empty();
    if (all) return;
  }
  FAIL() << "the members wait for each other";
}

TEST(LineOperations, RandomInterleavingsAgreeWithAModel) {
  std::mt19937 random(5);
  for (const Rank size : {1u, 2u, 3u, 4u, 5u, 7u, 8u}) {
    LineTeam team(size);
    run_interleaved(team, size, 2000, random);
    for (const auto& member : team.members) EXPECT_TRUE(member->all_done() && member->is_idle());
  }
}

TEST(LineOperations, AnotherTeamTakesTheMemoryOver) {
  std::mt19937 random(6);
  LineTeam team(3);
  for (uint32_t series = 0; series < 20; ++series) {
    run_interleaved(team, series, 37, random);
    uint64_t last = 0;
    for (const auto& member : team.members) last = std::max(last, member->last_number());
    team.begin(last + series);
  }
}

TEST(LineOperations, ARootIsNotFurtherAheadThanItsLines) {
  LineTeam team(2);
  uint64_t value = 0;
  uint64_t seen = 0;
  const auto broadcast = [&](uint64_t* memory) {
    return LineOperations::Call{.kind = Kind::kBroadcast,
                                .source = reinterpret_cast<const std::byte*>(memory),
                                .dest = reinterpret_cast<std::byte*>(memory),
                                .bytes = 8};
  };
  LineOperations::Pending* pending = nullptr;
  for (uint32_t i = 0; i < TeamLines::kLines; ++i) {
    value = i;
    ASSERT_TRUE(team.members[0]->start(broadcast(&value), &pending));
    ASSERT_EQ(pending, nullptr);
  }
  value = 1000;
  ASSERT_TRUE(team.members[0]->start(broadcast(&value), &pending));
  ASSERT_NE(pending, nullptr);
  EXPECT_EQ(team.members[0]->advance(), 0u);
  LineOperations::Pending* none = nullptr;
  ASSERT_TRUE(team.members[1]->start(broadcast(&seen), &none));
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(seen, 0u);
  EXPECT_EQ(team.members[0]->advance(), 1u);
  EXPECT_TRUE(pending->is_done());
  team.members[0]->release(pending);
}

// A member with more operations than lines waits for the others, also if its rank is the lowest.
TEST(LineOperations, AQueuedOperationAwaitsAnotherMember) {
  LineTeam team(2);
  uint64_t source = 1;
  uint64_t dest[TeamLines::kLines + 2] = {};
  std::vector<LineOperations::Pending*> under_way;
  for (uint64_t& each : dest) {
    LineOperations::Pending* pending = nullptr;
    ASSERT_TRUE(team.members[0]->start({.kind = Kind::kReduceToAll,
                                        .source = reinterpret_cast<const std::byte*>(&source),
                                        .dest = reinterpret_cast<std::byte*>(&each),
                                        .bytes = 8,
                                        .reduction = {.user_function = compose_all, .unit = 8}},
                                       &pending));
    ASSERT_NE(pending, nullptr);
    under_way.push_back(pending);
  }
  for (const LineOperations::Pending* pending : under_way) {
    EXPECT_EQ(team.members[0]->missing_member(*pending), 1u);
    EXPECT_FALSE(team.members[0]->is_ready(*pending));
  }
}

// A member that completes an operation wakes those that may wait for its line.
TEST(LineOperations, ACompletionWakesMembersThatWaitForALine) {
  TeamLines memory[2];
  std::memset(static_cast<void*>(memory), 0, sizeof memory);
  TeamLines* const lines[2] = {&memory[0], &memory[1]};
  std::vector<Rank> woken;
  const auto make = [&](Rank rank) {
    return std::make_unique<LineOperations>(LineOperations::Config{
        .rank = rank,
        .members = FixedArray<TeamLines*>(std::span<TeamLines* const>(lines)),
        .wake =
            [](void* context, Rank member) noexcept {
              static_cast<std::vector<Rank>*>(context)->push_back(member);
            },
        .jobrank = [](void*, Rank member) noexcept { return member; },
        .context = &woken});
  };
  const std::unique_ptr<LineOperations> root = make(0);
  const std::unique_ptr<LineOperations> reader = make(1);
  uint64_t value = 7;
  const LineOperations::Call call = {.kind = Kind::kBroadcast,
                                     .source = reinterpret_cast<const std::byte*>(&value),
                                     .dest = reinterpret_cast<std::byte*>(&value),
                                     .bytes = 8};
  LineOperations::Pending* pending = nullptr;
  for (uint32_t i = 0; i <= TeamLines::kLines; ++i) ASSERT_TRUE(root->start(call, &pending));
  ASSERT_NE(pending, nullptr);
  woken.clear();
  LineOperations::Pending* none = nullptr;
  ASSERT_TRUE(reader->start(call, &none));
  ASSERT_EQ(none, nullptr);
  EXPECT_EQ(woken, std::vector<Rank>{0});
  EXPECT_TRUE(root->is_ready(*pending));
}

// So that a rank that waits for something else does not sleep with work left.
TEST(LineOperations, AVectorWithWorkLeftCountsAsProgress) {
  LineTeam team(2);
  constexpr size_t kBytes = size_t{2} << 20;
  std::vector<std::byte> memory[2] = {std::vector<std::byte>(2 * kBytes),
                                      std::vector<std::byte>(2 * kBytes)};
  LineOperations::Pending* pending[2] = {};
  for (Rank rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(team.members[rank]->start({.kind = Kind::kReduceToAll,
                                           .source = memory[rank].data(),
                                           .dest = memory[rank].data() + kBytes,
                                           .bytes = kBytes,
                                           .reduction = {.user_function = compose_all, .unit = 8},
                                           .is_shared = true},
                                          &pending[rank]));
    ASSERT_NE(pending[rank], nullptr);
  }
  EXPECT_EQ(team.members[0]->advance(), 1u);
  EXPECT_FALSE(pending[0]->is_done());
  EXPECT_TRUE(team.members[0]->is_ready(*pending[0]));
}

TEST(LineOperations, ThreadsAgreeWithAModel) {
  constexpr Rank kSize = 3;
  constexpr uint32_t kCalls = 2'000;
  LineTeam team(kSize);
  const auto work = [&](Rank rank) {
    LineOperations& mine = *team.members[rank];
    for (uint32_t i = 0; i < kCalls; ++i) {
      MembersCall call(CallPlan(77, i, kSize), rank, kSize);
      if (!mine.start(call.call(), &call.pending)) return;
      while (!call.finish(mine)) {
        if (mine.advance() == 0) std::this_thread::yield();
      }
      call.check(rank, kSize);
    }
  };
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kSize; ++rank) threads.emplace_back(work, rank);
  for (std::thread& thread : threads) thread.join();
}

using LineOperationsDeathTest = ::testing::Test;

TEST(LineOperationsDeathTest, MembersThatDisagreeAreNamed) {
  LineTeam team(2);
  std::byte memory[8] = {};
  const auto call = [&](uint32_t signature) {
    return LineOperations::Call{
        .kind = Kind::kBarrier, .source = memory, .dest = memory, .signature = signature};
  };
  LineOperations::Pending* pending = nullptr;
  ASSERT_TRUE(team.members[0]->start(call(signature_of(CollectiveKind::kBarrier)), &pending));
  EXPECT_DEATH(
      (void)team.members[1]->start(call(signature_of(CollectiveKind::kReduceToAll)), &pending),
      "rank 0 of the job calls gex_Coll_BarrierNB in its place");
}

}  // namespace
}  // namespace hydrant::testing
