// Runs blocking calls in a thread of its own, so that the caller can continue at a deadline.
// bootstrap_pmi2.cpp and bootstrap_pmix.cpp call their launcher's library through it.
#include "rdma/bootstrap/timed_caller.hpp"

#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

namespace hydrant {

TimedCaller::~TimedCaller() {
  if (shared_ == nullptr) return;
  bool abandoned = false;
  {
    const MutexLock lock(shared_->mutex);
    abandoned = shared_->abandoned;
    shared_->quit = true;
    shared_->changed.notify_all();
  }
  if (abandoned) {
    pthread_detach(thread_);
  } else {
    uncancelled::pthread_join(thread_, nullptr);
  }
}

bool TimedCaller::start(const char* name) noexcept {
  shared_ = std::make_shared<Shared>();
  auto* argument = new std::shared_ptr<Shared>(shared_);
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const int error = pthread_create(&thread_, nullptr, &serve, argument);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (error != 0) {
    delete argument;
    shared_.reset();
    return false;
  }
  pthread_setname_np(thread_, name);
  return true;
}

void* TimedCaller::serve(void* argument) {
  auto* owned = static_cast<std::shared_ptr<Shared>*>(argument);
  const std::shared_ptr<Shared> shared = std::move(*owned);
  delete owned;
  for (;;) {
    std::function<void()> work;
    {
      const MutexLock lock(shared->mutex);
      while (!shared->quit && !shared->work) {
        shared->changed.wait_until(shared->mutex, now_ns() + 3'600'000'000'000);
      }
      if (shared->quit) return nullptr;
      work = shared->work;
    }
    work();
    const MutexLock lock(shared->mutex);
    shared->work = nullptr;
    shared->abandoned = false;
    shared->changed.notify_all();
  }
}

bool TimedCaller::call(std::function<void()> work, uint64_t deadline_ns,
                       Bootstrap::PollFn poll) noexcept {
  if (shared_ == nullptr) return false;
  Shared& shared = *shared_;
  const MutexLock lock(shared.mutex);
  while (shared.taken && !shared.abandoned) {
    if (!shared.changed.wait_until(shared.mutex, deadline_ns) && now_ns() >= deadline_ns)
      return false;
  }
  if (shared.abandoned) return false;
  shared.taken = true;
  shared.work = std::move(work);
  shared.changed.notify_all();
  while (shared.work) {
    const uint64_t until_ns =
        poll != nullptr ? std::min(deadline_ns, now_ns() + Bootstrap::kPollNs) : deadline_ns;
    if (!shared.changed.wait_until(shared.mutex, until_ns) && now_ns() >= deadline_ns) break;
    if (poll == nullptr || !shared.work) continue;
    shared.mutex.unlock();
    poll();
    shared.mutex.lock();
  }
  shared.taken = false;
  shared.abandoned = static_cast<bool>(shared.work);
  shared.changed.notify_all();
  return !shared.abandoned;
}

}  // namespace hydrant
