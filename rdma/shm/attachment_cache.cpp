// Maps attachments of other processes' memory files, shares each among many keys, and unmaps the least
// recently used idle ones. shm_registrar.cpp maps an attachment for an imported key and drops it with the
// key.
#include "rdma/shm/attachment_cache.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/shm/memory/peer_file.hpp"
#include "rdma/transport/guarded_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <sys/mman.h>
#include <type_traits>
#include <unistd.h>
#include <utility>

namespace hydrant::shm {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
// find() inspects at most this many attachments that begin before a range; one beyond that is not found, and
// the range is mapped again.
constexpr int kMaxInspected = 8;

struct Piece {
  uint64_t offset;
  size_t len;
};

// The piece of the file that is mapped for a range.
Piece piece_around(uint64_t offset, size_t len, uint64_t file_bytes) noexcept {
  uint64_t first = offset & ~(uint64_t{AttachmentCache::kAttachmentBytes} - 1);
  uint64_t end = first + AttachmentCache::kAttachmentBytes;
  if (offset + len > end) {
    first = offset & ~(kHugePage - 1);
    end = (offset + len + kHugePage - 1) & ~(kHugePage - 1);
  }
  return {first, static_cast<size_t>(std::min(end, file_bytes) - first)};
}

// The kernel maps huge pages of the file whole only if the addresses are aligned to huge pages, too.
void* map_aligned(const Piece& piece, bool writable, int fd) noexcept {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  const size_t bytes = (piece.len + kMinPageBytes - 1) & ~(kMinPageBytes - 1);
  std::byte* start = nullptr;
  if (reserve_guarded(bytes, kHugePage, GuardSize::kMin,
                      {.what = "attachment of another process's memory"}, &start) != Status::kOk) {
    errno = ENOMEM;
    return nullptr;
  }
  void* made = mmap(start, piece.len, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd,
                    static_cast<off_t>(piece.offset));
  if (made == MAP_FAILED) {
    const int error = errno;
    (void)release_guarded(start);
    errno = error;
    return nullptr;
  }
  // A child of a fork neither inherits the mapping nor can write through it by mistake. MADV_HUGEPAGE is only
  // a hint.
  (void)madvise(made, piece.len, MADV_DONTFORK);
  (void)madvise(made, piece.len, MADV_HUGEPAGE);
  return made;
}

}  // namespace

AttachmentCache::~AttachmentCache() {
  const MutexLock lock(mu_);
  if (table_ == nullptr) return;
  for (uint32_t i = 0; i < table_->in_order; ++i) {
    const Attachment& attachment = table_->attachments[table_->order[i]];
    unmap({attachment.addr, attachment.len});
  }
  std::free(table_);
}

bool AttachmentCache::has_table_locked() noexcept {
  static_assert(std::is_trivial_v<Table>);
  if (table_ == nullptr) table_ = static_cast<Table*>(std::calloc(1, sizeof(Table)));
  return table_ != nullptr;
}

uint32_t AttachmentCache::place_in_order(const Table& table, const FileId& id,
                                         uint64_t offset) noexcept {
  const uint32_t* const end = table.order + table.in_order;
  const auto before = [&](uint32_t index, const std::pair<FileId, uint64_t>& wanted) {
    const Attachment& attachment = table.attachments[index];
    return std::pair(attachment.file, attachment.offset) < wanted;
  };
  return static_cast<uint32_t>(std::lower_bound(table.order, end, std::pair(id, offset), before) -
                               table.order);
}

uint32_t AttachmentCache::find(const Table& table, const FileId& id, const ShmBlob& blob) noexcept {
  uint32_t at = place_in_order(table, id, blob.offset + 1);
  for (int inspected = 0; inspected < kMaxInspected && at != 0; ++inspected) {
    const uint32_t index = table.order[--at];
    const Attachment& attachment = table.attachments[index];
    if (attachment.file != id) break;
    if (blob.offset + blob.range.len <= attachment.offset + attachment.len) return index;
  }
  return UINT32_MAX;
}

Status AttachmentCache::attach_locked(const ShmBlob& blob, const FileId& id, Mappings* detached,
                                      uint32_t* index) noexcept {
  Table& table = *table_;
  if (table.in_order == kMaxAttachments) close_idle_locked(0, detached);
  if (table.in_order == kMaxAttachments) {
    return fail(Status::kNotReady,
                "%u mappings of other processes' memory are in use, which is the limit: release "
                "pins of their memory",
                kMaxAttachments);
  }
  PeerFile file;
  const bool writable = id.writable;
  if (const Status status = open_peer_file(blob, writable, &file); status != Status::kOk)
    return status;
  const Piece piece = piece_around(blob.offset, blob.range.len, file.bytes);
  void* made = map_aligned(piece, writable, file.descriptor);
  const int error = errno;
  uncancelled::close(file.descriptor);
  if (made == nullptr) {
    const bool is_short = error == ENOMEM || error == EAGAIN;
    return fail(is_short ? Status::kNotReady : Status::kRefused,
                "%zu bytes of the memory of process %u cannot be mapped: %s%s", piece.len,
                blob.process, errno_text(error),
                is_short ? " (ulimit -v, or vm.max_map_count mappings)" : "");
  }
  *index = table.n_unused != 0 ? table.unused[--table.n_unused] : table.ever_used++;
  ++table.opened;
  // The attachment counts as idle until map() counts its first key.
  ++table.idle;
  table.attachments[*index] = {.file = id,
                               .offset = piece.offset,
                               .len = piece.len,
                               .addr = reinterpret_cast<uintptr_t>(made),
                               .keys = 0,
                               .last_use = 0,
                               .life = ++life_};
  uint32_t* const place = table.order + place_in_order(table, id, piece.offset);
  uint32_t* const end = table.order + table.in_order++;
  std::move_backward(place, end, end + 1);
  *place = *index;
  return Status::kOk;
}

Status AttachmentCache::map(const ShmBlob& blob, bool writable, AttachmentRef* ref) noexcept {
  Mappings detached;
  Status status = Status::kOk;
  {
    const MutexLock lock(mu_);
    if (!has_table_locked()) return fail(Status::kResource, "no memory for the table of mappings");
    Table& table = *table_;
    const FileId id{blob.device, blob.inode, writable};
    uint32_t index = find(table, id, blob);
    if (index == UINT32_MAX) status = attach_locked(blob, id, &detached, &index);
    if (status == Status::kOk) {
      Attachment& attachment = table.attachments[index];
      if (attachment.keys++ == 0) --table.idle;
      ++table.keys;
      *ref = {attachment.addr + (blob.offset - attachment.offset), index, attachment.life};
    }
  }
  for (const Mapping& mapping : detached) unmap(mapping);
  return status;
}

void AttachmentCache::drop(const AttachmentRef& ref) noexcept {
  Mappings detached;
  {
    const MutexLock lock(mu_);
    if (table_ == nullptr || ref.attachment >= table_->ever_used) return;
    Table& table = *table_;
    Attachment& attachment = table.attachments[ref.attachment];
    if (attachment.len == 0 || attachment.life != ref.life || attachment.keys == 0) return;
    attachment.last_use = ++table.clock;
    --table.keys;
    if (--attachment.keys != 0) return;
    ++table.idle;
    close_unused_file_locked(FileId(attachment.file), &detached);
    if (table.idle > kMaxIdle) close_idle_locked(kMaxIdle / 2, &detached);
  }
  for (const Mapping& mapping : detached) unmap(mapping);
}

// Cheap while the file has keys: the loop ends at the first attachment with keys, and at most kMaxIdle have
// none.
void AttachmentCache::close_unused_file_locked(const FileId& id, Mappings* detached) noexcept {
  const Table& table = *table_;
  const uint32_t first = place_in_order(table, id, 0);
  uint32_t end = first;
  for (; end < table.in_order && table.attachments[table.order[end]].file == id; ++end) {
    if (table.attachments[table.order[end]].keys != 0) return;
  }
  while (end != first) detach_locked(table.order[--end], detached);
}

void AttachmentCache::detach_locked(uint32_t index, Mappings* detached) noexcept {
  Table& table = *table_;
  Attachment& attachment = table.attachments[index];
  detached->add({attachment.addr, attachment.len});
  --table.idle;
  uint32_t* place = table.order + place_in_order(table, attachment.file, attachment.offset);
  while (*place != index) ++place;
  std::move(place + 1, table.order + table.in_order, place);
  --table.in_order;
  attachment = {};
  table.unused[table.n_unused++] = index;
}

void AttachmentCache::close_idle_locked(uint32_t kept, Mappings* detached) noexcept {
  const Table& table = *table_;
  std::pair<uint64_t, uint32_t> idle[kMaxIdle + 1];  // by last use
  uint32_t n = 0;
  for (uint32_t i = 0; i < table.in_order; ++i) {
    const Attachment& attachment = table.attachments[table.order[i]];
    if (attachment.keys == 0) idle[n++] = {attachment.last_use, table.order[i]};
  }
  if (n <= kept) return;
  const uint32_t count = n - kept;
  std::nth_element(idle, idle + count - 1, idle + n);
  for (uint32_t i = 0; i < count; ++i) detach_locked(idle[i].second, detached);
}

void AttachmentCache::unmap(const Mapping& mapping) noexcept {
  auto* const start = reinterpret_cast<std::byte*>(mapping.addr);
  if (!release_guarded(start)) (void)munmap(start, mapping.len);
}

AttachmentCache::Counts AttachmentCache::counts() noexcept {
  const MutexLock lock(mu_);
  Counts counts;
  if (table_ == nullptr) return counts;
  counts.keys = table_->keys;
  counts.attachments = table_->in_order;
  counts.idle_attachments = table_->idle;
  counts.opened = table_->opened;
  const FileId* latest = nullptr;
  for (uint32_t i = 0; i < table_->in_order; ++i) {
    const Attachment& attachment = table_->attachments[table_->order[i]];
    counts.mapped_bytes += attachment.len;
    if (latest == nullptr || *latest != attachment.file) ++counts.files;
    latest = &attachment.file;
  }
  return counts;
}

void AttachmentCache::forget_in_child() noexcept {
  mu_.reset_in_child();
  table_ = nullptr;
}

}  // namespace hydrant::shm
