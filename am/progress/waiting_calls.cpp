// The C functions of hydrant/waiting.h, over waiting.cpp and event_descriptors.cpp.
#include <hydrant/waiting.h>

#include "am/call/hsl.hpp"
#include "am/call/in_call.hpp"
#include "am/call/thread_state.hpp"
#include "am/exit/exit.hpp"
#include "am/job/job.hpp"
#include "am/progress/event_descriptors.hpp"
#include "am/progress/unfinished.hpp"
#include "am/progress/waiting.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <unistd.h>
#include <utility>

using namespace hydrant;

static_assert(HYDRANT_EVENT_DESCRIPTORS == EventDescriptors::kMax);

namespace {

// Made by the first open, and never destroyed: its thread ends with the process.
std::atomic<EventDescriptors*> the_descriptors{nullptr};
Mutex make_mu;

// For EventDescriptors, after it has announced a sleep.
bool has_events() noexcept {
  if (has_exit_grace_expired()) exit_with_job();
  return job().progress.run() + continue_unfinished() != 0;
}

EventDescriptors* make_descriptors() noexcept {
  const MutexLock lock(make_mu);
  EventDescriptors* descriptors = the_descriptors.load(std::memory_order_relaxed);
  if (descriptors != nullptr) return descriptors;
  descriptors = new (std::nothrow) EventDescriptors(
      {.sleeping = job().sleeping, .has_events = has_events, .progress = &job().progress});
  the_descriptors.store(descriptors, std::memory_order_release);
  return descriptors;
}

// Null: *failure says why.
EventDescriptors* find_descriptors(int descriptor, Status* failure) noexcept {
  if (!is_wired()) {
    *failure = fail(Status::kNotInit, "no client is initialised");
    return nullptr;
  }
  EventDescriptors* const descriptors = the_descriptors.load(std::memory_order_acquire);
  if (descriptors == nullptr)
    *failure = fail(Status::kBadArg, "%d is no event descriptor", descriptor);
  return descriptors;
}

// In a job of one rank no message comes: only other threads change anything.
void nap_alone(uint64_t ns) noexcept {
  constexpr uint64_t kNapNs = 1'000'000;
  uncancelled::sleep_ns(std::min(ns, kNapNs));
}

// Whether a poll had events, in this thread or another one, since the last call that found some. So a wait
// returns at once if another thread has handled a message since the one before.
bool has_polled() noexcept {
  const uint32_t events = poll_all();
  const uint32_t polls = polls_with_events();
  return std::exchange(own_thread_state().polls_seen, polls) != polls || events != 0;
}

Status wait_for_message(uint64_t timeout_ns) noexcept {
  const uint64_t begin_ns = now_ns();
  const uint64_t deadline_ns =
      timeout_ns > UINT64_MAX - begin_ns ? UINT64_MAX : begin_ns + timeout_ns;
  for (uint32_t misses = 0;;) {
    if (has_polled()) return Status::kOk;
    const uint64_t now = now_ns();
    if (now >= deadline_ns) return Status::kNotReady;
    if (job().transport == nullptr) {
      nap_alone(deadline_ns - now);
    } else if (spin_or_yield(++misses) && sleep_announced_until(deadline_ns)) {
      (void)has_polled();
      return Status::kOk;
    }
  }
}

}  // namespace

extern "C" {

int hydrant_wait_for_message(uint64_t timeout_ns) {
  constexpr char kCall[] = "hydrant_wait_for_message";
  if (!is_wired()) return report(fail(Status::kNotInit, "no client is initialised"), kCall);
  const InCall in_call(kCall);
  if (job().debug) check_no_locks("hydrant_wait_for_message is called");
  wake_for_handled_messages();
  return static_cast<int>(wait_for_message(timeout_ns));
}

int hydrant_event_descriptor_open(int* descriptor) {
  constexpr char kCall[] = "hydrant_event_descriptor_open";
  if (!is_wired()) return report(fail(Status::kNotInit, "no client is initialised"), kCall);
  const InCall in_call(kCall, CallKind::kLocal);
  if (descriptor == nullptr)
    return report(fail(Status::kBadArg, "the place for the descriptor is null"), kCall);
  EventDescriptors* const descriptors = make_descriptors();
  if (descriptors == nullptr)
    return report(fail(Status::kResource, "no memory for event descriptors"), kCall);
  wake_for_handled_messages();
  return report(descriptors->open(descriptor), kCall);
}

int hydrant_event_descriptor_arm(int descriptor) {
  constexpr char kCall[] = "hydrant_event_descriptor_arm";
  Status failure = Status::kOk;
  EventDescriptors* const descriptors = find_descriptors(descriptor, &failure);
  if (descriptors == nullptr) return report(failure, kCall);
  const InCall in_call(kCall);
  if (job().debug) check_no_locks("hydrant_event_descriptor_arm is called");
  const Status armed = descriptors->arm(descriptor);
  return armed == Status::kNotReady ? GASNET_ERR_NOT_READY : report(armed, kCall);
}

int hydrant_event_descriptor_close(int descriptor) {
  constexpr char kCall[] = "hydrant_event_descriptor_close";
  Status failure = Status::kOk;
  EventDescriptors* const descriptors = find_descriptors(descriptor, &failure);
  if (descriptors == nullptr) return report(failure, kCall);
  const InCall in_call(kCall, CallKind::kLocal);
  return report(descriptors->close(descriptor), kCall);
}

}  // extern "C"
