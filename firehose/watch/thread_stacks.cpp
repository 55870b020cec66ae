// Notes the stacks in memory that misses register (mapping_watcher.cpp), and tells the reader which changes
// are those of a stack (raw_releases.cpp).
#include "firehose/watch/thread_stacks.hpp"

#include <cerrno>
#include <cstdint>
#include <sys/uio.h>
#include <unistd.h>

namespace hydrant {
namespace {

// True if a thread's descriptor may be at addr. On x86-64 libc keeps a descriptor's address in its first
// word, also after the thread's end.
bool may_be_descriptor(uintptr_t addr) {
#ifdef __x86_64__
  uintptr_t found = 0;
  const iovec here{&found, sizeof found};
  const iovec there{reinterpret_cast<void*>(addr), sizeof found};
  const ssize_t n = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
  if (n >= 0 || errno == EFAULT) return found == addr;
#endif
  (void)addr;
  return true;
}

}  // namespace

// Only the thread's descriptor is noted, because the mapping may contain memory of the program, too.
void ThreadStacks::note(const RangesLock& lock, MemoryRange mapping,
                        const HookedCallsUnderWay& calls) noexcept {
  if (!calls.have_hooks()) return;
  uint32_t position = 0;
  while (const uintptr_t stack = calls.next_stack(mapping, &position)) {
    if (may_be_descriptor(stack)) note_ending(lock, stack);
  }
}

void ThreadStacks::note_ending(const RangesLock&, uintptr_t descriptor) noexcept {
  if (descriptors_.add({descriptor, 1})) any_.store(true, std::memory_order_relaxed);
}

// A descriptor lies at the end of its stack. libc empties a stack from its start almost to the frame of the
// function that its thread ends in, and unmaps it as a whole.
bool ThreadStacks::are_changed(const RangesLock&, const MemoryChange& change) const noexcept {
  constexpr size_t kMaxKept = size_t{64} << 10;
  switch (change.kind) {
    case MemoryChange::Kind::kUnmapped: return descriptors_.has_any_inside(change.range);
    case MemoryChange::Kind::kRemoved: return descriptors_.overlaps({change.range.end(), kMaxKept});
    case MemoryChange::Kind::kMoved: return false;
  }
  return false;
}

}  // namespace hydrant
