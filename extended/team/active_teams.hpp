// The teams of one kind, of a node or of mailboxes, that have operations under way: polls advance them.
//
// Threads: any.
#pragma once

#include "am/call/thread_state.hpp"
#include "am/job/job.hpp"
#include "firehose/base/thread.hpp"

#include <atomic>
#include <immintrin.h>

namespace hydrant {

// Locks the operations of a team.
template <typename Team>
class TeamGuard {
 public:
  explicit TeamGuard(Team& team) noexcept : team_(team) {
    if (!team.threaded_) return;
    while (team.busy_.exchange(true, std::memory_order_acquire)) _mm_pause();
  }
  ~TeamGuard() {
    if (team_.threaded_) team_.busy_.store(false, std::memory_order_release);
  }
  TeamGuard(const TeamGuard&) = delete;
  TeamGuard& operator=(const TeamGuard&) = delete;

 private:
  Team& team_;
};

template <typename Team>
class ActiveTeams {
 public:
  // `is_silent`: as of ProgressTable::add().
  void add(Team& team, bool is_silent) noexcept HYDRANT_EXCLUDES(mu_) {
    const MutexLock lock(mu_);
    if (team.is_active_.load(std::memory_order_relaxed)) return;
    team.is_active_.store(true, std::memory_order_relaxed);
    team.next_active_ = first_;
    first_ = &team;
    job().progress.add(make_progress, this, is_silent);
  }
  void remove(Team& team) noexcept HYDRANT_EXCLUDES(mu_) {
    const MutexLock lock(mu_);
    if (!team.is_active_.load(std::memory_order_relaxed)) return;
    Team** link = &first_;
    while (*link != &team) link = &(*link)->next_active_;
    *link = team.next_active_;
    team.is_active_.store(false, std::memory_order_relaxed);
    if (first_ == nullptr) job().progress.remove(make_progress, this);
  }

 private:
  static uint32_t make_progress(void* self) noexcept {
    if (handler_depth != 0) return 0;  // perhaps of an operation that is being advanced
    auto& all = *static_cast<ActiveTeams*>(self);
    if (!all.mu_.try_lock()) return 0;
    uint32_t completed = 0;
    for (Team** link = &all.first_; *link != nullptr;) {
      Team& team = **link;
      const TeamGuard guard(team);
      completed += team.advance();
      if (team.has_pending()) {
        link = &team.next_active_;
        continue;
      }
      // start() enters the team again.
      *link = team.next_active_;
      team.is_active_.store(false, std::memory_order_relaxed);
    }
    if (all.first_ == nullptr) job().progress.remove(make_progress, self);
    all.mu_.unlock();
    return completed;
  }

  Mutex mu_;
  Team* first_ HYDRANT_GUARDED_BY(mu_) = nullptr;
};

}  // namespace hydrant
