// Copies to and from addresses that peers name, by process_vm_readv() on this process. Called by the
// handlers in rma_messages.cpp and rma_pinned_target.cpp.
#include "extended/binding/own_memory.hpp"

#include "am/job/endpoints.hpp"
#include "firehose/base/start_gate.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <sys/uio.h>
#include <unistd.h>

namespace hydrant {
namespace {

std::atomic<bool> is_forbidden{false};

using Call = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                         unsigned long);

// kNo: the memory is unmapped. kForbidden: the kernel refuses the system call.
enum class Copied { kYes, kNo, kForbidden };

// Remembers a permanent refusal.
Copied refused(int error) noexcept {
  if (!is_shortage(error)) is_forbidden.store(true, std::memory_order_relaxed);
  return Copied::kForbidden;
}

Copied copy_by_cma(Call call, void* ours, uintptr_t named, size_t bytes) noexcept {
  if (is_forbidden.load(std::memory_order_relaxed)) return Copied::kForbidden;
  size_t done = 0;
  while (done < bytes) {
    const iovec local{static_cast<std::byte*>(ours) + done, bytes - done};
    const iovec remote{reinterpret_cast<void*>(named + done), bytes - done};
    const ssize_t copied = call(getpid(), &local, 1, &remote, 1, 0);
    if (copied > 0) {
      done += static_cast<size_t>(copied);
      continue;
    }
    if (copied < 0 && errno == EINTR) continue;
    if (copied == 0 || errno == EFAULT) return Copied::kNo;
    return refused(errno);
  }
  return Copied::kYes;
}

// Copies one byte of each page.
Copied copy_pages_by_kernel(std::byte* ours, const iovec* pages, size_t count) noexcept {
  if (is_forbidden.load(std::memory_order_relaxed)) return Copied::kForbidden;
  const iovec local{ours, count};
  ssize_t copied = 0;
  do {
    copied = process_vm_readv(getpid(), &local, 1, pages, count, 0);
  } while (copied < 0 && errno == EINTR);
  if (copied == static_cast<ssize_t>(count)) return Copied::kYes;
  if (copied >= 0 || errno == EFAULT) return Copied::kNo;
  return refused(errno);
}

}  // namespace

bool write_own(uintptr_t dest, const void* source, size_t bytes) noexcept {
  if (!is_in_bound_memory(dest, bytes)) {
    const Copied copied = copy_by_cma(process_vm_writev, const_cast<void*>(source), dest, bytes);
    if (copied != Copied::kForbidden) return copied == Copied::kYes;
  }
  std::memcpy(reinterpret_cast<void*>(dest), source, bytes);
  return true;
}

bool fill_own(uintptr_t dest, int value, size_t bytes) noexcept {
  if (is_in_bound_memory(dest, bytes)) {
    std::memset(reinterpret_cast<void*>(dest), value, bytes);
    return true;
  }
  std::byte block[4096];
  std::memset(block, value, sizeof block);
  for (size_t done = 0; done < bytes; done += sizeof block) {
    if (!write_own(dest + done, block, std::min(sizeof block, bytes - done))) return false;
  }
  return true;
}

const void* read_own(uintptr_t source, void* scratch, size_t bytes) noexcept {
  const auto* place = reinterpret_cast<const void*>(source);
  if (is_in_bound_memory(source, bytes)) return place;
  const Copied copied = copy_by_cma(process_vm_readv, scratch, source, bytes);
  if (copied == Copied::kNo) return nullptr;
  return copied == Copied::kYes ? scratch : place;
}

// Reads one byte of every page.
bool can_read_own(uintptr_t source, size_t bytes) noexcept {
  if (is_in_bound_memory(source, bytes)) return true;
  constexpr size_t kPage = 4096;
  constexpr size_t kMaxPages = 128;  // per call; bounded by the stack
  const uintptr_t end = source + bytes;
  std::byte bytes_read[kMaxPages];
  while (source < end) {
    iovec pages[kMaxPages];
    size_t count = 0;
    for (; count < kMaxPages && source < end; ++count) {
      pages[count] = {reinterpret_cast<void*>(source), 1};
      source = (source | (kPage - 1)) + 1;
    }
    const Copied copied = copy_pages_by_kernel(bytes_read, pages, count);
    if (copied != Copied::kYes) return copied == Copied::kForbidden;
  }
  return true;
}

}  // namespace hydrant
