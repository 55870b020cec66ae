// Calls blocking functions of other libraries in a thread of its own, so that the caller can continue at its
// deadline. A call that outlasts its deadline cannot be cancelled: the thread is abandoned to it, and every
// other call fails at once until it ends.
#pragma once

#include "firehose/base/thread.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstdint>
#include <functional>
#include <memory>

namespace hydrant {

class TimedCaller {
 public:
  TimedCaller() noexcept = default;
  ~TimedCaller();
  TimedCaller(const TimedCaller&) = delete;
  TimedCaller& operator=(const TimedCaller&) = delete;

  // Starts the thread, named `name` (15 characters at most), all signals blocked. False: no thread could be
  // created.
  bool start(const char* name) noexcept;

  // Runs `work` after earlier calls of other threads; false if it has not ended at the deadline, or if the
  // thread is abandoned. `work` may still run after that: it has to own the data that it uses. Any thread.
  // If `poll` is not null, the calling thread calls it about once per millisecond while `work` runs.
  bool call(std::function<void()> work, uint64_t deadline_ns,
            Bootstrap::PollFn poll = nullptr) noexcept;

 private:
  struct Shared {
    Mutex mutex;
    CondVar changed;
    std::function<void()> work HYDRANT_GUARDED_BY(mutex);
    bool taken HYDRANT_GUARDED_BY(mutex) = false;  // a call is in progress
    bool abandoned HYDRANT_GUARDED_BY(mutex) = false;
    bool quit HYDRANT_GUARDED_BY(mutex) = false;
  };
  static void* serve(void* argument);

  std::shared_ptr<Shared> shared_;
  pthread_t thread_{};
};

}  // namespace hydrant
