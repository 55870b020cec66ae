// The effective RLIMIT_MEMLOCK of this process, and a text that explains it. Used by the registrars whose
// pins count against it (uring, mlock).
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant {

// CAP_IPC_LOCK lifts the limit, but only in the initial user namespace: root of a container with its own user
// namespace is still limited.
struct MemlockLimit {
  uint64_t bytes = 0;       // the soft limit; UINT64_MAX if there is none
  bool privileged = false;  // the limit does not apply to this process

  // Total bytes that can be charged.
  uint64_t usable_bytes() const noexcept { return privileged ? UINT64_MAX : bytes; }
};

// Reads the current values: the limit may change while a process runs. Cost: a few microseconds.
MemlockLimit read_memlock_limit() noexcept;

// "RLIMIT_MEMLOCK is 8388608 bytes (8192 KiB): raise it with ..."; cut at the buffer. Returns `text`.
const char* describe_memlock(const MemlockLimit& limit, char* text, size_t text_bytes) noexcept;

// A field of /proc/self/status in KiB ("VmLck", "VmPin"), converted to bytes; 0 if missing.
// Cost: about 6 us, a system call per kilobyte. For error paths and tests.
uint64_t read_process_bytes(const char* field) noexcept;

}  // namespace hydrant
