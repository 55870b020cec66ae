// Runs a piece of a test in a process of its own: forks, dropped privileges, crashes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace hydrant::testing {

// How the child comes to be.
enum class ChildKind : uint8_t {
  kFork,      // fork(): atfork handlers run
  kRawClone,  // the clone system call: no handler runs, and libc does not know
};

// Runs body() in a child and answers what it returned ("" is success), or how the child ended instead.
// The child leaves with _exit(): nothing of the test program runs twice. Requires: no other threads that
// the body needs. Never waits longer than a minute.
std::string run_in_child(const std::function<std::string()>& body,
                         ChildKind kind = ChildKind::kFork);

// Gives up root for a user id of this process alone, with this much RLIMIT_MEMLOCK; "" or why not.
// For the child only.
std::string become_ordinary_user(uint64_t memlock_bytes);

}  // namespace hydrant::testing
