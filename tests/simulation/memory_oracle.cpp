// Compares memory with the data of the puts that may have written it.
#include "tests/simulation/memory_oracle.hpp"

#include "tests/simulation/virtual_time.hpp"

#include <algorithm>
#include <cstring>

namespace hydrant::simulation {

namespace {

constexpr size_t kWindows = 4096;  // places where the data of a put begins

std::vector<std::byte> make_table(uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> table(kWindows + kMostBytes);
  for (std::byte& each : table) each = static_cast<std::byte>(random.next());
  return table;
}

}  // namespace

const std::byte* data_for(uint64_t key) {
  static const std::vector<std::byte> table = make_table(1);
  return table.data() + Random(key).below(kWindows);
}

MemoryLayout::MemoryLayout(const JobPlan& plan) : ranks_(plan.ranks), lengths_(plan.slot_bytes) {
  size_t end = 3;  // so that slots are not aligned
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    offsets_[slot] = end;
    end += lengths_[slot];
  }
  area_bytes_ = (end + kLine - 1) / kLine * kLine;
}

const std::byte* MemoryOracle::data_of(const Place& place, uint32_t version) const {
  static const std::vector<std::byte> zeros(kMostBytes);
  return version == 0 ? zeros.data() : data_for(index_of(place) << 32 | version);
}

MemoryOracle::Versions MemoryOracle::begun(Rank origin, Rank target) const {
  Versions found;
  for (uint32_t slot = 0; slot < kSlots; ++slot) found[slot] = at({origin, target, slot}).begun;
  return found;
}

void MemoryOracle::show(Rank origin, Rank target, const Versions& versions) {
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    uint32_t& shown = at({origin, target, slot}).shown;
    shown = std::max(shown, versions[slot]);
  }
}

uint32_t MemoryOracle::least_for(Rank reader, const Place& place, bool is_relaxed) const {
  const Slot& slot = at(place);
  if (is_relaxed) return slot.shown;
  const uint32_t left = barriers_[reader];
  return std::max({slot.shown, reader == place.origin ? slot.completed : 0,
                   left != 0 ? entered_[left - 1][index_of(place)] : 0});
}

void MemoryOracle::enter_barrier(uint32_t barrier, Rank origin) {
  if (entered_.size() <= barrier) entered_.resize(barrier + 1);
  std::vector<uint32_t>& versions = entered_[barrier];
  versions.resize(slots_.size());
  for (Rank target = 0; target < ranks_; ++target) {
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      const Place place{origin, target, slot};
      versions[index_of(place)] = at(place).completed;
    }
  }
}

void MemoryOracle::leave_barrier(uint32_t barrier, Rank reader) {
  barriers_[reader] = barrier + 1;
  for (Rank origin = 0; origin < ranks_; ++origin) {
    Versions versions;
    for (uint32_t slot = 0; slot < kSlots; ++slot)
      versions[slot] = entered_[barrier][index_of({origin, reader, slot})];
    show(origin, reader, versions);
  }
}

bool MemoryOracle::allows(const Place& place, uint32_t least, const std::byte* data) const {
  const uint32_t newest = at(place).begun;
  const size_t bytes = layout_.bytes_of(place.slot);
  for (uint32_t version = newest + 1; version-- > least;) {
    if (std::memcmp(data, data_of(place, version), bytes) == 0) return true;
  }
  for (size_t i = 0; i < bytes; ++i) {
    uint32_t version = least;
    while (version <= newest && data_of(place, version)[i] != data[i]) ++version;
    if (version > newest) return false;
  }
  return true;
}

bool MemoryOracle::allows_all(Rank origin, Rank target, const std::byte* memory) const {
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    const Place place{origin, target, slot};
    if (!allows(place, at(place).shown, memory + layout_.slot(origin, slot))) return false;
  }
  return true;
}

}  // namespace hydrant::simulation
