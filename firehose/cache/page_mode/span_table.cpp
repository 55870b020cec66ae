// Allocates and frees the slots of spans, and keeps the regions that each span holds. span_pins.cpp takes a
// span for a pin of several buckets and frees it at the release.
#include "firehose/cache/page_mode/span_table.hpp"

#include <cstdlib>
#include <utility>

namespace hydrant {

SpanParts* SpanParts::create(size_t count) noexcept {
  void* memory = std::malloc(sizeof(SpanParts) + (count - 1) * sizeof(RegionIndex));
  auto* parts = static_cast<SpanParts*>(memory);
  if (parts != nullptr) parts->count = count;
  return parts;
}

bool SpanTable::map(RegionSlot* slots, size_t count) noexcept {
  slots_ = slots;
  return infos_.map(count);
}

uint32_t SpanTable::index_of(const RegionSlot* slot) const noexcept {
  return static_cast<uint32_t>(slot - slots_);
}

void SpanTable::push_free(uint32_t span) noexcept {
  infos_[span].state = State::kFree;
  infos_[span].next = kNone;
  (last_free_ == kNone ? first_free_ : infos_[last_free_].next) = span;
  last_free_ = span;
  ++free_count_;
}

uint32_t SpanTable::pop_free() noexcept {
  const uint32_t span = first_free_;
  first_free_ = infos_[span].next;
  if (first_free_ == kNone) last_free_ = kNone;
  --free_count_;
  return span;
}

const RegionSlot* SpanTable::take(MemoryRange pages, SpanParts* parts) noexcept {
  uint32_t span = kNone;
  if (high_ < capacity() && free_count_ <= kRetained) {
    span = high_++;
  } else if (free_count_ != 0) {
    span = pop_free();
  } else {
    return nullptr;
  }
  infos_[span] = {parts, kNone, State::kLive};
  ++live_;
  live_parts_ += parts->count;
  RegionSlot& slot = slots_[span];
  slot.len.store(pages.len, std::memory_order_relaxed);
  slot.key.store(nullptr, std::memory_order_relaxed);
  slot.addr.store(pages.addr, std::memory_order_relaxed);
  return &slot;
}

const SpanParts* SpanTable::find(const RegionSlot* slot) const noexcept {
  const Info& info = infos_[index_of(slot)];
  return info.state == State::kLive ? info.parts : nullptr;
}

SpanParts* SpanTable::free_entry(const RegionSlot* slot) noexcept {
  const uint32_t span = index_of(slot);
  if (infos_[span].state != State::kLive) return nullptr;
  SpanParts* parts = std::exchange(infos_[span].parts, nullptr);
  --live_;
  live_parts_ -= parts->count;
  slots_[span].addr.store(kBlankAddr, std::memory_order_relaxed);
  push_free(span);
  return parts;
}

bool SpanTable::is_tombstone(const RegionSlot* slot) const noexcept {
  return infos_[index_of(slot)].state == State::kTombstone;
}

uint64_t SpanTable::memory_bytes() const noexcept {
  return uint64_t{high_} * (sizeof(RegionSlot) + sizeof(Info)) +
         uint64_t{live_} * sizeof(SpanParts) + live_parts_ * sizeof(RegionIndex);
}

void SpanTable::free_all() noexcept {
  for (uint32_t span = 0; span < high_; ++span) {
    std::free(std::exchange(infos_[span].parts, nullptr));
  }
}

void SpanTable::reset_in_child() noexcept {
  first_free_ = last_free_ = kNone;
  free_count_ = live_ = 0;
  live_parts_ = 0;
  for (uint32_t span = 0; span < high_; ++span) {
    Info& info = infos_[span];
    // Unless the kernel wipes slots at fork, they still contain what the parent wrote.
    slots_[span].addr.store(kBlankAddr, std::memory_order_relaxed);
    info.parts = nullptr;
    if (info.state == State::kLive) info.state = State::kTombstone;
    if (info.state != State::kTombstone) push_free(span);
  }
}

}  // namespace hydrant
