// Has chosen system calls of one thread fail, each at a chosen count: a seccomp filter reports every call of
// theirs to a second thread, which answers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <linux/seccomp.h>
#include <string>
#include <vector>

namespace hydrant::testing {

// A kind of system call. `counts` tells whether a call is of the kind (null: all are).
struct CallKind {
  const char* name = "";
  uint32_t number = 0;
  bool (*counts)(const seccomp_data& call) = nullptr;
};

class RefusedCalls {
 public:
  static constexpr int kForEver = 1 << 30;

  // Runs the body in a thread of its own. Calls of these kinds by it, and by threads that it starts, can be
  // refused; a thread that goes on after the body gets ENOSYS for them. Returns the body's result, or
  // kNoFilter.
  static std::string run(std::vector<CallKind> kinds,
                         const std::function<std::string(RefusedCalls&)>& body);
  static constexpr const char* kNoFilter = "no seccomp filter with a listener here";

  // From now on `skip` calls of this kind succeed, and `times` after them fail with `error`.
  void refuse(size_t kind, int skip, int times, int error);
  // Ends the refusals. Returns how many calls were refused.
  int allow();
  int refused() const { return refused_; }

 private:
  explicit RefusedCalls(std::vector<CallKind> kinds) : kinds_(std::move(kinds)) {}
  bool install();
  void answer();
  bool refuses(const seccomp_data& call);

  std::atomic<bool> is_over_{false};

  const std::vector<CallKind> kinds_;
  std::atomic<int> listener_{-1};
  // Written by the body while it makes no call that counts, or by the thread that answers.
  std::atomic<size_t> kind_{0};
  std::atomic<int> skip_{0}, times_{0}, error_{0}, refused_{0};
};

}  // namespace hydrant::testing
