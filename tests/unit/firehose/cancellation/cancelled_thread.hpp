// A thread that is cancelled while it is inside a call.
#pragma once

#include "tests/support/recording_registrar.hpp"

#include <atomic>
#include <ctime>
#include <functional>
#include <pthread.h>
#include <string>

namespace hydrant::testing {

struct ToBeCancelled {
  std::function<void()> body;
  std::atomic<bool> returned{false};
};

// Runs `body` in a thread with a request to cancel it pending, and joins that. "" if `body` returned and the
// thread was cancelled afterwards, else what happened instead.
inline std::string run_to_be_cancelled(std::function<void()> body) {
  ToBeCancelled thread_of{.body = std::move(body)};
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    auto& self = *static_cast<ToBeCancelled*>(argument);
    pthread_cancel(pthread_self());
    self.body();
    self.returned = true;
    pthread_testcancel();
    return nullptr;
  };
  if (pthread_create(&thread, nullptr, run, &thread_of) != 0) return "no thread";
  timespec deadline{};
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += std::chrono::ceil<std::chrono::seconds>(patiently(kDeadline)).count();
  void* end = nullptr;
  if (pthread_timedjoin_np(thread, &end, &deadline) != 0) {
    std::fprintf(stderr, "the thread that was to be cancelled hangs\n");
    std::abort();
  }
  if (!thread_of.returned) return "the thread was cancelled inside the call";
  return end == PTHREAD_CANCELED ? ""
                                 : "the call made the thread forget that it is to be cancelled";
}

}  // namespace hydrant::testing
