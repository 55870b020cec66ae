#include "am/waiting.hpp"

#include "am/deliver.hpp"
#include "am/exit.hpp"
#include "am/job.hpp"
#include "firehose/base/config.hpp"
#include "firehose/base/membarrier.hpp"
#include "firehose/base/thread.hpp"

#include <atomic>
#include <immintrin.h>
#include <sched.h>
#include <unistd.h>

namespace hydrant {
namespace {

// Polls in vain before a thread yields, and before it sleeps; a sleep ends at a message, or after kSleepNs.
// Where ranks outnumber processors it only spins while an answer is near.
struct Policy {
  std::atomic<uint32_t> spins{1000};
  std::atomic<uint32_t> yields{200};
  std::atomic<bool> sleeps{true};
};
Policy policy;
std::atomic<uint32_t> poll_max{0};
// Threads that have stopped polling, or are about to.
std::atomic<uint32_t> sleepers{0};

constexpr uint64_t kSleepNs = 10'000'000;
constexpr uint64_t kMostNs = 5'000'000'000;

uint32_t poll_budget() noexcept {
  uint32_t budget = poll_max.load(std::memory_order_relaxed);
  if (budget == 0) [[unlikely]] {
    budget = static_cast<uint32_t>(knob_number(Knob::kPollMax));
    poll_max.store(budget, std::memory_order_relaxed);
  }
  return budget;
}

// That the ranks of this node may use, as far as one of them can tell: a launcher that has bound
// each to one of its own has seen to it that there are enough.
uint32_t processors() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const auto allowed = static_cast<uint32_t>(CPU_COUNT(&set));
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return allowed > 1 || online < 1 ? allowed : static_cast<uint32_t>(online);
}

// Asked by the transport when others can see that this process sleeps: what they did before nobody else
// tells of.
bool must_stay_awake(const void* context) noexcept {
  const auto& awaited = *static_cast<const Awaited*>(context);
  return (awaited.holds != nullptr && awaited.holds(awaited.context)) || job().progress.run() != 0;
}

// A handler that this thread ran may have made true what another thread of the process sleeps for. One of
// the two sees the other: sleepers count themselves, then look once more; we come from the handler, then look
// whether there are any. Costs a fence per poll that found something, in the mode for many threads only.
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
  if (Transport* transport = job().transport.get()) {
    transport->yield();
  } else {
    sched_yield();
  }
}

bool answer_is_near() noexcept {
  const Transport* transport = job().transport.get();
  return transport != nullptr && transport->is_answer_near();
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
    const uint64_t longest_ns = awaited.longest_ns != 0 ? awaited.longest_ns : kSleepNs;
    job().transport->sleep(now_ns() + longest_ns, {.holds = must_stay_awake, .context = &awaited});
  }
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void sleep_till_told() noexcept {
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
  // Not for ever: whoever cannot reach a rank hears soon that the job is ending, or ends it.
  const uint64_t limit = now_ns() + kMostNs;
  while (!is_over() && now_ns() < limit) usleep(1000);
  follow_the_end();
}

}  // namespace hydrant
