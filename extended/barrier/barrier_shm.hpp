// The barrier of ranks that share memory: dissemination by reading. Every rank has two cache lines, for
// odd and even barriers. In round k it stores one word {epoch, state, id} at index k of its line. Then
// it reads that index of the radix-1 ranks at distance radix^k, 2 radix^k, ... before it. With radix >=
// size there is one round: all ranks read all, without a leader and without depending on polls of other
// ranks.
//
// Two lines are enough: a rank that starts barrier e+2 has finished e+1, so all ranks have started e+1,
// so all have finished e, whose line it now overwrites. One line is not enough: a rank may start e+1
// while others still read e.
//
// While a rank waits it prefetches its next line for writing, because no rank reads that line any more.
// The store then needs no cache-line transfer. A barrier costs about one transfer, half of a round
// trip. docs/barriers.md has measurements.
//
// Cost: no locked instruction and no fence with one round; with more rounds, one exchange per check.
#pragma once

#include "extended/barrier/barrier_engine.hpp"
#include "rdma/transport/memory_access.hpp"
#include "rdma/transport/sleeping.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <sched.h>
#include <vector>

namespace hydrant {

// A rank's words: eight per line, one line per parity of the epoch. The last word is the processor on
// which the rank arrived. A rank that waits for a rank on the same processor yields at once; others
// need not.
struct BarrierLines {
  static constexpr uint32_t kRounds = 7;
  static constexpr uint32_t kProcessor = 7;
  std::atomic<uint64_t>* of_parity[2] = {};
};

// The calling thread's processor, encoded for the last word; never 0.
inline uint64_t processor_word() noexcept { return static_cast<uint64_t>(sched_getcpu()) + 1; }

// The lines of `rank` for GASNet-1's barrier (which = 0) or the teams' (1); null pointers if this
// process shares no memory with it. The two lines of one barrier lie in different 128-byte pairs,
// because processors fetch pairs: a reader of the old line would take the new one from its writer.
BarrierLines barrier_lines(const MemoryAccess& memory, Rank rank, uint32_t which) noexcept;

// Prefetches the line for the next store. Not __builtin_prefetch(), which on plain x86-64 prefetches
// for reading.
inline void fetch_for_writing(const void* line) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

// A good radix for `ranks` ranks. `crowded`: more ranks than processors, so the number of process
// switches dominates.
uint32_t choose_barrier_radix(uint32_t ranks, bool crowded) noexcept;
// The valid radix nearest to `radix`: from 2 to `ranks`, with few enough rounds for a line.
uint32_t limit_barrier_radix(uint32_t ranks, uint32_t radix) noexcept;

class ShmBarrier final : public BarrierEngine {
 public:
  struct Config {
    Rank rank = 0;
    Rank size = 1;
    uint32_t radix = 2;               // >= size: one round
    std::vector<BarrierLines> lines;  // by rank; empty is allowed if size is 1
    Sleeping* sleeping = nullptr;     // wakes sleeping ranks; null: no rank sleeps
  };
  // Requires at most BarrierLines::kRounds rounds, and zeroed lines.
  explicit ShmBarrier(Config config);

  const char* name() const noexcept override { return "SHM"; }
  void start(BarrierName mine, bool no_names) noexcept override;
  bool finish(BarrierName* all) noexcept override;
  uint32_t make_progress() noexcept override;
  bool needs_progress() const noexcept override { return rounds_.size() > 1; }
  bool ready() const noexcept override;
  WaitTarget wait_target() const noexcept override;
  void find_missing(MissingRanks* missing) const noexcept override;
  uint32_t rounds() const noexcept { return static_cast<uint32_t>(rounds_.size()); }

  // A word: bits 0-1 state, 2-31 epoch, 32-63 id. The epoch may wrap around, because a line holds only
  // e or e-2.
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

  const Config config_;
  std::vector<Round> rounds_;
  // Lock for barriers with several rounds. Only start() waits for it, and only briefly.
  std::atomic<bool> busy_{false};

  // Relaxed: other threads read them as hints (ready(), find_missing()).
  std::atomic<uint32_t> epoch_{0};
  std::atomic<uint32_t> round_{0};  // rounds_.size(): finished
  uint64_t now_ = 0;                // the word that this rank published last
  BarrierName joined_;
  uint32_t next_ = 0;  // index of the next source in the current round
  bool no_names_ = false;
};

}  // namespace hydrant
