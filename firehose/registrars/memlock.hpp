// What RLIMIT_MEMLOCK allows this process, and how to say so to a person. Shared by the registrars that
// the kernel charges to it (uring, mlock).
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant {

// CAP_IPC_LOCK lifts the limit, but only in the initial user namespace: "root" of a container that has
// a user namespace of its own is charged like anybody else.
struct MemlockLimit {
  uint64_t bytes = 0;       // the soft limit; UINT64_MAX if there is none
  bool privileged = false;  // the limit is not applied to this process

  // Bytes that can be charged in all.
  uint64_t usable_bytes() const noexcept { return privileged ? UINT64_MAX : bytes; }
};

// Reads both now: the limit may change while a process runs. Cost: a few microseconds.
MemlockLimit read_memlock_limit() noexcept;

// "RLIMIT_MEMLOCK is 8388608 bytes (8192 KiB): raise it with ..."; cut at the buffer. Answers `text`.
const char* describe_memlock(const MemlockLimit& limit, char* text, size_t text_bytes) noexcept;

// A line of /proc/self/status that counts KiB ("VmLck", "VmPin"), in bytes; 0 if it is not there.
// Cost: about 6 us, a system call per kilobyte. For failing paths and tests.
uint64_t read_process_bytes(const char* field) noexcept;

}  // namespace hydrant
