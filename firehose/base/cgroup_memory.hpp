// The memory limit that control groups, version 1 or 2, put on this process.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant {

struct CgroupMemory {
  uint32_t version = 0;  // 1 or 2; 0: no hierarchy controls memory here
  uint64_t limit_bytes = UINT64_MAX;
  uint64_t used_bytes = 0;
  char path[256] = "";
};

// Walks from our group up to the root of the mount and takes the smallest limit (memory.max and
// memory.high, or memory.limit_in_bytes). Where both versions control memory the smaller limit counts.
// `root` is put before every path. Groups above a namespace's root are out of sight.
CgroupMemory read_cgroup_memory(const char* root) noexcept;

// Small files of /proc and /sys, shared with machine_limits.cpp.
// The file's first bytes, terminated; answers how many, 0 if it cannot be read.
size_t read_small_file(const char* path, char* text, size_t room) noexcept;
// Puts directories together; false if the result was cut.
bool join_path(char* out, size_t room, const char* first, const char* second,
               const char* third = "") noexcept;

}  // namespace hydrant
