// A transport that only sends: the first step of a port to a new network. Messages pass through to the inner
// transport; one-sided operations, mapped memory and shared blocks are hidden, so the whole API runs by
// Active Messages.
//
// Threads, errors: as the inner transport. Cost: one more virtual call per poll.
#pragma once

#include "rdma/transport/transport.hpp"

#include <memory>
#include <utility>

namespace hydrant {

class SendOnlyTransport final : public Transport {
 public:
  explicit SendOnlyTransport(std::unique_ptr<Transport> inside) noexcept
      : inside_(std::move(inside)) {}

  const char* name() const noexcept override { return "send_only"; }
  MessageChannel& messages(Rank peer) noexcept override { return inside_->messages(peer); }
  uint32_t poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept override {
    return inside_->poll(receiver, budget, replies_only);
  }
  Sleeping& sleeping() noexcept override { return inside_->sleeping(); }
  void flush(uint64_t deadline_ns) noexcept override { inside_->flush(deadline_ns); }
  void set_peer_failed_callback(PeerFailedFn callback) noexcept override {
    inside_->set_peer_failed_callback(callback);
  }
  void disconnect(Rank peer) noexcept override { inside_->disconnect(peer); }

 private:
  const std::unique_ptr<Transport> inside_;
};

}  // namespace hydrant
