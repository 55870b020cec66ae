// Fills the table that inlined puts and gets read without a lock: an entry's key is stored last.
#include "extended/rma/common/mapped_segments.hpp"

#include <hydrant/gasnet/rma.h>

#include "firehose/base/thread.hpp"

#include <atomic>

struct hydrant_mapped_segment hydrant_mapped_segments[HYDRANT_MAPPED_SEGMENTS];

namespace hydrant {
namespace {

constinit Mutex writer;

void store_key(hydrant_mapped_segment& entry, uint64_t key) noexcept {
  std::atomic_ref<uint64_t>(entry.key).store(key, std::memory_order_release);
}

}  // namespace

void hide_segments() noexcept {
  const MutexLock lock(writer);
  for (hydrant_mapped_segment& entry : hydrant_mapped_segments) store_key(entry, 0);
}

void show_segment(Rank owner, MemoryRange segment, intptr_t shift) noexcept {
  const MutexLock lock(writer);
  hydrant_mapped_segment& entry = hydrant_mapped_segments[owner % HYDRANT_MAPPED_SEGMENTS];
  if (entry.key != 0) return;
  entry.addr = segment.addr;
  entry.small = segment.len < HYDRANT_RMA_INLINE ? 0 : segment.len - HYDRANT_RMA_INLINE + 1;
  entry.size = segment.len;
  entry.shift = shift;
  store_key(entry, hydrant_segment_key(&hydrant_world, owner));
}

}  // namespace hydrant
