// Polls and waits. All waits of the library end here: poll_all() polls the transport and the progress table,
// Waiter backs off, and sleeps go to Transport::sleep().
#include "am/progress/waiting.hpp"

#include "am/job/exit.hpp"
#include "am/job/job.hpp"
#include "am/message/deliver.hpp"
#include "am/progress/short_slices.hpp"
#include "firehose/base/cancellation.hpp"
#include "firehose/base/machine/membarrier.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/config/job_knobs.hpp"

#include <atomic>
#include <immintrin.h>
#include <sched.h>
#include <unistd.h>

namespace hydrant {
namespace {

// Numbers of polls without events before a thread yields, and before it sleeps. A sleep ends at a
// message or after kSleepNs. If ranks outnumber processors, it spins only while an answer is near.
struct Policy {
  std::atomic<uint32_t> spins{1000};
  std::atomic<uint32_t> yields{200};
  std::atomic<bool> sleeps{true};
};
Policy policy;
std::atomic<uint32_t> poll_max{0};
// Number of threads that have stopped polling, or are about to.
std::atomic<uint32_t> sleepers{0};

constexpr uint64_t kSleepNs = 10'000'000;
constexpr uint64_t kMostNs = 5'000'000'000;

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
  const auto& awaited = *static_cast<const Awaited*>(context);
  return (awaited.holds != nullptr && awaited.holds(awaited.context)) || job().progress.run() != 0;
}

// Wakes threads that wait for a condition that this thread's handlers made true. Lost wakeups are
// impossible: a sleeper counts itself and then checks its condition; this thread runs the handler,
// fences, and then reads the count. So at least one of them sees the other. Cost: one fence per poll
// with events, in threaded modes only.
void tell_sleepers() noexcept {
  full_fence();
  if (sleepers.load(std::memory_order_relaxed) != 0 && job().transport != nullptr)
    job().transport->wake();
}

}  // namespace

uint32_t poll_all() noexcept {
  Job& the_job = job();
  uint32_t events = 0;
  if (the_job.transport != nullptr) {
    events = the_job.transport->poll(am_receiver(), poll_budget(), false);
  }
  events += the_job.progress.run();
  if (events != 0 && !the_job.single_threaded) tell_sleepers();
  return events;
}

uint32_t poll_network() noexcept {
  Job& the_job = job();
  const uint32_t events = the_job.transport->poll(am_receiver(), poll_budget(), false);
  if (events != 0 && !the_job.single_threaded) tell_sleepers();
  return events;
}

uint32_t poll_replies() noexcept {
  Job& the_job = job();
  Transport* transport = the_job.transport.get();
  if (transport == nullptr) return 0;
  const uint32_t events = transport->poll(am_receiver(), poll_budget(), true);
  if (events != 0 && !the_job.single_threaded) tell_sleepers();
  return events;
}

void yield_processor() noexcept {
  take_short_slices();
  if (Transport* transport = job().transport.get()) {
    transport->yield();
  } else {
    sched_yield();
  }
}

bool answer_is_near() noexcept {
  const Transport* transport = job().transport.get();
  return transport != nullptr && transport->is_reply_imminent();
}

bool give_way(uint32_t misses) noexcept {
  const uint32_t spins = policy.spins.load(std::memory_order_relaxed);
  if (misses <= spins && (spinning_pays() || answer_is_near())) {
    _mm_pause();
    return false;
  }
  Job& the_job = job();
  if (is_over()) follow_the_end();
  if (misses <= spins + policy.yields.load(std::memory_order_relaxed) ||
      !policy.sleeps.load(std::memory_order_relaxed) || the_job.transport == nullptr) {
    yield_processor();
    return false;
  }
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  return true;
}

void sleep_announced(bool needed, const Awaited& awaited) noexcept {
  if (needed) {
    take_short_slices();
    const CancellationDisabled guard;
    const uint64_t longest_ns = awaited.longest_ns != 0 ? awaited.longest_ns : kSleepNs;
    job().transport->sleep(now_ns() + longest_ns, {.holds = must_stay_awake, .context = &awaited});
  }
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void sleep_till_told() noexcept {
  const CancellationDisabled guard;
  const Awaited nothing;
  job().transport->sleep(now_ns() + kSleepNs, {.holds = must_stay_awake, .context = &nothing});
}

void Waiter::pause(uint32_t misses, const Awaited& awaited) noexcept {
  if (give_way(misses)) sleep_announced(true, awaited);
}

void set_wait_mode(WaitMode mode) noexcept {
  policy.spins.store(mode == WaitMode::kBlock ? 20 : 1000, std::memory_order_relaxed);
  policy.yields.store(mode == WaitMode::kBlock ? 20 : 200, std::memory_order_relaxed);
  policy.sleeps.store(mode != WaitMode::kSpin, std::memory_order_relaxed);
}

bool spinning_pays() noexcept { return policy.spins.load(std::memory_order_relaxed) >= 100; }

void choose_wait_mode(uint32_t ranks_here) noexcept {
  set_wait_mode(ranks_here > processors() ? WaitMode::kBlock : WaitMode::kSpinBlock);
}

void wait_for_the_end() noexcept {
  const CancellationDisabled guard;
  // Bounded: the launcher soon reports the job's end, or this rank, which cannot reach a peer, ends the
  // job itself.
  const uint64_t limit = now_ns() + kMostNs;
  while (!is_over() && now_ns() < limit) usleep(1000);
  follow_the_end();
}

}  // namespace hydrant
