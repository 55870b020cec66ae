// Queue pairs of the benchmark's own, by libibverbs and nothing else: what a program would do that needs one
// operation and no library. One reliable connection per peer, each with a completion queue of its own; one
// registered block of memory for all of them.
#pragma once

#include "rdma/ibv/ibv_port_choice.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hydrant::bench {

// Of a wait for the other end, which may have failed: counts looks, and asks the clock now and then.
class Patience {
 public:
  bool is_over() { return ++looks_ % kLooksPerClock == 0 && is_late(); }

 private:
  static constexpr uint64_t kLooksPerClock = 65536;
  bool is_late();
  uint64_t looks_ = 0;
  uint64_t deadline_ns_ = 0;  // from the first look at the clock on
};

class RawVerbs {
 public:
  static constexpr uint32_t kDepth = 128;   // entries of a send queue, and receive buffers
  static constexpr uint32_t kInline = 64;   // bytes that are sent inline
  static constexpr uint32_t kMessage = 64;  // bytes of a receive buffer
  static constexpr uint32_t kUntold = 16;   // of unsignalled requests one of so many is signalled

  // What a peer needs: of the queue pair for it.
  struct Card {
    uint32_t queue = 0;
    uint32_t sequence = 0;
    uint32_t lid = 0;
    uint32_t rkey = 0;
    uint64_t memory = 0;
    ibv_gid gid = {};
  };

  // With `bytes` of registered memory, and a queue pair for each of `peers`. works() is false if that
  // cannot be had; why() says what is missing.
  RawVerbs(uint32_t peers, size_t bytes);
  ~RawVerbs();
  RawVerbs(const RawVerbs&) = delete;
  RawVerbs& operator=(const RawVerbs&) = delete;

  bool works() const { return why_.empty(); }
  const std::string& why() const { return why_; }
  const ibv::Port& port() const { return port_; }
  std::byte* memory() const { return memory_; }
  Card card(uint32_t peer) const;
  bool connect(uint32_t peer, const Card& card);

  // All of these are false once something has failed: why().
  // Posts one; a read or write is between the same two offsets in `here` and there.
  bool write(uint32_t peer, size_t here, size_t there, uint32_t bytes, bool is_signalled);
  // Signalled, between any memory that both sides have registered in the domains of their ports.
  bool write_to(uint32_t peer, const std::byte* from, uint32_t lkey, uint64_t to, uint32_t rkey,
                uint32_t bytes);
  // `count` of them, at most kUntold, in one list of which the last is signalled.
  bool write_list(uint32_t peer, size_t here, size_t there, uint32_t bytes, uint32_t count);
  bool read(uint32_t peer, size_t here, size_t there, uint32_t bytes);
  bool send(uint32_t peer, uint32_t bytes, bool is_signalled);
  // Polls the peer's queue once, at most 16 entries.
  bool poll(uint32_t peer);
  // What has been told of, ever: signalled requests, and messages; their buffers are posted again.
  uint64_t told(uint32_t peer) const { return links_[peer].told; }
  uint64_t received(uint32_t peer) const { return links_[peer].received; }
  // Signalled requests, ever: told() reaches it.
  uint64_t signalled(uint32_t peer) const { return links_[peer].signalled; }
  bool wait_for_all(uint32_t peer) {
    return poll_until(peer, [&] { return told(peer) >= signalled(peer); });
  }
  // Polls the peer's queue until `holds`; false also if it does not for longer than any of this takes.
  template <typename Condition>
  bool poll_until(uint32_t peer, const Condition& holds) {
    Patience patience;
    while (!holds()) {
      if (!poll(peer)) return false;
      if (patience.is_over()) return give_up();
    }
    return true;
  }
  // The same for what the other end writes to this one's memory.
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
    Card there;
    uint64_t told = 0;
    uint64_t signalled = 0;
    uint64_t received = 0;
  };

  bool fail(const char* what, int error);
  bool give_up();
  bool open_link(uint32_t peer);
  bool write_any(uint32_t peer, const std::byte* from, uint32_t lkey, uint64_t to, uint32_t rkey,
                 uint32_t bytes, bool is_signalled);
  bool post(uint32_t peer, ibv_send_wr& request, bool is_signalled);
  bool post_receive(Link& link, uint64_t buffer);

  std::string why_;
  ibv::Port port_;
  bool is_open_ = false;
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;  // of the caller's; the receive buffers come behind
  size_t mapped_ = 0;
  ibv_mr* registration_ = nullptr;
  std::vector<Link> links_;
};

}  // namespace hydrant::bench
