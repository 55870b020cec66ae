// Supplies of huge pages: transparent ones at a few fixed addresses, and reserved ones (MAP_HUGETLB).
#include "tests/stale/hunt/worker.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <sys/mman.h>

namespace hydrant::stale {
namespace {

constexpr size_t kHugeBytes = size_t{2} << 20;
constexpr size_t kPlaceBytes = 2 * kHugeBytes;
constexpr uint32_t kPlaces = 4;
constexpr int kPrivateHuge = MAP_PRIVATE | MAP_ANONYMOUS;

// A supply of fixed places, each owned by one thread at a time.
class PlacedSupply : public Supply {
 public:
  PlacedSupply(Source source, int flags) : source_(source), flags_(flags) {
    // Starts at the bottom of a hole: the kernel assigns addresses from its top.
    constexpr size_t kHole = size_t{1} << 30;
    void* hole = mmap(nullptr, kHole, PROT_NONE, kPrivateHuge | MAP_NORESERVE, -1, 0);
    if (hole == MAP_FAILED) return;
    munmap(hole, kHole);
    base_ = (reinterpret_cast<uintptr_t>(hole) + kPlaceBytes) / kPlaceBytes * kPlaceBytes;
  }

  bool get(Worker& worker, Block* block) override {
    if (base_ == 0) return false;
    const uint32_t place = worker.random().below(kPlaces);
    if (taken_[place].exchange(true)) return false;
    void* at = reinterpret_cast<void*>(base_ + place * kPlaceBytes);
    void* memory =
        mmap(at, kPlaceBytes, PROT_READ | PROT_WRITE, flags_ | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory != at) {
      if (memory != MAP_FAILED) munmap(memory, kPlaceBytes);
      taken_[place] = false;
      return false;
    }
    if (source_ == Source::kHuge) madvise(at, kPlaceBytes, MADV_HUGEPAGE);
    *block = {};
    block->supply = this;
    block->source = source_;
    block->slot = Windows::kNone;
    block->range = {reinterpret_cast<uintptr_t>(at), kPlaceBytes};
    block->life = worker.begin(source_, block->range);
    return true;
  }

  bool change(Worker& worker, Block& block) override {
    // Replaces a whole huge page, or some of its small pages, which splits it.
    const bool small = source_ == Source::kHuge && worker.random().one_in(2);
    const size_t unit = small ? kPageBytes : kHugeBytes;
    const size_t from = worker.random().below(kPlaceBytes / unit) * unit;
    const Range part{block.range.addr + from, unit};
    worker.leaving(part, Fate::kPagesGo);
    if (madvise(reinterpret_cast<void*>(part.addr), part.len, MADV_DONTNEED) == 0) {
      worker.check_part(block, part, source_);
    }
    return true;
  }

  void free_block(Worker& worker, Block& block) override {
    worker.leaving(block.range, Fate::kPagesGo);
    munmap(reinterpret_cast<void*>(block.range.addr), block.range.len);
    taken_[(block.range.addr - base_) / kPlaceBytes] = false;
  }

 private:
  const Source source_;
  const int flags_;
  uintptr_t base_ = 0;
  std::atomic<bool> taken_[kPlaces] = {};
};

class HugetlbSupply final : public PlacedSupply {
 public:
  HugetlbSupply() : PlacedSupply(Source::kHugetlb, kPrivateHuge | MAP_HUGETLB) {}
  std::string unusable() const override {
    void* memory =
        mmap(nullptr, kHugeBytes, PROT_READ | PROT_WRITE, kPrivateHuge | MAP_HUGETLB, -1, 0);
    if (memory == MAP_FAILED) {
      return std::string("no huge pages are reserved (vm.nr_hugepages): ") + std::strerror(errno);
    }
    munmap(memory, kHugeBytes);
    return "";
  }
};

}  // namespace

std::unique_ptr<Supply> make_huge_supply(SourceSet sources) {
  if (!sources.has(Source::kHuge)) return nullptr;
  return std::make_unique<PlacedSupply>(Source::kHuge, kPrivateHuge);
}

std::unique_ptr<Supply> make_hugetlb_supply(SourceSet sources) {
  if (!sources.has(Source::kHugetlb)) return nullptr;
  return std::make_unique<HugetlbSupply>();
}

}  // namespace hydrant::stale
