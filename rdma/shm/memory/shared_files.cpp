// Implements rdma/transport/shared_files.hpp: the table of this process's memory files, and queries to
// libhydrant_alloc for its shared arenas. am/segment/segments.cpp announces segments here; the shm registrar
// looks memory up.
#include "rdma/transport/shared_files.hpp"

#include <hydrant/alloc.h>

#include "firehose/base/errno_text.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/shm/memory/shm_key.hpp"

#include <atomic>
#include <cerrno>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <unistd.h>

// Bound if libhydrant_alloc is linked into the program; looked up by name if it was loaded later.
#pragma weak hydrant_alloc_shared_location

namespace hydrant {
namespace {

constexpr uint32_t kMaxFiles = 256;

// `file` is written once, before `process` (release), and read without a lock. Entries are never reused: a
// thread that reads an entry while it is withdrawn reads valid old data.
struct Entry {
  SharedFile file;
  std::atomic<pid_t> process{0};  // 0: withdrawn
};

struct Table {
  Entry entries[kMaxFiles];
  std::atomic<uint32_t> count{0};  // written under mu, with release, after the entry
  Mutex mu;                        // for announcing threads; a leaf lock
};
constinit Table g_table;

template <typename Visit>
Entry* find_entry(Visit&& visit) noexcept {
  const pid_t self = getpid();
  const uint32_t count = g_table.count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    Entry& entry = g_table.entries[i];
    if (entry.process.load(std::memory_order_acquire) == self && visit(entry.file)) return &entry;
  }
  return nullptr;
}

bool is_that_file(const SharedFile& file) noexcept {
  struct stat facts {};
  return fstat(file.descriptor, &facts) == 0 && facts.st_dev == file.device &&
         facts.st_ino == file.inode;
}

// The caller holds the table's mutex.
Status enter(const SharedFile& file) noexcept {
  if (find_entry([&](const SharedFile& other) { return other.range.overlaps(file.range); })) {
    return fail(Status::kBadArg, "[%#lx, +%zu) is announced already",
                static_cast<unsigned long>(file.range.addr), file.range.len);
  }
  const uint32_t count = g_table.count.load(std::memory_order_relaxed);
  if (count == kMaxFiles) {
    return fail(Status::kResource,
                "%u pieces of shared memory were announced: a process has no more", kMaxFiles);
  }
  g_table.entries[count].file = file;
  g_table.entries[count].process.store(getpid(), std::memory_order_release);
  g_table.count.store(count + 1, std::memory_order_release);
  return Status::kOk;
}

using FindLocation = int (*)(const void*, hydrant_alloc_location_t*);

FindLocation find_arenas() noexcept {
  static constinit std::atomic<FindLocation> found{nullptr};
  FindLocation query = found.load(std::memory_order_acquire);
  if (query != nullptr) return query;
  query = &hydrant_alloc_shared_location;
  if (query == nullptr)
    query = reinterpret_cast<FindLocation>(dlsym(RTLD_DEFAULT, "hydrant_alloc_shared_location"));
  if (query != nullptr) found.store(query, std::memory_order_release);
  return query;
}

bool find_in_arenas(uintptr_t addr, SharedFile* file) noexcept {
  const FindLocation query = find_arenas();
  hydrant_alloc_location_t at{};
  if (query == nullptr || query(reinterpret_cast<const void*>(addr), &at) != GASNET_OK)
    return false;
  struct stat facts {};
  if (fstat(at.fd, &facts) != 0) return false;
  *file = {.range = {addr - static_cast<uintptr_t>(at.offset), static_cast<size_t>(at.file_bytes)},
           .descriptor = at.fd,
           .device = facts.st_dev,
           .inode = facts.st_ino,
           .offset = 0};
  return true;
}

}  // namespace

Status announce_shared_file(MemoryRange range, int descriptor, uint64_t offset) noexcept {
  if (!range.valid() || range.end() == 0 ||
      ((range.addr | range.len | offset) & (shm::kMinPageBytes - 1)) != 0) {
    return fail(Status::kBadArg, "shared memory is announced by whole pages, not [%#lx, +%zu)",
                static_cast<unsigned long>(range.addr), range.len);
  }
  const int seals = fcntl(descriptor, F_GET_SEALS);
  struct statfs system {};
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstatfs(descriptor, &system) != 0 ||
      system.f_type != TMPFS_MAGIC) {
    return fail(Status::kUnsupported,
                "descriptor %d is no memory file of ordinary pages that keeps its size: seal it "
                "with F_SEAL_SHRINK",
                descriptor);
  }
  struct stat facts {};
  const int own = fstat(descriptor, &facts) == 0 ? fcntl(descriptor, F_DUPFD_CLOEXEC, 3) : -1;
  if (own < 0) {
    return fail(Status::kResource, "no descriptor for a file to share: %s (ulimit -n)",
                errno_text(errno));
  }
  g_table.mu.lock();
  const Status status = enter({.range = range,
                               .descriptor = own,
                               .device = facts.st_dev,
                               .inode = facts.st_ino,
                               .offset = offset});
  g_table.mu.unlock();
  if (status != Status::kOk) uncancelled::close(own);
  return status;
}

bool forget_shared_file(MemoryRange range) noexcept {
  const MutexLock lock(g_table.mu);
  Entry* found = find_entry([&](const SharedFile& file) { return file.range == range; });
  if (found == nullptr) return false;
  found->process.store(0, std::memory_order_release);
  // The program may have closed the descriptor and reused its number. The inode cannot be reused: the file is
  // mapped.
  if (is_that_file(found->file)) uncancelled::close(found->file.descriptor);
  return true;
}

bool find_shared_file(uintptr_t addr, SharedFile* file) noexcept {
  const Entry* found = find_entry([&](const SharedFile& known) {
    return known.range.covers({addr, 1});
  });
  if (found == nullptr) return find_in_arenas(addr, file);
  *file = found->file;
  return true;
}

}  // namespace hydrant
