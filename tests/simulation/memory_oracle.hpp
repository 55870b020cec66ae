// Knows which data memory that ranks put to may hold. Each rank has, for every rank of the job, kSlots slots
// that this rank alone puts to, one put at a time. Each put writes a whole slot with data of its own, its
// version, so that a byte shows which puts it can be from. Version 0 is zeros.
#pragma once

#include "tests/simulation/job_plan.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hydrant::simulation {

// The memory of a rank: slots by rank and a word for atomics, which peers reach; then, laid out alike, the
// data of the rank's puts by target; then the results of its gets by target.
class MemoryLayout {
 public:
  explicit MemoryLayout(const JobPlan& plan);
  size_t bytes() const { return 3 * part(); }
  uint32_t bytes_of(uint32_t slot) const { return lengths_[slot]; }
  size_t slot(Rank origin, uint32_t slot) const { return origin * area_bytes_ + offsets_[slot]; }
  size_t word() const { return ranks_ * area_bytes_; }
  size_t data(Rank target, uint32_t index) const { return part() + slot(target, index); }
  size_t result(Rank target, uint32_t index) const { return 2 * part() + slot(target, index); }
  size_t word_of_result() const { return 2 * part() + word(); }

 private:
  static constexpr size_t kLine = 64;
  size_t part() const { return word() + kLine; }
  Rank ranks_;
  std::array<uint32_t, kSlots> lengths_;
  std::array<size_t, kSlots> offsets_ = {};
  size_t area_bytes_ = 0;
};

class MemoryOracle {
 public:
  using Versions = std::array<uint32_t, kSlots>;
  struct Place {
    Rank origin = 0;  // puts to it
    Rank target = 0;  // has it in its memory
    uint32_t slot = 0;
  };

  explicit MemoryOracle(const JobPlan& plan)
      : ranks_(plan.ranks),
        layout_(plan),
        slots_(size_t{ranks_} * ranks_ * kSlots),
        barriers_(ranks_) {}
  const MemoryLayout& layout() const { return layout_; }

  // ---- what is done ----
  uint32_t begin_put(const Place& place) { return ++at(place).begun; }
  void complete_put(const Place& place, uint32_t version) { at(place).completed = version; }
  const std::byte* data_of(const Place& place, uint32_t version) const;
  // The versions that a message of `origin` to `target` which is committed now shows.
  Versions begun(Rank origin, Rank target) const;
  // The message has been delivered.
  void show(Rank origin, Rank target, const Versions& versions);
  // `origin` enters a barrier; `reader` has left it.
  void enter_barrier(uint32_t barrier, Rank origin);
  void leave_barrier(uint32_t barrier, Rank reader);
  bool is_shown(const Place& place) const { return at(place).shown == at(place).begun; }
  // The oldest version that a get by `reader` may read if it starts now. `is_relaxed`: completed puts are
  // shown to the target alone, by messages and barriers.
  uint32_t least_for(Rank reader, const Place& place, bool is_relaxed) const;

  // Whether each byte is of a version between `least` and the newest that was begun.
  bool allows(const Place& place, uint32_t least, const std::byte* data) const;
  // Whether allows() holds for each slot of `origin` in the memory of `target`.
  bool allows_all(Rank origin, Rank target, const std::byte* memory) const;

 private:
  struct Slot {
    uint32_t begun = 0;
    uint32_t completed = 0;
    uint32_t shown = 0;  // to the target's processor
  };
  size_t index_of(const Place& place) const {
    return (size_t{place.target} * ranks_ + place.origin) * kSlots + place.slot;
  }
  Slot& at(const Place& place) { return slots_[index_of(place)]; }
  const Slot& at(const Place& place) const { return slots_[index_of(place)]; }

  Rank ranks_;
  MemoryLayout layout_;
  std::vector<Slot> slots_;
  // By barrier, and index_of(): what was complete when the origin entered it.
  std::vector<std::vector<uint32_t>> entered_;
  std::vector<uint32_t> barriers_;  // by reader: how many it has left
};

// `bytes` bytes of data that `key` names, at most kMostBytes.
inline constexpr size_t kMostBytes = 256 << 10;
const std::byte* data_for(uint64_t key);

}  // namespace hydrant::simulation
