// Sleeps in the kernel until a completion is reported, wake() is called, a device has an event, or a deadline
// is reached. Owns the completion channel that reports completions.
//
// Invariant: a wake() after enter() is not lost. Either the thread sees it in was_woken(), or wake() sees the
// sleeper and writes to the descriptor that the thread waits for.
//
// Threads: any number may sleep. wake() is async-signal-safe.
#pragma once

#include "firehose/base/file_identity.hpp"
#include "firehose/base/kept_descriptor.hpp"
#include "firehose/base/status.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/device/verbs_objects.hpp"

#include <atomic>
#include <cstdint>
#include <span>

namespace hydrant::ibv {

class Sleeper {
 public:
  static constexpr uint32_t kMaxEventFds = kMaxRails;

  // Without a channel, sleeps last 0.1 ms at most. Errors: kResource.
  Status open(const Port& port, bool wants_channel) noexcept;
  void close() noexcept { channel_.reset(); }

  // ---- the completion channel ----
  ibv_comp_channel* channel() const noexcept { return channel_.get(); }
  // False also if the program has closed the channel's descriptor.
  bool has_channel() const noexcept;
  // A descriptor that is readable when a completion was reported; -1: there is no channel.
  int notice_fd() const noexcept { return has_channel() ? channel_->fd : -1; }
  // Reads the reports. False: there were none.
  bool take_notices() noexcept;

  // ---- sleeping ----
  // False: a wake() came since the thread's last call, so the thread must not sleep. True: leave() must
  // follow.
  bool enter() noexcept;
  bool was_woken() const noexcept;
  struct Outcome {
    bool has_slept = false;
    bool is_woken = false;   // before the deadline
    bool has_event = false;  // one of `event_fds` is readable
  };
  // Between enter() and leave(). `event_fds`: at most kMaxEventFds.
  Outcome wait(uint64_t until_ns, std::span<const int> event_fds) noexcept;
  void leave() noexcept;
  // False: there is no channel, or the program has closed a descriptor; waits are short then.
  bool is_always_woken() const noexcept { return has_channel() && wake_fd_.get() >= 0; }
  // The number of waits so far.
  uint64_t sleeps() const noexcept { return sleeps_.load(std::memory_order_relaxed); }
  void wake() noexcept;

 private:
  Channel channel_;
  FileIdentity channel_identity_;
  Mutex mu_;  // no thread enters while the last sleeper, in leave(), clears wake_fd_
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint64_t> sleeps_{0};
  KeptDescriptor wake_fd_;
};

}  // namespace hydrant::ibv
