// The lower bound for operations of rma_bench: the copy itself, between the same pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sys/types.h>
#include <sys/uio.h>

namespace hydrant::bench {

// The bare copy of mapped memory: inline loads and stores for constant sizes, else the C library's memcpy.
class MappedFloor {
 public:
  static void run(std::byte* to, const std::byte* from, size_t bytes, uint64_t rounds) {
    for (uint64_t i = 0; i < rounds; ++i) {
      std::memcpy(to, from, bytes);
      asm volatile("" ::: "memory");
    }
  }
  static void run_constant(std::byte* to, const std::byte* from, size_t bytes, uint64_t rounds) {
    switch (bytes) {
      case 1: return loop<1>(to, from, rounds);
      case 2: return loop<2>(to, from, rounds);
      case 4: return loop<4>(to, from, rounds);
      case 8: return loop<8>(to, from, rounds);
      case 16: return loop<16>(to, from, rounds);
      case 32: return loop<32>(to, from, rounds);
      default: return loop<64>(to, from, rounds);
    }
  }

 private:
  template <size_t kBytes>
  static void loop(std::byte* to, const std::byte* from, uint64_t rounds) {
    for (uint64_t i = 0; i < rounds; ++i) {
      std::memcpy(to, from, kBytes);
      asm volatile("" ::: "memory");
    }
  }
};

// Calls process_vm_writev or process_vm_readv directly. False if the kernel refuses.
inline bool copy_by_cma(pid_t pid, std::byte* local, std::byte* remote, size_t bytes, bool is_put,
                        uint64_t rounds) {
  for (uint64_t i = 0; i < rounds; ++i) {
    for (size_t done = 0; done < bytes;) {
      const iovec here{local + done, bytes - done};
      const iovec there{remote + done, bytes - done};
      const ssize_t moved = is_put ? process_vm_writev(pid, &here, 1, &there, 1, 0)
                                   : process_vm_readv(pid, &here, 1, &there, 1, 0);
      if (moved <= 0) return false;
      done += static_cast<size_t>(moved);
    }
  }
  return true;
}

}  // namespace hydrant::bench
