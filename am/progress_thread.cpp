#include "am/progress_thread.hpp"

#include "am/exit.hpp"
#include "am/job.hpp"
#include "am/waiting.hpp"
#include "firehose/base/config.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

namespace hydrant {
namespace {

// Polls in vain before it sleeps. What one message brings about is often followed by the next.
constexpr uint32_t kPolls = 64;

void* poll_and_sleep(void*) noexcept {
  const Job& the_job = job();
  uint32_t misses = 0;
  // Who ends the process goes by what the client's threads do, not by this one.
  while (!the_job.ending.load(std::memory_order_relaxed) &&
         !the_job.exiting.load(std::memory_order_relaxed)) {
    if (poll_all() != 0) {
      misses = 0;
    } else if (++misses < kPolls) {
      // To whoever needs the processor: this thread is in nobody's way.
      sched_yield();
    } else {
      sleep_till_told();
      misses = 0;
    }
  }
  return nullptr;
}

}  // namespace

void start_progress_thread() noexcept {
  if (knob_number(Knob::kProgressThread) == 0) return;
  const Job& the_job = job();
  if (the_job.single_threaded) {
    log_warning(
        "HYDRANT_PROGRESS_THREAD: handlers would run beside this client, which is compiled for one "
        "thread at a time: no thread. Compile it with GASNET_PAR");
    return;
  }
  if (the_job.transport == nullptr) return;
  // No signal is meant for it.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int error = pthread_create(&thread, nullptr, poll_and_sleep, nullptr);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) {
    pthread_setname_np(thread, "hydrant poll");
    pthread_detach(thread);
  } else {
    log_warning("HYDRANT_PROGRESS_THREAD: no thread, the client's calls poll: %s",
                errno_text(error));
  }
}

}  // namespace hydrant
