// The loops of verbs_compare over bare queue pairs: what the library's operations are measured beside. Both
// ranks of a pair call each of them, all ranks barriers(); `first` is the one that asks. False once a queue
// pair has failed, or nothing has come from the other end for 20 s.
#pragma once

#include "bench/support/raw_verbs.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant::bench {

class RawLoops {
 public:
  // Of the registered memory, on each rank.
  static constexpr size_t kSource = 0;     // what small operations carry
  static constexpr size_t kFlag = 128;     // what the peer writes to be answered
  static constexpr size_t kMailbox = 256;  // a line per round of a barrier
  static constexpr size_t kRounds = 16;
  static constexpr size_t kBlocks = 4096;
  static constexpr size_t bytes_for(size_t block, uint32_t window) {
    return kBlocks + block * window;
  }

  // `verbs` has a queue pair for each rank, connected.
  RawLoops(RawVerbs& verbs, uint32_t rank, uint32_t ranks)
      : verbs_(verbs), rank_(rank), ranks_(ranks), peer_(rank ^ 1), first_(rank == 0) {}

  bool blocking(bool is_put, uint64_t rounds);
  bool visible(uint64_t rounds);     // a write, answered by a write
  bool round_trip(uint64_t rounds);  // a send, answered by a send
  bool window(bool is_put, uint32_t block, uint32_t under_way, uint64_t count);
  bool put_rate(uint64_t count);
  // `together` at a time, complete when acknowledged.
  bool put_lists(uint32_t together, uint64_t count);
  bool flood(uint64_t count);  // sends; the other end says how many it has taken in
  bool barriers(uint64_t count);

 private:
  volatile uint64_t& word(size_t offset) const;
  bool small_write(uint32_t to, size_t there, uint64_t nth);

  RawVerbs& verbs_;
  const uint32_t rank_, ranks_, peer_;
  const bool first_;
  uint64_t generation_ = 0;  // of barriers
  uint64_t turns_ = 0;       // of visible()
  // Messages of the peer, ever: one may be there before it is asked for.
  uint64_t expected_ = 0;
};

}  // namespace hydrant::bench
