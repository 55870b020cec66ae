// Records of threads, one per thread: they show libfirehose whether a thread is inside a call that may
// release memory.
//
// A thread takes its record at its first hooked call and keeps it. The destructor of a pthread key marks the
// record as ending. libc goes on to release memory after that (the thread's cache of malloc, its stack), so
// the record says "entered" from then on, and is free again only when the kernel no longer knows the thread.
// A forked child has one thread, and forgets the others' records.
//
// Threads: no lock; a record is written by its thread, and claimed by compare-and-swap.
#pragma once

#include "firehose/watch/hooks_abi.h"

namespace hydrant::hooks {

using Thread = hydrant_hooks_thread_t;

inline constexpr uint32_t kMaxThreads = 4096;
// NOLINTNEXTLINE(bugprone-dynamic-static-initializers): constinit
extern constinit Thread records[kMaxThreads];
inline constexpr uint32_t kEndedStacks = 1024;
// NOLINTNEXTLINE(bugprone-dynamic-static-initializers): constinit
extern constinit uint64_t ended_stacks[kEndedStacks];

// Null before the thread's first hooked call.
// NOLINTNEXTLINE(bugprone-dynamic-static-initializers): constinit
extern constinit thread_local Thread* own_record;

// Gives the calling thread a record. If all are used it is a shared one, which libfirehose does not read.
// Cost: two or three system calls, once per thread. errno is kept.
Thread* take_record();

inline Thread* this_thread() {
  Thread* own = own_record;
  return own != nullptr ? own : take_record();
}

// In the child of a fork().
void keep_only_own_record();

}  // namespace hydrant::hooks
