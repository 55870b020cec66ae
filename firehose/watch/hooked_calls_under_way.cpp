// Reads the hooks' thread records to find whether a hooked call explains a change that the kernel reported.
// The reader thread calls it for each change (raw_releases.cpp); have_returned() serves waits in
// release_waits.cpp and in removals_under_way.cpp.
#include "firehose/watch/hooked_calls_under_way.hpp"

#include "firehose/base/uncancelled.hpp"
#include "firehose/watch/mutant.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant {
namespace {

// The main heap may have grown this far above main_heap_high when libc trims its end.
constexpr uintptr_t kMainHeapGrowth = uintptr_t{1} << 30;
constexpr size_t kPageBytes = 4096;
// A range of more blocks counts as touching one of libc's heaps.
constexpr uintptr_t kMaxBlocks = 4096;
constexpr uintptr_t kEndOfBlocks = uintptr_t{1} << (47 - HYDRANT_HOOKS_HEAP_SHIFT);

template <typename Word>
Word load(const Word& word) {
  return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}

// True if [addr, addr+len), rounded out to pages as the kernel does, covers the range.
bool covers_pages(uint64_t addr, uint64_t len, MemoryRange range) {
  if (len == 0) return false;
  if (addr + len < addr)
    return false;  // refused by the kernel, or a call that may release anything
  const uint64_t first = addr / kPageBytes * kPageBytes;
  const uint64_t end = (addr + len + kPageBytes - 1) / kPageBytes * kPageBytes;
  return first <= range.addr && range.last() < end;
}

// True if a call with this note may release a page of the range.
bool may_touch(uint64_t addr, uint64_t len, MemoryRange range) {
  if (len == 0) return false;
  const uint64_t last = addr + (len - 1);
  if (len == HYDRANT_HOOKS_ANYTHING || last < addr) return true;
  return addr / kPageBytes <= range.last() / kPageBytes &&
         last / kPageBytes >= range.addr / kPageBytes;
}

// True if the thread has exited: the kernel does not know its tid.
bool is_gone(uint32_t tid) {
  return syscall(SYS_tgkill, getpid(), static_cast<pid_t>(tid), 0) != 0 && errno == ESRCH;
}

// Frees the record of a thread that has exited; any thread may then claim it. False if the thread still runs,
// or another thread has claimed the record.
bool free_if_exited(hydrant_hooks_thread_t& thread, uint32_t tid) {
  static_assert(offsetof(hydrant_hooks_thread_t, ending) ==
                offsetof(hydrant_hooks_thread_t, tid) + sizeof thread.tid);
  if (!is_gone(tid)) return false;
  struct Claim {
    uint32_t tid, ending;
  };
  auto* word = static_cast<uint64_t*>(static_cast<void*>(&thread.tid));
  auto owned = __builtin_bit_cast(uint64_t, Claim{tid, 1});
  return __atomic_compare_exchange_n(word, &owned, uint64_t{0}, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED);
}

// True if the thread sleeps in the kernel and no signal wakes it, or if its state cannot be read. The caller
// of a change sleeps like this from the moment at which the change is visible.
bool may_be_asleep(uint32_t tid) {
  char path[64];
  (void)std::snprintf(path, sizeof path, "/proc/self/task/%u/stat", tid);
  const int file = uncancelled::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno != ENOENT;
  char text[256];
  const ssize_t n = uncancelled::read(file, text, sizeof text);
  uncancelled::close(file);
  // "<tid> (<name>) <state> ...": the name may contain anything.
  const auto* name_end =
      n > 0 ? static_cast<const char*>(memrchr(text, ')', static_cast<size_t>(n))) : nullptr;
  if (name_end == nullptr || name_end + 2 >= text + n) return true;
  return name_end[2] == 'D';
}

}  // namespace

// The largest extent that the thread's calls may be releasing now, as far as it concerns `range`.
HookedCallsUnderWay::Extent HookedCallsUnderWay::extent_of(hydrant_hooks_thread_t& thread,
                                                           MemoryRange range) const noexcept {
  const uint32_t tid = load(thread.tid);
  if (tid == 0) return Extent::kNothing;
  if (load(thread.loading) != 0) return Extent::kAllMemory;
  if (load(thread.entered) == 0) return Extent::kNothing;
  if (load(thread.ending) != 0 || load(thread.len) == HYDRANT_HOOKS_ANYTHING ||
      load(thread.inner_len) == HYDRANT_HOOKS_ANYTHING) {
    return Extent::kAllMemory;
  }
  if (covers_pages(load(thread.addr), load(thread.len), range) ||
      covers_pages(load(thread.inner_addr), load(thread.inner_len), range)) {
    return Extent::kRange;
  }
  return Extent::kHeaps;
}

bool HookedCallsUnderWay::names_any_of(const RangeSet& watched,
                                       const hydrant_hooks_thread_t& thread) const noexcept {
  const auto is_watched = [&watched](uint64_t addr, uint64_t len) {
    const MemoryRange range{addr, len};
    return len != 0 && range.valid() && watched.overlaps(range);
  };
  return is_watched(load(thread.addr), load(thread.len)) ||
         is_watched(load(thread.inner_addr), load(thread.inner_len));
}

void HookedCallsUnderWay::begin_reading() noexcept {
  if (load(hooks_->endings) != load(hooks_->endings_over)) {
    const uint32_t count = load(hooks_->thread_count);
    for (uint32_t i = 0; i < count; ++i) {
      hydrant_hooks_thread_t& thread = hooks_->threads[i];
      const uint32_t tid = load(thread.tid);
      if (tid != 0 && load(thread.ending) != 0 && free_if_exited(thread, tid)) {
        __atomic_fetch_add(&hooks_->endings_over, 1, __ATOMIC_ACQ_REL);
      }
    }
  }
  endings_over_ = load(hooks_->endings_over);
}

bool HookedCallsUnderWay::may_have_caller(const RangeSet& watched) noexcept {
  candidate_count_ = 0;
  const bool blind = is_blind_look();
  const uint32_t count = load(hooks_->thread_count);
  for (uint32_t n = 0; n < count; ++n) {
    const uint32_t i = (last_found_ + n) % count;
    hydrant_hooks_thread_t& thread = hooks_->threads[i];
    if (extent_of(thread, {}) == Extent::kNothing) continue;
    if ((names_any_of(watched, thread) && !blind) || candidate_count_ == kMaxCandidates) {
      last_found_ = i;
      return true;
    }
    candidates_[candidate_count_++] = i;
  }
  return !blind && is_candidate_sleeping();
}

bool HookedCallsUnderWay::may_still_have_caller() noexcept {
  return !is_blind_look() && is_candidate_sleeping();
}

bool HookedCallsUnderWay::is_candidate_sleeping() noexcept {
  for (uint32_t n = 0; n < candidate_count_; ++n) {
    hydrant_hooks_thread_t& thread = hooks_->threads[candidates_[n]];
    if (extent_of(thread, {}) == Extent::kNothing || !may_be_asleep(load(thread.tid))) continue;
    last_found_ = candidates_[n];
    return true;
  }
  return false;
}

bool HookedCallsUnderWay::explain(MemoryRange range) noexcept {
  const bool heap = is_heap(range);
  const uint32_t count = load(hooks_->thread_count);
  for (uint32_t n = 0; n < count; ++n) {
    const uint32_t i = (last_found_ + n) % count;
    const Extent extent = extent_of(hooks_->threads[i], range);
    if (extent == Extent::kNothing || (extent == Extent::kHeaps && !heap)) continue;
    last_found_ = i;
    return true;
  }
  // The caller may have exited, and a new thread may have claimed its record.
  return load(hooks_->endings_over) != endings_over_;
}

bool HookedCallsUnderWay::name(MemoryRange range) noexcept {
  const uint32_t count = load(hooks_->thread_count);
  for (uint32_t i = 0; i < count; ++i) {
    if (extent_of(hooks_->threads[i], range) == Extent::kRange) return true;
  }
  return false;
}

bool HookedCallsUnderWay::is_in_libc_heap(MemoryRange range) const noexcept {
  const uint64_t* heaps = hooks_->heap_blocks;
  if (heaps == nullptr) return true;
  for (uintptr_t b = range.addr >> HYDRANT_HOOKS_HEAP_SHIFT;
       b <= range.last() >> HYDRANT_HOOKS_HEAP_SHIFT; ++b) {
    if ((load(heaps[b / 64]) >> b % 64 & 1) != 0) return true;
  }
  return false;
}

bool HookedCallsUnderWay::is_heap(MemoryRange range) const noexcept {
  const uintptr_t low = load(*hooks_->main_heap_low);
  if (low != 0 && range.addr >= low / kPageBytes * kPageBytes &&
      range.addr < load(*hooks_->main_heap_high) + kMainHeapGrowth) {
    return true;
  }
  for (uintptr_t b = range.addr >> HYDRANT_HOOKS_HEAP_SHIFT;
       b <= range.last() >> HYDRANT_HOOKS_HEAP_SHIFT; ++b) {
    if ((load(hooks_->libc_blocks[b / 64]) >> b % 64 & 1) == 0) return false;
  }
  return true;
}

bool HookedCallsUnderWay::reaches_heap(MemoryRange range) const noexcept {
  const uintptr_t first = range.addr >> HYDRANT_HOOKS_HEAP_SHIFT;
  const uintptr_t last = range.last() >> HYDRANT_HOOKS_HEAP_SHIFT;
  if (last - first >= kMaxBlocks || last >= kEndOfBlocks) return true;
  const uintptr_t low = load(*hooks_->main_heap_low);
  if (low != 0 && range.last() >= low / kPageBytes * kPageBytes &&
      range.addr < load(*hooks_->main_heap_high) + kMainHeapGrowth) {
    return true;
  }
  for (uintptr_t b = first; b <= last; ++b) {
    if ((load(hooks_->libc_blocks[b / 64]) >> b % 64 & 1) != 0) return true;
  }
  return false;
}

// A call that released a part of the range before the wait began had noted the range before that. So this
// finds that mark and note, or later values of a thread whose call has returned. A thread that is ending
// stays entered until it has exited. It does not note what it releases, and neither does the loader.
bool HookedCallsUnderWay::have_returned(Wait& wait) const noexcept {
  const bool heap = reaches_heap(wait.range);
  const uint32_t count = load(hooks_->thread_count);
  for (; wait.done < count; ++wait.done) {
    const hydrant_hooks_thread_t& thread = hooks_->threads[wait.done];
    const uint32_t tid = load(thread.tid);
    if (tid == 0) continue;
    if (wait.loader && load(thread.loading) != 0) return false;
    const uint64_t entered = load(thread.entered);
    if (entered == 0 || entered >= wait.number || tid == wait.but) continue;
    if (load(thread.ending) != 0) {
      if (is_gone(tid)) continue;
      return false;
    }
    if (heap || may_touch(load(thread.addr), load(thread.len), wait.range) ||
        may_touch(load(thread.inner_addr), load(thread.inner_len), wait.range)) {
      return false;
    }
  }
  return true;
}

uintptr_t HookedCallsUnderWay::next_stack(MemoryRange range, uint32_t* position) const noexcept {
  const uint32_t records = load(hooks_->thread_count);
  while (*position < records + hooks_->ended_stack_count) {
    const uint32_t i = (*position)++;
    const uintptr_t stack =
        load(i < records ? hooks_->threads[i].stack : hooks_->ended_stacks[i - records]);
    if (stack != 0 && stack >= range.addr && stack <= range.last()) return stack;
  }
  return 0;
}

}  // namespace hydrant
