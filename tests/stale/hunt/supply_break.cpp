// A supply at the end of the data segment: a single block that grows and shrinks, for the first thread that
// takes it.
//
// libc's malloc shares the segment. Its main heap grows only in the thread that called run_hunt(), which
// allocates nothing meanwhile, and shrinks only in malloc_trim(), which takes break_mutex(), too. If the heap
// still grows above the block, the block is kept for ever and the next one begins above.
#include "tests/stale/hunt/worker.hpp"

#include <unistd.h>

namespace hydrant::stale {
namespace {

constexpr size_t kMaxPages = 64;

class BreakSupply final : public Supply {
 public:
  bool get(Worker& worker, Block* block) override {
    const std::lock_guard lock(break_mutex());
    if (taken_) return false;
    const auto end = reinterpret_cast<uintptr_t>(sbrk(0));
    const uintptr_t start = (end + kPageBytes - 1) / kPageBytes * kPageBytes;
    const size_t len = worker.random().between(1, kMaxPages) * kPageBytes;
    if (brk(reinterpret_cast<void*>(start + len)) != 0) return false;
    taken_ = true;
    *block = {};
    block->supply = this;
    block->source = Source::kBrk;
    block->range = {start, len};
    block->life = worker.begin(Source::kBrk, block->range);
    return true;
  }

  // Shrinks the segment by a part of the block and grows it again.
  bool change(Worker& worker, Block& block) override {
    const std::lock_guard lock(break_mutex());
    if (!is_on_top(block)) return false;
    const size_t pages = block.range.len / kPageBytes;
    const size_t keep = worker.random().below(pages) * kPageBytes;
    const Range part{block.range.addr + keep, block.range.len - keep};
    worker.leaving(part, Fate::kPagesGo);
    if (brk(reinterpret_cast<void*>(part.addr)) != 0) return false;
    if (brk(reinterpret_cast<void*>(part.end())) != 0) {
      block.range.len = keep;
      if (keep != 0) return true;
      taken_ = false;
      return worker.forget(block), false;
    }
    if (keep == 0) {
      block.life = worker.begin(Source::kBrk, part);
    } else {
      worker.check_part(block, part, Source::kBrk);
    }
    return true;
  }

  void free_block(Worker& worker, Block& block) override {
    worker.leaving(block.range, Fate::kPagesGo);
    const std::lock_guard lock(break_mutex());
    if (is_on_top(block)) (void)brk(reinterpret_cast<void*>(block.range.addr));
    taken_ = false;
  }

 private:
  static bool is_on_top(const Block& block) {
    return reinterpret_cast<uintptr_t>(sbrk(0)) == block.range.end();
  }

  bool taken_ = false;  // under break_mutex()
};

}  // namespace

std::mutex& break_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::unique_ptr<Supply> make_break_supply(SourceSet sources) {
  if (!sources.has(Source::kBrk)) return nullptr;
  return std::make_unique<BreakSupply>();
}

}  // namespace hydrant::stale
