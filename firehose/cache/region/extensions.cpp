// Records which regions a stream has made longer, and judges at their end whether the extension was used. A
// miss enters them; the stream detector learns the result.
#include "firehose/cache/region/extensions.hpp"

#include <algorithm>

namespace hydrant {
namespace {

// A slow call sees the use of a region this exactly: a thread's table has blocks of this size.
constexpr uint64_t kSeenBytes = 65536;

}  // namespace

void Extensions::enter(const CacheLock& lock, RegionIndex region, size_t extra_bytes,
                       bool down) noexcept {
  RegionInfo& info = store_.infos(lock)[region];
  info.extended = true;
  const auto granules = static_cast<uint32_t>(extra_bytes / granule_bytes_);
  store_.slot(region).unused_extension.store(granules | (down ? kUnusedBelow : 0),
                                             std::memory_order_relaxed);
  totals_.of(lock).extended_bytes += extra_bytes;
  streams_.note_granted(info.range, down);
}

void Extensions::judge(const CacheLock& lock, RegionIndex region) noexcept {
  const uint32_t unused_extension =
      store_.slot(region).unused_extension.load(std::memory_order_relaxed);
  const uint64_t bytes = uint64_t{unused_extension & ~kUnusedBelow} * granule_bytes_;
  totals_.of(lock).wasted_bytes += bytes;
  streams_.note_outcome(bytes >=
                        std::max<uint64_t>(kSeenBytes, store_.infos(lock)[region].range.len / 4));
}

void Extensions::shorten(RegionSlot& slot, MemoryRange pages, uint32_t before) const noexcept {
  const uint32_t below = before & kUnusedBelow;
  const uintptr_t first = slot.addr.load(std::memory_order_relaxed);
  const size_t rest = below != 0 ? pages.addr - first
                                 : first + slot.len.load(std::memory_order_relaxed) - pages.end();
  const auto now = static_cast<uint32_t>(rest / granule_bytes_);
  if (now >= (before & ~kUnusedBelow)) return;
  slot.unused_extension.store(now == 0 ? 0 : now | below, std::memory_order_relaxed);
}

}  // namespace hydrant
