// Detects out-of-memory kills since a certain time: in the memory control group of this process (version 1:
// memory.oom_control, version 2: memory.events), or on this machine.
//
// A killed rank dies of SIGKILL and leaves no reason. Its launcher or the surviving ranks compare the counts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant {

struct OomCounts {
  uint64_t group = 0;    // kills in this process's group; version 2 includes child groups
  uint64_t machine = 0;  // kills on the machine, used where there is no group that counts
};

// Threads: any. Cost: reads a few small files. `root` is a prefix of the paths of /proc and /sys, for tests.
OomCounts read_oom_counts(const char* root = "") noexcept;

// "; out of memory: the kernel has killed 1 process of the control group ..." with bytes in use and the
// limit; "" if the counts equal `before`. Returns `text`.
inline constexpr size_t kOomText = 700;
const char* describe_oom_kills(const OomCounts& before, char* text, size_t room,
                               const char* root = "") noexcept;

}  // namespace hydrant
