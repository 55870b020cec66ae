// Implements handler-safe locks: one word with a futex, and usage checks for debug clients. Clients call it
// through hydrant/gasnet/hsl.h; send calls use check_no_locks().
#include "am/call/hsl.hpp"

#include <hydrant/gasnet/hsl.h>

#include "am/call/thread_state.hpp"
#include "am/job/job.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"

#include <atomic>
#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace hydrant;

namespace {

constexpr uint32_t kFree = 0;
constexpr uint32_t kHeld = 1;
constexpr uint32_t kHeldAndAwaited = 2;
constexpr uint32_t kSpins = 100;
constexpr uint64_t kLongNs = 1'500'000'000;  // longer holds cause a warning
constexpr uint32_t kDestroyed = 0x48534c00;

thread_local gex_HSL_t* innermost = nullptr;
thread_local char me;

// Atomic operations on the lock word, which is a plain integer in the client's C struct.
bool try_take(gex_HSL_t* hsl) noexcept {
  uint32_t expected = kFree;
  return __atomic_compare_exchange_n(&hsl->state, &expected, kHeld, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED);
}

void take(gex_HSL_t* hsl) noexcept {
  for (uint32_t i = 0; i < kSpins; ++i) {
    if (__atomic_load_n(&hsl->state, __ATOMIC_RELAXED) == kFree && try_take(hsl)) return;
    _mm_pause();
  }
  while (__atomic_exchange_n(&hsl->state, kHeldAndAwaited, __ATOMIC_ACQUIRE) != kFree) {
    timespec limit = {.tv_sec = 1, .tv_nsec = 0};
    syscall(SYS_futex, &hsl->state, FUTEX_WAIT_PRIVATE, kHeldAndAwaited, &limit, nullptr, 0);
  }
}

void release(gex_HSL_t* hsl) noexcept {
  if (__atomic_exchange_n(&hsl->state, kFree, __ATOMIC_RELEASE) == kHeldAndAwaited) {
    syscall(SYS_futex, &hsl->state, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
}

void check_is_lock(const gex_HSL_t* hsl, const char* call) noexcept {
  if (hsl->tag == kDestroyed) fatal("%s: the lock was destroyed", call);
  if (hsl->tag != HYDRANT_HSL_TAG) fatal("%s: the lock was never initialised", call);
}

void note_locked(gex_HSL_t* hsl) noexcept {
  hsl->owner = &me;
  hsl->outer = innermost;
  hsl->depth = handler_depth;
  hsl->since = now_ns();
  innermost = hsl;
}

}  // namespace

namespace hydrant {

void check_no_locks(const char* doing) noexcept {
  if (innermost != nullptr && innermost->depth == handler_depth) {
    fatal("%s with a handler-safe lock held; release it first", doing);
  }
}

void check_before_send(const char* doing) noexcept {
  const Job& the_job = job();
  if (the_job.debug) check_no_locks(doing);
  if (the_job.hooks.before_send != nullptr) the_job.hooks.before_send();
}

}  // namespace hydrant

extern "C" {

void hydrant_hsl_init(gex_HSL_t* hsl, int debug) {
  if (debug != 0 && hsl->tag == HYDRANT_HSL_TAG)
    fatal("gex_HSL_Init: the lock is initialised already");
  *hsl = gex_HSL_t GEX_HSL_INITIALIZER;
}

void hydrant_hsl_destroy(gex_HSL_t* hsl, int debug) {
  if (debug == 0) return;
  check_is_lock(hsl, "gex_HSL_Destroy");
  if (hsl->state != kFree) fatal("gex_HSL_Destroy: the lock is held");
  hsl->tag = kDestroyed;
}

void hydrant_hsl_lock(gex_HSL_t* hsl, int debug) {
  if (debug != 0) check_is_lock(hsl, "gex_HSL_Lock");
  if (debug != 0 && hsl->owner == &me) fatal("gex_HSL_Lock: this thread holds the lock already");
  if (!try_take(hsl)) take(hsl);
  if (debug != 0) note_locked(hsl);
}

void hydrant_hsl_unlock(gex_HSL_t* hsl, int debug) {
  if (debug != 0) {
    check_is_lock(hsl, "gex_HSL_Unlock");
    if (hsl->owner != &me) fatal("gex_HSL_Unlock: this thread does not hold the lock");
    if (innermost != hsl) fatal("gex_HSL_Unlock: locks are released in the reverse order");
    if (hsl->depth != handler_depth) fatal("gex_HSL_Unlock: locked outside this handler");
    if (now_ns() - hsl->since > kLongNs) {
      log_warning(
          "gex_HSL_Unlock: the lock was held for %.1f s, which delays handlers; hold it briefly",
          static_cast<double>(now_ns() - hsl->since) / 1e9);
    }
    innermost = hsl->outer;
    hsl->owner = nullptr;
  }
  release(hsl);
}

int hydrant_hsl_trylock(gex_HSL_t* hsl, int debug) {
  if (debug != 0) check_is_lock(hsl, "gex_HSL_Trylock");
  if (debug != 0 && hsl->owner == &me) fatal("gex_HSL_Trylock: this thread holds the lock already");
  if (!try_take(hsl)) return GASNET_ERR_NOT_READY;
  if (debug != 0) note_locked(hsl);
  return GASNET_OK;
}

}  // extern "C"
