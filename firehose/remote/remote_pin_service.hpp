// An end of the remote-pin protocol (docs/remote_pins.md). It is a target for firehoses that peers have here
// (RemoteTarget), and an initiator for the firehoses that it has at each peer (PeerCache). Both send through
// one channel (RemoteChannel).
//
// Locks: peers_mu_; the locks of RemoteTarget and PeerCache are taken inside it.
#pragma once

#include <hydrant/remote_pin.h>

#include "firehose/base/mapped_array.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/cache/domain.hpp"
#include "firehose/remote/channel/remote_channel.hpp"
#include "firehose/remote/initiator/peer_cache.hpp"
#include "firehose/remote/initiator/remote_completions.hpp"
#include "firehose/remote/target/remote_target.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class RemotePinService {
 public:
  RemotePinService(const RemoteConfig& config, Domain& domain) noexcept
      : channel_(config, domain), target_(channel_), completions_(channel_) {}
  ~RemotePinService();
  RemotePinService(const RemotePinService&) = delete;
  RemotePinService& operator=(const RemotePinService&) = delete;
  // Errors: kResource, kBadArg.
  Status set_up() noexcept;

  const RemoteConfig& config() const noexcept { return channel_.config(); }
  Domain& domain() const noexcept { return channel_.domain(); }
  size_t max_args() const noexcept { return channel_.max_args(); }

  // The initiator's part for a peer; null before the first use. Cost: one load.
  PeerCache* known_peer(uint32_t peer) const noexcept {
    return peer < config().ranks ? peers_[peer].load(std::memory_order_acquire) : nullptr;
  }
  // kBadArg, with a text: no such peer, or this rank itself.
  Status check_peer(uint32_t peer) const noexcept {
    return channel_.is_peer(peer) ? Status::kOk
                                  : channel_.no_peer(peer, ", which has no firehoses of its own");
  }
  // Errors: kBadArg: as check_peer(); kBroken: the peer has exited; kResource.
  Status peer(uint32_t peer, PeerCache** out) noexcept;

  Status deliver(uint32_t from, const void* message, size_t len, void* reply_to) noexcept;
  int poll() noexcept;
  Status peer_gone(uint32_t peer) noexcept;
  Status quiet() noexcept { return target_.quiet(); }
  void shut_down() noexcept;
  void read_stats(hydrant_remote_stats_t* stats) noexcept;

 private:
  RemoteChannel channel_;
  RemoteTarget target_;
  RemoteCompletions completions_;
  MappedArray<std::atomic<PeerCache*>> peers_;
  Mutex peers_mu_;  // held while peers are created
  bool is_ending_ HYDRANT_GUARDED_BY(peers_mu_) = false;
};

// True while an end of remote pins uses the domain (remote_pin_api.cpp).
bool has_remote_end(const Domain& domain) noexcept;

}  // namespace hydrant
