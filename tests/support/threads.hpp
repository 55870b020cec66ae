// Threads of a test, joined under a deadline: a deadlock is a failed test with a message, not a hang.
#pragma once

#include "tests/support/recording_registrar.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

namespace hydrant::testing {

class Threads {
 public:
  Threads() = default;
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads() { join(); }

  void start(std::function<void()> body) {
    ++running_;
    threads_.emplace_back([this, run = std::move(body)] {
      run();
      --running_;
    });
  }

  // Waits for all threads; aborts the program if one does not end in time.
  void join() {
    if (!wait_until([this] { return running_.load() == 0; })) {
      std::fprintf(stderr, "%d threads of the test did not end\n", running_.load());
      std::abort();
    }
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::vector<std::thread> threads_;
  std::atomic<int> running_{0};
};

}  // namespace hydrant::testing
