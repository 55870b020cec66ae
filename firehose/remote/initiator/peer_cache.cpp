// Sends requests to a peer: caches pins of its memory, builds moves, and keeps the requests that wait for
// another's move. PeerCache::pin() is step 2 of "Tour: a remote miss".
#include "firehose/remote/initiator/peer_cache.hpp"

#include "firehose/base/log.hpp"
#include "firehose/cache/domain_registry.hpp"
#include "firehose/pin/failure_texts.hpp"
#include "firehose/pin/pin_handle.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

namespace hydrant {

using namespace remote_wire;

namespace {

constexpr uint32_t kMaxUnderWay = 64;  // moves to one peer
constexpr size_t kRideAlong = 8;       // ids that a move takes with it
// Room for ids that senders have taken, and may put back, beside the listed ones.
constexpr size_t kMaxInTransit = 4096;
// The lease before the peer has sent one: the peer decides.
constexpr uint64_t kUnknownLease = uint64_t{1} << 46;

constexpr size_t align_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

// The domain's registrar: registers no memory, and returns unpinned firehoses to the peer.
class PeerCache::RemoteRegistrar final : public Registrar {
 public:
  explicit RemoteRegistrar(PeerCache& peer) noexcept : peer_(peer) {
    const RegistrarTraits& local = peer.channel_.domain().registrar().traits();
    traits_.name = "remote";
    traits_.key_bytes = static_cast<uint32_t>(peer.id_offset_ + sizeof(uint64_t));
    traits_.granule_bytes = local.granule_bytes;
    traits_.max_region_bytes = peer.channel_.config().max_region_bytes;
    traits_.max_regions = peer.channel_.config().max_peer_regions;
    traits_.asynchronous = true;
  }

  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange, Access, std::byte*) noexcept override {
    return fail_literal(Status::kNotReady,
                        "memory of a peer is requested from the peer, not registered");
  }
  UnpinResult unpin(MemoryRange, const std::byte* key) noexcept override {
    peer_.channel_.domain().registrar().drop_import(key);
    uint64_t id = 0;
    std::memcpy(&id, key + peer_.id_offset_, sizeof id);
    peer_.add_release(id);
    return UnpinResult::kDone;
  }

 private:
  PeerCache& peer_;
  RegistrarTraits traits_;
};

Status PeerCache::create(RemoteChannel& channel, RemoteCompletions& completions, uint32_t peer,
                         std::unique_ptr<PeerCache>* out) noexcept {
  // Claims the place first: if there is none, each pin of such a peer comes here, and must cost no more than
  // that.
  const uint64_t handle = claim_domain_handle(DomainOwner::kPeer);
  if (handle == 0) {
    return fail(Status::kResource,
                "this process has caches of the memory of %u peers already, in all its ends: that "
                "is the limit; reach rank %u by messages",
                kMaxDomains - kMaxClientDomains, peer);
  }
  out->reset(new (std::nothrow) PeerCache(channel, completions, peer));
  const Status status = *out != nullptr ? (*out)->make_domain(handle)
                                        : fail(Status::kResource,
                                               "the system has no memory for the cache of rank %u: "
                                               "free memory, or raise ulimit -v",
                                               peer);
  if (status != Status::kOk) {
    out->reset();
    abandon_domain_handle(handle);
  }
  return status;
}

Status PeerCache::make_domain(uint64_t handle) noexcept HYDRANT_NO_TSA {
  const RemoteConfig& config = channel_.config();
  const DomainConfig& local = channel_.domain().config();
  id_offset_ = align_up(channel_.domain().registrar().traits().key_bytes, sizeof(uint64_t));
  DomainConfig mine;
  (void)snprintf(mine.name, sizeof mine.name, "%.20s.%u", config.name, peer_);
  mine.mode = HYDRANT_MODE_REGION;
  mine.watch = HYDRANT_WATCH_CLIENT;
  mine.is_remote = true;
  mine.budget_bytes = kUnknownLease;
  mine.max_regions = config.max_peer_regions;
  mine.max_region_bytes = config.max_region_bytes;
  mine.granule_bytes = local.granule_bytes;
  mine.merge_bytes = config.merge_bytes;
  mine.stream_bytes = config.stream_bytes <= 1 ? 0 : config.stream_bytes;
  mine.thread_table_bytes = local.thread_table_bytes;
  mine.wait_warn_ns = local.wait_warn_ns;
  const uint32_t slots = Domain::slots_for(mine.max_regions);
  std::unique_ptr<Registrar> requester(new (std::nothrow) RemoteRegistrar(*this));
  CachePolicies policies;
  if (requester == nullptr || !policies.complete(requester->traits(), slots) ||
      !released_.map(size_t{2} * slots + kMaxInTransit)) {
    return fail(
        Status::kResource,
        "the system has no memory for the cache of rank %u: free memory, or raise ulimit -v",
        peer_);
  }
  std::unique_ptr<Domain> domain(
      new (std::nothrow) Domain(mine, std::move(requester), std::move(policies), handle));
  Status status = domain != nullptr ? domain->set_up()
                                    : fail(Status::kResource,
                                           "the system has no memory for the cache of rank %u: "
                                           "free memory, or raise ulimit -v",
                                           peer_);
  if (status != Status::kOk) return status;
  domain_ = domain.get();
  handle_ = handle;
  add_to_fork_list(*domain);
  publish_domain(std::move(domain));
  return Status::kOk;
}

PeerCache::~PeerCache() {
  if (domain_ == nullptr) return;
  std::unique_ptr<Domain> domain(withdraw_domain(handle_));
  if (domain == nullptr) return;
  domain->shut_down(true);
  forget_domain(std::move(domain));
}

// ---- requests -----------------------------------------------------------------------------------------

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

}  // namespace hydrant
