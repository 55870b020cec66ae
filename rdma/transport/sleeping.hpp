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
  // The three steps of sleep(), so that one thread announces and another sleeps in its place (event
  // descriptors). The base class's naps: sleep_announced() returns at intervals of 1 ms.
  struct Announcement {
    uint64_t deadline_ns = UINT64_MAX;  // the announcing thread has to poll at this time
    uint32_t word = 0;                  // private to the transport
  };
  // Announces a sleep as sleep() does. False: there are events to poll now, and nothing is announced. True:
  // the caller checks its own condition, and end_sleep() must follow.
  virtual bool announce_sleep(Announcement* announcement) noexcept;
  // Sleeps until an event of sleep() has happened since the announcement (true), or until now_ns() reaches
  // the deadline; may return early (false). Any thread, also in the single-threaded mode.
  virtual bool sleep_announced(const Announcement& announcement, uint64_t deadline_ns) noexcept;
  // Any thread, also in the single-threaded mode.
  virtual void end_sleep() noexcept;
  // Yields the processor; meanwhile is_reply_imminent() of peers is false.
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
