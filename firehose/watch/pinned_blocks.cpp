// Marks the blocks of memory that is being pinned. Caches call it through monitor_api.cpp before they
// register memory; hooks read the marks.
#include "firehose/watch/pinned_blocks.hpp"

#include <hydrant/monitor.h>

#include <cstddef>

namespace hydrant {
namespace {

constexpr size_t kBlockWords = (uint64_t{1} << 47 >> HYDRANT_MONITOR_BLOCK_SHIFT) / 64;

}  // namespace

bool PinnedBlocks::map() noexcept {
  if (!words_.map(kBlockWords)) return false;
  is_mapped_.store(true, std::memory_order_release);
  return true;
}

void PinnedBlocks::note(MemoryRange range) noexcept {
  // No memory has been watched so far, so the range lies in an arena, which needs no mark.
  if (!is_mapped()) return;
  const size_t most = words_.size() * 64 - 1;
  size_t block = range.addr >> HYDRANT_MONITOR_BLOCK_SHIFT;
  const size_t last = range.last() >> HYDRANT_MONITOR_BLOCK_SHIFT;
  for (; block <= last && block <= most; ++block) {
    const uint64_t bit = uint64_t{1} << block % 64;
    std::atomic<uint64_t>& word = words_[block / 64];
    if ((word.load(std::memory_order_relaxed) & bit) == 0)
      word.fetch_or(bit, std::memory_order_seq_cst);
  }
}

}  // namespace hydrant
