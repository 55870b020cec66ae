// Finds memory of this process that lies in a memory file, which a peer can map: files announced here, and
// the shared arenas of libhydrant_alloc. The latter are queried through a symbol found by name, like the
// monitor: this library does not link libhydrant_alloc.
//
// Only files that can never shrink are accepted (F_SEAL_SHRINK), and no files of huge pages (MFD_HUGETLB). A
// mapping of any other file can raise SIGBUS, when the file shrinks or huge pages run out.
//
// Threads: any. Cost: find_shared_file() takes some 10 ns, plus 1 us to query the arenas if no announced file
// has the address.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/status.hpp"

#include <cstdint>

namespace hydrant {

struct SharedFile {
  MemoryRange range;  // the whole contiguous mapping around the queried address
  // Open for the life of the process. The program may close it and reuse its number, so each use checks that
  // it still refers to the file of this device and inode.
  int descriptor = -1;
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t offset = 0;  // of range.addr in the file
};

// Announces that `range` maps the file's bytes from `offset` on, shared, readable and writable, until
// forget_shared_file(). The descriptor is duplicated, and stays open in this process; so does the file.
// Errors: kBadArg (no whole pages, overlaps an announced range), kUnsupported (not a memory file, or one that
// may shrink), kResource (256 in a process's life; no descriptor left).
Status announce_shared_file(MemoryRange range, int descriptor, uint64_t offset) noexcept;

// Withdraws the range, which is about to be unmapped and has no pin under way: find_shared_file() no longer
// returns it. False if it is not announced.
bool forget_shared_file(MemoryRange range) noexcept;

// Returns true if the address lies in such memory. False in the child of a fork for memory that it has not
// announced itself: inherited entries are the parent's.
bool find_shared_file(uintptr_t addr, SharedFile* file) noexcept;

}  // namespace hydrant
