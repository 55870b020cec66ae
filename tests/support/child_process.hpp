// Runs a piece of a test in a separate process: for forks, dropped privileges and crashes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace hydrant::testing {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadsInChildren =
    false;  // the thread sanitizer ends a child that starts one
#else
inline constexpr bool kThreadsInChildren = true;
#endif

// How the child is created.
enum class ChildKind : uint8_t {
  kFork,        // fork(): atfork handlers run
  kForkAtOnce,  // the same while other threads are busy, for a body that allocates nothing
  kRawClone,    // the clone system call: no handler runs, and libc is not involved
};

// Runs body() in a child and answers its result ("" is success), or how the child ended instead. The child
// leaves with _exit(), so no part of the test program runs twice. Requires: the body needs no other threads.
// Waits at most a minute.
std::string run_in_child(const std::function<std::string()>& body,
                         ChildKind kind = ChildKind::kFork);

// For the child only: changes from root to a user id that only this process has, with this RLIMIT_MEMLOCK. ""
// or the reason of a failure.
std::string become_ordinary_user(uint64_t memlock_bytes);

}  // namespace hydrant::testing
