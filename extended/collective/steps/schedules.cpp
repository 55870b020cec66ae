// Builds the schedules of all collective operations. collective_calls.cpp chooses among them; operation.cpp
// executes them.
#include "extended/collective/steps/schedules.hpp"

#include "extended/collective/steps/hypercube.hpp"

#include <algorithm>

namespace hydrant {
namespace {

constexpr Place kSource{Area::kSource, 0};
constexpr Place kDest{Area::kDest, 0};

// Tags of transfers outside of the rounds.
constexpr uint32_t kFold = 100;
constexpr uint32_t kUnfold = 101;
constexpr uint32_t kUp = 102;
constexpr uint32_t kDown = 103;
constexpr uint32_t kGather = 200;  // tags of the second phase begin here

// The member's vector while it is combined. It is the source until the first combination, and `own` after
// it.
class Accumulator {
 public:
  Accumulator(Schedule& schedule, Place own, size_t bytes) noexcept
      : schedule_(schedule), own_(own), bytes_(bytes) {}

  Place place() const noexcept { return in_own_ ? own_ : kSource; }
  // Combines with a received vector of members before (`lower`) or behind those that are combined here.
  void combine(Place received, bool lower) noexcept {
    if (lower) {
      move_to_own();
      schedule_.combine(received, own_, own_, bytes_);
    } else {
      schedule_.combine(place(), received, own_, bytes_);
    }
    in_own_ = true;
  }
  void move_to_own() noexcept {
    if (!in_own_) schedule_.copy(kSource, own_, bytes_);
    in_own_ = true;
  }

 private:
  Schedule& schedule_;
  const Place own_;
  const size_t bytes_;
  bool in_own_ = false;
};

// The representatives take in the vectors of the members that they represent. False: this member is
// represented, and only waits for a result.
bool fold(Schedule& schedule, Member me, const Hypercube& cube, Accumulator& vector, Place received,
          size_t bytes) noexcept {
  if (cube.is_represented(me.rank)) {
    schedule.send(me.rank + 1, kFold, kSource, bytes);
    return false;
  }
  if (cube.represents(me.rank)) {
    schedule.receive(me.rank - 1, kFold, received, bytes);
    vector.combine(received, true);
  }
  return true;
}

// A result that all vertices have in dest, to the members that they represent.
void unfold_to_all(Schedule& schedule, Member me, const Hypercube& cube, size_t bytes) noexcept {
  if (cube.represents(me.rank)) schedule.send(me.rank - 1, kUnfold, kDest, bytes);
  if (cube.is_represented(me.rank)) schedule.receive(me.rank + 1, kUnfold, kDest, bytes);
}

// A represented root passes the data to its representative, and is not sent them back. False: this member is
// represented, and its part is over.
bool begin_broadcast(Schedule& schedule, Member me, Rank root, const Hypercube& cube,
                     size_t bytes) noexcept {
  const bool is_root = me.rank == root;
  if (is_root) schedule.copy(kSource, kDest, bytes);
  if (cube.is_represented(root)) {
    if (is_root) schedule.send(root + 1, kFold, kSource, bytes);
    if (me.rank == root + 1) schedule.receive(root, kFold, kDest, bytes);
  }
  if (!cube.is_represented(me.rank)) return true;
  if (!is_root) schedule.receive(me.rank + 1, kUnfold, kDest, bytes);
  return false;
}

// The edges of a vertex in the order of the rounds.
struct Round {
  uint32_t number = 0;
  uint32_t bit = 1;
};

template <typename Do>
void each_round(const Hypercube& cube, Do&& act) noexcept {
  for (Round round; round.bit < cube.vertices(); ++round.number, round.bit *= 2) act(round);
}

// A range of elements, halved in each round: the vertex with the round's bit keeps the upper half.
struct Range {
  size_t first = 0;
  size_t count = 0;

  constexpr Range half(bool upper) const noexcept {
    const size_t lower = count / 2;
    return upper ? Range{first + lower, count - lower} : Range{first, lower};
  }
};

// The parts of a vector that a vertex keeps and gives away in the rounds. Those that it has kept behind all
// rounds differ among the vertices.
class Halves {
 public:
  Halves(const Hypercube& cube, uint32_t vertex, size_t count) noexcept {
    kept_[0] = {0, count};
    each_round(cube, [&](Round round) {
      const bool is_upper = (vertex & round.bit) != 0;
      kept_[round.number + 1] = kept_[round.number].half(is_upper);
      given_[round.number] = kept_[round.number].half(!is_upper);
      rounds_ = round.number + 1;
    });
  }
  uint32_t rounds() const noexcept { return rounds_; }
  const Range& kept(uint32_t round) const noexcept { return kept_[round + 1]; }
  const Range& given(uint32_t round) const noexcept { return given_[round]; }

 private:
  static constexpr uint32_t kMaxRounds = 32;
  uint32_t rounds_ = 0;
  Range kept_[kMaxRounds + 1] = {};
  Range given_[kMaxRounds] = {};
};

}  // namespace

void add_barrier(Schedule& schedule, Member me, uint32_t first_tag) noexcept {
  uint32_t tag = first_tag;
  for (uint64_t reach = 1; reach < me.size; reach *= 2, ++tag) {
    schedule.send(static_cast<Rank>((me.rank + reach) % me.size), tag, kSource, 0);
    schedule.receive(static_cast<Rank>((me.rank + me.size - reach) % me.size), tag, kDest, 0);
  }
}

Schedule broadcast_tree(Member me, Rank root, size_t bytes) noexcept {
  Schedule schedule;
  const Hypercube cube(me.size);
  if (!begin_broadcast(schedule, me, root, cube, bytes)) return schedule;
  const Place mine = me.rank == root ? kSource : kDest;
  const uint32_t vertex = cube.vertex_of(me.rank);
  const uint32_t relative = vertex ^ cube.vertex_of(root);
  uint32_t bit = cube.vertices();
  if (relative != 0) {
    bit = relative & (0 - relative);
    schedule.receive(cube.member_at(vertex ^ bit), 0, kDest, bytes);
  }
  for (bit /= 2; bit != 0; bit /= 2) schedule.send(cube.member_at(vertex ^ bit), 0, mine, bytes);
  if (cube.represents(me.rank) && root != me.rank - 1)
    schedule.send(me.rank - 1, kUnfold, mine, bytes);
  return schedule;
}

Schedule broadcast_flat(Member me, Rank root, size_t bytes) noexcept {
  Schedule schedule;
  if (me.rank != root) {
    schedule.receive(root, 0, kDest, bytes);
    return schedule;
  }
  for (Rank i = 1; i < me.size; ++i) schedule.send((root + i) % me.size, 0, kSource, bytes);
  schedule.copy(kSource, kDest, bytes);
  return schedule;
}

// The rounds of the second half go from the highest edge to the lowest, so that along edges between nodes
// members exchange small parts that differ, and the large ones along the edges within a node.
Schedule broadcast_parts(Member me, Rank root, size_t bytes) noexcept {
  Schedule schedule;
  const Hypercube cube(me.size);
  if (!begin_broadcast(schedule, me, root, cube, bytes)) return schedule;
  const Place mine = me.rank == root ? kSource : kDest;
  const uint32_t vertex = cube.vertex_of(me.rank);
  const uint32_t relative = vertex ^ cube.vertex_of(root);
  const Halves halves(cube, vertex, bytes);
  each_round(cube, [&](Round round) {
    const Rank peer = cube.member_at(vertex ^ round.bit);
    const Range& kept = halves.kept(round.number);
    const Range& given = halves.given(round.number);
    if (relative < round.bit)
      schedule.send(peer, round.number, mine.plus(given.first), given.count);
    else if (relative < 2 * round.bit)
      schedule.receive(peer, round.number, kDest.plus(kept.first), kept.count);
  });
  for (uint32_t round = halves.rounds(); round-- != 0;) {
    const uint32_t bit = 1u << round;
    const Rank peer = cube.member_at(vertex ^ bit);
    const Range& kept = halves.kept(round);
    const Range& given = halves.given(round);
    // A member may have had the other's part from the start.
    if ((relative ^ bit) >= bit)
      schedule.send(peer, kGather + round, mine.plus(kept.first), kept.count);
    if (relative >= bit)
      schedule.receive(peer, kGather + round, kDest.plus(given.first), given.count);
  }
  if (cube.represents(me.rank) && root != me.rank - 1)
    schedule.send(me.rank - 1, kUnfold, mine, bytes);
  return schedule;
}

Schedule reduce_tree(Member me, Rank root, size_t unit, size_t count) noexcept {
  Schedule schedule;
  const Hypercube cube(me.size);
  const size_t bytes = unit * count;
  const bool is_root = me.rank == root;
  const Place received = me.size > 1 ? schedule.take_scratch(bytes) : kDest;
  const Place own = is_root ? kDest : schedule.take_scratch(bytes);
  Accumulator vector(schedule, own, bytes);
  if (!fold(schedule, me, cube, vector, received, bytes)) {
    if (is_root) schedule.receive(root + 1, kUnfold, kDest, bytes);
    return schedule;
  }
  const uint32_t vertex = cube.vertex_of(me.rank);
  const uint32_t relative = vertex ^ cube.vertex_of(root);
  for (Round round; round.bit < cube.vertices(); ++round.number, round.bit *= 2) {
    const Rank peer = cube.member_at(vertex ^ round.bit);
    if ((relative & round.bit) != 0) {
      schedule.send(peer, round.number, vector.place(), bytes);
      return schedule;
    }
    schedule.receive(peer, round.number, received, bytes);
    vector.combine(received, (vertex & round.bit) != 0);
  }
  if (is_root)
    vector.move_to_own();
  else
    schedule.send(me.rank - 1, kUnfold, vector.place(), bytes);
  return schedule;
}

Schedule reduce_all_two_levels(Member me, size_t unit, size_t count) noexcept {
  Schedule schedule;
  const Hypercube cube(me.size);
  const size_t bytes = unit * count;
  const Place received = me.size > 1 ? schedule.take_scratch(bytes) : kDest;
  Accumulator vector(schedule, kDest, bytes);
  if (fold(schedule, me, cube, vector, received, bytes)) {
    const uint32_t vertex = cube.vertex_of(me.rank);
    const uint32_t group = std::min(cube.vertices(), 1u << me.node_bits);
    // The vertex with the lowest number in the group does the exchanges between groups.
    uint32_t joined = 1;  // vertices whose vectors this one combines
    for (; joined < group && (vertex & joined) == 0; joined *= 2) {
      schedule.receive(cube.member_at(vertex ^ joined), kUp, received, bytes);
      vector.combine(received, false);
    }
    if (joined < group) {
      const Rank above = cube.member_at(vertex ^ joined);
      schedule.send(above, kUp, vector.place(), bytes);
      schedule.receive(above, kDown, kDest, bytes);
    } else {
      each_round(cube, [&](Round round) {
        if (round.bit < group) return;
        const Rank peer = cube.member_at(vertex ^ round.bit);
        schedule.send(peer, round.number, vector.place(), bytes);
        schedule.receive(peer, round.number, received, bytes);
        vector.combine(received, (vertex & round.bit) != 0);
      });
      vector.move_to_own();
    }
    while ((joined /= 2) != 0) schedule.send(cube.member_at(vertex ^ joined), kDown, kDest, bytes);
  }
  unfold_to_all(schedule, me, cube, bytes);
  return schedule;
}

Schedule reduce_all_doubling(Member me, size_t unit, size_t count) noexcept {
  me.node_bits = 0;
  return reduce_all_two_levels(me, unit, count);
}

Schedule reduce_all_halving(Member me, size_t unit, size_t count) noexcept {
  Schedule schedule;
  const Hypercube cube(me.size);
  const size_t bytes = unit * count;
  const Place received = schedule.take_scratch(bytes);
  Accumulator vector(schedule, kDest, bytes);
  if (fold(schedule, me, cube, vector, received, bytes)) {
    if (cube.vertices() == 1) vector.move_to_own();
    // In the first round nothing is in dest yet; behind it the kept part is.
    Place whole = vector.place();
    const uint32_t vertex = cube.vertex_of(me.rank);
    const Halves halves(cube, vertex, count);
    each_round(cube, [&](Round round) {
      const bool is_upper = (vertex & round.bit) != 0;
      const Range& mine = halves.kept(round.number);
      const Range& theirs = halves.given(round.number);
      const Rank peer = cube.member_at(vertex ^ round.bit);
      const Place part = whole.plus(mine.first * unit);
      const Place kept_part = kDest.plus(mine.first * unit);
      schedule.send(peer, round.number, whole.plus(theirs.first * unit), theirs.count * unit);
      schedule.receive(peer, round.number, received, mine.count * unit);
      // The upper vertex combines the members behind those of the lower one. The right operand may be
      // overwritten, so that it is not the source.
      if (!is_upper) {
        schedule.combine(part, received, kept_part, mine.count * unit);
      } else {
        schedule.copy(part, kept_part, mine.count * unit);
        schedule.combine(received, kept_part, kept_part, mine.count * unit);
      }
      whole = kDest;
    });
    for (uint32_t round = halves.rounds(); round-- != 0;) {
      const Rank peer = cube.member_at(vertex ^ (1u << round));
      const Range& mine = halves.kept(round);
      const Range& theirs = halves.given(round);
      schedule.send(peer, kGather + round, kDest.plus(mine.first * unit), mine.count * unit);
      schedule.receive(peer, kGather + round, kDest.plus(theirs.first * unit), theirs.count * unit);
    }
  }
  unfold_to_all(schedule, me, cube, bytes);
  return schedule;
}

Schedule gather_all_rounds(Member me, size_t bytes) noexcept {
  Schedule schedule;
  // In scratch memory the blocks begin with this member's.
  const Place blocks = schedule.take_scratch(bytes * me.size);
  schedule.copy(kSource, blocks, bytes);
  uint32_t round = 0;
  for (uint64_t known = 1; known < me.size; known *= 2, ++round) {
    const size_t part = static_cast<size_t>(std::min<uint64_t>(known, me.size - known)) * bytes;
    const auto distance = static_cast<Rank>(known);
    schedule.send((me.rank + me.size - distance) % me.size, round, blocks, part);
    schedule.receive(static_cast<Rank>((uint64_t{me.rank} + distance) % me.size), round,
                     blocks.plus(known * bytes), part);
  }
  const size_t behind = (me.size - me.rank) * bytes;  // this member's block and those behind it
  schedule.copy(blocks, kDest.plus(me.rank * bytes), behind);
  schedule.copy(blocks.plus(behind), kDest, me.rank * bytes);
  return schedule;
}

Schedule gather_all_flat(Member me, size_t bytes) noexcept {
  Schedule schedule;
  for (Rank i = 1; i < me.size; ++i) schedule.send((me.rank + i) % me.size, 0, kSource, bytes);
  for (Rank i = 1; i < me.size; ++i) {
    const Rank peer = (me.rank + me.size - i) % me.size;
    schedule.receive(peer, 0, kDest.plus(peer * bytes), bytes);
  }
  schedule.copy(kSource, kDest.plus(me.rank * bytes), bytes);
  return schedule;
}

Schedule gather_flat(Member me, Rank root, size_t bytes) noexcept {
  Schedule schedule;
  if (me.rank != root) {
    schedule.send(root, 0, kSource, bytes);
    return schedule;
  }
  schedule.copy(kSource, kDest.plus(root * bytes), bytes);
  for (Rank i = 1; i < me.size; ++i) {
    const Rank peer = (root + i) % me.size;
    schedule.receive(peer, 0, kDest.plus(peer * bytes), bytes);
  }
  return schedule;
}

Schedule scatter_flat(Member me, Rank root, size_t bytes) noexcept {
  Schedule schedule;
  if (me.rank != root) {
    schedule.receive(root, 0, kDest, bytes);
    return schedule;
  }
  for (Rank i = 1; i < me.size; ++i) {
    const Rank peer = (root + i) % me.size;
    schedule.send(peer, 0, kSource.plus(peer * bytes), bytes);
  }
  schedule.copy(kSource.plus(root * bytes), kDest, bytes);
  return schedule;
}

Schedule exchange_flat(Member me, size_t bytes) noexcept {
  Schedule schedule;
  for (Rank i = 1; i < me.size; ++i) {
    const Rank peer = (me.rank + i) % me.size;
    schedule.send(peer, 0, kSource.plus(peer * bytes), bytes);
  }
  schedule.copy(kSource.plus(me.rank * bytes), kDest.plus(me.rank * bytes), bytes);
  for (Rank i = 1; i < me.size; ++i) {
    const Rank peer = (me.rank + me.size - i) % me.size;
    schedule.receive(peer, 0, kDest.plus(peer * bytes), bytes);
  }
  return schedule;
}

}  // namespace hydrant
