// Serves what waits for poll(): messages without room, requests that waited for another's move, recalls; and
// ends all requests when the peer has exited. RemotePinService calls work() and fail_all().
#include "firehose/pin/failure_texts.hpp"
#include "firehose/pin/pin_handle.hpp"
#include "firehose/remote/initiator/peer_cache.hpp"
#include "firehose/watch/rule_clock.hpp"

#include <new>
#include <utility>

namespace hydrant {

using namespace remote_wire;

namespace {

constexpr uint64_t kDrainEveryNs = 20'000;

}  // namespace

// Turns a request that has waited into a move of its own. A failure is reported to its callback only.
void PeerCache::start_waiting(RemoteRequest* request) noexcept {
  const auto done = request->done;
  void* const context = request->context;
  const Status status = start(request, {});
  if (status == Status::kOk) return;
  auto* failed = new (std::nothrow) RemoteRequest;
  if (failed == nullptr) {
    const hydrant_remote_outcome_t outcome{to_c(status), 0, nullptr, 0};
    if (done != nullptr) done(context, failed_pin(status), &outcome);
    return;
  }
  failed->done = done;
  failed->context = context;
  complete(failed, status, nullptr, false, nullptr, 0);
}

// Serves the requests that waited for another request's move: most are hits by now. The others may become
// moves of their own only outside of delivery, without callback arguments.
void PeerCache::serve_waiting(bool may_send) noexcept {
  RemoteRequest* list = nullptr;
  uint64_t ended = 0;
  {
    MutexLock lock(mu_);
    list = requests_.waiting.take_all();
    ended = requests_.ended;
  }
  RemoteRequestList again;
  while (list != nullptr) {
    RemoteRequest* request = list;
    list = request->next;
    const RegionSlot* slot = nullptr;
    Status status = Status::kOk;
    if (may_send) {
      status = begin(*request, &slot);
      if (request->peer_pin.is_open()) {
        start_waiting(request);
        continue;
      }
    } else {
      status = domain_->pin(request->range, request->access, Domain::MissPolicy::kHitOnly, &slot);
    }
    if (status == Status::kNotReady && (!may_send || request->peer_pin.joins())) {
      again.push(request);
      continue;
    }
    complete(request, status, slot, false, nullptr, 0);
  }
  if (again.empty()) return;
  bool missed = false;
  {
    MutexLock lock(mu_);
    while (!is_gone_ && !again.empty()) requests_.waiting.push(again.pop());
    missed = !may_send || requests_.ended != ended;
  }
  while (RemoteRequest* request = again.pop())
    complete(request, Status::kBroken, nullptr, false, nullptr, 0);
  if (missed) channel_.mark_pending(peer_);
}

int PeerCache::work() noexcept {
  int did = 0;
  for (;;) {
    RemoteRequest* request = nullptr;
    {
      MutexLock lock(mu_);
      request = requests_.unsent.pop();
    }
    if (request == nullptr) break;
    const hydrant_remote_done_fn done = request->done;
    void* const context = request->context;
    const uint64_t number = request->number;
    const Status status = send_move(request);
    if (status != Status::kOk) {
      const hydrant_remote_outcome_t outcome{to_c(status), 0, nullptr, 0};
      if (done != nullptr) done(context, failed_pin(status), &outcome);
      continue;
    }
    ++did;
    MutexLock lock(mu_);
    // It is back at the front: there is still no room.
    if (requests_.unsent.is_first(number)) break;
  }
  bool waiting = false;
  bool urgent = false;
  uint64_t ask = 0;
  {
    MutexLock lock(mu_);
    waiting = !requests_.waiting.empty();
    ask = std::exchange(request_bytes_, 0);
  }
  if (waiting) serve_waiting(true);
  if (recalling_.load(std::memory_order_relaxed)) {
    const uint64_t now = rule_now_ns();
    if (now - drained_at_.load(std::memory_order_relaxed) >= kDrainEveryNs) {
      drained_at_.store(now, std::memory_order_relaxed);
      finish_recalls();
    }
    if (recalling_.load(std::memory_order_relaxed)) channel_.mark_pending(peer_);
  }
  {
    MutexLock lock(mu_);
    urgent = released_.is_due();
  }
  while (urgent && send_releases(HYDRANT_LANE_REQUEST, nullptr)) ++did;
  if (ask != 0) {
    Message message;
    message.add(header(Type::kLeaseRequest));
    message.add(Amount{ask});
    (void)channel_.send(peer_, HYDRANT_LANE_REQUEST, nullptr,
                        message);  // the next shortage sends another request
    ++did;
  }
  return did;
}

void PeerCache::fail_all(Status why) noexcept {
  RemoteRequest* lists[3] = {};
  {
    MutexLock lock(mu_);
    is_gone_ = true;
    lists[0] = requests_.moves.take_all();
    lists[1] = requests_.unsent.take_all();
    lists[2] = requests_.waiting.take_all();
    released_.clear();
    requests_.under_way = 0;
    ++requests_.ended;
  }
  for (RemoteRequest* list : lists) {
    while (list != nullptr) {
      RemoteRequest* request = list;
      list = request->next;
      const RegionSlot* none = nullptr;
      if (request->peer_pin.is_open())
        (void)domain_->peer_regions().end(request->peer_pin, why, {}, &none);
      complete(request, why, nullptr, false, nullptr, 0);
    }
  }
  (void)domain_->invalidate({0, SIZE_MAX});
}

}  // namespace hydrant
