// Queue pairs directly over libibverbs, as in a program that needs a single operation and no library. One
// reliable connection per peer, each with its own completion queue, and one registered block of memory for
// all.
#pragma once

#include "rdma/ibv/device/ibv_port_choice.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hydrant::bench {

// A time limit for waiting on a peer that may have failed. Counts polls and reads the clock only now and
// then.
class Patience {
 public:
  bool is_over() { return ++looks_ % kLooksPerClock == 0 && is_late(); }

 private:
  static constexpr uint64_t kLooksPerClock = 65536;
  bool is_late();
  uint64_t looks_ = 0;
  uint64_t deadline_ns_ = 0;  // set at the first reading of the clock
};

class RawVerbs {
 public:
  static constexpr uint32_t kDepth = 128;   // entries of a send queue, and receive buffers
  static constexpr uint32_t kInline = 64;   // bytes that are sent inline
  static constexpr uint32_t kMessage = 64;  // bytes of a receive buffer
  static constexpr uint32_t kSignalInterval =
      16;  // one of this many requests in a row is signalled

  // The address that a peer needs: that of the queue pair for it.
  struct EndpointAddress {
    uint32_t queue = 0;
    uint32_t sequence = 0;
    uint32_t lid = 0;
    uint32_t rkey = 0;
    uint64_t memory = 0;
    ibv_gid gid = {};
  };

  // Allocates `bytes` of registered memory and a queue pair for each of `peers`. On failure works() is false
  // and why() has the reason.
  RawVerbs(uint32_t peers, size_t bytes);
  ~RawVerbs();
  RawVerbs(const RawVerbs&) = delete;
  RawVerbs& operator=(const RawVerbs&) = delete;

  bool works() const { return why_.empty(); }
  const std::string& why() const { return why_; }
  const ibv::Port& port() const { return port_; }
  std::byte* memory() const { return memory_; }
  EndpointAddress endpoint_address(uint32_t peer) const;
  bool connect(uint32_t peer, const EndpointAddress& address);

  // All of these return false after a failure; why() has the reason.
  // Posts a request; `here` and `there` are offsets in the local and the remote memory.
  bool write(uint32_t peer, size_t here, size_t there, uint32_t bytes, bool is_signalled);
  // A signalled write between any memory that is registered with the two ports.
  bool write_to(uint32_t peer, const std::byte* from, uint32_t lkey, uint64_t to, uint32_t rkey,
                uint32_t bytes);
  // Posts `count` writes, at most kSignalInterval, as one list whose last entry is signalled.
  bool write_list(uint32_t peer, size_t here, size_t there, uint32_t bytes, uint32_t count);
  bool read(uint32_t peer, size_t here, size_t there, uint32_t bytes);
  // Adds 1 to a word; for devices with atomics.
  bool fetch_add(uint32_t peer, size_t here, size_t there);
  bool send(uint32_t peer, uint32_t bytes, bool is_signalled);
  // Polls the peer's queue once, at most 16 entries.
  bool poll(uint32_t peer);
  // Total completions of signalled requests.
  uint64_t completed(uint32_t peer) const { return links_[peer].completed; }
  // Total messages received; their buffers are reposted.
  uint64_t received(uint32_t peer) const { return links_[peer].received; }
  // Total signalled requests posted; completed() catches up with it.
  uint64_t signalled(uint32_t peer) const { return links_[peer].signalled; }
  bool wait_for_all(uint32_t peer) {
    return poll_until(peer, [&] { return completed(peer) >= signalled(peer); });
  }
  // Polls the peer's queue until holds() is true; false at the time limit, too.
  template <typename Condition>
  bool poll_until(uint32_t peer, const Condition& holds) {
    Patience patience;
    while (!holds()) {
      if (!poll(peer)) return false;
      if (patience.is_over()) return give_up();
    }
    return true;
  }
  // Waits until holds() is true, without polling: for memory that the peer writes. False at the time limit.
  template <typename Condition>
  bool look_until(const Condition& holds) {
    Patience patience;
    while (!holds()) {
      if (patience.is_over()) return give_up();
    }
    return true;
  }

 private:
  struct Link {
    ibv_cq* completions = nullptr;
    ibv_qp* pair = nullptr;
    EndpointAddress there;
    uint64_t completed = 0;
    uint64_t signalled = 0;
    uint64_t received = 0;
  };

  bool fail(const char* what, int error);
  bool give_up();
  bool open_link(uint32_t peer);
  bool write_any(uint32_t peer, const std::byte* from, uint32_t lkey, uint64_t to, uint32_t rkey,
                 uint32_t bytes, bool is_signalled);
  bool post(uint32_t peer, ibv_send_wr& request, bool is_signalled);
  // Rights of peers: IBV_ACCESS_*.
  unsigned remote_access() const {
    return IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
           (port_.atomics != IBV_ATOMIC_NONE ? unsigned{IBV_ACCESS_REMOTE_ATOMIC} : 0);
  }
  bool post_receive(Link& link, uint64_t buffer);

  std::string why_;
  ibv::Port port_;
  bool is_open_ = false;
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;  // of the caller's part; the receive buffers follow
  size_t mapped_ = 0;
  ibv_mr* registration_ = nullptr;
  std::vector<Link> links_;
};

}  // namespace hydrant::bench
