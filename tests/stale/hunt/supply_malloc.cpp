// Supplies from libc's malloc (or its replacement): heaps that grow, shrink and are trimmed, and blocks that
// libc maps and unmaps internally, without calls of public symbols.
#include "tests/stale/hunt/worker.hpp"

#include <cstdlib>
#include <malloc.h>

namespace hydrant::stale {
namespace {

// Threshold from which malloc maps memory. Set explicitly, because libc would adapt it.
constexpr size_t kMapFrom = size_t{128} << 10;
constexpr size_t kTrimFrom = size_t{64} << 10;
constexpr size_t kSmallest = 2 * kCellBytes;
constexpr size_t kSmallMost = size_t{24} << 10;
constexpr size_t kLargeMost = size_t{512} << 10;

// The whole cells in [addr, addr+len).
Range cells_in(void* memory, size_t len) {
  const auto start = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t first = (start + kCellBytes - 1) / kCellBytes * kCellBytes;
  return {first, (start + len - first) / kCellBytes * kCellBytes};
}

Block block_of(Worker& worker, Supply* supply, Source source, void* memory, size_t len) {
  Block block;
  block.supply = supply;
  block.source = source;
  block.origin = memory;
  block.range = cells_in(memory, len);
  block.life = worker.begin(source, block.range);
  return block;
}

class SmallSupply final : public Supply {
 public:
  bool get(Worker& worker, Block* block) override {
    const size_t most = worker.random().one_in(2) ? kSmallMost : 16 * kCellBytes;
    const size_t len = worker.random().between(kSmallest, most);
    void* memory = std::malloc(len);
    if (memory == nullptr) return false;
    *block = block_of(worker, this, Source::kSmall, memory, len);
    return true;
  }
  void free_block(Worker& worker, Block& block) override {
    worker.leaving(block.range, Fate::kUnknown);
    std::free(block.origin);
  }
  bool replaces_pages() const override { return false; }
};

class LargeSupply final : public Supply {
 public:
  bool get(Worker& worker, Block* block) override {
    const size_t len = length(worker);
    void* memory = worker.random().one_in(8) ? std::calloc(1, len) : std::malloc(len);
    if (memory == nullptr) return false;
    *block = block_of(worker, this, Source::kLarge, memory, len);
    return true;
  }
  // Calls realloc(), which uses mremap inside libc, in place or elsewhere.
  bool change(Worker& worker, Block& block) override {
    worker.leaving(block.range, Fate::kUnknown);
    const size_t len = length(worker);
    void* memory = std::realloc(block.origin, len);
    if (memory == nullptr) return true;
    block = block_of(worker, this, Source::kLarge, memory, len);
    return true;
  }
  void free_block(Worker& worker, Block& block) override {
    // Other allocators and sanitizers may keep the pages.
    worker.leaving(block.range, Fate::kUnknown);
    std::free(block.origin);
  }

 private:
  static size_t length(Worker& worker) {
    const size_t most = worker.random().one_in(4) ? kLargeMost : 2 * kMapFrom;
    return worker.random().between(kMapFrom + kPageBytes, most);
  }
};

// Large blocks in a secondary heap that has no other blocks: the thread's first heap is full.
class HeapSupply final : public Supply {
 public:
  ~HeapSupply() override {
    for (void* memory : ballast_) std::free(memory);
  }
  bool get(Worker& worker, Block* block) override {
    if (!has_ballast(worker)) return false;
    const size_t len = worker.random().between(kMapFrom / 4, kMapFrom / 2);
    void* memory = std::malloc(len);
    if (memory == nullptr) return false;
    *block = block_of(worker, this, Source::kHeap, memory, len);
    return true;
  }
  void free_block(Worker& worker, Block& block) override {
    worker.leaving(block.range, Fate::kUnknown);
    std::free(block.origin);
  }
  bool replaces_pages() const override { return false; }

 private:
  static constexpr size_t kHeapBytes = size_t{64} << 20;

  bool has_ballast(Worker& worker) {
    const std::lock_guard lock(mutex_);
    if (full_.size() <= worker.index()) full_.resize(worker.index() + 1);
    if (full_[worker.index()]) return true;
    full_[worker.index()] = true;
    constexpr size_t kPiece = kMapFrom / 2;
    for (size_t taken = 0; taken + kPiece < kHeapBytes; taken += kPiece) {
      ballast_.push_back(std::malloc(kPiece - 64));
    }
    return true;
  }

  std::mutex mutex_;
  std::vector<bool> full_;
  std::vector<void*> ballast_;
};

}  // namespace

std::unique_ptr<Supply> make_heap_supply(SourceSet sources) {
  if (!sources.has(Source::kHeap)) return nullptr;
  mallopt(M_TRIM_THRESHOLD, kTrimFrom);
  mallopt(M_TOP_PAD, 0);
  mallopt(M_MMAP_THRESHOLD, kMapFrom);
  return std::make_unique<HeapSupply>();
}

std::unique_ptr<Supply> make_small_supply(SourceSet sources) {
  if (!sources.has_any({Source::kSmall, Source::kTrim})) return nullptr;
  mallopt(M_TRIM_THRESHOLD, kTrimFrom);
  mallopt(M_TOP_PAD, 0);
  return std::make_unique<SmallSupply>();
}

std::unique_ptr<Supply> make_large_supply(SourceSet sources) {
  if (!sources.has(Source::kLarge)) return nullptr;
  mallopt(M_MMAP_THRESHOLD, kMapFrom);
  return std::make_unique<LargeSupply>();
}

}  // namespace hydrant::stale
