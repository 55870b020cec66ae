// Creates a completion queue, and enlarges it before a peer is added. Adapters without ibv_resize_cq() are
// found by a trial.
#include "rdma/ibv/queue/completion_queue.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <sched.h>
#include <utility>

namespace hydrant::ibv {

Status GrowingCompletionQueue::open(const Config& config) noexcept {
  threaded_ = config.threaded;
  port_ = config.port;
  channel_ = config.channel;
  entries_per_peer_ = config.entries_per_peer;
  const auto room_for = [this](uint32_t peers) {
    return static_cast<uint32_t>(
        std::min<uint64_t>(uint64_t{peers} * entries_per_peer_, port_->max_completions));
  };
  const uint32_t first = room_for(std::min(config.peers, config.peers_at_first));
  if (first < entries_per_peer_)
    return fail(Status::kResource,
                "%s: a completion queue holds at most %u entries, one peer needs %u: fewer credits "
                "(HYDRANT_IBV_CREDITS), or a shorter send queue",
                port_->name, port_->max_completions, entries_per_peer_);
  CompletionQueue made = create(first);
  if (made == nullptr)
    return fail(Status::kResource, "%s: cannot create a completion queue of %u entries: %s",
                port_->name, first, errno_text(errno));
  adopt(std::move(made), first);
  const uint32_t whole = room_for(config.peers);
  if (whole <= capacity_ || resize(capacity_) == 0) return Status::kOk;
  create_whole(whole);
  if (capacity_ < uint64_t{config.peers} * entries_per_peer_)
    log_info("verbs: %s cannot resize a completion queue; this one has room for %u of %u peers",
             port_->name, capacity_ / entries_per_peer_, config.peers);
  return Status::kOk;
}

CompletionQueue GrowingCompletionQueue::create(uint32_t entries) const noexcept {
  errno = 0;
  return CompletionQueue(uncancelled::call(ibv_create_cq, port_->device.context,
                                           static_cast<int>(entries), nullptr, channel_,
                                           port_->completion_vector));
}

// Replaces the queue, which is not used yet, by one of `entries`. If the adapter makes none of that length,
// the longest one is searched, to within the entries of a peer.
void GrowingCompletionQueue::create_whole(uint32_t entries) noexcept {
  can_grow_ = false;
  uint32_t refused = entries + 1;
  do {
    CompletionQueue made = create(entries);
    if (made != nullptr) {
      adopt(std::move(made), entries);
    } else {
      refused = entries;
    }
    entries = std::midpoint(capacity_, refused);
  } while (refused > uint64_t{capacity_} + entries_per_peer_);
}

void GrowingCompletionQueue::adopt(CompletionQueue made, uint32_t entries) noexcept {
  queue_ = std::move(made);
  note_capacity(entries);
}

// Adapters make queues larger than requested.
void GrowingCompletionQueue::note_capacity(uint32_t requested) noexcept {
  capacity_ = std::max(requested, static_cast<uint32_t>(std::max(queue_->cqe, 0)));
}

// Returns 0 or an errno.
int GrowingCompletionQueue::resize(uint32_t entries) noexcept {
  errno = 0;
  const int error = uncancelled::call(ibv_resize_cq, queue_.get(), static_cast<int>(entries));
  if (error == 0) note_capacity(entries);
  return error >= 0 ? error : std::max(errno, 1);
}

Status GrowingCompletionQueue::make_room() noexcept HYDRANT_NO_TSA {
  const uint64_t needed = (uint64_t{peers_} + 1) * entries_per_peer_;
  if (needed <= capacity_) return Status::kOk;
  if (needed > port_->max_completions || !can_grow_)
    return fail(
        Status::kResource,
        "%s: a completion queue holds at most %u entries, %u peers have them all (%u each): "
        "fewer credits (HYDRANT_IBV_CREDITS), or a shorter send queue",
        port_->name, can_grow_ ? port_->max_completions : capacity_, peers_, entries_per_peer_);
  const auto wanted = static_cast<uint32_t>(std::min<uint64_t>(needed * 2, port_->max_completions));
  while (!try_lock()) sched_yield();
  // Twice the room if there is memory for it, so that the queue grows rarely.
  int error = resize(wanted);
  if (error != 0 && wanted > needed) error = resize(static_cast<uint32_t>(needed));
  unlock();
  if (error == 0) return Status::kOk;
  return fail(Status::kResource, "%s: the completion queue cannot grow from %u to %u entries: %s",
              port_->name, capacity_, static_cast<uint32_t>(needed), errno_text(error));
}

}  // namespace hydrant::ibv
