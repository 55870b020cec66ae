// A userfaultfd in write-protect mode in which nothing is ever protected: the kernel reports what is
// unmapped, moved or removed of the registered mappings, and delivers no page fault.
//
// What the events mean (measured, Linux 6.1 to 6.18): the call that releases memory returns only after
// its event was read. UNMAP comes after the unmapping, REMOVE before the pages go; a freed range can be
// mapped again by another thread before its event is read. While any change is under way,
// UFFDIO_WRITEPROTECT on any range fails with EAGAIN; poll() reports the change only later.
//
// Threads: every function from any thread; read() from one at a time.
#pragma once

#include "firehose/base/file_identity.hpp"
#include "firehose/base/memory_range.hpp"

#include <atomic>
#include <cstddef>

namespace hydrant {

struct MemoryChange {
  enum class Kind { kUnmapped, kMoved, kRemoved } kind;
  MemoryRange range;
  MemoryRange to;  // kMoved: where it is now
};

class Userfault {
 public:
  constexpr Userfault() noexcept = default;
  Userfault(const Userfault&) = delete;
  Userfault& operator=(const Userfault&) = delete;

  // 0, or an errno with a reason in *reason (static text) when this process may not have one, or not now.
  int open(const char** reason) noexcept;
  // Closes the descriptor unless it is another file's by now. Reports end, and the kernel wakes the callers
  // that wait for one to be read.
  void close() noexcept;
  int descriptor() const noexcept { return fd_.load(std::memory_order_relaxed); }

  // Has the kernel report changes of the mappings in this page-aligned range; holes in it are skipped. False:
  // another userfaultfd owns a part of it, or the kernel cannot watch mappings of that kind. Cost: 0.3 us if
  // it is watched already, else a few us.
  bool watch(MemoryRange range) const noexcept;
  // Ends the reports on the range. False: something in the range is of a kind that cannot be watched.
  bool unwatch(MemoryRange range) const noexcept;
  // False if the descriptor is not this userfaultfd, or no longer (the program has closed it), or the system
  // refuses a call that tells this or that the monitor needs.
  bool usable() const noexcept;
  // False if the descriptor is not this userfaultfd, as far as the calls that the system permits tell.
  bool is_open() const noexcept;
  // True while some change has begun and has not been read, or its caller has not yet noticed that it was.
  // Also true when usable() is false: then nothing is known. Cost: two system calls, 0.2 to 0.4 us.
  bool change_under_way() const noexcept;
  // Whether a change is pending, or its caller has been woken and has not run yet. Cost: one system call.
  bool has_reports() const noexcept;
  // A read wakes the callers of all pending changes; a caller whose change was not read sleeps again. A few
  // reads of many changes each cost less.
  static constexpr size_t kAtOnce = 256;
  // Takes up to n changes, kAtOnce at most. *error: 0, or an errno if nothing was read; EAGAIN: there is
  // none.
  size_t read(MemoryChange* changes, size_t n, int* error) const noexcept;

 private:
  // The errno of an invalid request. EINVAL: the descriptor is a userfaultfd and no change is under way;
  // EAGAIN: one is.
  int probe() const noexcept;
  void abandon() noexcept { fd_.store(-1, std::memory_order_relaxed); }
  FileIdentity identity_;  // written before other threads use this object
  // Relaxed: a thread that uses an outdated value gets an error from the kernel or fails the check of the
  // mark.
  std::atomic<int> fd_{-1};
};

}  // namespace hydrant
