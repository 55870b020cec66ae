// Waits for a reading under way: part of waits for releases (release_waits.cpp), and a function of monitor.h.
#include "firehose/watch/reading_sequence.hpp"

#include "firehose/watch/mutant.hpp"
#include "firehose/watch/pause.hpp"

namespace hydrant {

bool ReadingSequence::settle(uint64_t timeout_ns) const noexcept {
  if (is_mutant(Mutant::kNoSettle)) return true;
  const uint64_t seen = sequence_.load(std::memory_order_acquire);
  if ((seen & 1) == 0) return true;
  Pause pause(timeout_ns);
  // Another odd number belongs to a later reading: the changes that had been read before this call are done.
  while (sequence_.load(std::memory_order_acquire) == seen) {
    if (!pause.again()) return false;
  }
  return true;
}

}  // namespace hydrant
