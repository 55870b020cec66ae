#include "rdma/shm/shm_windows.hpp"

#include "firehose/base/errno_text.hpp"
#include "rdma/guarded_memory.hpp"
#include "rdma/shm/memory/foreign_file.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace hydrant::shm {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
// Windows that begin before a range are looked at so far back; one that is not found is mapped again.
constexpr int kMostLooks = 8;

struct Piece {
  uint64_t offset;
  size_t len;
};

// What is mapped for a range of a file.
Piece piece_around(uint64_t offset, size_t len, uint64_t file_bytes) noexcept {
  uint64_t first = offset & ~(uint64_t{ShmWindows::kWindowBytes} - 1);
  uint64_t end = first + ShmWindows::kWindowBytes;
  if (offset + len > end) {
    first = offset & ~(kHugePage - 1);
    end = (offset + len + kHugePage - 1) & ~(kHugePage - 1);
  }
  return {first, static_cast<size_t>(std::min(end, file_bytes) - first)};
}

// Huge pages of the file can be mapped whole only where the addresses begin at one, too.
void* map_aligned(const Piece& piece, bool writable, int fd) noexcept {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  const size_t bytes = (piece.len + kLeastPageBytes - 1) & ~(kLeastPageBytes - 1);
  std::byte* wanted = nullptr;
  if (reserve_guarded(bytes, kHugePage, GuardSize::kLeast,
                      {.what = "window of another process's memory"}, &wanted) != Status::kOk) {
    errno = ENOMEM;
    return nullptr;
  }
  void* made = mmap(wanted, piece.len, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd,
                    static_cast<off_t>(piece.offset));
  if (made == MAP_FAILED) {
    const int why = errno;
    (void)release_guarded(wanted);
    errno = why;
    return nullptr;
  }
  // A child writes into nobody's memory by mistake, and keeps none of it. The second is a wish.
  (void)madvise(made, piece.len, MADV_DONTFORK);
  (void)madvise(made, piece.len, MADV_HUGEPAGE);
  return made;
}

}  // namespace

ShmWindows::~ShmWindows() {
  Mappings gone;
  {
    const MutexLock lock(mu_);
    if (table_ == nullptr) return;
    for (const Window& window : table_->windows) {
      if (window.len != 0) gone.push_back({window.addr, window.len});
    }
    delete table_;
    table_ = nullptr;
  }
  unmap(gone);
}

bool ShmWindows::has_table_locked() noexcept {
  if (table_ == nullptr) table_ = new (std::nothrow) Table;
  return table_ != nullptr;
}

uint32_t ShmWindows::find(const File& file, const Table& table, const ShmBlob& blob) noexcept {
  auto at = file.windows.upper_bound(blob.offset);
  for (int looks = 0; looks < kMostLooks && at != file.windows.begin(); ++looks) {
    --at;
    const Window& window = table.windows[at->second];
    if (blob.offset + blob.range.len <= window.offset + window.len) return at->second;
  }
  return UINT32_MAX;
}

Status ShmWindows::open_window_locked(const ShmBlob& blob, const FileId& id, Mappings* gone,
                                      uint32_t* index) noexcept {
  Table& table = *table_;
  if (table.windows.size() - table.unused.size() >= kMostWindows) close_idle_locked(0, gone);
  if (table.windows.size() - table.unused.size() >= kMostWindows) {
    return fail(Status::kNotReady,
                "%u mappings of other processes' memory are in use, which is the limit: release "
                "pins of their memory",
                kMostWindows);
  }
  ForeignFile file;
  const bool writable = std::get<bool>(id);
  if (const Status status = open_foreign_file(blob, writable, &file); status != Status::kOk)
    return status;
  const Piece piece = piece_around(blob.offset, blob.range.len, file.bytes);
  void* made = map_aligned(piece, writable, file.descriptor);
  const int error = errno;
  close(file.descriptor);
  if (made == nullptr) {
    const bool is_short = error == ENOMEM || error == EAGAIN;
    return fail(is_short ? Status::kNotReady : Status::kRefused,
                "%zu bytes of the memory of process %u cannot be mapped: %s%s", piece.len,
                blob.process, errno_text(error),
                is_short ? " (ulimit -v, or vm.max_map_count mappings)" : "");
  }
  if (table.unused.empty()) {
    table.unused.push_back(static_cast<uint32_t>(table.windows.size()));
    table.windows.emplace_back();
  }
  *index = table.unused.back();
  table.unused.pop_back();
  ++table.opened;
  // Idle until its first key is counted.
  ++table.idle;
  table.windows[*index] = {.file = id,
                           .offset = piece.offset,
                           .len = piece.len,
                           .addr = reinterpret_cast<uintptr_t>(made),
                           .keys = 0,
                           .last_use = 0,
                           .life = ++life_};
  table.files[id].windows.emplace(piece.offset, *index);
  return Status::kOk;
}

Status ShmWindows::map(const ShmBlob& blob, bool writable, Place* place) noexcept {
  Mappings gone;
  Status status = Status::kOk;
  {
    const MutexLock lock(mu_);
    if (!has_table_locked())
      return fail(Status::kResource, "no memory for a table of what is mapped");
    Table& table = *table_;
    const FileId id{blob.device, blob.inode, writable};
    uint32_t index = UINT32_MAX;
    if (const auto known = table.files.find(id); known != table.files.end())
      index = find(known->second, table, blob);
    if (index == UINT32_MAX) status = open_window_locked(blob, id, &gone, &index);
    if (status == Status::kOk) {
      Window& window = table.windows[index];
      if (window.keys++ == 0) --table.idle;
      ++table.files[id].keys;
      ++table.keys;
      *place = {window.addr + (blob.offset - window.offset), index, window.life};
    }
  }
  unmap(gone);
  return status;
}

void ShmWindows::drop(const Place& place) noexcept {
  Mappings gone;
  {
    const MutexLock lock(mu_);
    if (table_ == nullptr || place.window >= table_->windows.size()) return;
    Table& table = *table_;
    Window& window = table.windows[place.window];
    if (window.len == 0 || window.life != place.life || window.keys == 0) return;
    window.last_use = ++table.clock;
    --table.keys;
    if (--window.keys == 0) ++table.idle;
    const FileId id = window.file;
    if (--table.files[id].keys == 0) {
      // Closing the last one erases the file.
      const std::multimap<uint64_t, uint32_t> all = table.files[id].windows;
      for (const auto& [offset, index] : all) close_window_locked(index, &gone);
    } else if (table.idle > kMostIdle) {
      close_idle_locked(kMostIdle / 2, &gone);
    }
  }
  unmap(gone);
}

void ShmWindows::close_window_locked(uint32_t index, Mappings* gone) noexcept {
  Table& table = *table_;
  Window& window = table.windows[index];
  gone->push_back({window.addr, window.len});
  --table.idle;
  const auto file = table.files.find(window.file);
  auto [at, end] = file->second.windows.equal_range(window.offset);
  while (at != end && at->second != index) ++at;
  file->second.windows.erase(at);
  if (file->second.windows.empty()) table.files.erase(file);
  window = {};
  table.unused.push_back(index);
}

void ShmWindows::close_idle_locked(uint32_t kept, Mappings* gone) noexcept {
  Table& table = *table_;
  std::vector<std::pair<uint64_t, uint32_t>> idle;  // by last use
  for (uint32_t i = 0; i < table.windows.size(); ++i) {
    const Window& window = table.windows[i];
    if (window.len != 0 && window.keys == 0) idle.emplace_back(window.last_use, i);
  }
  if (idle.size() <= kept) return;
  const size_t count = idle.size() - kept;
  std::nth_element(idle.begin(), idle.begin() + static_cast<std::ptrdiff_t>(count - 1), idle.end());
  for (size_t i = 0; i < count; ++i) close_window_locked(idle[i].second, gone);
}

void ShmWindows::unmap(const Mappings& gone) noexcept {
  for (const Mapping& mapping : gone) {
    auto* const start = reinterpret_cast<std::byte*>(mapping.addr);
    if (!release_guarded(start)) (void)munmap(start, mapping.len);
  }
}

ShmWindows::Counts ShmWindows::counts() noexcept {
  const MutexLock lock(mu_);
  Counts counts;
  if (table_ == nullptr) return counts;
  counts.keys = table_->keys;
  counts.files = table_->files.size();
  counts.windows = table_->windows.size() - table_->unused.size();
  counts.idle_windows = table_->idle;
  counts.opened = table_->opened;
  for (const Window& window : table_->windows) counts.mapped_bytes += window.len;
  return counts;
}

void ShmWindows::forget_in_child() noexcept {
  mu_.reset_in_child();
  table_ = nullptr;
}

}  // namespace hydrant::shm
