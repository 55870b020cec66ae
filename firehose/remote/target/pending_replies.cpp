// Runs the client's functions that wait for poll(), and sends replies again for which the messenger had no
// room or memory was short. remote_target.cpp queues them.
#include "firehose/remote/target/remote_target.hpp"

#include <algorithm>
#include <utility>

namespace hydrant {

using namespace remote_wire;

int RemoteTarget::run_deferred() noexcept {
  int ran = 0;
  for (;;) {
    Deferred* next = nullptr;
    {
      MutexLock lock(exports_mu_);
      next = deferred_;
      if (next == nullptr) return ran;
      deferred_ = next->next;
      if (deferred_ == nullptr) deferred_tail_ = &deferred_;
    }
    Message said;
    (void)said.reserve(channel_.max_args());
    next->served.flags |= kCalled;
    call_remote(next->from, next->move, next->served, next->args.data(), &said);
    answer(next->from, next->move.number, next->served, said, nullptr);
    delete next;
    ++ran;
  }
}

// A peer that accepts no message does not delay messages to the others.
int RemoteTarget::send_answers() noexcept {
  int did = 0;
  Answer* list = nullptr;
  {
    MutexLock lock(exports_mu_);
    list = std::exchange(answers_, nullptr);
    answers_tail_ = &answers_;
  }
  Answer* kept = nullptr;
  Answer** kept_tail = &kept;
  uint32_t deaf = config_.ranks;
  while (list != nullptr) {
    Answer* next = list;
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
    Answer* next = kept;
    kept = next->next;
    MutexLock lock(exports_mu_);
    if (notices_[next->to].gone) {  // meanwhile
      delete next;
      continue;
    }
    next->next = nullptr;
    *answers_tail_ = next;
    answers_tail_ = &next->next;
    channel_.note_due(next->to);
  }
  return did + send_owed();
}

int RemoteTarget::send_owed() noexcept {
  int did = 0;
  for (size_t i = 0;;) {
    Owed owed{};
    Reply reply{};
    {
      MutexLock lock(exports_mu_);
      if (i >= owed_count_) return did;
      owed = owed_[i];
      owed_[i] = owed_[--owed_count_];
      reply.lease = leases_.lease(owed.peer);
      reply.lease_number = leases_.number(owed.peer);
      bool is_region = false;
      reply.most = most_of_one(&is_region);
      if (is_region) reply.flags |= kMostIsRegion;
    }
    reply.number = owed.number;
    reply.status = to_c(owed.status);
    Message message;
    message.add(header(Type::kReply));
    message.add(reply);
    if (channel_.send(owed.peer, HYDRANT_LANE_REQUEST, nullptr, message) != Status::kNotReady) {
      ++did;
      continue;
    }
    MutexLock lock(exports_mu_);
    if (owed_count_ == owed_.size() || notices_[owed.peer].gone) continue;
    // Puts it back at its place, so that each is tried once.
    const size_t at = std::min(i, owed_count_);
    owed_[owed_count_++] = owed_[at];
    owed_[at] = owed;
    ++i;
    channel_.note_due(owed.peer);
  }
}

void RemoteTarget::drop_answers(uint32_t peer) noexcept {
  Deferred* dropped = unlist_answers(peer);
  while (dropped != nullptr) {
    Deferred* later = dropped;
    dropped = later->next;
    if (later->served.id != 0) (void)end_export(later->from, later->served.id, false);
    delete later;
  }
}

RemoteTarget::Deferred* RemoteTarget::unlist_answers(uint32_t peer) noexcept {
  Deferred* dropped = nullptr;
  MutexLock lock(exports_mu_);
  for (Answer** link = &answers_; *link != nullptr;) {
    Answer* answer = *link;
    if (peer != config_.ranks && answer->to != peer) {
      link = &answer->next;
      continue;
    }
    *link = answer->next;
    delete answer;
  }
  answers_tail_ = &answers_;
  while (*answers_tail_ != nullptr) answers_tail_ = &(*answers_tail_)->next;
  for (Deferred** link = &deferred_; *link != nullptr;) {
    Deferred* later = *link;
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
  for (size_t i = 0; i < owed_count_; ++i) {
    if (peer != config_.ranks && owed_[i].peer != peer) owed_[kept++] = owed_[i];
  }
  owed_count_ = kept;
  return dropped;
}

}  // namespace hydrant
