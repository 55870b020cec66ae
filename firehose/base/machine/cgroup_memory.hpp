// The memory limit that control groups (version 1 or 2) impose on this process.
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

// Walks from the process's group to the root of the mount and takes the smallest limit (memory.max and
// memory.high, or memory.limit_in_bytes) of both versions. `root` is a prefix of every path, for tests.
// Groups above a namespace's root are invisible.
CgroupMemory read_cgroup_memory(const char* root) noexcept;

// Finds the directory of this process's group in the memory hierarchy of `version`. False if there is none,
// or it is invisible.
bool find_own_cgroup(const char* root, uint32_t version, char* directory, size_t room) noexcept;

}  // namespace hydrant
