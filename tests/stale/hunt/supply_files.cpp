// Supplies of shared mappings in windows: shared anonymous memory, files in memory, System V segments. The
// kernel does not report holes punched into a file, shrinking files, or shmdt().
#include "tests/stale/hunt/supply_windows.hpp"

#include <fcntl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>
#include <vector>

namespace hydrant::stale {
namespace {

class FileSupply final : public WindowSupply {
 public:
  FileSupply(std::vector<Source> kinds, Windows* windows)
      : WindowSupply(windows), kinds_(std::move(kinds)) {}

  bool get(Worker& worker, Block* block) override;
  bool change(Worker& worker, Block& block) override;
  void free_block(Worker& worker, Block& block) override;

 private:
  static bool map(Source source, uintptr_t addr, size_t len, int file);
  static void leave(Worker& worker, const Block& block, Range part, Fate fate);
  static bool punch(const Block& block, Range part);
  static bool shrink(const Block& block, Range part);
  static bool map_again(const Block& block);

  const std::vector<Source> kinds_;
};

bool is_file(Source source) { return source == Source::kMemfd || source == Source::kVouched; }

bool FileSupply::map(Source source, uintptr_t addr, size_t len, int file) {
  if (source == Source::kShared) return map_new(addr, len, MAP_SHARED | MAP_ANONYMOUS, -1);
  if (source != Source::kShm) return map_new(addr, len, MAP_SHARED, file);
  const int segment = shmget(IPC_PRIVATE, len, IPC_CREAT | 0600);
  if (segment < 0) return false;
  const bool attached = shmat(segment, pointer(addr), 0) == pointer(addr);
  shmctl(segment, IPC_RMID, nullptr);  // freed with its last mapping
  return attached;
}

bool FileSupply::get(Worker& worker, Block* block) {
  const Source source = kinds_[worker.random().below(kinds_.size())];
  const size_t len = some_pages(worker);
  if (is_file(source)) {
    block->file = memfd_create("hunt", MFD_CLOEXEC);
    if (block->file < 0) return false;
    if (ftruncate(block->file, static_cast<off_t>(len)) != 0) return close(block->file), false;
  }
  const int file = block->file;
  block->slot = map_somewhere(
      worker, len, [source, len, file](uintptr_t addr) { return map(source, addr, len, file); });
  block->source = source;
  block->supply = this;
  if (block->slot != Windows::kNone) {
    block->range = {windows().addr(block->slot), len};
    block->life = worker.begin(source, block->range);
    Cache& cache = worker.ground().cache;
    // If the cache cannot vouch for it, treats it as an ordinary file.
    if (source == Source::kVouched && !cache.vouch(block->range, true))
      block->source = Source::kMemfd;
    return true;
  }
  if (file >= 0) close(file);
  return false;
}

void FileSupply::leave(Worker& worker, const Block& block, Range part, Fate fate) {
  block.source == Source::kVouched ? worker.leaving_vouched(part, fate)
                                   : worker.leaving(part, fate);
}

bool FileSupply::punch(const Block& block, Range part) {
  if (!is_file(block.source)) return madvise(pointer(part.addr), part.len, MADV_REMOVE) == 0;
  const auto offset = static_cast<off_t>(part.addr - block.range.addr);
  return fallocate(block.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
                   static_cast<off_t>(part.len)) == 0;
}

// Truncates the file to the start of the part, and extends it again.
bool FileSupply::shrink(const Block& block, Range part) {
  return ftruncate(block.file, static_cast<off_t>(part.addr - block.range.addr)) == 0 &&
         ftruncate(block.file, static_cast<off_t>(block.range.len)) == 0;
}

// Maps the same file pages again at the same address.
bool FileSupply::map_again(const Block& block) {
  return mmap(pointer(block.range.addr), block.range.len, PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_FIXED, block.file, 0) != MAP_FAILED;
}

bool FileSupply::change(Worker& worker, Block& block) {
  if (block.source == Source::kShm) return false;
  Range part = some_part(worker, block.range);
  const uint32_t way = is_file(block.source) ? worker.random().below(4) : 0;
  if (way == 3) {
    leave(worker, block, block.range, Fate::kUnknown);
    if (map_again(block)) block.life = worker.begin(block.source, block.range);
    return true;
  }
  if (way == 2) part.len = block.range.end() - part.addr;
  leave(worker, block, part, Fate::kPagesGo);
  if (!(way == 2 ? shrink(block, part) : punch(block, part))) return true;
  if (part.len == block.range.len) {
    block.life = worker.begin(block.source, part);
  } else {
    worker.check_part(block, part, block.source);
  }
  return true;
}

void FileSupply::free_block(Worker& worker, Block& block) {
  leave(worker, block, block.range, Fate::kUnknown);
  if (block.source == Source::kVouched) worker.ground().cache.vouch(block.range, false);
  unmap_slot(worker, block, [&block] {
    if (block.source == Source::kShm) {
      shmdt(pointer(block.range.addr));
    } else {
      munmap(pointer(block.range.addr), block.range.len);
    }
  });
  if (block.file >= 0) close(block.file);
}

}  // namespace

std::unique_ptr<Supply> make_file_supply(SourceSet sources, Windows* windows) {
  std::vector<Source> kinds;
  for (const Source source : {Source::kShared, Source::kMemfd, Source::kShm}) {
    if (sources.has(source)) kinds.push_back(source);
  }
  if (kinds.empty()) return nullptr;
  return std::make_unique<FileSupply>(std::move(kinds), windows);
}

std::unique_ptr<Supply> make_vouched_supply(SourceSet sources, Windows* windows) {
  if (!sources.has(Source::kVouched)) return nullptr;
  return std::make_unique<FileSupply>(std::vector<Source>{Source::kVouched}, windows);
}

}  // namespace hydrant::stale
