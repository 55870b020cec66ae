// The interface by which threads sleep until something arrives from other ranks. The defaults nap: a network
// that cannot wake a thread overrides nothing.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <cstdint>

namespace hydrant {

class Sleeping {
 public:
  // Returns an object that has the defaults.
  static Sleeping& naps() noexcept;

  // Sleeps until a message may have arrived, wake() is called, a peer calls wake_peer() for this rank, or
  // now_ns() reaches the deadline. Returns at once if `check` holds after the sleep was announced to other
  // processes.
  struct WakeCondition {
    bool (*holds)(const void* context) noexcept = nullptr;
    const void* context = nullptr;
  };
  virtual void sleep(uint64_t deadline_ns, const WakeCondition& check) noexcept;
  void sleep(uint64_t deadline_ns) noexcept { sleep(deadline_ns, {}); }
  // The parts of sleep(), for a thread that waits outside this class while another thread sleeps for it. The
  // base class's naps: sleep_announced() returns at intervals of 1 ms.
  struct Announcement {
    uint64_t deadline_ns = UINT64_MAX;  // the announcing thread has to poll at this time
    uint32_t word = 0;                  // private to the transport
  };
  // Announces a sleep as sleep() does. False: there are events to poll now, and nothing is announced. True:
  // the caller checks its own condition, and end_sleep() must follow.
  virtual bool announce_sleep(Announcement* announcement) noexcept;
  // Sleeps until an event of sleep() has happened since the announcement, or now_ns() reaches the deadline;
  // returns true for the former. May return early. Any thread, also in the single-threaded mode.
  virtual bool sleep_announced(const Announcement& announcement, uint64_t deadline_ns) noexcept;
  // Any thread, also in the single-threaded mode.
  virtual void end_sleep() noexcept;
  // Yields the processor to other threads, and publishes this to the peers.
  virtual void yield() noexcept;
  // True if the last communication partner seems to run on another processor, so that a reply is imminent. A
  // cheap hint.
  virtual bool is_reply_imminent() const noexcept;
  // Wakes the threads of `peer` that are in sleep(), if it is on this node. They, or the condition they
  // check, see all earlier stores of this rank. Costs two loads if none sleeps.
  virtual void wake_peer(Rank peer) noexcept;
  // Makes every thread of this process leave sleep(). Async-signal-safe.
  virtual void wake() noexcept;

 protected:
  ~Sleeping() = default;
};

}  // namespace hydrant
