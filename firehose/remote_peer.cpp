#include "firehose/remote_peer.hpp"

#include "firehose/base/log.hpp"
#include "firehose/domain_registry.hpp"
#include "firehose/pin_handle.hpp"
#include "firehose/remote_pins.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace hydrant {

using namespace remote_wire;

namespace {

constexpr uint32_t kMostUnderWay = 64;  // moves to one peer
constexpr size_t kRideAlong = 8;        // ids that a move takes with it
// Beside what is listed: ids that senders have taken, and may put back.
constexpr size_t kMostInTransit = 4096;
// Before the peer has said what it lends: it knows.
constexpr uint64_t kUnknownLease = uint64_t{1} << 46;
constexpr uint64_t kDrainEveryNs = 20'000;

// Of a grant: gates hold the end of a region, and granules are rounded to.
constexpr uintptr_t kHighestAddress = UINTPTR_MAX / 2;

// What peers may say; the rest is no answer.
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

constexpr size_t align_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

// What stands where a registrar would: nothing is registered here, and what is unpinned is given back.
class RemotePeer::Asker final : public Registrar {
 public:
  explicit Asker(RemotePeer& peer) noexcept : peer_(peer) {
    const RegistrarTraits& local = peer.end_.domain().registrar().traits();
    traits_.name = "remote";
    traits_.key_bytes = static_cast<uint32_t>(peer.id_offset_ + sizeof(uint64_t));
    traits_.granule_bytes = local.granule_bytes;
    traits_.max_region_bytes = peer.end_.config().max_region_bytes;
    traits_.max_regions = peer.end_.config().max_peer_regions;
    traits_.asynchronous = true;
  }

  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange, Access, std::byte*) noexcept override {
    return fail_plainly(Status::kNotReady, "memory of a peer is asked for, not registered");
  }
  UnpinResult unpin(MemoryRange, const std::byte* key) noexcept override {
    peer_.end_.domain().registrar().drop_import(key);
    uint64_t id = 0;
    std::memcpy(&id, key + peer_.id_offset_, sizeof id);
    peer_.add_release(id);
    return UnpinResult::kDone;
  }

 private:
  RemotePeer& peer_;
  RegistrarTraits traits_;
};

Status RemotePeer::create(RemotePins& end, uint32_t peer,
                          std::unique_ptr<RemotePeer>* out) noexcept {
  // A place first: where there is none, each pin of such a peer comes here, and shall cost nothing but that.
  const uint64_t handle = claim_domain_handle(DomainOf::kPeer);
  if (handle == 0) {
    return fail(Status::kResource,
                "this process has caches of the memory of %u peers already, in all its ends: that "
                "is the limit; reach rank %u by messages",
                kMaxDomains - kMaxClientDomains, peer);
  }
  out->reset(new (std::nothrow) RemotePeer(end, peer));
  const Status status = *out != nullptr ? (*out)->make_domain(handle)
                                        : fail(Status::kResource, "no memory for a peer");
  if (status != Status::kOk) {
    out->reset();
    abandon_domain_handle(handle);
  }
  return status;
}

Status RemotePeer::make_domain(uint64_t handle) noexcept HYDRANT_NO_TSA {
  const RemoteConfig& config = end_.config();
  const DomainConfig& local = end_.domain().config();
  id_offset_ = align_up(end_.domain().registrar().traits().key_bytes, sizeof(uint64_t));
  DomainConfig mine;
  (void)snprintf(mine.name, sizeof mine.name, "%.20s.%u", config.name, peer_);
  mine.mode = HYDRANT_MODE_REGION;
  mine.watch = HYDRANT_WATCH_CLIENT;
  mine.distant = true;
  mine.budget_bytes = kUnknownLease;
  mine.max_regions = config.max_peer_regions;
  mine.max_region_bytes = config.max_region_bytes;
  mine.granule_bytes = local.granule_bytes;
  mine.merge_bytes = config.merge_bytes;
  mine.stream_bytes = config.stream_bytes <= 1 ? 0 : config.stream_bytes;
  mine.thread_table_bytes = local.thread_table_bytes;
  mine.wait_warn_ns = local.wait_warn_ns;
  const uint32_t slots = Domain::slots_for(mine.max_regions);
  std::unique_ptr<Registrar> asker(new (std::nothrow) Asker(*this));
  std::unique_ptr<ClockPolicy> policy(new (std::nothrow) ClockPolicy);
  if (asker == nullptr || policy == nullptr || !policy->map(slots) ||
      !releases_.map(size_t{2} * slots + kMostInTransit)) {
    return fail(Status::kResource, "no memory for the cache of a peer's memory");
  }
  std::unique_ptr<Domain> domain(new (std::nothrow)
                                     Domain(mine, std::move(asker), std::move(policy), handle));
  Status status =
      domain != nullptr ? domain->set_up() : fail(Status::kResource, "no memory for a domain");
  if (status != Status::kOk) return status;
  domain_ = domain.get();
  handle_ = handle;
  announce_domain(*domain);
  publish_domain(std::move(domain));
  return Status::kOk;
}

RemotePeer::~RemotePeer() {
  if (domain_ == nullptr) return;
  std::unique_ptr<Domain> domain(withdraw_domain(handle_));
  if (domain == nullptr) return;
  domain->shut_down(true);
  forget_domain(std::move(domain));
}

// ---- requests -----------------------------------------------------------------------------------------

Status RemotePeer::pin(MemoryRange range, Access access, const hydrant_remote_call_t& call,
                       const RegionSlot** slot) noexcept {
  uint64_t ended = 0;
  {
    MutexLock lock(mu_);
    if (is_gone_) return fail(Status::kBroken, "rank %u is gone", peer_);
    if (under_way_ >= kMostUnderWay || release_count_ > releases_.size() / 2) {
      return fail_plainly(Status::kNotReady, "too many moves to this peer are under way");
    }
    ended = ended_;
  }
  auto* request = new (std::nothrow) RemoteRequest;
  if (request == nullptr) return fail(Status::kResource, "no memory for a request");
  request->range = range;
  request->access = access;
  request->done = call.done;
  request->context = call.context;
  const Status status = domain_->begin_distant(range, access, &request->distant, slot);
  if (request->distant.begun()) {
    *slot = nullptr;
    return start(request, call);
  }
  if (!request->distant.joins()) {
    if (status == Status::kNotReady) {
      // Everything that may be had of the peer is held: perhaps it lends more.
      MutexLock lock(mu_);
      ask_bytes_ = std::max<uint64_t>(ask_bytes_, range.len);
      end_.note_due(peer_);
    }
    delete request;
    return status;
  }
  *slot = nullptr;
  bool missed = false;
  {
    MutexLock lock(mu_);
    if (!is_gone_) waiting_.push(std::exchange(request, nullptr));
    missed = ended_ != ended;
  }
  if (request != nullptr) {
    delete request;
    return fail(Status::kBroken, "rank %u is gone", peer_);
  }
  counts_.joins.fetch_add(1, std::memory_order_relaxed);
  if (missed) serve_waiting(true);
  return Status::kOk;
}

size_t RemotePeer::write_args(RemoteRequest& request, const hydrant_remote_call_t& call) noexcept {
  if (call.make_args != nullptr) {
    const size_t n = call.make_args(call.context, request.message.end(), end_.max_args());
    request.message.grow(std::min(n, end_.max_args()));
    return std::min(n, end_.max_args());
  }
  request.message.add(call.args, call.args_len);
  return call.args_len;
}

// Writes the move of a registration that was begun, and sends it. The request is gone afterwards, or answered
// later.
Status RemotePeer::start(RemoteRequest* request, const hydrant_remote_call_t& call) noexcept {
  const size_t args = call.make_args != nullptr ? end_.max_args() : call.args_len;
  Message& message = request->message;
  uint64_t ids[kRideAlong];
  if (!message.reserve(sizeof(Header) + sizeof(Move) + sizeof ids + args)) {
    const RegionSlot* none = nullptr;
    const Status status = fail(Status::kResource, "no memory for a move with %zu bytes", args);
    (void)domain_->end_distant(request->distant, status, {}, &none);
    delete request;
    note_ended();
    return status;
  }
  const size_t n = take_releases(ids, kRideAlong);
  const Domain::Distant& asked = request->distant;
  Move move{};
  move.asked_addr = request->range.addr;
  move.asked_len = request->range.len;
  move.least_addr = asked.least().addr;
  move.least_len = asked.least().len;
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
    move.number = request->number = next_number_++;
    ++under_way_;
  }
  std::memcpy(message.data() + move_at, &move, sizeof move);
  counts_.moves.fetch_add(1, std::memory_order_relaxed);
  return send_move(request);
}

// The reply may come, or the peer be said to be gone, before send() returns: the request is answered then,
// but its message is there.
Status RemotePeer::send_move(RemoteRequest* request) noexcept {
  const uint64_t number = request->number;
  bool is_gone = false;
  {
    MutexLock lock(mu_);
    is_gone = is_gone_;  // give_up() was here, and does not come again
    if (!is_gone) {
      request->users.store(2, std::memory_order_relaxed);
      moves_.push(request);
    }
  }
  const Status status = is_gone ? fail(Status::kBroken, "rank %u is gone", peer_)
                                : end_.send(peer_, HYDRANT_LANE_REQUEST, nullptr, request->message);
  if (!is_gone) {
    if (status == Status::kOk) {
      request->drop();
      return status;
    }
    MutexLock lock(mu_);
    if (moves_.take(number) == nullptr) {
      request->drop();
      return Status::kOk;  // answered by give_up()
    }
    request->users.store(1, std::memory_order_relaxed);
    if (status == Status::kNotReady) {
      unsent_.push_front(request);
    } else {
      --under_way_;
    }
  }
  if (status == Status::kNotReady) {
    end_.note_due(peer_);
    return Status::kOk;
  }
  const RegionSlot* none = nullptr;
  (void)domain_->end_distant(request->distant, status, {}, &none);
  delete request;
  note_ended();
  return status;
}

// A move has come to nothing: those that wait for it have to ask by themselves.
void RemotePeer::note_ended() noexcept {
  {
    MutexLock lock(mu_);
    ++ended_;
    if (waiting_.empty()) return;
  }
  end_.note_due(peer_);
}

// Callbacks run here or wait for poll(). `answer` need not outlive the call.
void RemotePeer::complete(RemoteRequest* request, Status status, const RegionSlot* slot,
                          bool called, const std::byte* answer, size_t answer_len) noexcept {
  request->outcome.called = called ? 1 : 0;
  request->outcome.status = to_c(status);
  request->pin = status == Status::kOk ? make_pin(*domain_, slot) : failed_pin(status);
  if (request->done == nullptr) {
    if (status == Status::kOk) (void)hydrant_remote_release(request->pin);
    request->drop();
    return;
  }
  end_.finish(request, answer, answer_len);
}

// A request that has waited becomes a move of its own. Its callback hears of a failure: nobody else does.
void RemotePeer::start_waiting(RemoteRequest* request) noexcept {
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

// Requests that wait for somebody else's move: most are hits by now. Only outside of delivery may others
// become moves of their own; their arguments were theirs if they had made a move at once.
void RemotePeer::serve_waiting(bool may_send) noexcept {
  RemoteRequest* list = nullptr;
  uint64_t ended = 0;
  {
    MutexLock lock(mu_);
    list = waiting_.take_all();
    ended = ended_;
  }
  RemoteRequestList again;
  while (list != nullptr) {
    RemoteRequest* request = list;
    list = request->next;
    const RegionSlot* slot = nullptr;
    Status status = Status::kOk;
    if (may_send) {
      status = domain_->begin_distant(request->range, request->access, &request->distant, &slot);
      if (request->distant.begun()) {
        start_waiting(request);
        continue;
      }
    } else {
      status = domain_->pin(request->range, request->access, Domain::Effort::kHitOnly, &slot);
    }
    if (status == Status::kNotReady && (!may_send || request->distant.joins())) {
      again.push(request);
      continue;
    }
    complete(request, status, slot, false, nullptr, 0);
  }
  if (again.empty()) return;
  bool missed = false;
  {
    MutexLock lock(mu_);
    while (!is_gone_ && !again.empty()) waiting_.push(again.pop());
    missed = !may_send || ended_ != ended;
  }
  while (RemoteRequest* request = again.pop())
    complete(request, Status::kBroken, nullptr, false, nullptr, 0);
  if (missed) end_.note_due(peer_);
}

// ---- what the peer says -------------------------------------------------------------------------------

Status RemotePeer::import(const Reply& reply, const std::byte* blob, std::byte* key) noexcept {
  Registrar& local = end_.domain().registrar();
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

void RemotePeer::adopt_lease(uint64_t bytes, uint32_t number) noexcept {
  {
    MutexLock lock(mu_);
    if (lease_number_ != 0 && static_cast<int32_t>(number - lease_number_) <= 0) return;
    lease_number_ = number;
  }
  domain_->set_lease(bytes);
}

Status RemotePeer::on_reply(const Reply& reply, const std::byte* blob,
                            const std::byte* answer) noexcept {
  RemoteRequest* request = nullptr;
  {
    MutexLock lock(mu_);
    request = moves_.take(reply.number);
  }
  if (request == nullptr) {
    return fail(Status::kBadArg, "rank %u answers move %llu, which was not asked or is answered",
                peer_, static_cast<unsigned long long>(reply.number));
  }
  Domain::Distant& asked = request->distant;
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
      status = fail(Status::kBroken, "rank %u granted what was not asked for", peer_);
    } else {
      status = import(reply, blob, key);
    }
    if (status != Status::kOk) add_release(reply.id);
  } else {
    (void)fail(status, "rank %u cannot have [%#zx, +%zu) pinned%s: %s", peer_,
               static_cast<size_t>(asked.least().addr), asked.least().len,
               status == Status::kNotReady ? " now" : "", status_description(status));
  }
  const RegionSlot* slot = nullptr;
  status = domain_->end_distant(asked, status, grant, &slot);
  adopt_lease(reply.lease, reply.lease_number);
  complete(request, status, slot, (reply.flags & kCalled) != 0, answer, reply.answer_len);
  bool waiting = false;
  {
    MutexLock lock(mu_);
    if (!is_gone_) --under_way_;
    ++ended_;
    waiting = !waiting_.empty();
  }
  if (waiting) serve_waiting(false);
  return Status::kOk;
}

// ---- progress -----------------------------------------------------------------------------------------

int RemotePeer::work() noexcept {
  int did = 0;
  for (;;) {
    RemoteRequest* request = nullptr;
    {
      MutexLock lock(mu_);
      request = unsent_.pop();
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
    // Back at the front: there is still no room.
    if (unsent_.is_first(number)) break;
  }
  bool waiting = false;
  bool urgent = false;
  uint64_t ask = 0;
  {
    MutexLock lock(mu_);
    waiting = !waiting_.empty();
    ask = std::exchange(ask_bytes_, 0);
  }
  if (waiting) serve_waiting(true);
  if (recalling_.load(std::memory_order_relaxed)) {
    const uint64_t now = now_ns();
    if (now - drained_at_.load(std::memory_order_relaxed) >= kDrainEveryNs) {
      drained_at_.store(now, std::memory_order_relaxed);
      end_recalls();
    }
    if (recalling_.load(std::memory_order_relaxed)) end_.note_due(peer_);
  }
  {
    MutexLock lock(mu_);
    urgent = urgent_ || release_count_ >= kWorthAMessage;
  }
  while (urgent && send_releases(HYDRANT_LANE_REQUEST, nullptr)) ++did;
  if (ask != 0) {
    Message message;
    message.add(header(Type::kAsk));
    message.add(Amount{ask});
    (void)end_.send(peer_, HYDRANT_LANE_REQUEST, nullptr, message);  // the next shortage asks again
    ++did;
  }
  return did;
}

void RemotePeer::give_up(Status why) noexcept {
  RemoteRequest* lists[3] = {};
  {
    MutexLock lock(mu_);
    is_gone_ = true;
    lists[0] = moves_.take_all();
    lists[1] = unsent_.take_all();
    lists[2] = waiting_.take_all();
    release_count_ = 0;
    urgent_ = reclaiming_ = false;
    under_way_ = 0;
    ++ended_;
  }
  for (RemoteRequest* list : lists) {
    while (list != nullptr) {
      RemoteRequest* request = list;
      list = request->next;
      const RegionSlot* none = nullptr;
      if (request->distant.begun()) (void)domain_->end_distant(request->distant, why, {}, &none);
      complete(request, why, nullptr, false, nullptr, 0);
    }
  }
  (void)domain_->invalidate({0, SIZE_MAX});
}

}  // namespace hydrant
