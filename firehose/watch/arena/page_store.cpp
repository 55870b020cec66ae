// Reserves address space for an arena, announces it to the monitor, and empties idle blocks. The heaps and
// jemalloc's hooks call it.
#include "firehose/watch/arena/page_store.hpp"

#include "firehose/base/machine/memory_file.hpp"
#include "firehose/base/quiet_write.hpp"
#include "firehose/base/raw_memory.hpp"
#include "firehose/watch/arena/fatal.hpp"
#include "firehose/watch/arena/system_calls.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

namespace hydrant::arena {
namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;

// Preserves errno: free() must not change it.
class ErrnoGuard {
 public:
  ErrnoGuard() noexcept : errno_(errno) {}
  ~ErrnoGuard() { errno = errno_; }
  ErrnoGuard(const ErrnoGuard&) = delete;
  ErrnoGuard& operator=(const ErrnoGuard&) = delete;

 private:
  int errno_;
};

// Inaccessible memory on both sides of a reservation: an overrun faults.
constexpr size_t kGuardBytes = size_t{16} << 20;

// Maps memory that starts at a huge page, between guards. Reserves one block too many and unmaps the excess.
uintptr_t map_between(size_t guard, size_t bytes, int file) noexcept {
  const size_t more = bytes + kBlockBytes + 2 * guard;
  const uintptr_t raw = sys_map(0, more, PROT_NONE, 0, -1);
  if (raw == 0) return 0;
  const uintptr_t addr = round_up(raw + guard, kBlockBytes);
  const uintptr_t end = addr + bytes + guard;
  if (addr - guard > raw) (void)sys_unmap(raw, addr - guard - raw);
  if (raw + more > end) (void)sys_unmap(end, raw + more - end);
  if (sys_map(addr, bytes, kReadWrite, MAP_FIXED, file) == addr) return addr;
  (void)sys_unmap(addr - guard, bytes + 2 * guard);
  return 0;
}

// Falls back to a page on each side: a limit on address space (ulimit -v) may leave no room for more.
uintptr_t map_aligned(size_t bytes, int file, size_t* guard) noexcept {
  *guard = kGuardBytes;
  const uintptr_t addr = map_between(kGuardBytes, bytes, file);
  if (addr != 0) return addr;
  *guard = kPageBytes;
  return map_between(kPageBytes, bytes, file);
}

// The reservation's record and tables, in a separate mapping: stray writes of peers or devices into the arena
// cannot reach the allocator's records.
AddressReservation* make_record(size_t bytes) noexcept {
  const size_t blocks = bytes / kBlockBytes;
  const size_t head = round_up(sizeof(AddressReservation), alignof(Span*));
  const size_t page_table = blocks * kBlockPages * sizeof(Span*);
  void* made = raw_map(round_up(head + page_table + blocks * sizeof(Block), kPageBytes));
  if (made == nullptr) return nullptr;
  const auto at = reinterpret_cast<uintptr_t>(made);
  auto* record = static_cast<AddressReservation*>(made);
  record->bytes = bytes;
  record->pages = reinterpret_cast<Span**>(at + head);
  record->blocks = reinterpret_cast<Block*>(at + head + page_table);
  return record;
}

void drop_record(AddressReservation* record) noexcept {
  const size_t blocks = record->bytes / kBlockBytes;
  const uintptr_t end = reinterpret_cast<uintptr_t>(record->blocks + blocks);
  const auto at = reinterpret_cast<uintptr_t>(record);
  raw_unmap(record, round_up(end - at, kPageBytes));
}

// Calls visit(block, number of its pages in `range`) for each block that `range` touches.
template <class Visit>
void for_each_block(const AddressReservation& in, MemoryRange range, Visit&& visit) noexcept {
  for (uintptr_t at = range.addr; at < range.end();) {
    const uintptr_t end = std::min(range.end(), (at | (kBlockBytes - 1)) + 1);
    visit(in.block_at(at), static_cast<uint16_t>((end - at) / kPageBytes));
    at = end;
  }
}

AddressReservation& reservation_of(MemoryRange range, const PageStore* store) noexcept {
  const auto* p = reinterpret_cast<const void*>(range.addr);
  AddressReservation* found = address_map().find(p);
  if (found == nullptr || found->store != store || range.end() > found->end()) {
    fatal("pages that are not this arena's", p);
  }
  return *found;
}

// Reserves all free addresses of the range: in one call, or block by block if parts are taken.
void occupy(uintptr_t addr, size_t bytes) noexcept {
  if (sys_map(addr, bytes, PROT_NONE, MAP_FIXED_NOREPLACE, -1) != 0) return;
  for (size_t at = 0; at < bytes; at += kBlockBytes) {
    (void)sys_map(addr + at, kBlockBytes, PROT_NONE, MAP_FIXED_NOREPLACE, -1);
  }
}

// HYDRANT_LOG, which the library's log_level.cpp reads where it is linked.
bool is_info_logged() noexcept {
  const char* level = std::getenv("HYDRANT_LOG");
  return level != nullptr && (strcasecmp(level, "info") == 0 || strcasecmp(level, "debug") == 0);
}

// An info line, once, if the limit on file sizes is why there is no memory file of `bytes`.
void log_file_size(size_t bytes) noexcept {
  static constinit std::atomic<bool> is_logged{false};
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= bytes || !is_info_logged() ||
      is_logged.exchange(true, std::memory_order_relaxed))
    return;
  char text[256];
  const int length =
      std::snprintf(text, sizeof text,
                    "hydrant: info: hydrant_alloc_shared: a memory file of %zu bytes is larger "
                    "than the limit on file sizes, %llu bytes: ulimit -f unlimited, or ask for "
                    "less\n",
                    bytes, static_cast<unsigned long long>(limit.rlim_cur));
  (void)write_quietly(STDERR_FILENO, text, static_cast<size_t>(length));
}

// Maps the reservation and enters it in the address map. False if there are no addresses.
bool place(AddressReservation* made) noexcept {
  // In the child of a fork, addresses of lost reservations may be free, but old pointers still refer to them.
  for (int tries = 0; tries < 8; ++tries) {
    size_t guard = 0;
    made->addr = map_aligned(made->bytes, made->file, &guard);
    if (made->addr == 0) return false;
    if (address_map().add(made)) return true;
    (void)sys_unmap(made->addr - guard, made->bytes + 2 * guard);
    occupy(made->addr, made->bytes);
  }
  return false;
}

}  // namespace

uintptr_t PageStore::grow(size_t bytes, size_t alignment) noexcept {
  MutexLock lock(mu_);
  for (AddressReservation* r = newest_; r != nullptr; r = r->next) {
    if (const uintptr_t found = take_locked(r, bytes, alignment); found != 0) return found;
  }
  const size_t slack = alignment > kBlockBytes ? alignment : 0;
  if (bytes > SIZE_MAX / 4 || slack > SIZE_MAX / 4) {
    errno = ENOMEM;
    return 0;
  }
  AddressReservation* fresh = reserve_locked(round_up(bytes + slack, kBlockBytes));
  return fresh == nullptr ? 0 : take_locked(fresh, bytes, alignment);
}

uintptr_t PageStore::take_locked(AddressReservation* from, size_t bytes,
                                 size_t alignment) noexcept {
  if (from->lost) return 0;
  const uintptr_t start = round_up(from->addr + from->handed_bytes, alignment);
  if (start > from->end() || from->end() - start < bytes) return 0;
  from->handed_bytes = start + bytes - from->addr;
  return start;
}

AddressReservation* PageStore::reserve_locked(size_t min_bytes) noexcept {
  const size_t like_before = std::clamp(counts_.reserved_bytes, kMinReservation, kMaxReservation);
  AddressReservation* made = reserve_exactly_locked(std::max(min_bytes, like_before));
  // A limit on address space (ulimit -v) may still have room for the least size.
  if (made == nullptr && min_bytes < like_before) made = reserve_exactly_locked(min_bytes);
  if (made != nullptr) return made;
  if (kind_ == Kind::kShared) log_file_size(min_bytes);
  errno = ENOMEM;
  return nullptr;
}

AddressReservation* PageStore::reserve_exactly_locked(size_t bytes) noexcept {
  ErrnoGuard keep;
  AddressReservation* made = make_record(bytes);
  if (made == nullptr) return nullptr;
  made->store = this;
  made->file = kind_ == Kind::kShared ? make_memory_file("hydrant_alloc", bytes) : -1;
  const bool has_file = made->file >= 0;
  if (has_file) made->identity.note(made->file);
  if ((kind_ == Kind::kShared && !has_file) || !place(made)) {
    if (has_file) sys_close(made->file);
    drop_record(made);
    return nullptr;
  }
  // Both may fail without harm: a kernel without huge pages refuses the first, none the second.
  (void)sys_advise(made->addr, bytes, MADV_HUGEPAGE);
  if (has_file) (void)sys_advise(made->addr, bytes, MADV_DONTFORK);
  made->next = newest_;
  newest_ = made;
  counts_.reserved_bytes += bytes;
  counts_.unannounced_bytes += bytes;
  announce_locked(*made);
  return made;
}

void PageStore::announce_locked(const AddressReservation& reservation) noexcept {
  if (reservation.lost) return;
  if (monitor_ == nullptr) {
    unannounced_.store(true, std::memory_order_relaxed);
    return;
  }
  // Drops regions that are still cached from an earlier mapping at these addresses.
  monitor_->sync();
  // Pinned blocks are not emptied, and nothing is unmapped (the rule in the header).
  constexpr size_t kNeeded =
      offsetof(hydrant_monitor_t, add_kept_arena) + sizeof monitor_->add_kept_arena;
  const auto add = monitor_->size >= kNeeded ? monitor_->add_kept_arena : monitor_->add_arena;
  if (add(reservation.addr, reservation.bytes) == 0) {
    counts_.unannounced_bytes -= reservation.bytes;
  }
}

void PageStore::use_monitor(const hydrant_monitor_t* monitor) noexcept {
  MutexLock lock(mu_);
  if (monitor_ != nullptr) return;
  monitor_ = monitor;
  for (const AddressReservation* r = newest_; r != nullptr; r = r->next) announce_locked(*r);
}

void PageStore::commit(MemoryRange range) noexcept {
  const AddressReservation& in = reservation_of(range, this);
  MutexLock lock(mu_);
  for_each_block(in, range, [this](Block& block, uint16_t pages) HYDRANT_NO_TSA {
    if (block.used_pages + pages > kBlockPages) fatal("pages that are in use already", &block);
    if (!block.touched) {
      counts_.touched_bytes += kBlockBytes;
    } else if (block.used_pages == 0) {
      counts_.idle_bytes -= kBlockBytes;
    }
    block.used_pages = static_cast<uint16_t>(block.used_pages + pages);
    block.touched = true;
    block.recalled = false;
  });
}

void PageStore::decommit(MemoryRange range) noexcept {
  const AddressReservation& in = reservation_of(range, this);
  MutexLock lock(mu_);
  for_each_block(in, range, [this](Block& block, uint16_t pages) HYDRANT_NO_TSA {
    if (block.used_pages < pages) fatal("pages that are free already", &block);
    block.used_pages = static_cast<uint16_t>(block.used_pages - pages);
    if (block.used_pages == 0) counts_.idle_bytes += kBlockBytes;
  });
  if (counts_.idle_bytes > limit_bytes_) (void)empty_idle_locked();
}

size_t PageStore::trim() noexcept {
  MutexLock lock(mu_);
  return empty_idle_locked();
}

void PageStore::set_keep_bytes(size_t bytes) noexcept {
  MutexLock lock(mu_);
  keep_bytes_ = limit_bytes_ = bytes;
}

size_t PageStore::empty_idle_locked() noexcept {
  ErrnoGuard keep;
  size_t emptied = 0;
  counts_.kept_bytes = 0;
  unrecalled_bytes_ = 0;
  for (AddressReservation* r = newest_; r != nullptr; r = r->next) {
    const size_t blocks = r->lost ? 0 : r->bytes / kBlockBytes;
    for (size_t first = 0; first < blocks;) {
      size_t end = first;
      while (end < blocks && may_empty_locked(*r, end)) ++end;
      if (end > first && empty_locked(*r, first, end - first))
        emptied += (end - first) * kBlockBytes;
      first = end + 1;
    }
  }
  counts_.emptied_bytes += emptied;
  // Blocks that had to stay do not trigger the next round: it starts after keep_bytes_ more idle bytes.
  limit_bytes_ = counts_.idle_bytes + keep_bytes_;
  return emptied;
}

bool PageStore::may_empty_locked(AddressReservation& reservation, size_t index) noexcept {
  const Block& block = reservation.blocks[index];
  if (!block.touched || block.used_pages != 0) return false;
  if (monitor_ == nullptr) return true;
  if (monitor_->pinned(reservation.addr + index * kBlockBytes, kBlockBytes) == 0) return true;
  ++counts_.refusals;
  note_kept_locked(reservation, index);
  return false;
}

void PageStore::note_kept_locked(AddressReservation& reservation, size_t index) noexcept {
  Block& block = reservation.blocks[index];
  counts_.kept_bytes += kBlockBytes;
  if (block.recalled) return;
  if (unrecalled_bytes_ < max_kept_bytes_) {
    unrecalled_bytes_ += kBlockBytes;
    return;
  }
  // The block is idle but keeps its pages for now, so a late write still reaches the same memory.
  monitor_->invalidate(reservation.addr + index * kBlockBytes, kBlockBytes);
  block.recalled = true;
  ++counts_.recalls;
}

namespace {

// Punches a hole in the file. If the program has closed the descriptor, its number may name another file, so
// the mapping is used instead; the kernel refuses that for locked pages.
bool punch(const AddressReservation& reservation, size_t offset, size_t bytes) noexcept {
  return reservation.identity.is(reservation.file)
             ? sys_punch(reservation.file, offset, bytes)
             : sys_advise(reservation.addr + offset, bytes, MADV_REMOVE);
}

}  // namespace

bool PageStore::empty_locked(AddressReservation& reservation, size_t first, size_t count) noexcept {
  const size_t offset = first * kBlockBytes;
  const size_t bytes = count * kBlockBytes;
  const uintptr_t addr = reservation.addr + offset;
  if (monitor_ != nullptr) {
    monitor_->invalidate(addr, bytes);
    // Registered since the last check and in use: stays until released.
    if (monitor_->pinned(addr, bytes) != 0) return false;
  }
  const bool done = reservation.file < 0 ? sys_advise(addr, bytes, MADV_DONTNEED)
                                         : punch(reservation, offset, bytes);
  if (monitor_ != nullptr) monitor_->invalidate(addr, bytes);
  if (!done) return false;  // for example locked by mlock(): stays, and a later round retries
  for (size_t i = first; i < first + count; ++i) {
    reservation.blocks[i].touched = false;
    reservation.blocks[i].recalled = false;
  }
  counts_.touched_bytes -= bytes;
  counts_.idle_bytes -= bytes;
  return true;
}

PageStoreStats PageStore::counts() noexcept {
  MutexLock lock(mu_);
  return counts_;
}

void PageStore::after_fork_in_child() noexcept {
  if (kind_ == Kind::kShared) {
    ErrnoGuard keep;
    for (AddressReservation* r = newest_; r != nullptr; r = r->next) {
      if (r->lost) continue;
      r->lost = true;
      occupy(r->addr, r->bytes);
      if (r->identity.is(r->file)) sys_close(r->file);
    }
    counts_ = {};
    limit_bytes_ = keep_bytes_;
  }
  mu_.unlock_uncounted();
}

}  // namespace hydrant::arena
