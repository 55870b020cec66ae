#include "tests/unit/firehose/watch/hooks/fake_monitor.hpp"

#include <atomic>
#include <cerrno>
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::testing {
namespace {

constexpr size_t kBlocks = size_t{1} << (47 - HYDRANT_MONITOR_BLOCK_SHIFT);

uint64_t blocks[kBlocks / 64];
uint64_t sequence;
uint64_t removals = 1;
std::atomic<uint64_t> g_syncs, g_settles, g_file_changes, g_others;
std::atomic<uintptr_t> g_ended_stack;

// The latest ranges that one function was called with.
struct Told {
  static constexpr size_t kMax = 64;
  std::atomic<uintptr_t> addr[kMax];
  std::atomic<size_t> len[kMax];
  std::atomic<size_t> count;

  void note(uintptr_t at, size_t bytes) {
    const size_t i = count++ % kMax;
    addr[i] = at;
    len[i] = bytes;
    errno = EDOM;
  }
  bool covers(uintptr_t at, size_t bytes) const {
    for (size_t i = 0; i < count && i < kMax; ++i) {
      if (addr[i] <= at && at - addr[i] < len[i] && len[i] - (at - addr[i]) >= bytes) return true;
    }
    return false;
  }
};
Told invalidated;
Told replacements;
Told synced;

void end_busy() {
  __atomic_and_fetch(&sequence, ~uint64_t{1}, __ATOMIC_ACQ_REL);
  errno = EDOM;
}
void settle() {
  ++g_settles;
  end_busy();
}
void sync() {
  ++g_syncs;
  end_busy();
}
void sync_range(uintptr_t addr, size_t len) {
  sync();
  synced.note(addr, len);
}
void files_changed() {
  ++g_file_changes;
  errno = EDOM;
}
void stack_ends(uintptr_t descriptor) {
  g_ended_stack = descriptor;
  errno = EDOM;
}
void invalidate(uintptr_t addr, size_t len) { invalidated.note(addr, len); }
void replaced(uintptr_t addr, size_t len) { replacements.note(addr, len); }
void on_range(uintptr_t /*addr*/, size_t /*len*/) { ++g_others; }
int on_range_asked(uintptr_t /*addr*/, size_t /*len*/) { return static_cast<int>(++g_others); }

hydrant_monitor_t make_monitor() {
  hydrant_monitor_t made = {};
  made.size = sizeof made;
  made.version = HYDRANT_MONITOR_VERSION;
  made.blocks = blocks;
  made.sequence = &sequence;
  made.removals = &removals;
  made.invalidate = invalidate;
  made.replaced = replaced;
  made.pinned = on_range_asked;
  made.add_arena = on_range_asked;
  made.drop_arena = on_range;
  made.settle = settle;
  made.sync = sync;
  made.sync_range = sync_range;
  made.files_changed = files_changed;
  made.stack_ends = stack_ends;
  return made;
}

}  // namespace

hydrant_hooks_t* hooks() {
  static auto* const found = static_cast<hydrant_hooks_t*>(dlsym(RTLD_DEFAULT, "hydrant_hooks_1"));
  return found;
}

const hydrant_hooks_thread_t* own_record() {
  const auto tid = static_cast<uint32_t>(syscall(SYS_gettid));
  const uint32_t count = __atomic_load_n(&hooks()->thread_count, __ATOMIC_ACQUIRE);
  for (uint32_t i = 0; i < count; ++i) {
    const hydrant_hooks_thread_t& record = hooks()->threads[i];
    if (__atomic_load_n(&record.tid, __ATOMIC_ACQUIRE) == tid) return &record;
  }
  return nullptr;
}

FakeMonitor::FakeMonitor() {
  static const hydrant_monitor_t monitor = make_monitor();
  unpin_everything();
  sequence = 0;
  removals = 1;
  g_syncs = g_settles = g_file_changes = g_others = 0;
  g_ended_stack = 0;
  invalidated.count = replacements.count = synced.count = 0;
  __atomic_store_n(&hooks()->monitor, &monitor, __ATOMIC_RELEASE);
}

FakeMonitor::~FakeMonitor() { __atomic_store_n(&hooks()->monitor, nullptr, __ATOMIC_RELEASE); }

void FakeMonitor::pin(const void* addr, size_t len) {
  const auto begin = reinterpret_cast<uintptr_t>(addr);
  const uintptr_t last = (begin + len - 1) >> HYDRANT_MONITOR_BLOCK_SHIFT;
  for (uintptr_t block = begin >> HYDRANT_MONITOR_BLOCK_SHIFT; block <= last; ++block) {
    __atomic_or_fetch(&blocks[block / 64], uint64_t{1} << block % 64, __ATOMIC_RELEASE);
  }
}

uintptr_t FakeMonitor::ended_stack() { return g_ended_stack; }

void FakeMonitor::pin_everything() {
  for (uint64_t& word : blocks) word = ~uint64_t{0};
}

void FakeMonitor::unpin_everything() {
  for (uint64_t& word : blocks) {
    if (word != 0) word = 0;
  }
}

void FakeMonitor::make_busy() { __atomic_or_fetch(&sequence, uint64_t{1}, __ATOMIC_ACQ_REL); }

void FakeMonitor::set_removals(uint64_t number) {
  __atomic_store_n(&removals, number, __ATOMIC_RELEASE);
}

bool FakeMonitor::was_invalidated(uintptr_t addr, size_t len) {
  return invalidated.covers(addr, len);
}

bool FakeMonitor::was_replaced(uintptr_t addr, size_t len) {
  return replacements.covers(addr, len);
}

bool FakeMonitor::was_synced(uintptr_t addr, size_t len) { return synced.covers(addr, len); }

Calls FakeMonitor::calls() { return {g_syncs, g_settles, g_file_changes, g_others}; }

}  // namespace hydrant::testing
