// The barrier of ranks that share memory: dissemination by reading. Every rank has two lines, one for odd
// barriers and one for even; in round k it stores one word {epoch, state, id} at place k of its line, and
// then reads that place of the radix-1 ranks that stand radix^k, 2 radix^k, ... before it. With radix >=
// size that is one round: all read all, nobody leads, and nobody has to be awake for the others' sake.
//
// Why two lines are enough: a rank that starts barrier e+2 has finished e+1, so all have started e+1, so
// all have finished e, whose line it now overwrites. And why not one: a rank may start e+1 while others still
// read e.
//
// A rank's next line is fetched for writing while it waits: nobody reads that line any more. The store then
// costs no transfer, and a barrier about one transfer of a line, half of what a round trip costs.
// docs/barriers.md has the figures.
//
// Cost: no locked instruction and no fence with one round; with more, one exchange per look.
#pragma once

#include "extended/barrier_engine.hpp"
#include "rdma/transport.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <sched.h>
#include <vector>

namespace hydrant {

// Where a rank's words are: eight in a line, one line per parity of the epoch. The last one says on which
// processor the rank was when it came: whoever waits for one that was on its own gives the processor away
// at once, and nobody else has to.
struct BarrierLines {
  static constexpr uint32_t kRounds = 7;
  static constexpr uint32_t kProcessor = 7;
  std::atomic<uint64_t>* of_parity[2] = {};
};

// Of the calling thread, for the last word: never 0.
inline uint64_t processor_word() noexcept { return static_cast<uint64_t>(sched_getcpu()) + 1; }

// The lines of `rank` for GASNet-1's barrier (which = 0) or the teams' (1); null pointers if this process
// shares no memory with it. Lines of one barrier lie in different pairs of lines, because processors
// fetch pairs: a reader of the old line would take the new one away from its writer.
BarrierLines barrier_lines(const Transport& transport, Rank rank, uint32_t which) noexcept;

// The line is wanted for the next store. Not __builtin_prefetch(): for a plain x86-64 that asks for a copy
// to read.
inline void fetch_for_writing(const void* line) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

// A good radix for that many ranks; `crowded`: there are more of them than processors, and what counts
// is how often they have to take turns.
uint32_t choose_barrier_radix(uint32_t ranks, bool crowded) noexcept;
// `radix`, or what is nearest to it: from 2 to `ranks`, and few enough rounds for a line.
uint32_t limit_barrier_radix(uint32_t ranks, uint32_t radix) noexcept;

class ShmBarrier final : public BarrierEngine {
 public:
  struct Place {
    Rank rank = 0;
    Rank size = 1;
    uint32_t radix = 2;               // >= size: one round
    std::vector<BarrierLines> lines;  // by rank; may be empty if size is 1
    Transport* transport = nullptr;   // whose sleepers are to be woken; null: nobody sleeps
  };
  // Requires: at most BarrierLines::kRounds rounds, zeroed lines.
  explicit ShmBarrier(Place place);

  const char* name() const noexcept override { return "SHM"; }
  void start(BarrierName mine, bool no_names) noexcept override;
  bool finish(BarrierName* all) noexcept override;
  uint32_t drive() noexcept override;
  bool needs_driving() const noexcept override { return rounds_.size() > 1; }
  bool ready() const noexcept override;
  WaitsFor waits_for() const noexcept override;
  void find_missing(std::vector<Rank>* missing) const override;
  uint32_t rounds() const noexcept { return static_cast<uint32_t>(rounds_.size()); }

  // A word: bits 0-1 state, 2-31 epoch, 32-63 id. Epochs may wrap: a line only ever holds e or e-2.
  static constexpr uint64_t make_word(uint32_t epoch, BarrierName name) noexcept {
    return uint64_t{name.id} << 32 | (uint64_t{epoch} << 2 & kEpochMask) | state_bits(name);
  }

 private:
  static constexpr uint64_t kEpochMask = 0xffff'fffc;
  using Word = std::atomic<uint64_t>;

  struct Source {
    Rank rank;
    const Word* of_parity[2];
  };
  struct Round {
    std::vector<Source> sources;
    std::vector<Rank> readers;
  };

  bool is_now(uint64_t word) const noexcept { return ((word ^ now_) & kEpochMask) == 0; }
  bool look() noexcept;
  bool look_at(Round& round) noexcept;
  void publish(uint32_t round) noexcept;
  void wake_all() noexcept;

  const Place place_;
  std::vector<Round> rounds_;
  // With more than one round: held by whoever looks. Waited for in start() alone, and never for long.
  std::atomic<bool> busy_{false};

  // Relaxed: what other threads see of them is a guess (ready(), find_missing()).
  std::atomic<uint32_t> epoch_{0};
  std::atomic<uint32_t> round_{0};  // rounds_.size(): finished
  uint64_t now_ = 0;                // the word published last
  BarrierName joined_;
  uint32_t next_ = 0;  // source of the round that is looked at
  bool no_names_ = false;
};

}  // namespace hydrant
