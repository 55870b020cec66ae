// Looks up, enters and removes the ranges of region mode: splits full chunks, moves entries to neighbours,
// joins sparse ones. RegionTables calls it: lookups without the mutex (step 2 of "Tour: a miss with
// eviction"), changes under it.
#include "firehose/cache/index/region_table.hpp"

#include <algorithm>

namespace hydrant {

bool RegionTable::map(size_t max_ranges) noexcept {
  // Neighbours that fit into kJoinEntries become one when something is erased from either; a chunk
  // may also begin with a single range, between full ones. The least that was found is 24 ranges a
  // chunk, with effort.
  const size_t most = max_ranges / kMinRanges + 4;
  if (!directory_.map(most)) return false;
  if (chunks_.map(most)) return true;
  directory_.reset();
  return false;
}

void RegionTable::copy(Entry& to, const Entry& from) noexcept {
  to.start.store(from.start.load(kRead), kWrite);
  to.last.store(from.last.load(kRead), kWrite);
  to.index.store(from.index.load(kRead), kWrite);
}

void RegionTable::write(Entry& to, MemoryRange range, RegionIndex index) noexcept {
  to.start.store(range.addr, kWrite);
  to.last.store(range.last(), kWrite);
  to.index.store(index, kWrite);
}

const RegionTable::Chunk& RegionTable::chunk_at(uint32_t position) const noexcept {
  return chunks_[directory_[position].load(kRead)];
}
RegionTable::Chunk& RegionTable::chunk_at(uint32_t position) noexcept {
  return chunks_[directory_[position].load(kRead)];
}
bool RegionTable::is_full(uint32_t position) const noexcept {
  return chunk_at(position).count.load(kRead) == kChunkEntries;
}
uintptr_t RegionTable::start_of(uint32_t position) const noexcept {
  return chunk_at(position).entries[0].start.load(kRead);
}

uint32_t RegionTable::position_of(uintptr_t addr, uint32_t count) const noexcept {
  uint32_t low = 0;
  uint32_t high = count;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    (start_of(middle) <= addr ? low : high) = middle;
  }
  return low;
}

uint32_t RegionTable::entries_up_to(const Chunk& chunk, uintptr_t addr) noexcept {
  uint32_t low = 0;
  // A reader may see a count from the middle of a change, never one beyond the array.
  uint32_t high = chunk.count.load(kRead);
  if (high > kChunkEntries) high = kChunkEntries;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (chunk.entries[middle].start.load(kRead) <= addr) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

RegionIndex RegionTable::find(uintptr_t addr) const noexcept {
  const uint32_t begun = lock_.begin_read();
  const uint32_t count = count_.load(kRead);
  RegionIndex found = kNoRegion;
  if (count != 0) {
    const Chunk& chunk = chunk_at(position_of(addr, count));
    const uint32_t below = entries_up_to(chunk, addr);
    if (below != 0) found = chunk.entries[below - 1].index.load(kRead);
  }
  return lock_.read_was_clean(begun) ? found : kNoRegion;
}

RegionIndex RegionTable::any_overlap(uintptr_t first, uintptr_t last) const noexcept {
  const uint32_t count = count_.load(kRead);
  if (count == 0) return kNoRegion;
  const Chunk& chunk = chunk_at(position_of(first, count));
  const uint32_t below = entries_up_to(chunk, first);
  // Starts and ends have the same order: if the last range that starts at or below `first` does not reach
  // it, none of them does.
  if (below != 0 && chunk.entries[below - 1].last.load(kRead) >= first) {
    return chunk.entries[below - 1].index.load(kRead);
  }
  return first_start(first, last);
}

RegionIndex RegionTable::first_start(uintptr_t first, uintptr_t last) const noexcept {
  const uint32_t count = count_.load(kRead);
  if (count == 0) return kNoRegion;
  uint32_t position = position_of(first, count);
  uint32_t entry = first == 0 ? 0 : entries_up_to(chunk_at(position), first - 1);
  if (entry == chunk_at(position).count.load(kRead)) {
    if (++position == count) return kNoRegion;
    entry = 0;
  }
  const Entry& next = chunk_at(position).entries[entry];
  return next.start.load(kRead) <= last ? next.index.load(kRead) : kNoRegion;
}

size_t RegionTable::collect(uintptr_t first, uintptr_t last, RegionIndex* out,
                            size_t room) const noexcept {
  size_t n = 0;
  const RegionIndex reaching = any_overlap(first, last);
  if (reaching == kNoRegion || room == 0) return 0;
  out[n++] = reaching;
  const uint32_t count = count_.load(kRead);
  uint32_t position = position_of(first, count);
  uint32_t entry = entries_up_to(chunk_at(position), first);
  for (; position < count && n < room; ++position, entry = 0) {
    const Chunk& chunk = chunk_at(position);
    for (; entry < chunk.count.load(kRead) && n < room; ++entry) {
      if (chunk.entries[entry].start.load(kRead) > last) return n;
      const RegionIndex index = chunk.entries[entry].index.load(kRead);
      if (index != reaching) out[n++] = index;
    }
  }
  return n;
}

bool RegionTable::collect_unlocked(uintptr_t first, uintptr_t last, RegionIndex* out, size_t room,
                                   size_t* n) const noexcept {
  *n = 0;
  const uint32_t begun = lock_.begin_read();
  if (!lock_.read_was_clean(begun)) return false;
  const uint32_t count = count_.load(kRead);
  if (count == 0) return lock_.read_was_clean(begun);
  uint32_t position = position_of(first, count);
  uint32_t entry = entries_up_to(chunk_at(position), first);
  // Ranges may overlap, and their ends have the order of their starts: goes back to the lowest one that
  // reaches `first`.
  for (;;) {
    if (entry == 0 && position == 0) break;
    const Chunk& before = chunk_at(entry == 0 ? position - 1 : position);
    const uint32_t entries = entry != 0 ? entry : std::min(before.count.load(kRead), kChunkEntries);
    if (entries == 0 || before.entries[entries - 1].last.load(kRead) < first) break;
    if (entry == 0) --position;
    entry = entries - 1;
  }
  for (; position < count && lock_.read_was_clean(begun); ++position, entry = 0) {
    const Chunk& chunk = chunk_at(position);
    const uint32_t entries = std::min(chunk.count.load(kRead), kChunkEntries);
    for (; entry < entries; ++entry) {
      const Entry& e = chunk.entries[entry];
      if (e.start.load(kRead) > last) return lock_.read_was_clean(begun);
      if (e.last.load(kRead) < first) continue;
      if (*n == room) return false;
      out[(*n)++] = e.index.load(kRead);
    }
  }
  return lock_.read_was_clean(begun);
}

void RegionTable::insert_position(uint32_t position, uint32_t chunk) noexcept {
  const uint32_t count = count_.load(kRead);
  for (uint32_t i = count; i > position; --i) {
    directory_[i].store(directory_[i - 1].load(kRead), kWrite);
  }
  directory_[position].store(chunk, kWrite);
  count_.store(count + 1, kWrite);
}

void RegionTable::remove_position(uint32_t position) noexcept {
  const uint32_t chunk = directory_[position].load(kRead);
  const uint32_t count = count_.load(kRead);
  for (uint32_t i = position; i + 1 < count; ++i) {
    directory_[i].store(directory_[i + 1].load(kRead), kWrite);
  }
  count_.store(count - 1, kWrite);
  chunks_[chunk].next_free = free_chunk_;
  free_chunk_ = chunk + 1;
}

uint32_t RegionTable::take_chunk() noexcept {
  if (free_chunk_ == 0) return used_chunks_++;
  const uint32_t fresh = free_chunk_ - 1;
  free_chunk_ = chunks_[fresh].next_free;
  return fresh;
}

void RegionTable::split(uint32_t position) noexcept {
  const uint32_t fresh = take_chunk();
  Chunk& from = chunk_at(position);
  Chunk& to = chunks_[fresh];
  constexpr uint32_t kHalf = kChunkEntries / 2;
  for (uint32_t i = 0; i < kHalf; ++i) copy(to.entries[i], from.entries[kHalf + i]);
  to.count.store(kHalf, kWrite);
  from.count.store(kHalf, kWrite);
  insert_position(position + 1, fresh);
}

// Leaves one entry of the neighbour free: the range to be inserted may belong there.
uint32_t RegionTable::spilled(uint32_t position) const noexcept {
  const uint32_t have =
      position < count_.load(kRead) ? chunk_at(position).count.load(kRead) : kChunkEntries;
  const uint32_t more =
      have < kChunkEntries ? std::min(kChunkEntries / 2, kChunkEntries - have - 1) : 0;
  return more < kMinSpilled ? 0 : more;
}

bool RegionTable::spill_to_next(uint32_t position) noexcept {
  const uint32_t more = spilled(position + 1);
  if (more == 0) return false;
  Chunk& from = chunk_at(position);
  Chunk& to = chunk_at(position + 1);
  const uint32_t have = to.count.load(kRead);
  for (uint32_t i = have; i > 0; --i) copy(to.entries[i - 1 + more], to.entries[i - 1]);
  for (uint32_t i = 0; i < more; ++i) copy(to.entries[i], from.entries[kChunkEntries - more + i]);
  from.count.store(kChunkEntries - more, kWrite);
  to.count.store(have + more, kWrite);
  return true;
}

bool RegionTable::spill_to_previous(uint32_t position) noexcept {
  const uint32_t more = position == 0 ? 0 : spilled(position - 1);
  if (more == 0) return false;
  Chunk& from = chunk_at(position);
  Chunk& to = chunk_at(position - 1);
  const uint32_t have = to.count.load(kRead);
  for (uint32_t i = 0; i < more; ++i) copy(to.entries[have + i], from.entries[i]);
  for (uint32_t i = more; i < kChunkEntries; ++i) copy(from.entries[i - more], from.entries[i]);
  from.count.store(kChunkEntries - more, kWrite);
  to.count.store(have + more, kWrite);
  return true;
}

void RegionTable::join_with_next(uint32_t position) noexcept {
  Chunk& left = chunk_at(position);
  const Chunk& right = chunk_at(position + 1);
  const uint32_t have = left.count.load(kRead);
  const uint32_t more = right.count.load(kRead);
  for (uint32_t i = 0; i < more; ++i) copy(left.entries[have + i], right.entries[i]);
  left.count.store(have + more, kWrite);
  remove_position(position + 1);
}

// Memory that is used in order, up or down, beside other memory or alone, fills its chunks: half full, they
// would cost twice as much. So a new chunk begins with one range where that belongs between two chunks, and
// a full chunk is split only when its neighbours have little room.
uint32_t RegionTable::make_room(uint32_t position, uintptr_t addr) noexcept {
  const bool before_all = position == 0 && addr < start_of(0);
  const bool at_the_end = chunk_at(position).entries[kChunkEntries - 1].start.load(kRead) < addr;
  if (before_all || at_the_end) {
    if (at_the_end) ++position;
    if (at_the_end && position < count_.load(kRead) && !is_full(position)) return position;
    const uint32_t fresh = take_chunk();
    chunks_[fresh].count.store(0, kWrite);
    insert_position(position, fresh);
    return position;
  }
  if (spill_to_previous(position)) return start_of(position) <= addr ? position : position - 1;
  if (!spill_to_next(position)) split(position);
  return start_of(position + 1) <= addr ? position + 1 : position;
}

void RegionTable::insert(MemoryRange range, RegionIndex index) noexcept {
  lock_.begin_write();
  if (count_.load(kRead) == 0) {
    const uint32_t fresh = take_chunk();
    write(chunks_[fresh].entries[0], range, index);
    chunks_[fresh].count.store(1, kWrite);
    insert_position(0, fresh);
    lock_.end_write();
    return;
  }
  uint32_t position = position_of(range.addr, count_.load(kRead));
  if (is_full(position)) position = make_room(position, range.addr);
  Chunk& chunk = chunk_at(position);
  const uint32_t at = entries_up_to(chunk, range.addr);
  const uint32_t count = chunk.count.load(kRead);
  for (uint32_t i = count; i > at; --i) copy(chunk.entries[i], chunk.entries[i - 1]);
  write(chunk.entries[at], range, index);
  chunk.count.store(count + 1, kWrite);
  lock_.end_write();
}

void RegionTable::erase(MemoryRange range, RegionIndex /*index*/) noexcept {
  lock_.begin_write();
  const uint32_t position = position_of(range.addr, count_.load(kRead));
  Chunk& chunk = chunk_at(position);
  const uint32_t at = entries_up_to(chunk, range.addr) - 1;
  const uint32_t count = chunk.count.load(kRead) - 1;
  for (uint32_t i = at; i < count; ++i) copy(chunk.entries[i], chunk.entries[i + 1]);
  chunk.count.store(count, kWrite);
  const uint32_t positions = count_.load(kRead);
  if (count == 0) {
    remove_position(position);
    if (position > 0 && position < positions - 1 &&
        chunk_at(position - 1).count.load(kRead) + chunk_at(position).count.load(kRead) <=
            kJoinEntries) {
      join_with_next(position - 1);
    }
  } else if (position + 1 < positions &&
             count + chunk_at(position + 1).count.load(kRead) <= kJoinEntries) {
    join_with_next(position);
  } else if (position > 0 && chunk_at(position - 1).count.load(kRead) + count <= kJoinEntries) {
    join_with_next(position - 1);
  }
  lock_.end_write();
}

void RegionTable::clear() noexcept {
  lock_.reset_in_child();
  lock_.begin_write();
  count_.store(0, kWrite);
  used_chunks_ = free_chunk_ = 0;
  lock_.end_write();
}

uint64_t RegionTable::memory_bytes() const noexcept {
  return uint64_t{used_chunks_} * (sizeof(Chunk) + sizeof(uint32_t));
}

}  // namespace hydrant
