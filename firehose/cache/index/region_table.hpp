// Region mode's table: intervals of any length, ordered by address.
//
// Sorted starts in chunks of up to 32, and a sorted directory of the chunks: a lookup is two binary searches
// whatever the length of the ranges, an insertion moves at most one chunk (and the directory once per ~16
// insertions). 13 to 20 bytes per range; where a range ends is in its region's slot.
#pragma once

#include "firehose/base/mapped_array.hpp"
#include "firehose/cache/index/pin_table.hpp"

namespace hydrant {

class RegionTable final : public PinTable {
 public:
  // The slots of the regions, by index, hold their ranges while they are in the table.
  explicit RegionTable(const RegionSlot* slots) noexcept : slots_(slots) {}

  [[nodiscard]] bool map(size_t max_ranges) noexcept override;
  bool mapped() const noexcept override { return chunks_.size() != 0; }
  RegionIndex find(uintptr_t addr) const noexcept override;
  RegionIndex any_overlap(uintptr_t first, uintptr_t last) const noexcept override;
  RegionIndex first_start(uintptr_t first, uintptr_t last) const noexcept override;
  size_t collect(uintptr_t first, uintptr_t last, RegionIndex* out,
                 size_t room) const noexcept override;
  bool collect_unlocked(uintptr_t first, uintptr_t last, RegionIndex* out, size_t room,
                        size_t* n) const noexcept override;
  [[nodiscard]] bool insert(MemoryRange range, RegionIndex index) noexcept override;
  void erase(MemoryRange range, RegionIndex index) noexcept override;
  void clear() noexcept override;
  uint64_t memory_bytes() const noexcept override;

 private:
  static constexpr uint32_t kChunkEntries = 32;
  // Two neighbours that fit into this many entries become one.
  static constexpr uint32_t kJoinEntries = 24;
  // The fewest ranges of a chunk on average, in any order of insertions; it sizes the reserved address space.
  static constexpr uint32_t kMinRanges = 8;
  // The fewest entries that are moved to a neighbour instead of a split.
  static constexpr uint32_t kMinSpilled = 8;

  // All atomics: find() reads them while they move. Written with release, read with acquire
  // (see SequenceLock).
  struct Chunk {
    std::atomic<uint32_t> count;
    uint32_t next_free;
    // kNoStart behind the last one: a search needs no count, and has no branch.
    std::atomic<uintptr_t> starts[kChunkEntries];
    std::atomic<RegionIndex> indices[kChunkEntries];
  };
  static constexpr uintptr_t kNoStart = UINTPTR_MAX;
  struct Place {
    std::atomic<uintptr_t> start;  // of the chunk's first range
    std::atomic<uint32_t> chunk;
  };
  // A range's place, or the one that it would take: before the entry of the chunk at a position.
  struct Cursor {
    uint32_t position, entry;
  };

  // Copies entries to lower places of the same chunk, or to another one.
  static void copy(Chunk& to, uint32_t to_entry, const Chunk& from, uint32_t entry,
                   uint32_t n) noexcept;
  // Moves the entries from `entry` on up by so many places.
  static void move_up(Chunk& chunk, uint32_t entry, uint32_t places) noexcept;
  // Sets the number of entries; those that are cut off become blank.
  static void cut(Chunk& chunk, uint32_t count) noexcept;
  const Chunk& chunk_at(uint32_t position) const noexcept;
  Chunk& chunk_at(uint32_t position) noexcept;
  uintptr_t first_of(uint32_t position) const noexcept;
  // The first and the last byte of a region of the table.
  uintptr_t start_of(RegionIndex index) const noexcept;
  uintptr_t last_of(RegionIndex index) const noexcept;
  // Last position whose chunk starts at or below addr, or 0.
  uint32_t position_of(uintptr_t addr, uint32_t count) const noexcept;
  // Number of entries of the chunk with start <= addr.
  static uint32_t entries_up_to(const Chunk& chunk, uintptr_t addr) noexcept;
  // The region before the cursor, and the one at it; kNoRegion if there is none. Requires: not empty.
  RegionIndex before(Cursor cursor) const noexcept;
  RegionIndex at(Cursor cursor) const noexcept;
  // Writes the chunk's first start to the directory.
  void note_start(uint32_t position) noexcept;
  // An empty chunk.
  uint32_t take_chunk() noexcept;
  bool is_full(uint32_t position) const noexcept;
  // Makes room in the full chunk that addr belongs to: spills to a neighbour or takes a new chunk. Returns
  // the position of the chunk that takes addr.
  uint32_t make_room(uint32_t position, uintptr_t addr) noexcept;
  void split(uint32_t position) noexcept;
  // How many entries of a full neighbour the chunk takes, if there is one; 0 where that is not worth it.
  uint32_t spilled(uint32_t position) const noexcept;
  // Move the end, or the beginning, of a full chunk into its neighbour; false where that has little room.
  bool spill_to_next(uint32_t position) noexcept;
  bool spill_to_previous(uint32_t position) noexcept;
  void join_with_next(uint32_t position) noexcept;
  void join_neighbours(uint32_t position, uint32_t count) noexcept;
  bool is_nested(MemoryRange range, Cursor place) const noexcept;
  void move_place(uint32_t to, uint32_t from) noexcept;
  void remove_position(uint32_t position) noexcept;
  void insert_position(uint32_t position, uint32_t chunk) noexcept;

  SequenceLock lock_;
  std::atomic<uint32_t> count_{0};  // positions in use
  const RegionSlot* const slots_;
  MappedArray<Place> directory_;
  MappedArray<Chunk> chunks_;
  uint32_t used_chunks_ = 0;  // ever used
  uint32_t free_chunk_ = 0;   // list of free ones, by number + 1
};

}  // namespace hydrant
