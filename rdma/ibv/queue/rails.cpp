// Opens the ports beside the first. A rail that fails to open is left out; the transport works without it.
#include "rdma/ibv/queue/rails.hpp"

#include "firehose/base/log.hpp"

#include <algorithm>

namespace hydrant::ibv {

namespace {

constexpr uint32_t kMinDepth = 16;

}  // namespace

void Rails::open(std::span<const Port> ports, uint32_t send_depth, uint32_t peers,
                 bool threaded) noexcept {
  count_ = static_cast<uint32_t>(std::min<size_t>(ports.size(), kMax));
  for (uint32_t i = 0; i < count_; ++i) {
    Rail& rail = rails_[i];
    rail.port = ports[i];
    if (open_one(rail, send_depth, peers, threaded) == Status::kOk) continue;
    log_warning("verbs port %s:%u is left out: %s", rail.port.name, rail.port.number,
                last_error_text());
    rail.completions.close();
  }
}

Status Rails::open_one(Rail& rail, uint32_t send_depth, uint32_t peers, bool threaded) noexcept {
  const Port& port = rail.port;
  rail.depth = std::min(send_depth, port.max_sends);
  if (rail.depth < kMinDepth)
    return fail(Status::kResource, "its send queues have %u entries, %u are the least", rail.depth,
                kMinDepth);
  // An unsignalled request that fails completes nevertheless, so the queue needs room for each entry.
  if (const Status status = rail.completions.open({.port = &port,
                                                   .channel = nullptr,
                                                   .entries_per_peer = rail.depth,
                                                   .peers = peers,
                                                   .threaded = threaded});
      status != Status::kOk)
    return status;
  return rail.fence.open(port.device.pd, 2 * sizeof(uint64_t),
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, "a rail's fences");
}

void Rails::close() noexcept {
  for (Rail& rail : rails_) {
    rail.completions.close();
    rail.fence.close();
  }
}

}  // namespace hydrant::ibv
