// A supply: one way to get memory, change it and give it back.
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

// Memory that one thread owns: it alone writes to it, pins it and gives it back, or hands it to another.
struct Block {
  Range range;  // usable bytes; whole cells
  Life life = 0;
  Source source = Source::kCount;
  Supply* supply = nullptr;
  // The supply's own.
  void* origin = nullptr;
  uint32_t slot = Windows::kNone;
  int file = -1;
  explicit operator bool() const { return supply != nullptr; }
};

// What becomes of the bytes when a range is left.
enum class Fate : uint8_t {
  kPagesGo,  // other pages will be at these addresses, and these belong to nobody: who holds them keeps them
  kUnknown,  // or the pages are used again, elsewhere or by somebody else
};

class Supply {
 public:
  virtual ~Supply() = default;
  // "" if it works here, else why not.
  virtual std::string unusable() const { return ""; }
  // A block with a new life. False: not now.
  virtual bool get(Worker& worker, Block* block) = 0;
  // Ends the block's life, or a part's, and begins another in the same block. False: there is no such way.
  virtual bool change(Worker& /*worker*/, Block& /*block*/) { return false; }
  // False: kept for ever (nothing asked for releases it).
  virtual bool can_give_back(const Block& /*block*/) const { return true; }
  virtual void give_back(Worker& worker, Block& block) = 0;
  // False where the address's pages may stay the same from one life to the next (small malloc).
  virtual bool replaces_pages() const { return true; }
};

// Everything below answers null when `sources` asks for none of it.
std::unique_ptr<Supply> make_small_supply(SourceSet sources);
std::unique_ptr<Supply> make_large_supply(SourceSet sources);
std::unique_ptr<Supply> make_window_supply(SourceSet sources, Windows* windows);
std::unique_ptr<Supply> make_file_supply(SourceSet sources, Windows* windows);
// In windows of its own, as the next: they are an arena.
std::unique_ptr<Supply> make_owner_supply(SourceSet sources, Windows* windows);
// In windows of its own, where no bystander comes: whoever announces must know of all pins.
std::unique_ptr<Supply> make_vouched_supply(SourceSet sources, Windows* windows);
std::unique_ptr<Supply> make_break_supply(SourceSet sources);
std::unique_ptr<Supply> make_huge_supply(SourceSet sources);
std::unique_ptr<Supply> make_hugetlb_supply(SourceSet sources);
std::unique_ptr<Supply> make_loader_supply(SourceSet sources, uint32_t threads);
std::unique_ptr<Supply> make_arena_supply(SourceSet sources);

// Guards the end of the data segment, which libc's malloc_trim may move as well.
std::mutex& break_mutex();

}  // namespace hydrant::stale
