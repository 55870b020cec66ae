// Which memory of this process lies in a memory file that a peer can map: what its owners have announced
// here, and the shared arenas of libhydrant_alloc, which is asked by name like the monitor: nothing here
// links it.
//
// Only files that can never shrink count (F_SEAL_SHRINK), and without huge pages of their own (MFD_HUGETLB),
// which may run out: whoever maps another one dies of SIGBUS some day.
//
// Threads: any. Cost: find() some 10 ns, and 1 us for the arenas' answer when nothing is announced there.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/status.hpp"

#include <cstdint>

namespace hydrant {

struct SharedFile {
  MemoryRange range;  // all of it that is mapped in one piece around the address asked for
  // Open for the life of the process. The program may close it and open a file of its own under the number:
  // each use looks whether it still is the file of this device and inode.
  int descriptor = -1;
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t offset = 0;  // of range.addr in the file
};

// Announces that [range) is the file's bytes from `offset` on, shared, readable and writable, until
// forget_shared_file(). The descriptor is duplicated, and stays open in this process; so does the file.
// Errors: kBadArg (no whole pages, overlaps what is announced), kUnsupported (not a memory file, or one that
// may shrink), kResource (256 in a process's life; no descriptor left).
Status announce_shared_file(MemoryRange range, int descriptor, uint64_t offset) noexcept;

// The range is about to be unmapped, and no pin of it is under way: nobody is told where it was from now on.
// False if it is not announced.
bool forget_shared_file(MemoryRange range) noexcept;

// Answers whether the address lies in such memory. Never in the child of a fork that announced nothing
// itself: what it has inherited is its parent's.
bool find_shared_file(uintptr_t addr, SharedFile* file) noexcept;

}  // namespace hydrant
