// Opens the two ends of a ring, and makes room when the writer's view of it is used up. Tour "an Active
// Message", step 4: reserve() calls make_room() if the inline check finds no room.
#include "rdma/shm/ring.hpp"

namespace hydrant::shm {

void OutRing::open(std::byte* lines, RingControl& control, bool confirm) noexcept {
  lines_ = lines;
  control_ = &control;
  confirm_ = confirm;
  mask_ = kRingLines[static_cast<uint32_t>(lane_)] - 1;
  limit_ = position_ + mask_ + 1;
  state_ = State::kOpen;
}

void OutRing::close() noexcept {
  mask_ = 0;
  limit_ = position_;
  state_ = State::kClosed;
}

OutRing::Room OutRing::make_room(uint32_t lines) noexcept {
  const uint32_t size = mask_ + 1;
  const uint32_t left = size - (position_ & mask_);
  const uint32_t skipped = lines <= left ? 0 : left;
  if (limit_ - position_ < lines + skipped) {
    const uint32_t taken = control_->taken.load(std::memory_order_acquire);
    if (position_ - taken > size) return Room::kCorrupt;
    limit_ = taken + size;
    if (limit_ - position_ < lines + skipped) return Room::kNo;
  }
  if (skipped == 0) return Room::kYes;
  for (uint32_t i = 1; i < skipped; ++i) {
    first_word(line(position_ + i)).store(0, std::memory_order_relaxed);
  }
  const uint64_t word = MessageWord::make(position_, skipped, 0, 0) | MessageWord::kSkip;
  first_word(line(position_)).store(word, std::memory_order_release);
  position_ += skipped;
  return Room::kYes;
}

void InRing::open(std::byte* lines, RingControl& control, Lane lane) noexcept {
  lines_ = lines;
  mask_ = kRingLines[static_cast<uint32_t>(lane)] - 1;
  quarter_ = (mask_ + 1) / 4;
  control_.store(&control, std::memory_order_release);
}

}  // namespace hydrant::shm
