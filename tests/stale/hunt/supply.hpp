// A supply: a way to allocate memory, change it and release it.
#pragma once

#include "tests/stale/hunt/book.hpp"
#include "tests/stale/hunt/cache.hpp"
#include "tests/stale/hunt/windows.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace hydrant::stale {

class Worker;
class Supply;

// Memory owned by one thread, which alone writes, pins and releases it, or hands it to another thread.
struct Block {
  Range range;  // usable bytes; whole cells
  Life life = 0;
  Source source = Source::kCount;
  Supply* supply = nullptr;
  // For the supply.
  void* origin = nullptr;
  uint32_t slot = Windows::kNone;
  int file = -1;
  explicit operator bool() const { return supply != nullptr; }
};

// The fate of the pages when a range is released.
enum class Fate : uint8_t {
  kPagesGo,  // the addresses get other pages; the old pages are free, and live only through holds
  kUnknown,  // the pages may be reused, elsewhere or by other code
};

class Supply {
 public:
  virtual ~Supply() = default;
  // "" if it works here, else the reason.
  virtual std::string unusable() const { return ""; }
  // Allocates a block with a new life. False if not possible now.
  virtual bool get(Worker& worker, Block* block) = 0;
  // Ends the life of the block or a part and begins another in the same block. False if not supported.
  virtual bool change(Worker& /*worker*/, Block& /*block*/) { return false; }
  // False if the block is never released (no chosen source releases it).
  virtual bool can_free_block(const Block& /*block*/) const { return true; }
  virtual void free_block(Worker& worker, Block& block) = 0;
  // False if an address may keep its page from one life to the next (small malloc).
  virtual bool replaces_pages() const { return true; }
};

// The functions below answer null if `sources` includes none of theirs.
std::unique_ptr<Supply> make_small_supply(SourceSet sources);
std::unique_ptr<Supply> make_large_supply(SourceSet sources);
std::unique_ptr<Supply> make_heap_supply(SourceSet sources);
std::unique_ptr<Supply> make_window_supply(SourceSet sources, Windows* windows);
std::unique_ptr<Supply> make_file_supply(SourceSet sources, Windows* windows);
// Uses separate windows, which form an arena.
std::unique_ptr<Supply> make_owner_supply(SourceSet sources, Windows* windows);
// Uses separate windows without bystanders: an announcing thread must know of all pins.
std::unique_ptr<Supply> make_vouched_supply(SourceSet sources, Windows* windows);
std::unique_ptr<Supply> make_break_supply(SourceSet sources);
std::unique_ptr<Supply> make_huge_supply(SourceSet sources);
std::unique_ptr<Supply> make_hugetlb_supply(SourceSet sources);
std::unique_ptr<Supply> make_loader_supply(SourceSet sources, uint32_t threads);
std::unique_ptr<Supply> make_arena_supply(SourceSet sources);

// Guards the end of the data segment, which libc's malloc_trim may move as well.
std::mutex& break_mutex();

}  // namespace hydrant::stale
