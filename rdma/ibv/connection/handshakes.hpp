// First contact and handshakes. Each side repeats its handshake until it knows that the other can receive.
// Both sides may begin: each has one queue pair for the other, so crossing handshakes make one connection.
//
// Threads: any. The methods take the contact lock, which guards everything but the look-ups, which may take
// seconds, and the hints.
#pragma once

#include "firehose/base/thread.hpp"
#include "rdma/ibv/connection/contact_book.hpp"
#include "rdma/ibv/connection/datagram_queue.hpp"
#include "rdma/ibv/connection/handshake_sender.hpp"
#include "rdma/ibv/connection/handshake_server.hpp"
#include "rdma/ibv/connection/joined_groups.hpp"
#include "rdma/ibv/connection/peer_connector.hpp"
#include "rdma/ibv/queue/sleeper.hpp"
#include "rdma/ibv/transfer/first_contact.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace hydrant::ibv {

class Handshakes final : public FirstContact {
 public:
  explicit Handshakes(const HandshakeParts& parts) noexcept
      : parts_(parts),
        book_(parts.bootstrap, parts.options.handshakes.clock),
        datagrams_(parts.options.handshakes, parts.addresses, parts.counters.ud_errors),
        connector_(parts.options, parts.ports, parts.own, parts.rails, parts.node_adapters,
                   parts.fences),
        groups_(parts.own, parts.factory),
        sender_(parts_, datagrams_, connector_, groups_),
        server_(parts_, connector_, groups_, sender_) {}

  // Errors: kResource.
  Status open(ibv_comp_channel* channel) noexcept HYDRANT_EXCLUDES(mu_);
  void close() noexcept HYDRANT_EXCLUDES(mu_);

  [[gnu::cold]] Status start_connection(Rank number) noexcept override HYDRANT_EXCLUDES(mu_);
  [[gnu::cold]] Status connect_to_self() noexcept override HYDRANT_EXCLUDES(mu_);
  // Replies to handshakes that have arrived, and repeats own ones that are due. Returns the number of
  // completions; 0 at once if another thread holds the lock.
  uint32_t poll() noexcept HYDRANT_EXCLUDES(mu_);
  // A poll() that waits for the lock.
  uint32_t wait_and_poll() noexcept HYDRANT_EXCLUDES(mu_);
  // Hints, read without the lock. Whether a handshake is likely to arrive now, so that every poll should look
  // for it: only for a while after the last one, because a silent rank must not slow down all polls.
  bool expects_handshake() const noexcept {
    return eager_polls_.load(std::memory_order_relaxed) != 0;
  }
  // When a handshake is due; UINT64_MAX: none is.
  uint64_t next_handshake_ns() const noexcept HYDRANT_NO_TSA { return sender_.next_ns(); }
  // When poll() resets the queue for handshakes after a failure; UINT64_MAX: not.
  uint64_t next_reset_ns() const noexcept HYDRANT_NO_TSA { return datagrams_.next_reset_ns(); }
  // An event of the device concerns the queue for handshakes: a later poll() looks whether it has failed. If
  // the device has, ranks without a connection are not reached any more.
  void note_event(bool has_device_failed) noexcept HYDRANT_NO_TSA {
    has_device_failed ? datagrams_.give_up() : datagrams_.note_event();
  }
  // The thread that sleeps until next_handshake_ns() is woken when a first contact is due earlier.
  void wake_for_contacts(Sleeper& sleeper) noexcept HYDRANT_EXCLUDES(mu_) {
    const MutexLock lock(mu_);
    thread_ = &sleeper;
  }
  bool request_notice() noexcept HYDRANT_NO_TSA { return datagrams_.request_notice(); }

  // As in IbvTransport.
  Status group_address(std::span<std::byte> blob, size_t* bytes) noexcept HYDRANT_EXCLUDES(mu_);
  Status join(std::span<const std::span<const std::byte>> endpoints,
              std::span<Rank> numbers) noexcept HYDRANT_EXCLUDES(mu_);
  bool exists(Rank number) const noexcept HYDRANT_NO_TSA {
    return number < parts_.own.ranks() + groups_.count();
  }

 private:
  static constexpr uint32_t kEagerPolls = 1024;
  // Completions that a poll takes: so many that a storm of first contacts ends soon with a rank that polls
  // rarely, and so few that a poll, which creates what new peers need, does not last long.
  static constexpr uint32_t kMostAtOnce = 64;

  Status check_new(Rank number) const noexcept;
  Status cannot_reach(Rank number) noexcept HYDRANT_REQUIRES(mu_);
  uint32_t poll_locked() noexcept HYDRANT_REQUIRES(mu_);
  Status find_own_group() noexcept HYDRANT_EXCLUDES(mu_);

  const HandshakeParts parts_;
  ContactBook book_;
  Mutex mu_;  // the contact lock
  DatagramQueue datagrams_ HYDRANT_GUARDED_BY(mu_);
  PeerConnector connector_ HYDRANT_GUARDED_BY(mu_);
  JoinedGroups groups_ HYDRANT_GUARDED_BY(mu_);
  HandshakeSender sender_ HYDRANT_GUARDED_BY(mu_);
  HandshakeServer server_ HYDRANT_GUARDED_BY(mu_);
  Sleeper* thread_ HYDRANT_GUARDED_BY(mu_) = nullptr;
  std::atomic<uint32_t> eager_polls_{0};  // left; written under the lock
};

}  // namespace hydrant::ibv
