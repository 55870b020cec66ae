// Memory, files and system-call filters for tests of coherence.
#include "tests/support/mapped_memory.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace hydrant::testing {
namespace {

void must(bool done) {
  if (!done) std::abort();
}

// Chooses an address below those that the kernel chooses, which searches downwards from the top for a large
// enough gap. So no other allocation lands in memory that a test unmaps. Below 2 GiB, where
// AddressSanitizer's memory begins.
void* low_place(size_t bytes) {
  constexpr uintptr_t kLowest = 0x10000000, kSpan = 0x60000000;
  static std::atomic<uintptr_t> next{0};
  return reinterpret_cast<void*>(kLowest + next.fetch_add(bytes + 16 * kPage) % kSpan);
}

}  // namespace

MappedMemory::MappedMemory(size_t pages) : pages_(pages), mine_(new std::atomic<bool>[pages]) {
  set_mine(0, pages, true);
  const size_t bytes = (pages + 2) * kPage;
  void* all = mmap(low_place(bytes), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(all != MAP_FAILED);
  begin_ = static_cast<std::byte*>(all) + kPage;
}

MappedMemory::~MappedMemory() {
  munmap(begin_ - kPage, kPage);
  munmap(begin_ + bytes(), kPage);
  for (size_t i = 0; i < pages_; ++i) {
    size_t n = 0;
    while (i + n < pages_ && mine_[i + n].load()) ++n;
    if (n != 0) munmap(page(i), n * kPage);
    i += n;
  }
}

void MappedMemory::set_mine(size_t first, size_t n, bool mine) {
  for (size_t i = first; i < first + n; ++i) mine_[i] = mine;
}

void MappedMemory::replace(size_t first, size_t n, int protection) {
  must(mmap(page(first), n * kPage, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
       MAP_FAILED);
  set_mine(first, n, true);
}

void MappedMemory::replace_by_file(size_t first, size_t n, int fd, int flags) {
  must(mmap(page(first), n * kPage, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) !=
       MAP_FAILED);
  set_mine(first, n, true);
}

void MappedMemory::unmap(size_t first, size_t n) {
  must(munmap(page(first), n * kPage) == 0);
  set_mine(first, n, false);
}

bool MappedMemory::map(size_t first, size_t n) {
  void* got = mmap(page(first), n * kPage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == page(first)) {
    set_mine(first, n, true);
    return true;
  }
  if (got != MAP_FAILED) munmap(got, n * kPage);
  return false;
}

MemoryFile::MemoryFile(size_t pages) : fd_(memfd_create("hydrant-test", MFD_CLOEXEC)) {
  must(fd_ >= 0 && ftruncate(fd_, static_cast<off_t>(pages * kPage)) == 0);
}

MemoryFile::~MemoryFile() { close(fd_); }

std::string why_no_userfaultfd() {
  const auto fd =
      static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
  if (fd < 0) return std::strerror(errno);
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP;
  const bool works = ioctl(fd, UFFDIO_API, &api) == 0;
  const std::string error = works ? "" : std::strerror(errno);
  close(fd);
  return error;
}

std::string refuse_system_call(long number, int error, uint32_t ioctl_request) {
  const uint32_t refusal =
      error != 0 ? SECCOMP_RET_ERRNO | static_cast<uint32_t>(error) : SECCOMP_RET_KILL_PROCESS;
  constexpr auto kNumber = static_cast<uint32_t>(offsetof(seccomp_data, nr));
  // Offset of the low half of the second argument, on little-endian machines.
  constexpr auto kRequest = static_cast<uint32_t>(offsetof(seccomp_data, args) + sizeof(uint64_t));
  const uint8_t any_request = ioctl_request == 0 ? 1 : 0;
  std::array<sock_filter, 6> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, any_request != 0 ? kNumber : kRequest),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
               any_request != 0 ? static_cast<uint32_t>(number) : ioctl_request, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, refusal),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) != 0) {
    return std::string("no seccomp filter: ") + std::strerror(errno);
  }
  return "";
}

}  // namespace hydrant::testing
