// Copies between this process and another one by the kernel (cross-memory attach: process_vm_readv,
// process_vm_writev), many pieces in one system call.
//
// Threads: any number, each with its own CmaCopy. No allocation. Cost: a system call per kMaxVectors pieces
// or kMaxBytes.
#pragma once

#include "rdma/transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <sys/types.h>
#include <sys/uio.h>

namespace hydrant::shm {

enum class CopyDirection : uint32_t { kFromPeer = 0, kToPeer = 1 };
// "process_vm_readv" or "process_vm_writev".
const char* name_of(CopyDirection direction) noexcept;

class CmaCopy {
 public:
  // The kernel takes up to IOV_MAX, and copies at most 2 GiB less a page in one call.
  static constexpr uint32_t kMaxVectors = 128;
  static constexpr size_t kMaxBytes = size_t{1} << 30;

  CmaCopy(uint32_t pid, CopyDirection direction) noexcept
      : pid_(static_cast<pid_t>(pid)), direction_(direction) {}

  // Copies now or at finish(). Returns 0, or an errno: the object must not be used any more then, and some of
  // the added pieces may have been copied.
  int add(const MemoryAccess::Piece& piece) noexcept;
  int finish() noexcept;

  // The system call, replaceable for tests; a replacement takes effect in all threads.
  using Call = ssize_t (*)(pid_t pid, const iovec* local, unsigned long locals, const iovec* remote,
                           unsigned long remotes, unsigned long flags) noexcept;
  static void replace_call(CopyDirection direction, Call call) noexcept;  // null: the kernel's own

 private:
  void drop_copied(size_t bytes) noexcept;

  const pid_t pid_;
  const CopyDirection direction_;
  uint32_t count_ = 0;
  size_t bytes_ = 0;
  // Only the first count_ entries of each are valid.
  iovec local_[kMaxVectors];
  iovec remote_[kMaxVectors];
};

// Permits the other processes of this user to copy to and from this one if Yama requires it
// (kernel.yama.ptrace_scope is 1). Call it once per process, before they try. False: Yama forbids it.
bool allow_cma(const char* scope_file = "/proc/sys/kernel/yama/ptrace_scope") noexcept;

}  // namespace hydrant::shm
