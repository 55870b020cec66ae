// Copies between processes by process_vm_readv and process_vm_writev, and continues copies that the kernel
// has cut short. Tour "a put": path `cma` ends here, by way of peer_memory.cpp.
#include "rdma/shm/memory/cma_copy.hpp"

#include "firehose/base/machine/small_file.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace hydrant::shm {
namespace {

static_assert(CmaCopy::kMaxVectors <= IOV_MAX);

ssize_t read_from(pid_t pid, const iovec* local, unsigned long locals, const iovec* remote,
                  unsigned long remotes, unsigned long flags) noexcept {
  return process_vm_readv(pid, local, locals, remote, remotes, flags);
}
ssize_t write_to(pid_t pid, const iovec* local, unsigned long locals, const iovec* remote,
                 unsigned long remotes, unsigned long flags) noexcept {
  return process_vm_writev(pid, local, locals, remote, remotes, flags);
}

constexpr CmaCopy::Call kKernel[] = {read_from, write_to};
constinit std::atomic<CmaCopy::Call> calls[] = {read_from, write_to};

}  // namespace

const char* name_of(CopyDirection direction) noexcept {
  return direction == CopyDirection::kFromPeer ? "process_vm_readv" : "process_vm_writev";
}

void CmaCopy::replace_call(CopyDirection direction, Call call) noexcept {
  const auto index = static_cast<size_t>(direction);
  calls[index].store(call != nullptr ? call : kKernel[index], std::memory_order_relaxed);
}

int CmaCopy::add(const MemoryAccess::Piece& piece) noexcept {
  auto local = reinterpret_cast<uintptr_t>(piece.local);
  uintptr_t remote = piece.remote;
  for (size_t left = piece.bytes; left != 0;) {
    if (count_ == kMaxVectors || bytes_ == kMaxBytes) {
      if (const int error = finish(); error != 0) return error;
    }
    const size_t part = std::min(left, kMaxBytes - bytes_);
    local_[count_] = {reinterpret_cast<void*>(local), part};
    remote_[count_] = {reinterpret_cast<void*>(remote), part};
    ++count_;
    bytes_ += part;
    local += part;
    remote += part;
    left -= part;
  }
  return 0;
}

// The kernel stops early at unmapped memory, at a fatal signal, and at its own limit.
void CmaCopy::drop_copied(size_t bytes) noexcept {
  bytes_ -= bytes;
  uint32_t whole = 0;
  while (whole < count_ && bytes >= local_[whole].iov_len) bytes -= local_[whole++].iov_len;
  count_ -= whole;
  std::copy_n(local_ + whole, count_, local_);
  std::copy_n(remote_ + whole, count_, remote_);
  if (bytes == 0) return;
  for (iovec* vector : {&local_[0], &remote_[0]}) {
    vector->iov_base = static_cast<std::byte*>(vector->iov_base) + bytes;
    vector->iov_len -= bytes;
  }
}

int CmaCopy::finish() noexcept {
  const Call call = calls[static_cast<size_t>(direction_)].load(std::memory_order_relaxed);
  while (bytes_ != 0) {
    const ssize_t done = call(pid_, local_, count_, remote_, count_, 0);
    if (done > 0 && static_cast<size_t>(done) == bytes_) [[likely]]
      break;
    if (done > 0) {
      drop_copied(static_cast<size_t>(done));
    } else if (done == 0) {
      return EFAULT;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  count_ = 0;
  bytes_ = 0;
  return 0;
}

bool allow_cma(const char* scope_file) noexcept {
  char scope[8];
  if (read_small_file(scope_file, scope, sizeof scope) == 0 || scope[0] == '0')
    return true;  // without Yama, too
  // Above 1 only processes that may trace all others may copy.
  if (scope[0] != '1') return geteuid() == 0;
  return prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0) == 0;
}

}  // namespace hydrant::shm
