// Waits for what the parts report: sleep of this process's threads, and notices for a transport that sleeps
// for this one as well.
//
// Threads: any.
#pragma once

#include "rdma/ibv/transport_parts.hpp"
#include "rdma/transport/network_transport.hpp"

#include <algorithm>
#include <cstdint>

namespace hydrant::ibv {

class Waiting final : public Sleeping, public Notices {
 public:
  explicit Waiting(TransportParts& parts) noexcept : parts_(parts) {}

  void sleep(uint64_t deadline_ns, const WakeCondition& check) noexcept override;
  bool announce_sleep(Announcement* announcement) noexcept override;
  bool sleep_announced(const Announcement& announcement, uint64_t deadline_ns) noexcept override {
    return wait_in_kernel(std::min(deadline_ns, announcement.deadline_ns)).is_woken;
  }
  void end_sleep() noexcept override { parts_.sleeper.leave(); }
  void wake() noexcept override { parts_.sleeper.wake(); }

  int notice_fd() const noexcept override { return parts_.sleeper.notice_fd(); }
  void take_notices() noexcept override { (void)parts_.sleeper.take_notices(); }
  bool arm_events() noexcept override;
  uint64_t next_poll_ns() const noexcept override;

 private:
  bool prepare_to_wait() noexcept;
  void wait(uint64_t deadline_ns) noexcept;
  Sleeper::Outcome wait_in_kernel(uint64_t until_ns) noexcept;

  TransportParts& parts_;
};

}  // namespace hydrant::ibv
