// Runs the thread that polls for the client (HYDRANT_PROGRESS_THREAD). gex_Client_Init() starts it; it calls
// poll_all() and sleeps between events (waiting.cpp).
#include "am/progress/progress_thread.hpp"

#include "am/exit/exit.hpp"
#include "am/job/job.hpp"
#include "am/progress/waiting.hpp"
#include "firehose/base/config/job_rank.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread_without_signals.hpp"
#include "rdma/config/job_knobs.hpp"

#include <pthread.h>
#include <sched.h>

namespace hydrant {
namespace {

// Polls without events before it sleeps, because a message is often followed by another one.
constexpr uint32_t kPolls = 64;

void* poll_and_sleep(void*) noexcept {
  const Job& the_job = job();
  uint32_t misses = 0;
  // Ending the process is left to the client's threads.
  while (!the_job.ending.load(std::memory_order_relaxed) &&
         !the_job.exiting.load(std::memory_order_relaxed)) {
    if (poll_all() != 0) {
      misses = 0;
    } else if (++misses < kPolls) {
      // Yields, so that this thread does not delay threads with work.
      sched_yield();
    } else {
      sleep_until_event();
      misses = 0;
    }
  }
  return nullptr;
}

}  // namespace

void start_progress_thread() noexcept {
  if (knob_number(JobKnob::kProgressThread) == 0) return;
  const Job& the_job = job();
  if (the_job.single_threaded) {
    // All ranks run the same client.
    if (is_first_of_job()) {
      log_warning(
          "HYDRANT_PROGRESS_THREAD is ignored: this client is compiled for one thread at a time, "
          "and handlers would run concurrently. Compile it with GASNET_PAR");
    }
    return;
  }
  if (the_job.transport == nullptr) return;
  pthread_t thread;
  const int error = create_thread_without_signals(&thread, poll_and_sleep, nullptr);
  if (error == 0) {
    pthread_setname_np(thread, "hydrant poll");
    pthread_detach(thread);
  } else {
    log_warning(
        "HYDRANT_PROGRESS_THREAD: cannot create the thread: %s; only the client's calls poll",
        errno_text(error));
  }
}

}  // namespace hydrant
