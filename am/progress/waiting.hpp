// Waits of a thread: the thread polls, and between polls without events spins, yields and finally sleeps
// (decision 0019 has measurements for barriers). So performance degrades gradually if ranks outnumber
// cores. Every wait checks whether the job is ending.
#pragma once

#include <cstdint>

namespace hydrant {

// Makes all progress that is possible now and returns the number of events. Not in handlers.
uint32_t poll_all() noexcept;
// Polls only the network. Work of the progress table (am/job/progress_table.hpp) waits until any thread
// calls poll_all().
uint32_t poll_network() noexcept;
// Polls replies only, which is legal in handlers.
uint32_t poll_replies() noexcept;

// A condition besides messages. It is evaluated after this process has announced its sleep and before
// it sleeps; if it holds, the process does not sleep. `holds` may be null.
struct WaitCondition {
  bool (*holds)(const void* context) noexcept = nullptr;
  const void* context = nullptr;
  // Maximum sleep in ns, for a condition that may become true without a wakeup; 0: the default.
  uint64_t max_ns = 0;
};

// The two halves of Backoff::pause(), for a condition that only the caller can evaluate. spin_or_yield()
// returns true when it is time to sleep, and announces the sleep to the other threads of this process.
// The caller then evaluates its condition once more and calls sleep_announced(), which sleeps only if
// `needed`.
bool spin_or_yield(uint32_t misses) noexcept;
void sleep_announced(bool needed, const WaitCondition& condition = {}) noexcept;

// As sleep_announced(true), with a deadline. True: it has ended before, because of an event. Other threads
// wake it after handlers.
bool sleep_announced_until(uint64_t deadline_ns) noexcept;
// From the first call on, every poll with events wakes this process's threads. One that announces a sleep
// after such a poll skips it once. polls_with_events() counts these polls. No effect in programs of one
// thread.
void wake_for_handled_messages() noexcept;
// The polls with events of all threads since then, modulo 2^32. A thread that finds another number than
// before sees what their handlers have done.
uint32_t polls_with_events() noexcept;

// For a thread without a condition of its own: sleeps until a message arrives for this process, or some
// ms. Other threads need not wake it after running handlers.
void sleep_until_event() noexcept;

// Yields the processor to any runnable thread; the ranks of the node see that this rank has yielded.
void yield_processor() noexcept;
// True if the last rank with which this rank exchanged a message seems to run on another processor. If
// ranks outnumber processors, short spinning pays then: two running ranks can exchange several messages
// in the time of two process switches (decision 0018).
bool is_reply_expected() noexcept;

// Counts polls without events and backs off accordingly. Use one Backoff per wait.
class Backoff {
 public:
  // Call it after each poll, with the number of events.
  void polled(uint32_t events, const WaitCondition& condition = {}) noexcept {
    if (events != 0) {
      misses_ = 0;
    } else {
      pause(++misses_, condition);
    }
  }
  static void pause(uint32_t misses, const WaitCondition& condition = {}) noexcept;

 private:
  uint32_t misses_ = 0;
};

// GASNET_WAIT_SPIN, _BLOCK or _SPINBLOCK. The default depends on the number of ranks and cores.
enum class WaitMode : uint32_t { kSpin, kBlock, kSpinBlock };
void set_wait_mode(WaitMode mode) noexcept;
// True unless GASNET_WAIT_BLOCK: the awaited rank can be expected to run at the same time.
bool is_spinning_useful() noexcept;
// Sets the default for `ranks_here` ranks on the processors that this process may use.
void choose_wait_mode(uint32_t ranks_here) noexcept;

// Does not return. For a thread that cannot continue because the control thread is ending the job.
[[noreturn]] void wait_for_job_exit() noexcept;

}  // namespace hydrant
