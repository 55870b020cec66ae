// A member's part of a collective operation, as a list of steps. Schedules are functions of the member, the
// team's size, the root and the lengths alone (schedules.hpp). CollectiveOperation (operation.hpp) executes
// them; tests execute the schedules of all members against a naive model.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace hydrant {

enum class Area : uint8_t { kSource, kDest, kScratch };
constexpr uint32_t kAreas = 3;

// An offset in one of the operation's three areas of memory.
struct Place {
  Area area = Area::kSource;
  size_t offset = 0;

  friend constexpr bool operator==(const Place&, const Place&) = default;
  constexpr Place plus(size_t bytes) const noexcept { return {area, offset + bytes}; }
};

// Steps are executed in order. A send ends when it is started; a receive ends when its data are there. A
// copy or a combination does not overwrite what was sent before the peers have read it.
struct Step {
  enum class Kind : uint8_t { kSend, kReceive, kCopy, kCombine };
  Kind kind = Kind::kCopy;
  Rank peer = 0;     // send, receive: the other member
  uint32_t tag = 0;  // send, receive: the same at both ends; different for each transfer of a pair
  Place from = {};   // send, copy; combine: the left operand
  Place with = {};   // combine: the right operand, which user functions overwrite
  Place to = {};     // receive, copy, combine
  size_t bytes = 0;
};

class Schedule {
 public:
  Schedule() noexcept = default;

  // False if there was no memory for a step; then the schedule must not be used.
  bool ok() const noexcept { return ok_; }
  std::span<const Step> steps() const noexcept { return {steps_.get(), count_}; }
  size_t scratch_bytes() const noexcept { return scratch_bytes_; }

  // Reserves memory in the scratch area.
  Place take_scratch(size_t bytes) noexcept {
    const Place place{Area::kScratch, scratch_bytes_};
    // Combinations of any type need aligned operands.
    scratch_bytes_ += (bytes + kAlignment - 1) & ~(kAlignment - 1);
    return place;
  }
  void send(Rank peer, uint32_t tag, Place from, size_t bytes) noexcept {
    add({.kind = Step::Kind::kSend, .peer = peer, .tag = tag, .from = from, .bytes = bytes});
  }
  void receive(Rank peer, uint32_t tag, Place to, size_t bytes) noexcept {
    add({.kind = Step::Kind::kReceive, .peer = peer, .tag = tag, .to = to, .bytes = bytes});
  }
  void copy(Place from, Place to, size_t bytes) noexcept {
    if (from != to && bytes != 0)
      add({.kind = Step::Kind::kCopy, .from = from, .to = to, .bytes = bytes});
  }
  // to = left op right
  void combine(Place left, Place right, Place to, size_t bytes) noexcept {
    if (bytes != 0)
      add({.kind = Step::Kind::kCombine, .from = left, .with = right, .to = to, .bytes = bytes});
  }

  // Adds the steps of another schedule, whose tags differ.
  void append(const Schedule& other) noexcept;

 private:
  static constexpr size_t kAlignment = 64;

  void add(const Step& step) noexcept;

  std::unique_ptr<Step[]> steps_;
  size_t count_ = 0;
  size_t room_ = 0;
  size_t scratch_bytes_ = 0;
  bool ok_ = true;
};

}  // namespace hydrant
