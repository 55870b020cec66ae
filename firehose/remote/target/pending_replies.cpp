// Runs the client's functions that wait for poll(), and sends replies again for which the messenger had no
// room or memory was short. remote_target.cpp queues them.
#include "firehose/remote/target/remote_target.hpp"

#include <algorithm>
#include <utility>

namespace hydrant {

using namespace remote_wire;

int RemoteTarget::run_deferred() noexcept {
  int ran = 0;
  while (DeferredMove* const next = take_deferred()) {
    Message said;
    (void)said.reserve(channel_.max_args());
    next->served.flags |= kCalled;
    call_remote(next->from, next->move, next->served, next->args.data(), &said);
    reply(next->from, next->move.number, next->served, said, nullptr);
    delete next;
    ++ran;
  }
  queue_lease_notices();
  return ran;
}

RemoteTarget::DeferredMove* RemoteTarget::take_deferred() noexcept {
  MutexLock lock(exports_mu_);
  DeferredMove* const next = deferred_;
  if (next == nullptr) return nullptr;
  deferred_ = next->next;
  if (deferred_ == nullptr) deferred_tail_ = &deferred_;
  return next;
}

void RemoteTarget::queue_lease_notices() noexcept {
  MutexLock lock(exports_mu_);
  uint32_t peer = 0;
  while (leases_.take_change(&peer)) {
    notices_[peer].lease = true;
    channel_.mark_pending(peer);
  }
}

// A peer that accepts no message does not delay messages to the others.
int RemoteTarget::send_replies() noexcept {
  int did = 0;
  PendingReply* list = nullptr;
  {
    MutexLock lock(exports_mu_);
    list = std::exchange(replies_, nullptr);
    replies_tail_ = &replies_;
  }
  PendingReply* kept = nullptr;
  PendingReply** kept_tail = &kept;
  uint32_t deaf = config_.ranks;
  while (list != nullptr) {
    PendingReply* next = list;
    list = next->next;
    if (next->to != deaf && channel_.send(next->to, HYDRANT_LANE_REQUEST, nullptr, next->message) !=
                                Status::kNotReady) {
      delete next;
      ++did;
      continue;
    }
    deaf = next->to;
    next->next = nullptr;
    *kept_tail = next;
    kept_tail = &next->next;
  }
  while (kept != nullptr) {
    PendingReply* next = kept;
    kept = next->next;
    MutexLock lock(exports_mu_);
    if (notices_[next->to].gone) {  // since then
      delete next;
      continue;
    }
    next->next = nullptr;
    *replies_tail_ = next;
    replies_tail_ = &next->next;
    channel_.mark_pending(next->to);
  }
  return did + send_refusals();
}

int RemoteTarget::send_refusals() noexcept {
  int did = 0;
  for (size_t i = 0;;) {
    PendingRefusal refusal{};
    Reply reply{};
    {
      MutexLock lock(exports_mu_);
      if (i >= pending_refusal_count_) return did;
      refusal = pending_refusals_[i];
      pending_refusals_[i] = pending_refusals_[--pending_refusal_count_];
      const LeaseTable::Terms terms = leases_.terms(refusal.peer);
      reply.lease = terms.bytes;
      reply.lease_number = terms.number;
      bool is_region = false;
      reply.most = max_lease(&is_region);
      if (is_region) reply.flags |= kMaxIsRegion;
    }
    reply.number = refusal.number;
    reply.status = to_c(refusal.status);
    Message message;
    message.add(header(Type::kReply));
    message.add(reply);
    if (channel_.send(refusal.peer, HYDRANT_LANE_REQUEST, nullptr, message) != Status::kNotReady) {
      ++did;
      continue;
    }
    MutexLock lock(exports_mu_);
    if (pending_refusal_count_ == pending_refusals_.size() || notices_[refusal.peer].gone) continue;
    // Puts it back at its place, so that each is tried once.
    const size_t at = std::min(i, pending_refusal_count_);
    pending_refusals_[pending_refusal_count_++] = pending_refusals_[at];
    pending_refusals_[at] = refusal;
    ++i;
    channel_.mark_pending(refusal.peer);
  }
}

void RemoteTarget::drop_replies(uint32_t peer) noexcept {
  DeferredMove* dropped = unlist_replies(peer);
  while (dropped != nullptr) {
    DeferredMove* later = dropped;
    dropped = later->next;
    if (later->served.id != 0) (void)end_export(later->from, later->served.id, false);
    delete later;
  }
}

RemoteTarget::DeferredMove* RemoteTarget::unlist_replies(uint32_t peer) noexcept {
  DeferredMove* dropped = nullptr;
  MutexLock lock(exports_mu_);
  for (PendingReply** link = &replies_; *link != nullptr;) {
    PendingReply* reply = *link;
    if (peer != config_.ranks && reply->to != peer) {
      link = &reply->next;
      continue;
    }
    *link = reply->next;
    delete reply;
  }
  replies_tail_ = &replies_;
  while (*replies_tail_ != nullptr) replies_tail_ = &(*replies_tail_)->next;
  for (DeferredMove** link = &deferred_; *link != nullptr;) {
    DeferredMove* later = *link;
    if (peer != config_.ranks && later->from != peer) {
      link = &later->next;
      continue;
    }
    *link = later->next;
    later->next = dropped;
    dropped = later;
  }
  deferred_tail_ = &deferred_;
  while (*deferred_tail_ != nullptr) deferred_tail_ = &(*deferred_tail_)->next;
  size_t kept = 0;
  for (size_t i = 0; i < pending_refusal_count_; ++i) {
    if (peer != config_.ranks && pending_refusals_[i].peer != peer)
      pending_refusals_[kept++] = pending_refusals_[i];
  }
  pending_refusal_count_ = kept;
  return dropped;
}

}  // namespace hydrant
