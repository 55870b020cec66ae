// Every open ring of this process, so that the child of a fork closes them all: also those that no registrar
// knows yet, or any more. A child that keeps a ring keeps the parent's pins, and their charge.
//
// fork() waits while a ring is being made or closed (about 0.1 ms). A child made by the bare clone
// system call runs no fork handlers: there prepare_for_forks() and forget_rings_in_child() find out,
// and close what has another owner; a ring that another thread was making at that moment stays open.
//
// Locks: open_rings_mutex() is taken last, and nothing but the ring's own system calls happens under it.
#pragma once

#include "firehose/base/thread.hpp"

#include <sys/types.h>

namespace hydrant {

// One ring's descriptor, a link of the list: part of the ring, listed while it is open.
struct RingDescriptor {
  int fd = -1;      // -1: there is none, or it has been closed in the child of a fork
  pid_t owner = 0;  // the process that listed it
  RingDescriptor* next = nullptr;
};

// Held from before the kernel makes a ring until it is listed and its mappings are kept from children; and
// from its removal until it is closed.
Mutex& open_rings_mutex() noexcept;

// Installs the fork handlers, and closes the parent's rings in a child that ran none: before each ring.
// Cost: a short system call after the first time.
void prepare_for_forks() noexcept;

void list_ring(RingDescriptor* ring) noexcept HYDRANT_REQUIRES(open_rings_mutex());
// Does nothing to a ring that is not listed.
void unlist_ring(RingDescriptor* ring) noexcept HYDRANT_REQUIRES(open_rings_mutex());

// In the child of any kind of fork: closes what was open in the parent, if nobody has done so yet. Leaves the
// child's own rings alone.
// Async-signal-safe. Requires: the only thread.
void forget_rings_in_child() noexcept;

}  // namespace hydrant
