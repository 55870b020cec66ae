// Whether a peer is connected. A peer is connecting, then open, then disconnected; a peer that could not be
// connected is disconnected without having been open.
//
// Invariant: the reason is set before the state becomes disconnected, and the first reason stays. refusal()
// is set before is_refused() becomes true.
//
// Threads: any.
#pragma once

#include "rdma/ibv/wire/ibv_wire.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant::ibv {

class PeerState {
 public:
  bool is_connecting() const noexcept { return load() == State::kConnecting; }
  bool is_open() const noexcept { return load() == State::kOpen; }
  bool is_disconnected() const noexcept { return load() == State::kDisconnected; }

  // True: it was connecting until now.
  bool open() noexcept {
    State expected = State::kConnecting;
    return state_.compare_exchange_strong(expected, State::kOpen, std::memory_order_acq_rel);
  }
  // `reason` is kept by reference. True: it was not disconnected before.
  bool disconnect(const char* reason) noexcept {
    const char* none = nullptr;
    reason_.compare_exchange_strong(none, reason, std::memory_order_relaxed);
    return state_.exchange(State::kDisconnected, std::memory_order_acq_rel) != State::kDisconnected;
  }
  // Why the peer is disconnected.
  const char* reason() const noexcept { return reason_.load(std::memory_order_relaxed); }

  // While it is connecting: why the peer refuses that. It may change its mind.
  Refusal refusal_by_peer() const noexcept {
    return refusal_by_peer_.load(std::memory_order_relaxed);
  }
  void note_refusal_by_peer(Refusal why) noexcept {
    refusal_by_peer_.store(why, std::memory_order_relaxed);
  }

  // Notes that the adapter refuses requests for the peer, or hangs: the next poll disconnects the peer. Under
  // the lock of the peer. `refusal`, the reason, is kept by reference; null: a queue pair accepts no
  // requests.
  void refuse(const char* refusal = nullptr) noexcept {
    if (refusal != nullptr) refusal_ = refusal;
    is_refused_.store(true, std::memory_order_release);
  }
  bool is_refused() const noexcept { return is_refused_.load(std::memory_order_acquire); }
  const char* refusal() const noexcept { return refusal_; }

  // Notes that an adapter may report nothing more of what is posted for the peer: once the peer is
  // disconnected, polls end that.
  void abandon() noexcept { is_abandoned_.store(true, std::memory_order_release); }
  bool is_abandoned() const noexcept { return is_abandoned_.load(std::memory_order_acquire); }

 private:
  enum class State : uint32_t { kConnecting, kOpen, kDisconnected };

  State load() const noexcept { return state_.load(std::memory_order_acquire); }

  std::atomic<State> state_{State::kConnecting};
  std::atomic<Refusal> refusal_by_peer_{Refusal::kNone};
  std::atomic<bool> is_refused_{false};
  std::atomic<bool> is_abandoned_{false};
  std::atomic<const char*> reason_{nullptr};
  const char* refusal_ = "its queue pair accepts no requests";
};

}  // namespace hydrant::ibv
