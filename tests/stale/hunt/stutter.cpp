// Stops a thread periodically by a timer signal whose handler sleeps.
#include "tests/stale/hunt/stutter.hpp"

#include <cerrno>
#include <csignal>
#include <mutex>
#include <unistd.h>

namespace hydrant::stale {
namespace {

int stutter_signal() { return SIGRTMIN + 3; }

void stop_for_a_while(int, siginfo_t* info, void*) {
  const int error = errno;
  const timespec pause{0, static_cast<long>(info->si_value.sival_int) * 1000};
  nanosleep(&pause, nullptr);
  errno = error;
}

}  // namespace

Stutter::Stutter(uint32_t period_us) {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = &stop_for_a_while;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(stutter_signal(), &action, nullptr);
  });
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = stutter_signal();
  event.sigev_value.sival_int = static_cast<int>(period_us / 2);
  event._sigev_un._tid = gettid();
  if (timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) return;
  started_ = true;
  // An odd period, so that it does not synchronise with other timers.
  const timespec period{0, static_cast<long>(period_us) * 1000 + 137};
  const itimerspec every{period, period};
  timer_settime(timer_, 0, &every, nullptr);
}

Stutter::~Stutter() {
  if (started_) timer_delete(timer_);
}

}  // namespace hydrant::stale
