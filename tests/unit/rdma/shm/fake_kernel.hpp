// A simulated kernel whose process_vm_readv and process_vm_writev return what a test sets, and short names
// for the tests of one-sided operations.
#pragma once

#include "tests/unit/rdma/shm/node_world.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

namespace hydrant::testing {

inline uintptr_t address(const void* at) { return reinterpret_cast<uintptr_t>(at); }
inline std::string pattern(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + i * 7 % 26);
  return text;
}

// The results of the next system calls: at most so many bytes, or minus an errno. The last result is
// repeated.
struct Kernel {
  static inline std::vector<int64_t> answers;
  static inline size_t calls = 0;
  static inline size_t vectors = 0;
  static inline size_t asked = 0;
  static inline bool copies = true;

  static ssize_t call(bool to_peer, const iovec* local, unsigned long locals, const iovec* remote,
                      unsigned long remotes) noexcept {
    const int64_t answer =
        answers.empty() ? INT64_MAX : answers[std::min(calls, answers.size() - 1)];
    ++calls;
    vectors = std::max<size_t>(vectors, locals);
    size_t local_bytes = 0;
    size_t remote_bytes = 0;
    for (unsigned long i = 0; i < locals; ++i) local_bytes += local[i].iov_len;
    for (unsigned long i = 0; i < remotes; ++i) remote_bytes += remote[i].iov_len;
    EXPECT_EQ(local_bytes, remote_bytes);
    EXPECT_LE(locals, 1024u);
    EXPECT_LE(local_bytes, size_t{0x7ffff000});
    asked = local_bytes;
    if (answer < 0) {
      errno = static_cast<int>(-answer);
      return -1;
    }
    const size_t most = std::min(local_bytes, static_cast<size_t>(answer));
    size_t left = most;
    for (unsigned long i = 0; i < locals && left != 0; ++i) {
      const size_t part = std::min(left, local[i].iov_len);
      if (copies && to_peer) std::memcpy(remote[i].iov_base, local[i].iov_base, part);
      if (copies && !to_peer) std::memcpy(local[i].iov_base, remote[i].iov_base, part);
      left -= part;
    }
    return static_cast<ssize_t>(most);
  }
  static ssize_t read(pid_t, const iovec* local, unsigned long locals, const iovec* remote,
                      unsigned long remotes, unsigned long) noexcept {
    return call(false, local, locals, remote, remotes);
  }
  static ssize_t write(pid_t, const iovec* local, unsigned long locals, const iovec* remote,
                       unsigned long remotes, unsigned long) noexcept {
    return call(true, local, locals, remote, remotes);
  }

  explicit Kernel(std::vector<int64_t> told, bool really = true) {
    answers = std::move(told);
    calls = vectors = 0;
    copies = really;
    shm::CmaCopy::replace_call(shm::CopyDirection::kFromPeer, read);
    shm::CmaCopy::replace_call(shm::CopyDirection::kToPeer, write);
  }
  ~Kernel() {
    shm::CmaCopy::replace_call(shm::CopyDirection::kFromPeer, nullptr);
    shm::CmaCopy::replace_call(shm::CopyDirection::kToPeer, nullptr);
  }
};

inline Status put(Pair& pair, void* remote, const void* local, size_t bytes) {
  return pair.a.transport->memory().put(1, address(remote), local, bytes, nullptr);
}
inline Status get(Pair& pair, const void* remote, void* local, size_t bytes) {
  return pair.a.transport->memory().get(1, address(remote), local, bytes, nullptr);
}

}  // namespace hydrant::testing
