// Requests memory of a peer and takes its replies: PeerCache::pin() is step 4 of "Tour: a put", on_reply()
// step 7. What waits for poll() is in peer_polls.cpp.
#include "firehose/remote/initiator/peer_cache.hpp"

#include "firehose/pin/failure_texts.hpp"
#include "firehose/pin/pin_handle.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace hydrant {

using namespace remote_wire;

namespace {

constexpr uint32_t kMaxUnderWay = 64;  // moves to one peer
constexpr size_t kRideAlong = 8;       // ids that a move takes with it

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

Status PeerCache::begin(RemoteRequest& request, const RegionSlot** slot) noexcept {
  if (is_too_large(request.range)) [[unlikely]]
    return limit_.fail(peer_, request.range);
  return domain_->peer_regions().begin(request.range, request.access, &request.peer_pin, slot);
}

Status PeerCache::pin(MemoryRange range, Access access, const hydrant_remote_call_t& call,
                      const RegionSlot** slot) noexcept {
  uint64_t ended = 0;
  {
    MutexLock lock(mu_);
    if (is_gone_) return fail_rank_exited(peer_);
    if (requests_.under_way >= kMaxUnderWay || released_.is_half_full()) {
      return fail(Status::kNotReady,
                  "rank %u cannot be asked for [%#zx, +%zu) now: %u requests to it may be under "
                  "way: call hydrant_remote_poll(), and try again",
                  peer_, static_cast<size_t>(range.addr), range.len, kMaxUnderWay);
    }
    ended = requests_.ended;
  }
  auto* request = new (std::nothrow) RemoteRequest;
  if (request == nullptr)
    return fail_no_memory(domain_->config().name, range, "a request to a peer");
  request->range = range;
  request->access = access;
  request->done = call.done;
  request->context = call.context;
  const Status status = begin(*request, slot);
  if (request->peer_pin.is_open()) {
    *slot = nullptr;
    return start(request, call);
  }
  if (!request->peer_pin.joins()) {
    if (status == Status::kNotReady) {
      // The whole lease at the peer is held: it may lend more.
      MutexLock lock(mu_);
      request_bytes_ = std::max<uint64_t>(request_bytes_, range.len);
      channel_.mark_pending(peer_);
    }
    delete request;
    return status;
  }
  *slot = nullptr;
  bool missed = false;
  {
    MutexLock lock(mu_);
    if (!is_gone_) requests_.waiting.push(std::exchange(request, nullptr));
    missed = requests_.ended != ended;
  }
  if (request != nullptr) {
    delete request;
    return fail_rank_exited(peer_);
  }
  counts_.joins.fetch_add(1, std::memory_order_relaxed);
  if (missed) serve_waiting(true);
  return Status::kOk;
}

size_t PeerCache::write_args(RemoteRequest& request, const hydrant_remote_call_t& call) noexcept {
  if (call.make_args != nullptr) {
    const size_t n = call.make_args(call.context, request.message.end(), channel_.max_args());
    request.message.grow(std::min(n, channel_.max_args()));
    return std::min(n, channel_.max_args());
  }
  request.message.add(call.args, call.args_len);
  return call.args_len;
}

// Writes the move of a registration that was begun, and sends it. The request is freed afterwards, or
// completes later.
Status PeerCache::start(RemoteRequest* request, const hydrant_remote_call_t& call) noexcept {
  const size_t args = call.make_args != nullptr ? channel_.max_args() : call.args_len;
  Message& message = request->message;
  uint64_t ids[kRideAlong];
  if (!message.reserve(sizeof(Header) + sizeof(Move) + sizeof ids + args)) {
    const RegionSlot* none = nullptr;
    const Status status =
        fail_no_memory(domain_->config().name, request->range, "a message to a peer");
    (void)domain_->peer_regions().end(request->peer_pin, status, {}, &none);
    delete request;
    note_ended();
    return status;
  }
  size_t n = 0;
  {
    MutexLock lock(mu_);
    n = released_.take(ids, kRideAlong);
  }
  const Domain::PeerPin& asked = request->peer_pin;
  Move move{};
  move.asked_addr = request->range.addr;
  move.asked_len = request->range.len;
  move.min_addr = asked.least().addr;
  move.min_len = asked.least().len;
  move.wanted_addr = asked.wanted().addr;
  move.wanted_len = asked.wanted().len;
  move.access = bits(asked.access());
  if ((call.flags & HYDRANT_REMOTE_CALL) != 0) move.flags |= kCall;
  if ((call.flags & HYDRANT_REMOTE_CALL_ANYWAY) != 0) move.flags |= kCall | kCallAnyway;
  if (asked.evicted()) move.flags |= kShort;
  message.add(header(Type::kMove, n));
  const size_t move_at = message.size();
  message.add(move);
  message.add(ids, n * sizeof *ids);
  move.args_len = static_cast<uint32_t>(write_args(*request, call));
  {
    MutexLock lock(mu_);
    move.number = request->number = requests_.next_number++;
    ++requests_.under_way;
  }
  std::memcpy(message.data() + move_at, &move, sizeof move);
  counts_.moves.fetch_add(1, std::memory_order_relaxed);
  return send_move(request);
}

// The reply may come, or the peer's exit be reported, before send() returns: the request completes then, but
// its message stays.
Status PeerCache::send_move(RemoteRequest* request) noexcept {
  const uint64_t number = request->number;
  bool is_gone = false;
  {
    MutexLock lock(mu_);
    is_gone = is_gone_;  // fail_all() has run, and does not run again
    if (!is_gone) {
      request->users.store(2, std::memory_order_relaxed);
      requests_.moves.push(request);
    }
  }
  const Status status = is_gone
                            ? fail_rank_exited(peer_)
                            : channel_.send(peer_, HYDRANT_LANE_REQUEST, nullptr, request->message);
  if (!is_gone) {
    if (status == Status::kOk) {
      request->drop();
      return status;
    }
    MutexLock lock(mu_);
    if (requests_.moves.take(number) == nullptr) {
      request->drop();
      return Status::kOk;  // completed by fail_all()
    }
    request->users.store(1, std::memory_order_relaxed);
    if (status == Status::kNotReady) {
      requests_.unsent.push_front(request);
    } else {
      --requests_.under_way;
    }
  }
  if (status == Status::kNotReady) {
    channel_.mark_pending(peer_);
    return Status::kOk;
  }
  const RegionSlot* none = nullptr;
  (void)domain_->peer_regions().end(request->peer_pin, status, {}, &none);
  delete request;
  note_ended();
  return status;
}

// Notes that a move failed: the requests that wait for it have to send their own.
void PeerCache::note_ended() noexcept {
  {
    MutexLock lock(mu_);
    ++requests_.ended;
    if (requests_.waiting.empty()) return;
  }
  channel_.mark_pending(peer_);
}

// Callbacks run here or wait for poll(). `answer` need not outlive the call.
void PeerCache::complete(RemoteRequest* request, Status status, const RegionSlot* slot, bool called,
                         const std::byte* answer, size_t answer_len) noexcept {
  request->outcome.called = called ? 1 : 0;
  request->outcome.status = to_c(status);
  request->pin = status == Status::kOk ? make_pin(slot) : failed_pin(status);
  if (request->done == nullptr) {
    if (status == Status::kOk) (void)hydrant_remote_release(request->pin);
    request->drop();
    return;
  }
  if ((channel_.config().flags & HYDRANT_REMOTE_INLINE_DONE) == 0)
    return completions_.keep(request, answer, answer_len);
  request->outcome.answer = answer;
  request->outcome.answer_len = answer_len;
  request->done(request->context, request->pin, &request->outcome);
  request->drop();
}

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

}  // namespace hydrant
