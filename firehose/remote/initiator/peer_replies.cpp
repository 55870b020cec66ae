// Handles a peer's replies, its part of poll(), and the end of all requests when the peer has exited.
// RemotePinService calls these; requests begin in peer_cache.cpp.
#include "firehose/pin/failure_texts.hpp"
#include "firehose/pin/pin_handle.hpp"
#include "firehose/remote/initiator/peer_cache.hpp"
#include "firehose/watch/rule_clock.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hydrant {

using namespace remote_wire;

namespace {

constexpr uint64_t kDrainEveryNs = 20'000;

// The peer's reply has no text: the peer knows its limits, and its knobs are set there.
void fail_at_peer(Status status, uint32_t peer, MemoryRange range) noexcept {
  const auto addr = static_cast<size_t>(range.addr);
  if (status == Status::kNotReady) {
    (void)fail(
        status,
        "rank %u cannot pin [%#zx, +%zu) now: what it lends to peers, or what it can pin, is "
        "in use; release remote pins and try again, raise FIREHOSE_REMOTE_BUDGET, "
        "FIREHOSE_REMOTE_MAX or FIREHOSE_BUDGET there, or send messages",
        peer, addr, range.len);
    return;
  }
  (void)fail(status, "rank %u cannot pin [%#zx, +%zu): %s; send messages, or see that rank's log",
             peer, addr, range.len, status_description(status));
}

// The codes that peers may send; any other is invalid.
Status status_of(int32_t code) noexcept {
  const auto status = static_cast<Status>(code);
  switch (status) {
    case Status::kOk:
    case Status::kNotInit:
    case Status::kResource:
    case Status::kBadArg:
    case Status::kNotReady:
    case Status::kRefused:
    case Status::kUnsupported: return status;
    default: return Status::kBroken;
  }
}

}  // namespace

Status PeerCache::import(const Reply& reply, const std::byte* blob, std::byte* key) noexcept {
  Registrar& local = channel_.domain().registrar();
  const uint32_t key_bytes = local.traits().key_bytes;
  std::memcpy(key + id_offset_, &reply.id, sizeof reply.id);
  if (local.traits().exports) return local.import_key(blob, reply.blob_len, key);
  if (reply.blob_len != key_bytes) {
    return fail(Status::kBadArg, "rank %u sent a key of %u bytes; keys have %u here", peer_,
                reply.blob_len, key_bytes);
  }
  if (key_bytes != 0) std::memcpy(key, blob, key_bytes);
  return Status::kOk;
}

void PeerCache::adopt_lease(uint64_t bytes, uint32_t number) noexcept {
  {
    MutexLock lock(mu_);
    if (lease_number_ != 0 && static_cast<int32_t>(number - lease_number_) <= 0) return;
    lease_number_ = number;
  }
  domain_->peer_regions().set_lease(bytes);
}

Status PeerCache::on_reply(const Reply& reply, const std::byte* blob,
                           const std::byte* answer) noexcept {
  RemoteRequest* request = nullptr;
  {
    MutexLock lock(mu_);
    request = requests_.moves.take(reply.number);
  }
  if (request == nullptr) {
    return fail(Status::kBadArg,
                "rank %u replied to move %llu, which was not sent or has completed", peer_,
                static_cast<unsigned long long>(reply.number));
  }
  Domain::PeerPin& asked = request->peer_pin;
  Domain::Grant grant;
  grant.range = {static_cast<uintptr_t>(reply.addr), static_cast<size_t>(reply.len)};
  grant.charge = reply.charge;
  grant.once = (reply.flags & kOnce) != 0;
  alignas(16) std::byte key[4096 + 16];
  grant.key = key;
  Status status = status_of(reply.status);
  if (status == Status::kOk) {
    if (!grant.range.valid() || !grant.range.covers(asked.least()) ||
        grant.range.last() > kHighestAddress || reply.charge == 0 ||
        reply.charge > std::max<uint64_t>(asked.charge(), grant.range.len)) {
      status =
          fail(Status::kBroken,
               "rank %u granted memory that was not requested: all ranks must run the same version "
               "of this library",
               peer_);
    } else {
      status = import(reply, blob, key);
    }
    if (status != Status::kOk) add_release(reply.id);
  } else {
    fail_at_peer(status, peer_, asked.least());
  }
  limit_.adopt(reply.most, (reply.flags & kMaxIsRegion) != 0);
  if (status == Status::kResource && is_too_large(asked.least()))
    status = limit_.fail(peer_, asked.least());
  const RegionSlot* slot = nullptr;
  status = domain_->peer_regions().end(asked, status, grant, &slot);
  adopt_lease(reply.lease, reply.lease_number);
  complete(request, status, slot, (reply.flags & kCalled) != 0, answer, reply.answer_len);
  bool waiting = false;
  {
    MutexLock lock(mu_);
    if (!is_gone_) --requests_.under_way;
    ++requests_.ended;
    waiting = !requests_.waiting.empty();
  }
  if (waiting) serve_waiting(false);
  return Status::kOk;
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
