// Supplies of private anonymous mappings in windows, with every way of releasing their pages.
#include <hydrant/monitor.h>

#include "tests/stale/hunt/map_calls.hpp"
#include "tests/stale/hunt/supply_windows.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sys/mman.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

namespace hydrant::stale {
namespace {

constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;

class AnonymousSupply final : public WindowSupply {
 public:
  AnonymousSupply(SourceSet sources, Windows* windows) : WindowSupply(windows), sources_(sources) {}
  // For windows that form an arena: reports to the monitor before memory in them is released.
  AnonymousSupply(Windows* windows, const hydrant_monitor_t* monitor)
      : WindowSupply(windows),
        sources_({Source::kMmap, Source::kFixed, Source::kMremap, Source::kOnto, Source::kMadvise}),
        monitor_(monitor) {
    if (monitor->add_arena(windows->addr(0), windows->slots() * windows->slot_bytes()) != 0) {
      monitor_ = nullptr;
    }
  }
  ~AnonymousSupply() override {
    if (monitor_ == nullptr) return;
    monitor_->drop_arena(windows().addr(0), windows().slots() * windows().slot_bytes());
  }

  bool get(Worker& worker, Block* block) override;
  bool change(Worker& worker, Block& block) override;
  bool can_free_block(const Block&) const override { return sources_.has(Source::kMmap); }
  void free_block(Worker& worker, Block& block) override;

 private:
  using Way = bool (AnonymousSupply::*)(Worker&, Block&);
  struct WayRow {
    Source source;
    Way way;
  };

  bool unmap_part(Worker& worker, Block& block);
  bool map_over(Worker& worker, Block& block);
  bool move_onto(Worker& worker, Block& block);
  bool move_and_keep(Worker& worker, Block& block);
  bool resize(Worker& worker, Block& block);
  bool grow_anywhere(Worker& worker, Block& block);
  bool empty(Worker& worker, Block& block);
  bool advise(Worker& worker, Block& block);
  bool protect(Worker& worker, Block& block);
  // Replaces memory whose release was reported.
  static void replace(Range range) {
    if (map_memory(pointer(range.addr), range.len, PROT_READ | PROT_WRITE, kPrivate | MAP_FIXED,
                   -1) == MAP_FAILED) {
      std::abort();
    }
  }
  // A failed mremap has still unmapped its target, and a concurrent mmap at any address may have taken it.
  // False if the addresses are taken.
  static bool fill_hole(Range range) { return map_new(range.addr, range.len, kPrivate, -1); }
  void leave(Worker& worker, Range range, Fate fate) const {
    worker.leaving(range, fate);
    if (monitor_ != nullptr) monitor_->invalidate(range.addr, range.len);
  }
  // An arena's owner reports again: it may have been registered meanwhile together with a neighbour.
  void gone(Range range) const {
    if (monitor_ != nullptr) monitor_->invalidate(range.addr, range.len);
  }
  static void begin_again(Worker& worker, Block& block, Source source) {
    block.source = source;
    block.life = worker.begin(source, block.range);
  }
  uint32_t map_target(Worker& worker, size_t len);

  Source source(Source own) const { return monitor_ != nullptr ? Source::kOwner : own; }

  const SourceSet sources_;
  const hydrant_monitor_t* monitor_ = nullptr;
};

bool AnonymousSupply::get(Worker& worker, Block* block) {
  const size_t len = some_pages(worker);
  block->slot = map_somewhere(worker, len,
                              [len](uintptr_t addr) { return map_new(addr, len, kPrivate, -1); });
  if (block->slot == Windows::kNone) return false;
  block->range = {windows().addr(block->slot), len};
  block->source = source(Source::kMmap);
  block->supply = this;
  block->life = worker.begin(source(Source::kMmap), block->range);
  return true;
}

void AnonymousSupply::free_block(Worker& worker, Block& block) {
  leave(worker, block.range, Fate::kPagesGo);
  unmap_slot(worker, block, [&block] { unmap_memory(pointer(block.range.addr), block.range.len); });
}

bool AnonymousSupply::change(Worker& worker, Block& block) {
  static constexpr std::array<WayRow, 10> kWays = {{
      {Source::kMmap, &AnonymousSupply::unmap_part},
      {Source::kFixed, &AnonymousSupply::map_over},
      {Source::kFixed, &AnonymousSupply::map_over},
      {Source::kOnto, &AnonymousSupply::move_onto},
      {Source::kOnto, &AnonymousSupply::move_and_keep},
      {Source::kMremap, &AnonymousSupply::resize},
      {Source::kMremap, &AnonymousSupply::grow_anywhere},
      {Source::kMadvise, &AnonymousSupply::empty},
      {Source::kMadvise, &AnonymousSupply::advise},
      {Source::kMadvise, &AnonymousSupply::protect},
  }};
  const size_t first = worker.random().below(kWays.size());
  for (size_t i = 0; i < kWays.size(); ++i) {
    const WayRow& row = kWays[(first + i) % kWays.size()];
    if (sources_.has(row.source)) return (this->*row.way)(worker, block);
  }
  return false;
}

// Unmaps a part and maps new memory in the hole, unless another thread's mremap has taken it.
bool AnonymousSupply::unmap_part(Worker& worker, Block& block) {
  const Range part = some_part(worker, block.range);
  leave(worker, part, Fate::kPagesGo);
  unmap_memory(pointer(part.addr), part.len);
  gone(part);
  if (map_new(part.addr, part.len, kPrivate, -1)) {
    worker.check_part(block, part, source(Source::kMmap));
    return true;
  }
  // Releases the part after the hole, too, and the whole block if its first page is lost.
  const Range rest{part.end(), block.range.end() - part.end()};
  if (rest.len != 0) {
    leave(worker, rest, Fate::kPagesGo);
    unmap_memory(pointer(rest.addr), rest.len);
  }
  block.range.len = part.addr - block.range.addr;
  if (block.range.len != 0) return true;
  unmap_slot(worker, block, [] {});
  return worker.forget(block), false;
}

bool AnonymousSupply::map_over(Worker& worker, Block& block) {
  const Range part = some_part(worker, block.range);
  leave(worker, part, Fate::kPagesGo);
  replace(part);
  gone(part);
  if (part.len == block.range.len) {
    begin_again(worker, block, source(Source::kFixed));
  } else {
    worker.check_part(block, part, source(Source::kFixed));
  }
  return true;
}

// Maps memory in another slot as a target of mremap; kNone if no slot is available.
uint32_t AnonymousSupply::map_target(Worker& worker, size_t len) {
  return map_somewhere(worker, len,
                       [len](uintptr_t addr) { return map_new(addr, len, kPrivate, -1); });
}

bool AnonymousSupply::move_onto(Worker& worker, Block& block) {
  const uint32_t slot = map_target(worker, block.range.len);
  if (slot == Windows::kNone) return false;
  // The replaced mapping has a short life, too, and is pinned.
  Block target = block;
  target.slot = slot;
  target.range.addr = windows().addr(slot);
  target.life = worker.begin(source(Source::kOnto), target.range);
  worker.check(target);
  leave(worker, target.range, Fate::kPagesGo);
  leave(worker, block.range, Fate::kUnknown);
  void* moved = MAP_FAILED;
  unmap_slot(worker, block, [&] {
    const Range from = block.range;
    moved = move_memory(pointer(from.addr), from.len, from.len, MREMAP_MAYMOVE | MREMAP_FIXED,
                        pointer(target.range.addr));
    // Most kernels do not move several mappings at once. Then the slot must be emptied, because a contender
    // waits for that.
    if (moved != MAP_FAILED) return;
    worker.ground().cache.call_failed(from);
    worker.ground().cache.call_failed(target.range);
    // The memory that did not move is lost: part of it may have moved (Linux 6.17 and later), and a contender
    // for the slot may have mapped memory there since.
  });
  gone(target.range);
  block = target;
  if (moved == MAP_FAILED && !fill_hole(block.range)) {
    unmap_slot(worker, block, [] {});
    return worker.forget(block), false;
  }
  begin_again(worker, block, source(Source::kOnto));
  return true;
}

// Moves the pages to another slot; the old mapping stays, empty. The result is two blocks.
bool AnonymousSupply::move_and_keep(Worker& worker, Block& block) {
  const uint32_t slot = map_target(worker, block.range.len);
  if (slot == Windows::kNone) return false;
  Block other = block;
  other.slot = slot;
  other.range.addr = windows().addr(slot);
  leave(worker, block.range, Fate::kUnknown);
  leave(worker, other.range, Fate::kPagesGo);
  void* moved =
      move_memory(pointer(block.range.addr), block.range.len, block.range.len,
                  MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, pointer(other.range.addr));
  if (moved == MAP_FAILED) {
    worker.ground().cache.call_failed(block.range);
    worker.ground().cache.call_failed(other.range);
  }
  gone(block.range);
  gone(other.range);
  begin_again(worker, block, source(Source::kOnto));
  if (moved == MAP_FAILED && !fill_hole(other.range)) {
    unmap_slot(worker, other, [] {});
    return true;
  }
  begin_again(worker, other, source(Source::kOnto));
  worker.check(other);
  const Block kept = block;
  if (!worker.adopt(other)) free_block(worker, other);
  worker.check(kept);
  return false;
}

// Resizes the mapping in place, within the slot.
bool AnonymousSupply::resize(Worker& worker, Block& block) {
  const size_t most = std::max(block.range.len, windows().slot_bytes());
  const size_t len = worker.random().between(1, most / kPageBytes) * kPageBytes;
  if (len < block.range.len) {
    leave(worker, {block.range.addr + len, block.range.len - len}, Fate::kPagesGo);
  }
  if (move_memory(pointer(block.range.addr), block.range.len, len, 0) == MAP_FAILED) return false;
  const Range added{block.range.end(), len > block.range.len ? len - block.range.len : 0};
  block.range.len = len;
  if (block.slot != Windows::kNone) {
    windows().set_extent(block.slot, std::min(len, windows().slot_bytes()));
  }
  if (added.len != 0) worker.check_part(block, added, source(Source::kMremap));
  return true;
}

// Grows the mapping at an address that the kernel chooses, mostly outside the windows.
bool AnonymousSupply::grow_anywhere(Worker& worker, Block& block) {
  const size_t most = 4 * windows().slot_bytes();
  if (block.range.len >= most || block.slot == Windows::kNone) return false;
  leave(worker, block.range, Fate::kUnknown);
  const size_t len = block.range.len + windows().slot_bytes();
  void* moved = MAP_FAILED;
  unmap_slot(worker, block, [&] {
    moved = move_memory(pointer(block.range.addr), block.range.len, len, MREMAP_MAYMOVE);
    if (moved != pointer(block.range.addr) && moved != MAP_FAILED) return;
    // The mapping did not move, but a contender waits for the slot, so unmaps it.
    unmap_memory(pointer(block.range.addr), moved == MAP_FAILED ? block.range.len : len);
    moved = map_memory(nullptr, len, PROT_READ | PROT_WRITE, kPrivate, -1);
  });
  if (moved == MAP_FAILED) return worker.forget(block), false;
  block.slot = Windows::kNone;
  block.range = {reinterpret_cast<uintptr_t>(moved), len};
  begin_again(worker, block, source(Source::kMremap));
  return true;
}

bool AnonymousSupply::empty(Worker& worker, Block& block) {
  const Range part = some_part(worker, block.range);
  leave(worker, part, Fate::kPagesGo);
  const int advice = worker.random().one_in(4) ? MADV_DONTNEED_LOCKED : MADV_DONTNEED;
  if (advise_memory(pointer(part.addr), part.len, advice) != 0) replace(part);
  gone(part);
  if (part.len == block.range.len) {
    begin_again(worker, block, source(Source::kMadvise));
  } else {
    worker.check_part(block, part, source(Source::kMadvise));
  }
  return true;
}

// Gives advice that does not affect pinned pages.
bool AnonymousSupply::advise(Worker& worker, Block& block) {
  static constexpr int kAdvice[] = {
      MADV_FREE,     MADV_PAGEOUT,    MADV_COLD,        MADV_WILLNEED,   MADV_NORMAL,
      MADV_RANDOM,   MADV_SEQUENTIAL, MADV_MERGEABLE,   MADV_HUGEPAGE,   MADV_COLLAPSE,
      MADV_DONTFORK, MADV_DOFORK,     MADV_UNMERGEABLE, MADV_NOHUGEPAGE, MADV_POPULATE_WRITE,
  };
  const Range part = some_part(worker, block.range);
  const size_t which = worker.random().below(std::size(kAdvice));
  advise_memory(pointer(part.addr), part.len, kAdvice[which]);
  return true;
}

// Removes and restores access rights: the pages stay.
bool AnonymousSupply::protect(Worker& worker, Block& block) {
  const Range part = some_part(worker, block.range);
  mprotect(pointer(part.addr), part.len, worker.random().one_in(2) ? PROT_NONE : PROT_READ);
  mprotect(pointer(part.addr), part.len, PROT_READ | PROT_WRITE);
  return true;
}

}  // namespace

std::unique_ptr<Supply> make_window_supply(SourceSet sources, Windows* windows) {
  if (!sources.has_any({Source::kMmap, Source::kFixed, Source::kMremap, Source::kMadvise})) {
    return nullptr;
  }
  return std::make_unique<AnonymousSupply>(sources, windows);
}

std::unique_ptr<Supply> make_owner_supply(SourceSet sources, Windows* windows) {
  const hydrant_monitor_t* monitor = hydrant_monitor(HYDRANT_MONITOR_VERSION);
  if (!sources.has(Source::kOwner) || monitor == nullptr) return nullptr;
  return std::make_unique<AnonymousSupply>(windows, monitor);
}

}  // namespace hydrant::stale
