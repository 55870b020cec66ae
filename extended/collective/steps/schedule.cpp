// Implements the growing list of steps of schedule.hpp. Builders (schedules.cpp) add to it.
#include "extended/collective/steps/schedule.hpp"

#include <algorithm>
#include <new>

namespace hydrant {

void Schedule::append(const Schedule& other) noexcept {
  const auto moved = [by = scratch_bytes_](Place place) {
    return place.area == Area::kScratch ? place.plus(by) : place;
  };
  for (Step step : other.steps()) {
    step.from = moved(step.from);
    step.with = moved(step.with);
    step.to = moved(step.to);
    add(step);
  }
  scratch_bytes_ += other.scratch_bytes_;
  ok_ = ok_ && other.ok_;
}

void Schedule::add(const Step& step) noexcept {
  if (!ok_) return;
  if (count_ == room_) {
    constexpr size_t kFirstRoom = 16;
    const size_t room = std::max(kFirstRoom, 2 * room_);
    std::unique_ptr<Step[]> steps(new (std::nothrow) Step[room]);
    if (steps == nullptr) {
      ok_ = false;
      return;
    }
    std::copy_n(steps_.get(), count_, steps.get());
    steps_ = std::move(steps);
    room_ = room;
  }
  steps_[count_++] = step;
}

}  // namespace hydrant
