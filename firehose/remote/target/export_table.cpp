// Lists the firehoses that peers hold on this process, and marks those whose memory was released.
// RemoteTarget adds an export in step 6 of "Tour: a put", and ends it when the peer returns its id.
#include "firehose/remote/target/export_table.hpp"

#include "firehose/watch/mutant.hpp"

#include <algorithm>

namespace hydrant {

bool ExportTable::set_up(uint32_t most, uint32_t ranks) noexcept {
  return entries_.map(size_t{most} + 1) && peers_.map(ranks);
}

uint64_t ExportTable::add(const RegionSlot* slot, MemoryRange range, uint64_t charge, uint32_t peer,
                          bool once, bool checked) noexcept {
  uint32_t index = free_;
  if (index != kEnd) {
    free_ = entries_[index].next;
  } else if (high_ + 1 < entries_.size()) {
    index = ++high_;
  } else {
    return 0;
  }
  Export& e = entries_[index];
  const uint32_t generation = e.generation + 1 != 0 ? e.generation + 1 : 1;
  e = {};
  e.slot = slot;
  e.range = range;
  e.charge = charge;
  e.peer = peer;
  e.generation = generation;
  e.once = once;
  e.checked = checked;
  e.before = peers_[peer].newest;
  if (e.before != kEnd) entries_[e.before].after = index;
  peers_[peer].newest = index;
  ++peers_[peer].count;
  counts_.add(charge, checked);
  return id_of(index, generation);
}

ExportTable::Export* ExportTable::find(uint64_t id) noexcept {
  const auto index = static_cast<uint32_t>(id);
  if (index == kEnd || index > high_) return nullptr;
  Export& e = entries_[index];
  if (e.slot == nullptr) return nullptr;
  return e.generation == id >> 32 || is_mutant(Mutant::kIgnoreGeneration) ? &e : nullptr;
}

void ExportTable::unlist(uint32_t index) noexcept {
  Export& e = entries_[index];
  uint32_t* link = &peers_[e.peer].recalls;
  while (*link != index) link = &entries_[*link].next;
  *link = e.next;
  e.listed = false;
}

void ExportTable::end(uint32_t index, Export* out) noexcept {
  Export& e = entries_[index];
  if (e.listed) unlist(index);
  *out = e;
  if (e.zombie) counts_.end_zombie(e.range.len);
  counts_.end(e.charge, e.checked);
  if (e.before != kEnd) entries_[e.before].after = e.after;
  (e.after != kEnd ? entries_[e.after].before : peers_[e.peer].newest) = e.before;
  --peers_[e.peer].count;
  e.slot = nullptr;
  e.next = free_;
  free_ = index;
}

void ExportTable::withhold_until_reply(uint64_t id) noexcept {
  Export* e = find(id);
  if (e != nullptr) e->withheld = true;
}

bool ExportTable::publish(uint64_t id, Export* out) noexcept {
  Export* e = find(id);
  if (e == nullptr) return false;
  e->withheld = false;
  if (!e->orphan) return false;
  end(static_cast<uint32_t>(id), out);
  return true;
}

bool ExportTable::drop(uint64_t id, uint32_t peer, Export* out) noexcept {
  const Export* e = find(id);
  if (e == nullptr || e->peer != peer) return false;
  end(static_cast<uint32_t>(id), out);
  return true;
}

bool ExportTable::release(uint64_t id, uint32_t peer, Export* out) noexcept {
  const Export* e = find(id);
  return e != nullptr && !e->withheld && drop(id, peer, out);
}

bool ExportTable::release_any(uint32_t peer, uint32_t* from, Export* out) noexcept {
  if (peers_[peer].count == 0) return false;
  for (uint32_t index = *from + 1; index <= high_; ++index) {
    *from = index;
    Export& e = entries_[index];
    if (e.slot == nullptr || e.peer != peer) continue;
    if (e.withheld) {
      e.orphan = true;
      continue;
    }
    end(index, out);
    return true;
  }
  return false;
}

MemoryRange ExportTable::exclude_overlaps(uint32_t peer, MemoryRange needed,
                                          MemoryRange most) const noexcept {
  // The part cut off may have contained the rest of another firehose.
  bool cut = true;
  for (int pass = 0; cut && pass < kMaxPasses; ++pass) {
    cut = false;
    uint32_t seen = 0;
    for (uint32_t i = peers_[peer].newest; i != kEnd && seen < kMaxSeen; i = entries_[i].before) {
      ++seen;
      const MemoryRange theirs = entries_[i].range;
      if (!theirs.overlaps(most) || most.covers(theirs)) continue;
      const uintptr_t from =
          theirs.end() <= needed.addr ? std::max(most.addr, theirs.end()) : most.addr;
      const uintptr_t end =
          theirs.addr >= needed.end() ? std::min(most.end(), theirs.addr) : most.end();
      cut = cut || from != most.addr || end != most.end();
      most = {from, end - from};
    }
  }
  return most;
}

void ExportTable::make_zombie(uint32_t index) noexcept {
  Export& e = entries_[index];
  e.zombie = true;
  counts_.add_zombie(e.range.len);
  e.listed = true;
  e.next = peers_[e.peer].recalls;
  peers_[e.peer].recalls = index;
}

bool ExportTable::invalidate(MemoryRange gone) noexcept {
  bool any = false;
  for (uint32_t index = 1; index <= high_; ++index) {
    const Export& e = entries_[index];
    if (e.slot == nullptr || e.zombie || !e.range.overlaps(gone)) continue;
    make_zombie(index);
    any = true;
  }
  return any;
}

bool ExportTable::invalidate(uint64_t id) noexcept {
  const Export* e = find(id);
  if (e == nullptr || e->zombie) return false;
  make_zombie(static_cast<uint32_t>(id));
  return true;
}

size_t ExportTable::take_recalls(uint32_t peer, uint64_t* ids, MemoryRange* ranges,
                                 size_t room) noexcept {
  size_t n = 0;
  for (; n < room && peers_[peer].recalls != kEnd; ++n) {
    const uint32_t index = peers_[peer].recalls;
    Export& e = entries_[index];
    peers_[peer].recalls = e.next;
    e.listed = false;
    ids[n] = id_of(index, e.generation);
    ranges[n] = e.range;
  }
  return n;
}

void ExportTable::list_again(const uint64_t* ids, size_t n) noexcept {
  for (size_t i = 0; i < n; ++i) {
    Export* e = find(ids[i]);
    if (e == nullptr || e->listed) continue;
    e->listed = true;
    e->next = peers_[e->peer].recalls;
    peers_[e->peer].recalls = static_cast<uint32_t>(ids[i]);
  }
}

}  // namespace hydrant
