// Creates a completion queue, and enlarges it before a peer is added.
#include "rdma/ibv/queue/completion_queue.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <cerrno>
#include <sched.h>

namespace hydrant::ibv {

Status GrowingCompletionQueue::open(const Config& config) noexcept {
  threaded_ = config.threaded;
  port_ = config.port;
  entries_per_peer_ = config.entries_per_peer;
  capacity_ = static_cast<uint32_t>(std::min<uint64_t>(
      uint64_t{config.peers_at_first} * entries_per_peer_, port_->max_completions));
  if (capacity_ < entries_per_peer_)
    return fail(Status::kResource,
                "%s: a completion queue holds at most %u entries, one peer needs %u: fewer credits "
                "(HYDRANT_IBV_CREDITS), or a shorter send queue",
                port_->name, port_->max_completions, entries_per_peer_);
  errno = 0;
  queue_.reset(uncancelled::call(ibv_create_cq, port_->device.context, static_cast<int>(capacity_),
                                 nullptr, config.channel, 0));
  if (queue_ != nullptr) return Status::kOk;
  return fail(Status::kResource, "%s: cannot create a completion queue of %u entries: %s",
              port_->name, capacity_, errno_text(errno));
}

Status GrowingCompletionQueue::make_room() noexcept HYDRANT_NO_TSA {
  const uint64_t needed = (uint64_t{peers_} + 1) * entries_per_peer_;
  if (needed > port_->max_completions)
    return fail(
        Status::kResource,
        "%s: a completion queue holds at most %u entries, %u peers have them all (%u each): "
        "fewer credits (HYDRANT_IBV_CREDITS), or a shorter send queue",
        port_->name, port_->max_completions, peers_, entries_per_peer_);
  if (needed > capacity_) {
    const auto wanted =
        static_cast<uint32_t>(std::min<uint64_t>(needed * 2, port_->max_completions));
    while (!try_lock()) sched_yield();
    const int error = uncancelled::call(ibv_resize_cq, queue_.get(), static_cast<int>(wanted));
    unlock();
    if (error != 0)
      return fail(Status::kResource,
                  "%s: the completion queue cannot grow from %u to %u entries: %s", port_->name,
                  capacity_, wanted, errno_text(error > 0 ? error : errno));
    capacity_ = wanted;
  }
  return Status::kOk;
}

}  // namespace hydrant::ibv
