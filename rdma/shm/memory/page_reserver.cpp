// Allocates the pages of a memory file after a check of the memory that machine and control group have left.
// node_memory.cpp calls it before the first access to a range.
#include "rdma/shm/memory/page_reserver.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/machine/cgroup_memory.hpp"
#include "firehose/base/machine/small_file.hpp"
#include "firehose/base/uncancelled.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace hydrant::shm {
namespace {

// The kernel kills a process instead of refusing when a group or the machine runs out: this much stays free.
constexpr uint64_t kKeptFreeBytes = uint64_t{1} << 20;

// The number behind `name` in a file of lines "name number"; 0 if there is none.
uint64_t number_after(const char* text, const char* name) noexcept {
  const size_t length = std::strlen(name);
  for (const char* line = text; line != nullptr; line = std::strchr(line, '\n')) {
    if (*line == '\n') ++line;
    if (std::strncmp(line, name, length) == 0) return std::strtoull(line + length, nullptr, 10);
  }
  return 0;
}

// Bytes that the group can reclaim before it is full: pages of files.
uint64_t reclaimable(const CgroupMemory& group) noexcept {
  char path[300];
  char text[8192];
  if (!join_path(path, sizeof path, group.path, "/memory.stat")) return 0;
  if (read_small_file(path, text, sizeof text) == 0) return 0;
  if (group.version == 2) {
    return number_after(text, "inactive_file ") + number_after(text, "active_file ");
  }
  return number_after(text, "total_inactive_file ") + number_after(text, "total_active_file ");
}

uint64_t minus(uint64_t a, uint64_t b) noexcept { return a > b ? a - b : 0; }

}  // namespace

PageReserver::Available PageReserver::available() const noexcept {
  Available least;
  char path[300];
  char text[4096];
  if (join_path(path, sizeof path, root_, "/proc/meminfo") &&
      read_small_file(path, text, sizeof text) != 0) {
    const uint64_t available = number_after(text, "MemAvailable:");
    if (available != 0) {
      least.bytes = available * 1024;
      std::snprintf(least.limited_by, sizeof least.limited_by, "the machine");
    }
  }
  const CgroupMemory group = read_cgroup_memory(root_);
  if (group.version != 0 && group.limit_bytes != UINT64_MAX) {
    const uint64_t used = minus(group.used_bytes, reclaimable(group));
    const uint64_t bytes = minus(group.limit_bytes, used);
    if (bytes < least.bytes) {
      least.bytes = bytes;
      std::snprintf(least.limited_by, sizeof least.limited_by, "the control group %s", group.path);
    }
  }
  return least;
}

Status PageReserver::allow(uint64_t bytes, const char* what) noexcept {
  const uint64_t allowance = unchecked_bytes_.load(std::memory_order_relaxed);
  if (allowance >= bytes) {
    unchecked_bytes_.store(allowance - bytes, std::memory_order_relaxed);
  } else {
    const Available found = available();
    if (found.bytes < bytes + kKeptFreeBytes) {
      return fail(Status::kResource,
                  "%s needs %llu bytes of shared memory, and %s has %llu available (1 MiB is kept "
                  "free): raise that limit, or run fewer ranks on this node",
                  what, static_cast<unsigned long long>(bytes), found.limited_by,
                  static_cast<unsigned long long>(found.bytes));
    }
    // 1/16 of the available memory: sixteen processes that reserve at once do not exhaust it.
    unchecked_bytes_.store((found.bytes - bytes) / 16, std::memory_order_relaxed);
  }
  return Status::kOk;
}

Status PageReserver::reserve(int fd, uint64_t offset, uint64_t bytes, const char* what) noexcept {
  if (const Status allowed = allow(bytes, what); allowed != Status::kOk) return allowed;
  const Status reserved = reserve_unchecked(fd, offset, bytes, what);
  if (reserved != Status::kOk) unchecked_bytes_.store(0, std::memory_order_relaxed);
  return reserved;
}

Status PageReserver::reserve_unchecked(int fd, uint64_t offset, uint64_t bytes,
                                       const char* what) noexcept {
  int failed = 0;
  do {
    failed =
        uncancelled::fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0
            ? 0
            : errno;
  } while (failed == EINTR);
  if (failed == 0) return Status::kOk;
  const Available found = available();
  char known[400] = "";
  if (found.bytes != UINT64_MAX) {
    std::snprintf(known, sizeof known, " (%s has %llu bytes available)", found.limited_by,
                  static_cast<unsigned long long>(found.bytes));
  }
  return fail(Status::kResource,
              "%s needs %llu bytes of shared memory, and the kernel refuses them: %s%s", what,
              static_cast<unsigned long long>(bytes), errno_text(failed), known);
}

}  // namespace hydrant::shm
