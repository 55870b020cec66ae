// Pins memory that lies in memory files, so that it can be exported, and maps what peers export.
// extended/binding/firehose_binding.cpp creates it by make_node_registrar(); the pin cache then calls it on
// misses and evictions.
#include "rdma/shm/shm_registrar.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/machine/machine_limits.hpp"
#include "rdma/exit/process_exit.hpp"
#include "rdma/transport/node_registrar.hpp"
#include "rdma/transport/shared_files.hpp"

#include <cerrno>
#include <fcntl.h>
#include <new>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace hydrant::shm {
namespace {

constexpr Access kWriting = Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteAtomic;

// Cost estimates for policies: a look-up and two system calls.
constexpr uint32_t kPinNs = 1000;
constexpr uint32_t kUnpinNs = 50;

unsigned long ul(uint64_t value) noexcept { return value; }

}  // namespace

Status ShmRegistrar::create(std::unique_ptr<ShmRegistrar>* out) noexcept {
  std::unique_ptr<ShmRegistrar> made(new (std::nothrow) ShmRegistrar);
  if (made == nullptr) return fail(Status::kResource, "no memory for a registrar");
  const uint64_t start = process_start_time(getpid());
  if (start == 0) {
    return fail(Status::kUnsupported,
                "/proc/%d/stat cannot be read: peers map this memory through /proc", getpid());
  }
  made->start_time_.store(start, std::memory_order_relaxed);
  made->process_.store(static_cast<uint32_t>(getpid()), std::memory_order_release);
  RegistrarTraits& traits = made->traits_;
  traits.name = "shm";
  traits.key_bytes = sizeof(ShmKey);
  traits.granule_bytes = read_machine_limits().page_bytes;
  traits.exports = true;
  traits.export_bytes = kShmBlobBytes;
  traits.pin_base_ns = kPinNs;
  traits.unpin_base_ns = kUnpinNs;
  *out = std::move(made);
  return Status::kOk;
}

Status ShmRegistrar::pin(MemoryRange range, Access access, std::byte* key) noexcept {
  if (!range.valid() || range.end() == 0 ||
      ((range.addr | range.len) & (traits_.granule_bytes - 1)) != 0) {
    return fail(Status::kBadArg, "shared memory is pinned by whole pages, not [%#lx, +%zu)",
                ul(range.addr), range.len);
  }
  if (!includes(Access::kAll, access))
    return fail(Status::kBadArg, "no such rights: %#x", bits(access));
  SharedFile file;
  if (!find_shared_file(range.addr, &file)) {
    return fail(Status::kRefused,
                "[%#lx, +%zu) is no memory that another process can map: take it from "
                "hydrant_alloc_shared(), or from a segment",
                ul(range.addr), range.len);
  }
  if (!file.range.covers(range)) {
    return fail(Status::kRefused, "[%#lx, +%zu) reaches beyond its memory file, which ends at %#lx",
                ul(range.addr), range.len, ul(file.range.end()));
  }
  const uint64_t offset = file.offset + (range.addr - file.range.addr);
  struct stat status {};
  const int seals = fcntl(file.descriptor, F_GET_SEALS);
  // Checked after the seals were read: if the descriptor refers to the right file now, it did then, too.
  if (fstat(file.descriptor, &status) != 0 || status.st_dev != file.device ||
      status.st_ino != file.inode) {
    return fail(
        Status::kRefused,
        "[%#lx, +%zu) cannot be mapped by peers any more: the program has closed "
        "descriptor %d, its memory file; close only descriptors that the program has opened",
        ul(range.addr), range.len, file.descriptor);
  }
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return fail(Status::kRefused,
                "the file of [%#lx, +%zu), descriptor %d, is no memory file that keeps its size",
                ul(range.addr), range.len, file.descriptor);
  }
  const uint64_t mask = traits_.granule_bytes - 1;
  if (((static_cast<uint64_t>(status.st_size) + mask) & ~mask) < offset + range.len) {
    return fail(Status::kRefused, "[%#lx, +%zu) reaches beyond the %lld bytes of its memory file",
                ul(range.addr), range.len, static_cast<long long>(status.st_size));
  }
  ShmKey made;
  made.kind = ShmKey::kOwn;
  made.access = bits(access);
  made.range = range;
  made.here = range.addr;
  made.device = status.st_dev;
  made.inode = status.st_ino;
  made.offset = offset;
  made.descriptor = static_cast<uint32_t>(file.descriptor);
  made.store(key);
  return Status::kOk;
}

UnpinResult ShmRegistrar::unpin(MemoryRange /*range*/, const std::byte* key) noexcept {
  if (ShmKey::load(key).kind == ShmKey::kOwn) return UnpinResult::kDone;
  static_cast<void>(fail(Status::kBadArg, "a key that was imported is not unpinned"));
  return UnpinResult::kBroken;
}

Status ShmRegistrar::export_key(MemoryRange range, const std::byte* key, std::byte* blob,
                                size_t* len) noexcept {
  if (*len < kShmBlobBytes) {
    const size_t room = std::exchange(*len, kShmBlobBytes);
    return fail(Status::kBadArg, "an exported key needs %zu bytes, there are %zu", kShmBlobBytes,
                room);
  }
  const ShmKey own = ShmKey::load(key);
  if (own.kind != ShmKey::kOwn || !own.range.covers(range))
    return fail(Status::kBadArg, "only a key of memory pinned here can be exported");
  ShmBlob made;
  made.process = process_.load(std::memory_order_acquire);
  if (made.process == 0) {
    made.process = static_cast<uint32_t>(getpid());
    start_time_.store(process_start_time(getpid()), std::memory_order_relaxed);
    process_.store(made.process, std::memory_order_release);
  }
  made.start_time = start_time_.load(std::memory_order_relaxed);
  made.descriptor = own.descriptor;
  made.device = own.device;
  made.inode = own.inode;
  made.offset = own.offset + (range.addr - own.range.addr);
  made.range = range;
  made.access = static_cast<Access>(own.access);
  encode_shm_blob(made, blob);
  *len = kShmBlobBytes;
  return Status::kOk;
}

Status ShmRegistrar::import_key(const std::byte* blob, size_t len, std::byte* key) noexcept {
  ShmBlob read;
  if (const Status status = decode_shm_blob(blob, len, &read); status != Status::kOk) return status;
  const bool writable = bits(read.access & kWriting) != 0;
  AttachmentCache::AttachmentRef ref;
  if (const Status status = attachments_.map(read, writable, &ref); status != Status::kOk)
    return status;
  ShmKey made;
  made.kind = ShmKey::kImported;
  made.access = bits(read.access);
  made.range = read.range;
  made.here = ref.addr;
  made.attachment = ref.attachment;
  made.life = ref.life;
  made.store(key);
  return Status::kOk;
}

void ShmRegistrar::drop_import(const std::byte* key) noexcept {
  const ShmKey imported = ShmKey::load(key);
  if (imported.kind != ShmKey::kImported) return;
  attachments_.drop({imported.here, imported.attachment, imported.life});
}

void ShmRegistrar::forget_in_child() noexcept {
  process_.store(0, std::memory_order_relaxed);
  attachments_.forget_in_child();
}

}  // namespace hydrant::shm

namespace hydrant {

Status make_node_registrar(std::unique_ptr<Registrar>* registrar) noexcept {
  std::unique_ptr<shm::ShmRegistrar> made;
  if (const Status status = shm::ShmRegistrar::create(&made); status != Status::kOk) return status;
  *registrar = std::move(made);
  return Status::kOk;
}

std::byte* address_by_node_key(const std::byte* key, uintptr_t addr, size_t len) noexcept {
  return shm::ShmKey::load(key).find(addr, len);
}

}  // namespace hydrant
