// The thread that reads the kernel's reports.
//
// Invariant: from the return of start() the thread reads each report at once, until the program closes the
// userfaultfd or the system refuses a call that the monitor needs. Then the userfaultfd is closed, all counts
// as not watched, and every cache has forgotten everything before the sequence is even again.
//
// Threads: start() under the mutex of the monitor's start.
#pragma once

#include "firehose/watch/change_reader.hpp"
#include "firehose/watch/deferred_changes.hpp"
#include "firehose/watch/monitor_clients.hpp"
#include "firehose/watch/reading_sequence.hpp"
#include "firehose/watch/userfault.hpp"
#include "firehose/watch/watch_state.hpp"
#include "firehose/watch/watched_ranges.hpp"

#include <atomic>

namespace hydrant {

class ReaderThread {
 public:
  constexpr ReaderThread(Userfault& userfault, WatchState& state, ReadingSequence& sequence,
                         ChangeReader& changes, const DeferredChanges& deferred,
                         WatchedRanges& watched, MonitorClients& clients) noexcept
      : userfault_(userfault),
        state_(state),
        sequence_(sequence),
        changes_(changes),
        deferred_(deferred),
        watched_(watched),
        clients_(clients) {}

  // 0, or an errno if no thread could be started; ETIMEDOUT: it was, but has not run yet. Requires: the
  // userfaultfd is open.
  int start() noexcept;

 private:
  static void* main(void* self);
  void read_forever() noexcept;
  void stop(const char* refused, int error = 0) noexcept;

  Userfault& userfault_;
  WatchState& state_;
  ReadingSequence& sequence_;
  ChangeReader& changes_;
  const DeferredChanges& deferred_;
  WatchedRanges& watched_;
  MonitorClients& clients_;
  std::atomic<bool> begun_{false};
};

}  // namespace hydrant
