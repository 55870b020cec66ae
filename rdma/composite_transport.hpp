// Combines two transports: the near one reaches the ranks of this node, the far one all others. All messages
// and one-sided operations with a peer use the same transport, so its ordering guarantees hold per peer;
// there is no order between peers.
//
// Cost: poll() polls both. A sleeping thread sleeps in the near transport. From the first sleep on, a thread
// of this class waits for the far one's device, and wakes the sleepers.
//
// Threads: any; single-threaded if both transports are, except that this class's thread may call wake() of
// the near one.
#pragma once

#include "firehose/base/start_gate.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/transport/network_transport.hpp"
#include "rdma/transport/transport.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <pthread.h>

namespace hydrant {

class CompositeTransport final : public Transport, private Sleeping {
 public:
  // Errors: kResource.
  static Status open(std::unique_ptr<Transport> near, std::unique_ptr<NetworkTransport> far,
                     const JobTopology& topology, std::unique_ptr<Transport>* transport) noexcept;
  ~CompositeTransport() override;

  const char* name() const noexcept override { return name_; }
  MessageChannel& messages(Rank peer) noexcept override { return to(peer).messages(peer); }
  // The far transport reaches pinned memory only.
  MemoryAccess& memory() noexcept override { return near_->memory(); }
  Sleeping& sleeping() noexcept override { return *this; }
  // The far transport reaches the ranks of this node, too, through the adapter. Only HYDRANT_PATH=nic and
  // atomics use it: peer_capabilities() of these ranks does not include kPinned.
  PinnedOperations* pinned() noexcept override { return far_->pinned(); }

  uint32_t capabilities() const noexcept override {
    return near_->capabilities() | far_->capabilities();
  }
  uint32_t peer_capabilities(Rank peer) const noexcept override { return to(peer).capabilities(); }
  // Operations of the near one complete at once.
  uint32_t depth() const noexcept override { return far_->depth(); }
  size_t list_counts(std::span<Count> rows) const noexcept override {
    return far_->list_counts(rows);  // the near transport has no counters
  }

  uint32_t poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept override;
  void flush(uint64_t deadline_ns) noexcept override;
  void set_peer_failed_callback(PeerFailedFn callback) noexcept override {
    near_->set_peer_failed_callback(callback);
    far_->set_peer_failed_callback(callback);
  }
  void disconnect(Rank peer) noexcept override {
    if (is_near(peer)) near_->disconnect(peer);
    far_->disconnect(peer);
  }

 private:
  CompositeTransport(std::unique_ptr<Transport> near,
                     std::unique_ptr<NetworkTransport> far) noexcept;
  Status init(const JobTopology& topology) noexcept;
  bool is_near(Rank peer) const noexcept { return peer < ranks_ && is_near_[peer]; }
  Transport& to(Rank peer) const noexcept { return is_near(peer) ? *near_ : *far_; }

  // ---- Sleeping: in the near transport, and woken by the far one's device ----
  void sleep(uint64_t deadline_ns, const WakeCondition& check) noexcept override;
  bool announce_sleep(Announcement* announcement) noexcept override;
  bool sleep_announced(const Announcement& announcement, uint64_t deadline_ns) noexcept override {
    return near_sleeping_.sleep_announced(announcement, deadline_ns);
  }
  void end_sleep() noexcept override { near_sleeping_.end_sleep(); }
  void yield() noexcept override { near_sleeping_.yield(); }
  bool is_reply_imminent() const noexcept override { return near_sleeping_.is_reply_imminent(); }
  void wake_peer(Rank peer) noexcept override { near_sleeping_.wake_peer(peer); }
  void wake() noexcept override { near_sleeping_.wake(); }

  bool has_thread() noexcept;
  static void* run_thread(void* self) noexcept;

  const std::unique_ptr<Transport> near_;
  Sleeping& near_sleeping_;
  const std::unique_ptr<NetworkTransport> far_;
  Notices& notices_;  // of the far one
  char name_[32] = {};
  Rank ranks_ = 0;
  std::unique_ptr<bool[]> is_near_;
  Mutex thread_mu_;
  std::atomic<bool> is_running_{false};
  StartGate thread_gate_;  // written under thread_mu_
  std::atomic<bool> ends_{false};
  pthread_t thread_ = {};
};

}  // namespace hydrant
