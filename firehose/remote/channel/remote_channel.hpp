// The state that the two sides of one end share: its settings, its domain, its messenger, and the set of
// peers that poll() has work for.
//
// Invariant: a bit of pending_peers_ is set before any_pending_ is, and poll() takes any_pending_ before it
// takes the bits. So a peer that is due is seen by the poll that takes the mark, or by a later one.
//
// Threads: any, after set-up. No lock.
#pragma once

#include <hydrant/remote_pin.h>

#include "firehose/base/mapped_array.hpp"
#include "firehose/cache/domain.hpp"
#include "firehose/remote/channel/remote_wire.hpp"

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace hydrant {

struct RemoteConfig {
  char name[32] = "";
  uint32_t rank = 0, ranks = 0;
  uint32_t flags = 0;
  uint64_t budget_bytes = 0;
  uint32_t max_firehoses = 0;
  uint32_t base_percent = 50;
  uint64_t zombie_bytes = 0;
  uint32_t max_peer_regions = 0;
  size_t max_region_bytes = 0;
  size_t merge_bytes = 0;
  size_t stream_bytes = 0;
  hydrant_messenger_t messenger{};
  hydrant_remote_fn remote = nullptr;
  hydrant_remote_room_fn room = nullptr;
  void* user = nullptr;
};

// Fails with kResource for a table of an end.
Status fail_no_tables(const RemoteConfig& config) noexcept;

class RemoteChannel {
 public:
  RemoteChannel(const RemoteConfig& config, Domain& domain) noexcept
      : config_(config), domain_(domain) {}
  RemoteChannel(const RemoteChannel&) = delete;
  RemoteChannel& operator=(const RemoteChannel&) = delete;
  // kBadArg: its messages are too short for keys. Sets max_args().
  Status check_messenger() noexcept;
  // False when address space is refused.
  [[nodiscard]] bool reserve_tables() noexcept {
    return pending_peers_.map(word_of(config_.ranks) + 1);
  }

  const RemoteConfig& config() const noexcept { return config_; }
  Domain& domain() const noexcept { return domain_; }
  // The longest arguments of a request, and the longest reply data.
  size_t max_args() const noexcept { return max_args_; }
  bool is_peer(uint32_t rank) const noexcept {
    return rank < config_.ranks && rank != config_.rank;
  }
  // Fails with kBadArg for an unknown rank, or for this process: then the text ends with `if_self`.
  Status no_peer(uint32_t rank, const char* if_self) const noexcept;

  // Errors: kNotReady: the messenger has no room now; kResource, kBroken, with a text.
  Status send(uint32_t peer, uint32_t lane, void* reply_to,
              const remote_wire::Message& message) noexcept;
  uint64_t requests() const noexcept { return requests_.load(std::memory_order_relaxed); }
  uint64_t replies() const noexcept { return replies_.load(std::memory_order_relaxed); }

  // Marks work for poll(): for the peer, or for no particular peer.
  void mark_pending(uint32_t peer) noexcept {
    pending_peers_[word_of(peer)].fetch_or(bit_of(peer), std::memory_order_relaxed);
    mark_any_pending();
  }
  void mark_any_pending() noexcept { (void)any_pending_.exchange(1, std::memory_order_release); }
  bool any_pending() const noexcept { return any_pending_.load(std::memory_order_acquire) != 0; }
  // An exchange with acquire order: the work of a thread that set the mark before is visible after it. A mark
  // that is set later is seen by the next poll, even if its bit is taken now.
  void clear_any_pending() noexcept { (void)any_pending_.exchange(0, std::memory_order_acq_rel); }
  // Calls visit(peer) for each peer that is due. Requires: clear_any_pending() before.
  template <class Visit>
  void visit_pending(const Visit& visit) noexcept {
    for (uint32_t word = 0; word <= word_of(config_.ranks - 1); ++word) {
      if (pending_peers_[word].load(std::memory_order_relaxed) == 0) continue;
      uint64_t bits = pending_peers_[word].exchange(0, std::memory_order_acq_rel);
      while (bits != 0) {
        const uint32_t peer = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
        bits &= bits - 1;
        visit(peer);
      }
    }
  }

 private:
  // Index of the word with the bits of 64 peers.
  static constexpr uint32_t word_of(uint32_t peer) noexcept { return peer / 64; }
  static constexpr uint64_t bit_of(uint32_t peer) noexcept { return uint64_t{1} << (peer % 64); }

  const RemoteConfig config_;
  Domain& domain_;
  size_t max_args_ = 0;
  // Bit per peer; for poll(). Bits are set relaxed: any_pending_ publishes them.
  MappedArray<std::atomic<uint64_t>> pending_peers_;
  // Set by exchanges with release order, cleared by one with acquire order. Under a lock stores would be
  // enough. But if two threads set it, the reader acquires from one: a store by the second would end the
  // release sequence of the first, and its bit could be overlooked until other work is due.
  std::atomic<uint32_t> any_pending_{0};
  std::atomic<uint64_t> requests_{0}, replies_{0};  // sent; relaxed
};

}  // namespace hydrant
