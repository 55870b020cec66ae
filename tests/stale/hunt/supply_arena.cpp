// A supply of memory from libhydrant_alloc, if it is loaded.
#include "tests/stale/hunt/worker.hpp"

#include <dlfcn.h>

namespace hydrant::stale {
namespace {

constexpr uint32_t kTrimOneIn = 64;

class ArenaSupply final : public Supply {
 public:
  ArenaSupply()
      : alloc_(reinterpret_cast<Alloc>(dlsym(RTLD_DEFAULT, "hydrant_alloc"))),
        realloc_(reinterpret_cast<Realloc>(dlsym(RTLD_DEFAULT, "hydrant_realloc"))),
        free_(reinterpret_cast<Free>(dlsym(RTLD_DEFAULT, "hydrant_free"))),
        trim_(reinterpret_cast<Trim>(dlsym(RTLD_DEFAULT, "hydrant_alloc_trim"))) {}

  std::string unusable() const override {
    return alloc_ == nullptr || realloc_ == nullptr || free_ == nullptr
               ? "libhydrant_alloc is not loaded in this process"
               : "";
  }

  bool get(Worker& worker, Block* block) override {
    const size_t len = length(worker);
    void* memory = alloc_(len);
    if (memory == nullptr) return false;
    *block = block_of(worker, memory, len);
    return true;
  }

  bool change(Worker& worker, Block& block) override {
    if (trim_ != nullptr && worker.random().one_in(kTrimOneIn)) trim_();
    worker.leaving(block.range, Fate::kUnknown);
    const size_t len = length(worker);
    void* memory = realloc_(block.origin, len);
    if (memory != nullptr) block = block_of(worker, memory, len);
    return true;
  }

  void free_block(Worker& worker, Block& block) override {
    worker.leaving(block.range, Fate::kUnknown);
    free_(block.origin);
  }

  // An arena keeps its pages as long as possible.
  bool replaces_pages() const override { return false; }

 private:
  using Alloc = void* (*)(size_t);
  using Realloc = void* (*)(void*, size_t);
  using Free = void (*)(void*);
  using Trim = size_t (*)();

  static size_t length(Worker& worker) {
    Random& random = worker.random();
    const size_t most = random.one_in(4) ? size_t{1} << 20 : size_t{16} << 10;
    return random.between(2 * kCellBytes, most);
  }

  Block block_of(Worker& worker, void* memory, size_t len) {
    const auto start = reinterpret_cast<uintptr_t>(memory);
    const uintptr_t first = (start + kCellBytes - 1) / kCellBytes * kCellBytes;
    Block block;
    block.supply = this;
    block.source = Source::kArena;
    block.origin = memory;
    block.range = {first, (start + len - first) / kCellBytes * kCellBytes};
    block.life = worker.begin(Source::kArena, block.range);
    return block;
  }

  const Alloc alloc_;
  const Realloc realloc_;
  const Free free_;
  const Trim trim_;
};

}  // namespace

std::unique_ptr<Supply> make_arena_supply(SourceSet sources) {
  if (!sources.has(Source::kArena)) return nullptr;
  return std::make_unique<ArenaSupply>();
}

}  // namespace hydrant::stale
