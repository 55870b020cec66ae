// A list of all open rings of this process, so that the child of a fork closes all of them, including rings
// that are not yet, or no longer, part of a registrar. A child that kept a ring open would keep the parent's
// pins and their charge.
//
// fork() waits while a ring is being created or closed (about 0.1 ms), unless it is called by a signal
// handler that interrupted a section of the cache. A child made by the bare clone system call runs no fork
// handlers: in it, prepare_for_forks() and forget_rings_in_child() detect the new process id and close the
// parent's rings. In both cases only a ring that another thread was creating or closing at that moment stays
// open.
//
// Locks: open_rings_mutex() is taken last, with signals blocked: a handler that forks interrupts no change of
// this thread. Only the ring's own system calls run under it.
#pragma once

#include "firehose/base/file_identity.hpp"
#include "firehose/base/thread.hpp"

#include <atomic>
#include <sys/types.h>

namespace hydrant {

// The descriptor of a ring, and a link of the list. A member of the ring, listed while the ring is open.
struct RingDescriptor {
  int fd = -1;      // -1: not open, or closed in the child of a fork
  pid_t owner = 0;  // the process that listed it
  FileIdentity identity;
  // A newer ring of this library has the number. Set under the mutex before the newer ring is marked.
  std::atomic<bool> replaced{false};
  RingDescriptor* next = nullptr;

  // False if the program has closed it, even if the number now names another file. The mark of a newer ring
  // may be equal; `replaced` is read after the mark because it is set before it. Cost: 0.09 us.
  bool is_ours() const noexcept { return identity.has_mark(fd) && !replaced.load(); }
  // True if `fd` is still the ring's file, by device and inode: the check right before close(), which marks
  // alone do not justify, unless the system refuses more. Cost: 0.16 us.
  bool is_open() const noexcept { return identity.is_file(fd) && !replaced.load(); }
  // The system refuses both checks.
  bool is_hidden() const noexcept { return identity.is_hidden(fd); }
  void close_if_open() noexcept;
};

// Held while a ring is created (until it is listed and its mappings are excluded from forks), and while it is
// destroyed (from its removal until it is closed). Requires: SignalsBlocked.
Mutex& open_rings_mutex() noexcept;

// Call it before creating a ring: installs the fork handlers, and closes the parent's rings in a child that
// ran no handlers. Cost: a short system call after the first time.
void prepare_for_forks() noexcept;

// Notes and lists a new ring: `fd` is set. Listed rings with the same number are marked as replaced.
void list_ring(RingDescriptor* ring) noexcept HYDRANT_REQUIRES(open_rings_mutex());
// No effect on a ring that is not listed.
void unlist_ring(RingDescriptor* ring) noexcept HYDRANT_REQUIRES(open_rings_mutex());

// In the child of any kind of fork: closes the parent's rings unless that has been done; keeps the child's
// own. Async-signal-safe. Requires: a single thread.
void forget_rings_in_child() noexcept;

}  // namespace hydrant
