// The loops of verbs_compare over bare queue pairs, as the baseline of the library's operations. Both ranks
// of a pair call each of them, all ranks call barriers(); rank 0 of the pair is the requester. False once a
// queue pair has failed, or if the peer sends nothing for 20 s.
#pragma once

#include "bench/support/raw_verbs.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant::bench {

class RawLoops {
 public:
  // Offsets in the registered memory of each rank.
  static constexpr size_t kSource = 0;     // source of small operations
  static constexpr size_t kFlag = 128;     // flag that the peer writes to request a reply
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
  bool fetch_adds(uint64_t rounds);
  bool visible(uint64_t rounds);     // a write, and one in reply
  bool round_trip(uint64_t rounds);  // a send, and one in reply
  bool window(bool is_put, uint32_t block, uint32_t under_way, uint64_t count);
  bool put_rate(uint64_t count);
  // Posts lists of `together` puts; each list is complete when acknowledged.
  bool put_lists(uint32_t together, uint64_t count);
  bool flood(uint64_t count);  // sends; the receiver acknowledges them
  bool barriers(uint64_t count);

 private:
  volatile uint64_t& word(size_t offset) const;
  bool small_write(uint32_t to, size_t there, uint64_t nth);

  RawVerbs& verbs_;
  const uint32_t rank_, ranks_, peer_;
  const bool first_;
  uint64_t generation_ = 0;  // of barriers
  uint64_t turns_ = 0;       // of visible()
  // Total messages expected from the peer: one may arrive before it is awaited.
  uint64_t expected_ = 0;
};

}  // namespace hydrant::bench
