// Descriptors that become readable when there is something to poll, for programs that sleep in poll(2). A
// thread of this class sleeps in the transport in place of the program, and writes to the descriptors.
//
// States of a descriptor: disarmed, armed. arm() announces a sleep to the transport in the calling thread, as
// a sleeping thread does, and leaves the sleep itself to the class's thread. So the transport notifies this
// process as if it slept, and sends and polls are the same with and without descriptors. An event disarms all
// armed descriptors and makes them readable.
//
// Invariant: an armed descriptor has an announced sleep that has not ended, and the thread sleeps for the
// oldest announcement or is about to. An event after the announcement ends that sleep.
//
// Threads: any; in programs of one thread only that thread and the class's own. Two threads may arm and close
// one descriptor at once, but arming takes from it what another thread may not have seen.
// Cost: arming wakes the class's thread; an event costs two changes of threads.
#pragma once

#include "am/job/progress_table.hpp"
#include "firehose/base/kept_descriptor.hpp"
#include "firehose/base/status.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/transport/sleeping.hpp"

#include <array>
#include <cstdint>

namespace hydrant {

class EventDescriptors {
 public:
  static constexpr uint32_t kMax = 64;
  struct Options {
    Sleeping* sleeping = nullptr;  // null: no event comes but those of `has_events`
    // True if there is something that the transport does not know of; it may make progress. Called after a
    // sleep was announced. May be null.
    bool (*has_events)() noexcept = nullptr;
    // Tells whether there is silent work. May be null.
    const ProgressTable* progress = nullptr;
    // Limits of the interval at which a descriptor becomes readable without an event: a quarter of the time
    // since the last event. Silent work has limits of its own, from `silent_interval_ns` to
    // `min_interval_ns`, and its begin counts as an event.
    uint64_t silent_interval_ns = 100'000;
    uint64_t min_interval_ns = 10'000'000;
    uint64_t max_interval_ns = 1'000'000'000;
  };
  explicit EventDescriptors(const Options& options) noexcept : options_(options) {}
  // Ends and joins the thread, and closes all descriptors. A job's object is never destroyed.
  ~EventDescriptors();
  EventDescriptors(const EventDescriptors&) = delete;
  EventDescriptors& operator=(const EventDescriptors&) = delete;

  // Errors: kResource.
  Status open(int* descriptor) noexcept HYDRANT_EXCLUDES(mu_);
  // Errors: kNotReady: poll now; kBadArg: unknown, closed meanwhile, or closed by the program.
  Status arm(int descriptor) noexcept HYDRANT_EXCLUDES(mu_);
  // Errors: kBadArg.
  Status close(int descriptor) noexcept HYDRANT_EXCLUDES(mu_);

 private:
  struct Descriptor {
    KeptDescriptor fd;
    bool is_armed = false;
    uint64_t armed_as = 0;  // ascending in the order of arming
    Sleeping::Announcement announcement;
  };

  Status start_thread() noexcept HYDRANT_REQUIRES(mu_);
  Descriptor* find(int descriptor) noexcept HYDRANT_REQUIRES(mu_);
  void disarm(Descriptor& one) noexcept HYDRANT_REQUIRES(mu_);
  bool announce(Sleeping::Announcement* announcement) noexcept HYDRANT_EXCLUDES(mu_);
  uint64_t interval_ns(uint64_t now) noexcept HYDRANT_REQUIRES(mu_);
  static void* run_thread(void* self) noexcept;
  void run() noexcept HYDRANT_EXCLUDES(mu_);
  bool sleep_for(const Sleeping::Announcement& announcement, uint64_t deadline_ns) noexcept
      HYDRANT_EXCLUDES(mu_);
  void report(bool all) noexcept HYDRANT_REQUIRES(mu_);
  // False: none is armed.
  bool oldest(Sleeping::Announcement* announcement) const noexcept HYDRANT_REQUIRES(mu_);
  uint64_t next_deadline_ns() const noexcept HYDRANT_REQUIRES(mu_);

  const Options options_;
  Mutex mu_;  // never held while the transport announces or sleeps
  CondVar changed_;
  std::array<Descriptor, kMax> descriptors_ HYDRANT_GUARDED_BY(mu_);
  uint64_t arms_ HYDRANT_GUARDED_BY(mu_) = 0;
  uint64_t last_event_ns_ HYDRANT_GUARDED_BY(mu_) = 0;
  uint64_t silent_adds_ HYDRANT_GUARDED_BY(mu_) = 0;      // as of the last arming
  uint64_t sleeps_until_ns_ HYDRANT_GUARDED_BY(mu_) = 0;  // the thread; 0: it does not sleep
  bool is_resting_ HYDRANT_GUARDED_BY(mu_) = false;
  bool ends_ HYDRANT_GUARDED_BY(mu_) = false;
  bool has_thread_ HYDRANT_GUARDED_BY(mu_) = false;
  pthread_t thread_ = {};
};

}  // namespace hydrant
