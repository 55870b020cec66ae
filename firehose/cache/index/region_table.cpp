// Looks up, enters and removes the ranges of region mode: splits full chunks, moves entries to neighbours,
// joins sparse ones. RegionTables calls it: lookups without the mutex (step 2 of "Tour: a miss with
// eviction"), changes under it.
#include "firehose/cache/index/region_table.hpp"

#include <algorithm>

namespace hydrant {
namespace {

// Four at a time: a compiler does not unroll a loop over atomics.
constexpr uint32_t kUnrolled = 4;

template <class T>
void copy_one(std::atomic<T>& to, const std::atomic<T>& from) noexcept {
  to.store(from.load(std::memory_order_acquire), std::memory_order_release);
}

template <class T>
void copy_forwards(std::atomic<T>* to, const std::atomic<T>* from, uint32_t n) noexcept {
  for (; n >= kUnrolled; n -= kUnrolled, to += kUnrolled, from += kUnrolled) {
    copy_one(to[0], from[0]);
    copy_one(to[1], from[1]);
    copy_one(to[2], from[2]);
    copy_one(to[3], from[3]);
  }
  for (; n > 0; --n) copy_one(*to++, *from++);
}

template <class T>
void copy_backwards(std::atomic<T>* to, const std::atomic<T>* from, uint32_t n) noexcept {
  for (; n >= kUnrolled; n -= kUnrolled) {
    copy_one(to[n - 1], from[n - 1]);
    copy_one(to[n - 2], from[n - 2]);
    copy_one(to[n - 3], from[n - 3]);
    copy_one(to[n - 4], from[n - 4]);
  }
  for (; n > 0; --n) copy_one(to[n - 1], from[n - 1]);
}

}  // namespace

bool RegionTable::map(size_t max_ranges) noexcept {
  // Neighbours that fit into kJoinEntries become one when something is erased from either; a chunk may also
  // begin with a single range, between full ones, which are then erased down to kJoinEntries: 12.5 ranges a
  // chunk are the least that was found.
  const size_t most = max_ranges / kMinRanges + 4;
  if (!directory_.map(most)) return false;
  if (chunks_.map(most)) return true;
  directory_.reset();
  return false;
}

void RegionTable::copy(Chunk& to, uint32_t to_entry, const Chunk& from, uint32_t entry,
                       uint32_t n) noexcept {
  copy_forwards(to.starts + to_entry, from.starts + entry, n);
  copy_forwards(to.indices + to_entry, from.indices + entry, n);
}

void RegionTable::move_up(Chunk& chunk, uint32_t entry, uint32_t places) noexcept {
  const uint32_t n = chunk.count.load(kRead) - entry;
  copy_backwards(chunk.starts + entry + places, chunk.starts + entry, n);
  copy_backwards(chunk.indices + entry + places, chunk.indices + entry, n);
}

void RegionTable::cut(Chunk& chunk, uint32_t count) noexcept {
  const uint32_t before = chunk.count.load(kRead);
  chunk.count.store(count, kWrite);
  for (uint32_t i = count; i < before; ++i) chunk.starts[i].store(kNoStart, kWrite);
}

const RegionTable::Chunk& RegionTable::chunk_at(uint32_t position) const noexcept {
  return chunks_[directory_[position].chunk.load(kRead)];
}
RegionTable::Chunk& RegionTable::chunk_at(uint32_t position) noexcept {
  return chunks_[directory_[position].chunk.load(kRead)];
}
bool RegionTable::is_full(uint32_t position) const noexcept {
  return chunk_at(position).count.load(kRead) == kChunkEntries;
}
uintptr_t RegionTable::first_of(uint32_t position) const noexcept {
  return directory_[position].start.load(kRead);
}
uintptr_t RegionTable::start_of(RegionIndex index) const noexcept {
  return slots_[index].addr.load(kRead);
}
uintptr_t RegionTable::last_of(RegionIndex index) const noexcept {
  const RegionSlot& slot = slots_[index];
  return slot.addr.load(kRead) + slot.len.load(kRead) - 1;
}
void RegionTable::note_start(uint32_t position) noexcept {
  directory_[position].start.store(chunk_at(position).starts[0].load(kRead), kWrite);
}

// Both searches choose by arithmetic: where an address lies is not predictable.
uint32_t RegionTable::position_of(uintptr_t addr, uint32_t count) const noexcept {
  const Place* low = &directory_[0];
  while (count > 1) {
    const uint32_t half = count / 2;
    low += low[half].start.load(kRead) <= addr ? half : 0;
    count -= half;
  }
  return static_cast<uint32_t>(low - &directory_[0]);
}

uint32_t RegionTable::entries_up_to(const Chunk& chunk, uintptr_t addr) noexcept {
  static_assert(kChunkEntries == 32);
  const std::atomic<uintptr_t>* low = chunk.starts;
  const auto halve = [&](size_t half) { low += low[half - 1].load(kRead) <= addr ? half : 0; };
  halve(16);
  halve(8);
  halve(4);
  halve(2);
  halve(1);
  halve(1);
  return static_cast<uint32_t>(low - chunk.starts);
}

RegionIndex RegionTable::find(uintptr_t addr) const noexcept {
  const uint32_t begun = lock_.begin_read();
  const uint32_t count = count_.load(kRead);
  RegionIndex found = kNoRegion;
  if (count != 0) {
    const Chunk& chunk = chunk_at(position_of(addr, count));
    const uint32_t below = entries_up_to(chunk, addr);
    if (below != 0) found = chunk.indices[below - 1].load(kRead);
  }
  return lock_.read_was_clean(begun) ? found : kNoRegion;
}

// Only the first chunk may start above the address that led to it.
RegionIndex RegionTable::before(Cursor cursor) const noexcept {
  if (cursor.entry == 0) return kNoRegion;
  return chunk_at(cursor.position).indices[cursor.entry - 1].load(kRead);
}

RegionIndex RegionTable::at(Cursor cursor) const noexcept {
  if (cursor.entry == chunk_at(cursor.position).count.load(kRead))
    cursor = {cursor.position + 1, 0};
  if (cursor.position == count_.load(kRead)) return kNoRegion;
  return chunk_at(cursor.position).indices[cursor.entry].load(kRead);
}

RegionIndex RegionTable::any_overlap(uintptr_t first, uintptr_t last) const noexcept {
  const uint32_t count = count_.load(kRead);
  if (count == 0) return kNoRegion;
  const uint32_t position = position_of(first, count);
  const Cursor cursor{position, entries_up_to(chunk_at(position), first)};
  // Starts and ends have the same order: if the last range that starts at or below `first` does not reach
  // it, none of them does.
  const RegionIndex below = before(cursor);
  if (below != kNoRegion && last_of(below) >= first) return below;
  const RegionIndex next = at(cursor);
  return next != kNoRegion && start_of(next) <= last ? next : kNoRegion;
}

RegionIndex RegionTable::first_start(uintptr_t first, uintptr_t last) const noexcept {
  const uint32_t count = count_.load(kRead);
  if (count == 0) return kNoRegion;
  const uint32_t position = position_of(first, count);
  const uint32_t entry = first == 0 ? 0 : entries_up_to(chunk_at(position), first - 1);
  const RegionIndex next = at({position, entry});
  return next != kNoRegion && start_of(next) <= last ? next : kNoRegion;
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
      if (chunk.starts[entry].load(kRead) > last) return n;
      const RegionIndex index = chunk.indices[entry].load(kRead);
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
    if (entries == 0 || last_of(before.indices[entries - 1].load(kRead)) < first) break;
    if (entry == 0) --position;
    entry = entries - 1;
  }
  for (; position < count && lock_.read_was_clean(begun); ++position, entry = 0) {
    const Chunk& chunk = chunk_at(position);
    const uint32_t entries = std::min(chunk.count.load(kRead), kChunkEntries);
    for (; entry < entries; ++entry) {
      if (chunk.starts[entry].load(kRead) > last) return lock_.read_was_clean(begun);
      const RegionIndex index = chunk.indices[entry].load(kRead);
      if (last_of(index) < first) continue;
      if (*n == room) return false;
      out[(*n)++] = index;
    }
  }
  return lock_.read_was_clean(begun);
}

void RegionTable::move_place(uint32_t to, uint32_t from) noexcept {
  directory_[to].start.store(directory_[from].start.load(kRead), kWrite);
  directory_[to].chunk.store(directory_[from].chunk.load(kRead), kWrite);
}

void RegionTable::insert_position(uint32_t position, uint32_t chunk) noexcept {
  const uint32_t count = count_.load(kRead);
  for (uint32_t i = count; i > position; --i) move_place(i, i - 1);
  directory_[position].chunk.store(chunk, kWrite);
  count_.store(count + 1, kWrite);
}

void RegionTable::remove_position(uint32_t position) noexcept {
  const uint32_t chunk = directory_[position].chunk.load(kRead);
  const uint32_t count = count_.load(kRead);
  for (uint32_t i = position; i + 1 < count; ++i) move_place(i, i + 1);
  count_.store(count - 1, kWrite);
  cut(chunks_[chunk], 0);
  chunks_[chunk].next_free = free_chunk_;
  free_chunk_ = chunk + 1;
}

uint32_t RegionTable::take_chunk() noexcept {
  if (free_chunk_ != 0) {
    const uint32_t fresh = free_chunk_ - 1;
    free_chunk_ = chunks_[fresh].next_free;
    return fresh;
  }
  const uint32_t fresh = used_chunks_++;
  chunks_[fresh].count.store(kChunkEntries, kWrite);
  cut(chunks_[fresh], 0);
  return fresh;
}

void RegionTable::split(uint32_t position) noexcept {
  const uint32_t fresh = take_chunk();
  Chunk& from = chunk_at(position);
  Chunk& to = chunks_[fresh];
  constexpr uint32_t kHalf = kChunkEntries / 2;
  copy(to, 0, from, kHalf, kHalf);
  to.count.store(kHalf, kWrite);
  cut(from, kHalf);
  insert_position(position + 1, fresh);
  note_start(position + 1);
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
  move_up(to, 0, more);
  copy(to, 0, from, kChunkEntries - more, more);
  cut(from, kChunkEntries - more);
  to.count.store(have + more, kWrite);
  note_start(position + 1);
  return true;
}

bool RegionTable::spill_to_previous(uint32_t position) noexcept {
  const uint32_t more = position == 0 ? 0 : spilled(position - 1);
  if (more == 0) return false;
  Chunk& from = chunk_at(position);
  Chunk& to = chunk_at(position - 1);
  const uint32_t have = to.count.load(kRead);
  copy(to, have, from, 0, more);
  copy(from, 0, from, more, kChunkEntries - more);
  cut(from, kChunkEntries - more);
  to.count.store(have + more, kWrite);
  note_start(position);
  return true;
}

void RegionTable::join_with_next(uint32_t position) noexcept {
  Chunk& left = chunk_at(position);
  const Chunk& right = chunk_at(position + 1);
  const uint32_t have = left.count.load(kRead);
  const uint32_t more = right.count.load(kRead);
  copy(left, have, right, 0, more);
  left.count.store(have + more, kWrite);
  remove_position(position + 1);
}

// Memory that is used in order, up or down, beside other memory or alone, fills its chunks: half full, they
// would cost twice as much. So a new chunk begins with one range where that belongs between two chunks, and
// a full chunk is split only when its neighbours have little room.
uint32_t RegionTable::make_room(uint32_t position, uintptr_t addr) noexcept {
  const bool before_all = position == 0 && addr < first_of(0);
  const bool at_the_end = chunk_at(position).starts[kChunkEntries - 1].load(kRead) < addr;
  if (before_all || at_the_end) {
    if (at_the_end) ++position;
    if (at_the_end && position < count_.load(kRead) && !is_full(position)) return position;
    const uint32_t fresh = take_chunk();
    insert_position(position, fresh);
    return position;
  }
  if (spill_to_previous(position)) return first_of(position) <= addr ? position : position - 1;
  if (!spill_to_next(position)) split(position);
  return first_of(position + 1) <= addr ? position + 1 : position;
}

bool RegionTable::insert(MemoryRange range, RegionIndex index) noexcept {
  Cursor place{0, 0};
  const uint32_t positions = count_.load(kRead);
  if (positions != 0) {
    place.position = position_of(range.addr, positions);
    place.entry = entries_up_to(chunk_at(place.position), range.addr);
    if (is_nested(range, place)) return false;
  }
  lock_.begin_write();
  if (positions == 0) {
    const uint32_t fresh = take_chunk();
    insert_position(0, fresh);
  } else if (is_full(place.position)) {
    place.position = make_room(place.position, range.addr);
    place.entry = entries_up_to(chunk_at(place.position), range.addr);
  }
  Chunk& chunk = chunk_at(place.position);
  const uint32_t count = chunk.count.load(kRead);
  move_up(chunk, place.entry, 1);
  chunk.starts[place.entry].store(range.addr, kWrite);
  chunk.indices[place.entry].store(index, kWrite);
  chunk.count.store(count + 1, kWrite);
  if (place.entry == 0) note_start(place.position);
  lock_.end_write();
  return true;
}

// True if the neighbours of the place contain the range or lie in it: no others can.
bool RegionTable::is_nested(MemoryRange range, Cursor place) const noexcept {
  const RegionIndex below = before(place);
  if (below != kNoRegion && (last_of(below) >= range.last() || start_of(below) == range.addr))
    return true;
  const RegionIndex next = at(place);
  return next != kNoRegion && last_of(next) <= range.last();
}

void RegionTable::erase(MemoryRange range, RegionIndex /*index*/) noexcept {
  lock_.begin_write();
  const uint32_t position = position_of(range.addr, count_.load(kRead));
  Chunk& chunk = chunk_at(position);
  const uint32_t entry = entries_up_to(chunk, range.addr) - 1;
  const uint32_t count = chunk.count.load(kRead) - 1;
  copy(chunk, entry, chunk, entry + 1, count - entry);
  cut(chunk, count);
  if (entry == 0 && count != 0) note_start(position);
  if (count <= kJoinEntries) join_neighbours(position, count);
  lock_.end_write();
}

// Removes the chunk if it is empty, and joins it, or its neighbours, where two have become small.
void RegionTable::join_neighbours(uint32_t position, uint32_t count) noexcept {
  const uint32_t positions = count_.load(kRead);
  const auto count_at = [&](uint32_t p) { return chunk_at(p).count.load(kRead); };
  if (count == 0) {
    remove_position(position);
    if (position > 0 && position < positions - 1 &&
        count_at(position - 1) + count_at(position) <= kJoinEntries)
      join_with_next(position - 1);
  } else if (position + 1 < positions && count + count_at(position + 1) <= kJoinEntries) {
    join_with_next(position);
  } else if (position > 0 && count_at(position - 1) + count <= kJoinEntries) {
    join_with_next(position - 1);
  }
}

void RegionTable::clear() noexcept {
  lock_.reset_in_child();
  lock_.begin_write();
  count_.store(0, kWrite);
  used_chunks_ = free_chunk_ = 0;
  lock_.end_write();
}

uint64_t RegionTable::memory_bytes() const noexcept {
  return uint64_t{used_chunks_} * (sizeof(Chunk) + sizeof(Place));
}

}  // namespace hydrant
