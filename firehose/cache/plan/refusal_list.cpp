// Implements RefusalList, a ring of refused ranges with their rights and the time at which they lapse.
#include "firehose/cache/plan/refusal_list.hpp"

#include <algorithm>

namespace hydrant {

void RefusalList::add(MemoryRange range, Access access, uint64_t now_ns) noexcept {
  entries_[next_] = {range, access, now_ns + kLifeNs};
  next_ = (next_ + 1) % kMax;
  count_ = std::min(count_ + 1, kMax);
}

bool RefusalList::refuses(MemoryRange range, Access access, uint64_t now_ns) const noexcept {
  return std::any_of(entries_, entries_ + count_, [&](const Entry& e) {
    return range.covers(e.range) && includes(access, e.access) && now_ns < e.until_ns;
  });
}

bool RefusalList::overlaps(MemoryRange range, uint64_t now_ns) const noexcept {
  return std::any_of(entries_, entries_ + count_, [&](const Entry& e) {
    return e.range.overlaps(range) && now_ns < e.until_ns;
  });
}

void RefusalList::forget(MemoryRange range) noexcept {
  const auto overlaps = [&](const Entry& e) { return e.range.overlaps(range); };
  if (std::none_of(entries_, entries_ + count_, overlaps)) return;
  // From the oldest on, which the next entries overwrite first.
  std::rotate(entries_, entries_ + next_, entries_ + count_);
  count_ = static_cast<size_t>(std::remove_if(entries_, entries_ + count_, overlaps) - entries_);
  next_ = count_ % kMax;
}

}  // namespace hydrant
