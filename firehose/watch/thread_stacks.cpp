// Notes the stacks in memory that misses register (mapping_watcher.cpp), and tells the reader which changes
// are those of a stack (raw_releases.cpp).
#include "firehose/watch/thread_stacks.hpp"

#include "firehose/base/brief_lock.hpp"

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

void ThreadStacks::expect(Mutex& mutex, MemoryRange range) noexcept {
  if (!lock_briefly(mutex)) return is_all_.store(true, std::memory_order_relaxed);
  const RangesLock lock(mutex, RangesLock::Adopt::kLocked);
  if (!registered_.add(range)) is_all_.store(true, std::memory_order_relaxed);
}

// Only the thread's descriptor is noted, because the mapping may contain memory of the program, too.
void ThreadStacks::note(const RangesLock&, MemoryRange mapping,
                        const HookedCallsUnderWay& calls) noexcept {
  forget_after_loss();
  if (!calls.have_hooks()) return;
  uint32_t position = 0;
  while (const uintptr_t stack = calls.next_stack(mapping, &position)) {
    if (may_be_descriptor(stack)) add(stack);
  }
}

void ThreadStacks::note_ending(const RangesLock&, uintptr_t descriptor) noexcept {
  forget_after_loss();
  if (is_all_.load(std::memory_order_relaxed) || registered_.overlaps({descriptor, 1}))
    add(descriptor);
}

void ThreadStacks::add(uintptr_t descriptor) noexcept {
  if (descriptors_.add({descriptor, 1})) any_.store(true, std::memory_order_relaxed);
}

void ThreadStacks::remove(const RangesLock&, MemoryRange range) noexcept {
  forget_after_loss();
  if (!descriptors_.remove(range)) descriptors_.clear();
  if (!registered_.remove(range)) is_all_.store(true, std::memory_order_relaxed);
}

void ThreadStacks::drop(Mutex& mutex, MemoryRange range) noexcept {
  if (!lock_briefly(mutex)) return is_outdated_.store(true, std::memory_order_release);
  const RangesLock lock(mutex, RangesLock::Adopt::kLocked);
  remove(lock, range);
}

void ThreadStacks::forget_after_loss() noexcept {
  if (is_outdated_.load(std::memory_order_relaxed) &&
      is_outdated_.exchange(false, std::memory_order_acquire))
    descriptors_.clear();
}

void ThreadStacks::reset_in_child() noexcept {
  descriptors_.clear();
  registered_.clear();
  is_all_.store(false, std::memory_order_relaxed);
  is_outdated_.store(false, std::memory_order_relaxed);
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
