// Handles completions that end several requests, completions of rails, and failures. Tours "an Active
// Message" and "a put" end here on the sending side.
#include "rdma/ibv/transfer/completions.hpp"

#include "firehose/base/log.hpp"
#include "firehose/base/planted_defect.hpp"
#include "firehose/base/thread.hpp"

namespace hydrant::ibv {

namespace {

Status status_of(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_SUCCESS: return Status::kOk;
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_LOC_PROT_ERR: return Status::kRefused;
    default: return Status::kBroken;
  }
}

}  // namespace

[[gnu::noinline]] uint32_t Completions::end_requests(const ibv_wc& completion) noexcept {
  SendRecord& last = SendQueue::record_of(completion);
  SendQueue& queue = *last.queue;
  Peer& peer = *queue.peer();
  const Status status = status_of(completion.status);
  const uint64_t position = last.position;
  if (position < queue.completed()) return 0;  // it was abandoned
  CompletionBatch batch;
  uint32_t ended = 0;
  for (bool is_done = false; !is_done; ended += batch.notify()) {
    bool is_first_failure = false;
    {
      const SpinGuard guard(peer.lock, threaded_);
      uint64_t end = queue.completed();
      for (; end < position && !batch.is_full(); ++end) {
        SendRecord& record = queue.record_at(end);
        if (record.holds != SendRecord::Holds::kNothing)
          release(peer, record, queue.has_failed() ? Status::kBroken : Status::kOk, &batch);
      }
      is_done = end == position && !batch.is_full();
      if (is_done) {
        release(peer, last, has_defect(Defect::kFailureIsDone) ? Status::kOk : status, &batch);
        ++end;
        if (status != Status::kOk) is_first_failure = queue.note_failed();
      }
      queue.complete(end);
    }
    if (is_first_failure) [[unlikely]]
      report_failure(queue, completion);
  }
  if (peer.rails != nullptr && peer.state.is_disconnected()) [[unlikely]]
    ended += disconnector_.fail_stripes(peer);
  return ended;
}

void Completions::release(Peer& peer, SendRecord& record, Status status,
                          CompletionBatch* batch) noexcept {
  switch (record.holds) {
    case SendRecord::Holds::kNothing: break;
    case SendRecord::Holds::kMessage: poster_.release_message(peer, record); break;
    case SendRecord::Holds::kOperation: batch->add(record.completion, status); break;
    case SendRecord::Holds::kPiece: pool_.end_part(*record.operation, status, batch); break;
    case SendRecord::Holds::kStripe:
      striping_.complete_stripe(peer, *record.stripe, status, batch);
      break;
  }
}

void Completions::report_failure(SendQueue& queue, const ibv_wc& completion) noexcept {
  Peer& peer = *queue.peer();
  const char* const text = ibv_wc_status_str(completion.status);
  if (!peer.state.is_disconnected())
    log_warning("%s port %u: a request to %s at %s has failed: %s (%#x)", queue.port().name,
                queue.port().number, name_of(peer).text, text_of(peer.endpoint.address).text, text,
                completion.vendor_err);
  disconnector_.disconnect(peer, &queue == &peer.send ? text : queue.describe_failure(text));
}

// Each poll comes here. Once a second is enough for the peers, and for those that are made meanwhile.
[[gnu::noinline]] void Completions::report_unreadable(const Port& port) noexcept {
  uint64_t suppressed = 0;
  if (!unreadable_.pass(now_ns(), &suppressed)) return;
  log_warning("%s: the completion queue of port %u cannot be read", port.name, port.number);
  // Without peers nothing is lost yet: the next poll may read it.
  disconnector_.disconnect_all(&port == port_ ? "the completion queue cannot be read"
                                              : "the completion queue of a rail cannot be read",
                               false);
}

// ---- abandoned peers ----

bool Completions::end_abandoned(Peer& peer, uint32_t* ended) noexcept {
  bool is_done = end_posted(peer.send, queue_, ended);
  if (peer.rails == nullptr) return is_done;
  for (uint32_t i = 0; i < rails_.count(); ++i) {
    SendQueue& queue = peer.rails->rails[i].send;
    if (queue.is_open() && !end_posted(queue, rails_[i].completions, ended)) is_done = false;
  }
  *ended += disconnector_.fail_stripes(peer);
  return is_done;
}

// Only a thread that reads the completion queue moves completed(), so this locks that queue. False: another
// thread has locked it. What has completed counts, and is read first: until the queue is empty, or as many
// completions were read as it has room for, because other peers may keep it full.
bool Completions::end_posted(SendQueue& queue, GrowingCompletionQueue& completions,
                             uint32_t* ended) noexcept HYDRANT_NO_TSA {
  if (!completions.try_lock()) return false;
  ibv_wc found[kBatch];
  int count = kBatch;
  for (uint32_t read = 0; count == kBatch && read < completions.capacity(); read += kBatch) {
    count = completions.poll(found, kBatch);
    for (int i = 0; i < count; ++i) {
      if (SendQueue::is_send(found[i])) {
        *ended += end_request(found[i]);
      } else {
        receiving_.accept(found[i]);
      }
    }
  }
  *ended += fail_posted(queue);
  completions.unlock();
  return true;
}

uint32_t Completions::fail_posted(SendQueue& queue) noexcept {
  Peer& peer = *queue.peer();
  CompletionBatch batch;
  uint32_t ended = 0;
  for (bool is_done = false; !is_done; ended += batch.notify()) {
    const SpinGuard guard(peer.lock, threaded_);
    uint64_t end = queue.completed();
    for (; end < queue.posted() && !batch.is_full(); ++end)
      release(peer, queue.record_at(end), Status::kBroken, &batch);
    queue.complete(end);
    is_done = end == queue.posted();
  }
  return ended;
}

uint32_t Completions::poll_rails() noexcept HYDRANT_NO_TSA {
  uint32_t ended = 0;
  for (uint32_t i = 0; i < rails_.count(); ++i) {
    GrowingCompletionQueue& queue = rails_[i].completions;
    if (!queue.is_open() || !queue.try_lock()) continue;
    ibv_wc completions[kBatch];
    const int count = queue.poll(completions, kBatch);
    for (int j = 0; j < count; ++j) ended += end_requests(completions[j]);
    if (count < 0) report_unreadable(rails_[i].port);
    queue.unlock();
  }
  return ended;
}

}  // namespace hydrant::ibv
