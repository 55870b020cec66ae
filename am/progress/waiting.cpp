// Polls and waits. All waits of the library end here: poll_all() polls the transport, runs the progress table
// and continues unfinished operations, Backoff backs off, and sleeps go to Sleeping::sleep().
#include "am/progress/waiting.hpp"

#include "am/call/thread_state.hpp"
#include "am/exit/exit.hpp"
#include "am/handler/deliver.hpp"
#include "am/job/job.hpp"
#include "am/progress/short_slices.hpp"
#include "am/progress/unfinished.hpp"
#include "firehose/base/machine/membarrier.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/config/job_knobs.hpp"

#include <atomic>
#include <immintrin.h>
#include <sched.h>
#include <unistd.h>

namespace hydrant {
namespace {

// Numbers of polls without events before a thread yields, and before it sleeps. A sleep ends at a
// message or after kSleepNs. If ranks outnumber processors, it spins only while a reply is near.
struct Policy {
  std::atomic<uint32_t> spins{1000};
  std::atomic<uint32_t> yields{200};
  std::atomic<bool> sleeps{true};
};
Policy policy;
std::atomic<uint32_t> poll_max{0};
// Number of threads that have stopped polling, or are about to; kForHandled more from
// wake_for_handled_messages() on.
std::atomic<uint32_t> sleepers{0};
constexpr uint32_t kForHandled = uint32_t{1} << 31;
// Polls with events since then. In a line of its own: threads that poll read the other variables.
struct alignas(64) Handled {
  std::atomic<uint32_t> polls{0};
};
Handled handled;

constexpr uint64_t kSleepNs = 10'000'000;
constexpr uint64_t kMaxNs = 5'000'000'000;

uint32_t poll_budget() noexcept {
  uint32_t budget = poll_max.load(std::memory_order_relaxed);
  if (budget == 0) [[unlikely]] {
    budget = static_cast<uint32_t>(knob_number(JobKnob::kPollMax));
    poll_max.store(budget, std::memory_order_relaxed);
  }
  return budget;
}

// Processors for the ranks of this node. If a launcher has bound each rank to one processor, assume
// that it has checked that there are enough.
uint32_t processors() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const auto allowed = static_cast<uint32_t>(CPU_COUNT(&set));
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return allowed > 1 || online < 1 ? allowed : static_cast<uint32_t>(online);
}

// Called by the transport after this process has announced its sleep. Progress that other ranks made
// before the announcement sends no wakeup, so this check prevents a lost wakeup.
bool must_stay_awake(const void* context) noexcept {
  const auto& condition = *static_cast<const WaitCondition*>(context);
  return (condition.holds != nullptr && condition.holds(condition.context)) ||
         job().progress.run() + continue_unfinished() != 0;
}

// Wakes threads that wait for a condition that this thread's handlers made true. Lost wakeups are
// impossible: a sleeper counts itself and then checks its condition; this thread runs the handler,
// fences, and then reads the count. So at least one of them sees the other. Cost: one fence per poll
// with events, in threaded modes only.
void wake_sleepers() noexcept {
  full_fence();
  const uint32_t count = sleepers.load(std::memory_order_relaxed);
  if (count == 0) return;
  // Release: a thread that reads it sees what the handlers have done.
  if (count >= kForHandled) handled.polls.fetch_add(1, std::memory_order_release);
  if (job().sleeping != nullptr) job().sleeping->wake();
}

}  // namespace

constinit std::atomic<Unfinished*> newest_unfinished{nullptr};

void continue_in_polls(Unfinished& operation) noexcept {
  Unfinished* head = newest_unfinished.load(std::memory_order_relaxed);
  do {
    operation.next_unfinished = head;
    // Pairs with the acquire in continue_all_unfinished().
  } while (!newest_unfinished.compare_exchange_weak(head, &operation, std::memory_order_release,
                                                    std::memory_order_relaxed));
}

// Not inlined: a poll that finds no operation needs no frame for it.
[[gnu::noinline]] uint32_t continue_all_unfinished() noexcept {
  if (handler_depth != 0) return 0;  // operations send requests
  Unfinished* newest = newest_unfinished.exchange(nullptr, std::memory_order_acquire);
  Unfinished* oldest = nullptr;
  while (newest != nullptr) {
    Unfinished* const older = newest->next_unfinished;
    newest->next_unfinished = oldest;
    oldest = newest;
    newest = older;
  }
  uint32_t finished = 0;
  // Each once per poll; those that cannot go on wait for the next poll.
  while (oldest != nullptr) {
    Unfinished& operation = *oldest;
    oldest = operation.next_unfinished;
    if (operation.proceed(operation))
      ++finished;
    else
      continue_in_polls(operation);
  }
  return finished;
}

uint32_t poll_all() noexcept {
  Job& the_job = job();
  uint32_t events = 0;
  if (the_job.transport != nullptr) {
    events = the_job.transport->poll(am_receiver(), poll_budget(), false);
  }
  events += the_job.progress.run() + continue_unfinished();
  if (events != 0 && !the_job.single_threaded) wake_sleepers();
  return events;
}

uint32_t poll_network() noexcept {
  Job& the_job = job();
  const uint32_t events = the_job.transport->poll(am_receiver(), poll_budget(), false);
  if (events != 0 && !the_job.single_threaded) wake_sleepers();
  return events;
}

uint32_t poll_replies() noexcept {
  Job& the_job = job();
  Transport* transport = the_job.transport.get();
  if (transport == nullptr) return 0;
  const uint32_t events = transport->poll(am_receiver(), poll_budget(), true);
  if (events != 0 && !the_job.single_threaded) wake_sleepers();
  return events;
}

void yield_processor() noexcept {
  take_short_slices();
  if (Sleeping* sleeping = job().sleeping) {
    sleeping->yield();
  } else {
    sched_yield();
  }
}

bool is_reply_expected() noexcept {
  const Sleeping* sleeping = job().sleeping;
  return sleeping != nullptr && sleeping->is_reply_imminent();
}

bool spin_or_yield(uint32_t misses) noexcept {
  const uint32_t spins = policy.spins.load(std::memory_order_relaxed);
  if (misses <= spins && (is_spinning_useful() || is_reply_expected())) {
    _mm_pause();
    return false;
  }
  Job& the_job = job();
  if (has_exit_grace_expired()) exit_with_job();
  if (misses <= spins + policy.yields.load(std::memory_order_relaxed) ||
      !policy.sleeps.load(std::memory_order_relaxed) || the_job.transport == nullptr) {
    yield_processor();
    return false;
  }
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  return true;
}

void sleep_announced(bool needed, const WaitCondition& condition) noexcept {
  if (needed) {
    take_short_slices();
    const uint64_t max_ns = condition.max_ns != 0 ? condition.max_ns : kSleepNs;
    job().sleeping->sleep(now_ns() + max_ns, {.holds = must_stay_awake, .context = &condition});
  }
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

bool sleep_announced_until(uint64_t deadline_ns) noexcept {
  const uint64_t now = now_ns();
  const uint64_t until_ns =
      now < deadline_ns && deadline_ns - now < kSleepNs ? deadline_ns : now + kSleepNs;
  sleep_announced(true, {.max_ns = until_ns - now});
  return now_ns() < until_ns;
}

void wake_for_handled_messages() noexcept {
  static std::atomic<bool> is_called{false};
  if (is_called.load(std::memory_order_relaxed) || job().single_threaded) return;
  if (!is_called.exchange(true)) sleepers.fetch_add(kForHandled, std::memory_order_seq_cst);
}

uint32_t polls_with_events() noexcept { return handled.polls.load(std::memory_order_acquire); }

void sleep_until_event() noexcept {
  const WaitCondition nothing;
  job().sleeping->sleep(now_ns() + kSleepNs, {.holds = must_stay_awake, .context = &nothing});
}

void Backoff::pause(uint32_t misses, const WaitCondition& condition) noexcept {
  if (spin_or_yield(misses)) sleep_announced(true, condition);
}

void set_wait_mode(WaitMode mode) noexcept {
  policy.spins.store(mode == WaitMode::kBlock ? 20 : 1000, std::memory_order_relaxed);
  policy.yields.store(mode == WaitMode::kBlock ? 20 : 200, std::memory_order_relaxed);
  policy.sleeps.store(mode != WaitMode::kSpin, std::memory_order_relaxed);
}

bool is_spinning_useful() noexcept { return policy.spins.load(std::memory_order_relaxed) >= 100; }

void choose_wait_mode(uint32_t ranks_here) noexcept {
  set_wait_mode(ranks_here > processors() ? WaitMode::kBlock : WaitMode::kSpinBlock);
}

void wait_for_job_exit() noexcept {
  // Bounded: the launcher soon reports the job's end, or this rank, which cannot reach a peer, ends the
  // job itself.
  const uint64_t limit = now_ns() + kMaxNs;
  while (!has_exit_grace_expired() && now_ns() < limit) uncancelled::sleep_ns(1'000'000);
  exit_with_job();
}

}  // namespace hydrant
