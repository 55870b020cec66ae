// Claims a record for each thread that calls a hook, and reuses records whose threads have ended.
// watched_call.hpp takes the record at a thread's first hooked call; hooked_calls_under_way.cpp
// (firehose/watch) reads it.
#include "firehose/watch/hooks/thread_records.hpp"

#include "firehose/watch/hooks/hooks_object.hpp"

#include <cerrno>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::hooks {

constinit thread_local Thread* own_record = nullptr;
alignas(64) constinit Thread records[kMaxThreads] = {};
constinit uint64_t ended_stacks[kEndedStacks] = {};

namespace {

static_assert(sizeof(Thread) == 64);

// Number of records that are tried for reuse before a record is taken that was never used.
constexpr uint32_t kGlances = 8;

alignas(64) constinit Thread shared_record = {};
constinit uint32_t cursor = 0;      // index of the record that is tried next; a hint
constinit uint32_t key_plus_1 = 0;  // the pthread key; 0 before the first thread has created it

// tid and ending: the 64-bit word by which a record is claimed.
struct Claim {
  uint32_t tid, ending;
};
uint64_t* claim_word(Thread& record) {
  static_assert(offsetof(Thread, tid) % 8 == 0 &&
                offsetof(Thread, ending) == offsetof(Thread, tid) + 4);
  return static_cast<uint64_t*>(static_cast<void*>(&record.tid));
}

bool is_gone(uint32_t tid) { return syscall(SYS_tgkill, getpid(), tid, 0) != 0 && errno == ESRCH; }

// Keeps the stack of an ended thread in the table: libc may keep the stack mapped, and unmaps it inside calls
// without hooks.
void keep_ended_stack(uint64_t stack) {
  if (stack == 0) return;
  constexpr uint64_t kGolden = 0x9e37'79b9'7f4a'7c15;
  const uint64_t hash = (stack >> 12) * kGolden;
  uint64_t* const entries[2] = {&ended_stacks[hash >> 32 & (kEndedStacks - 1)],
                                &ended_stacks[hash >> 48 & (kEndedStacks - 1)]};
  for (uint64_t* entry : entries) {
    uint64_t found = 0;
    if (__atomic_compare_exchange_n(entry, &found, stack, false, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED) ||
        found == stack) {
      return;
    }
  }
  __atomic_store_n(entries[0], stack, __ATOMIC_RELEASE);
}

// Claims a record for the calling thread if it is free, or if its thread has exited.
bool claim(Thread& record, uint32_t tid, bool only_ended) {
  uint64_t seen = __atomic_load_n(claim_word(record), __ATOMIC_ACQUIRE);
  const auto owner = __builtin_bit_cast(Claim, seen);
  if (owner.tid != 0) {
    if (only_ended && owner.ending == 0) return false;
    // If the owner has the calling thread's tid, that thread has exited, whatever the kernel reports for the
    // tid.
    if (owner.tid != tid && !is_gone(owner.tid)) return false;
  }
  // Counted before the record gets its new owner: a reader that misses the ended thread finds another count.
  const bool has_ended = owner.tid != 0 && owner.ending != 0;
  if (has_ended) __atomic_fetch_add(&hydrant_hooks_object.endings_over, 1, __ATOMIC_ACQ_REL);
  if (!__atomic_compare_exchange_n(claim_word(record), &seen,
                                   __builtin_bit_cast(uint64_t, Claim{tid, 1}), false,
                                   __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    if (has_ended) __atomic_fetch_sub(&hydrant_hooks_object.endings_over, 1, __ATOMIC_ACQ_REL);
    return false;
  }
  keep_ended_stack(__atomic_load_n(&record.stack, __ATOMIC_RELAXED));
  __atomic_store_n(&record.len, uint64_t{0}, __ATOMIC_RELEASE);
  __atomic_store_n(&record.inner_len, uint64_t{0}, __ATOMIC_RELEASE);
  __atomic_store_n(&record.stack, uint64_t{0}, __ATOMIC_RELEASE);
  __atomic_store_n(&record.entered, uint64_t{0}, __ATOMIC_RELEASE);
  __atomic_store_n(&record.loading, uint32_t{0}, __ATOMIC_RELEASE);
  __atomic_store_n(&record.ending, uint32_t{0}, __ATOMIC_RELEASE);
  return true;
}

// Reuses a record of an ended thread: tries `glances` records in turn.
Thread* reuse_record(uint32_t tid, uint32_t glances, bool only_ended) {
  const uint32_t used = __atomic_load_n(&hydrant_hooks_object.thread_count, __ATOMIC_RELAXED);
  for (uint32_t i = 0; i < glances && i < used; ++i) {
    Thread& record = records[__atomic_fetch_add(&cursor, 1, __ATOMIC_RELAXED) % used];
    if (claim(record, tid, only_ended)) return &record;
  }
  return nullptr;
}

Thread* unused_record(uint32_t tid) {
  uint32_t* count = &hydrant_hooks_object.thread_count;
  uint32_t used = __atomic_load_n(count, __ATOMIC_RELAXED);
  do {
    if (used == kMaxThreads) return nullptr;
  } while (!__atomic_compare_exchange_n(count, &used, used + 1, true, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED));
  // Another thread may have claimed it already in reuse_record(), as a used record that is free.
  return claim(records[used], tid, true) ? &records[used] : unused_record(tid);
}

// The destructor of the pthread key. Other destructors of the thread may still run; their calls find the
// thread entered already.
void begin_end(void* own) {
  auto* record = static_cast<Thread*>(own);
  const hydrant_monitor_t* watching = monitor();
  const uint64_t removals =
      watching != nullptr ? __atomic_load_n(watching->removals, __ATOMIC_ACQUIRE) : 1;
  const uint64_t stack = __atomic_load_n(&record->stack, __ATOMIC_RELAXED);
  if (watching != nullptr && stack != 0 &&
      watching->size > offsetof(hydrant_monitor_t, stack_ends)) {
    watching->stack_ends(stack);
  }
  __atomic_fetch_add(&hydrant_hooks_object.endings, 1, __ATOMIC_ACQ_REL);
  __atomic_store_n(&record->entered, removals, __ATOMIC_RELEASE);
  __atomic_store_n(&record->ending, uint32_t{1}, __ATOMIC_RELEASE);
}

// Registers begin_end() for the end of the calling thread. False: no key is left, and its end would go
// unseen.
bool watch_for_end(Thread* own) {
  uint32_t key_known = __atomic_load_n(&key_plus_1, __ATOMIC_ACQUIRE);
  if (key_known == 0) {
    pthread_key_t key;
    if (pthread_key_create(&key, begin_end) != 0) return false;
    if (__atomic_compare_exchange_n(&key_plus_1, &key_known, key + 1, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
      key_known = key + 1;
    } else {
      pthread_key_delete(key);
    }
  }
  return pthread_setspecific(key_known - 1, own) == 0;
}

}  // namespace

Thread* take_record() {
  const ErrnoGuard keep;
  const auto tid = static_cast<uint32_t>(syscall(SYS_gettid));
  Thread* record = reuse_record(tid, kGlances, true);
  if (record == nullptr) record = unused_record(tid);
  if (record == nullptr) record = reuse_record(tid, kMaxThreads, false);
  if (record == nullptr) {
    __atomic_store_n(&hydrant_hooks_object.overflowed, uint32_t{1}, __ATOMIC_RELEASE);
    own_record = &shared_record;
    return own_record;
  }
  own_record = record;  // first: the next call may allocate, and malloc would come back here
  // The first thread's descriptor does not lie on its stack, and neither is ever unmapped.
  const bool is_first = tid == static_cast<uint32_t>(getpid());
  __atomic_store_n(&record->stack, is_first ? uint64_t{0} : uint64_t{pthread_self()},
                   __ATOMIC_RELEASE);
  if (!watch_for_end(record)) {
    __atomic_store_n(&hydrant_hooks_object.overflowed, uint32_t{1}, __ATOMIC_RELEASE);
  }
  return record;
}

void keep_only_own_record() {
  const uint32_t used = __atomic_load_n(&hydrant_hooks_object.thread_count, __ATOMIC_RELAXED);
  for (uint32_t i = 0; i < used; ++i) {
    if (&records[i] != own_record) records[i] = Thread{};
  }
  if (own_record == &shared_record) own_record = nullptr;
  if (own_record != nullptr) own_record->tid = static_cast<uint32_t>(syscall(SYS_gettid));
  hydrant_hooks_object.overflowed = 0;
  hydrant_hooks_object.endings = hydrant_hooks_object.endings_over = 0;
}

}  // namespace hydrant::hooks
