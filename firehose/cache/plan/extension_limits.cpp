// Keeps a plan within memory that belongs together (extension_limits.hpp). A miss calls it for what the
// planner has extended.
#include "firehose/cache/plan/extension_limits.hpp"

#include <algorithm>
#include <sys/mman.h>

namespace hydrant {
namespace {

constexpr size_t kPageBytes = 4096;  // no machine has smaller ones
constexpr size_t kPagesAtOnce = 1024;

// How many of the `bytes` from `addr` on are in memory without a gap.
size_t resident_above(uintptr_t addr, size_t bytes) noexcept {
  unsigned char pages[kPagesAtOnce];
  for (size_t done = 0; done < bytes;) {
    const size_t part = std::min(bytes - done, kPagesAtOnce * kPageBytes);
    if (mincore(reinterpret_cast<void*>(addr + done), part, pages) != 0) return done;
    const size_t count = part / kPageBytes;
    for (size_t i = 0; i < count; ++i) {
      if ((pages[i] & 1) == 0) return done + i * kPageBytes;
    }
    done += part;
  }
  return bytes;
}

// The same, of the `bytes` that end before `addr`.
size_t resident_below(uintptr_t addr, size_t bytes) noexcept {
  unsigned char pages[kPagesAtOnce];
  for (size_t done = 0; done < bytes;) {
    const size_t part = std::min(bytes - done, kPagesAtOnce * kPageBytes);
    if (mincore(reinterpret_cast<void*>(addr - done - part), part, pages) != 0) return done;
    const size_t count = part / kPageBytes;
    for (size_t i = count; i-- > 0;) {
      if ((pages[i] & 1) == 0) return done + (count - 1 - i) * kPageBytes;
    }
    done += part;
  }
  return bytes;
}

}  // namespace

void ExtensionLimits::open() noexcept {
  mappings_.close();
  if (config_.stream_bytes != 0 && !config_.is_remote) (void)mappings_.open();
}

MemoryRange ExtensionLimits::without_untouched(MemoryRange needed,
                                               MemoryRange wanted) const noexcept {
  if (wanted == needed) return wanted;
  {
    const CacheLock lock(mu_);
    if (!vouched_.covers(lock, needed)) return wanted;
  }
  const size_t whole = ~(config_.granule_bytes - 1);
  const size_t below = resident_below(needed.addr, needed.addr - wanted.addr) & whole;
  const size_t above = resident_above(needed.end(), wanted.end() - needed.end()) & whole;
  return {needed.addr - below, needed.len + below + above};
}

void ExtensionLimits::cut_to_mapping(const PinRequest& request, Plan* plan) const noexcept {
  Mapping mapping{};
  const uintptr_t edge = plan->down ? request.pages.addr : request.pages.last();
  if (mappings_.find_quickly(edge, &mapping)) {
    if (plan->down) {
      const uintptr_t from = std::max(plan->range.addr, mapping.range.addr);
      plan->range = {from, plan->range.end() - from};
    } else {
      plan->range.len = std::min(plan->range.end(), mapping.range.end()) - plan->range.addr;
    }
  }
  plan->range = without_untouched(request.pages, plan->range);
  plan->stream = plan->range != request.pages;
  plan->extra_bytes = plan->range.len - request.pages.len;
}

// Widens the plan to whole huge pages: the account is charged for them anyway, and pinning them whole costs
// less than a few parts. A block that is one huge page has one mapping and one set of rights.
void ExtensionLimits::widen_to_huge_pages(const PinRequest& request, Plan* plan) const noexcept {
  const size_t block = traits_.block_bytes;
  if (block == 0 || config_.stream_bytes == 0 || request.exact || request.prepaid != nullptr ||
      request.restless || traits_.unpin_before_release || plan->charge == plan->range.len) {
    return;
  }
  const MemoryRange whole = round_out(plan->range, block);
  if (plan->charge != whole.len || whole.len > config_.max_region_bytes) return;
  plan->huge_pages = plan->range == request.pages;
  plan->range = whole;
}

}  // namespace hydrant
