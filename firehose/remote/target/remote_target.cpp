// Serves moves: admission by the peer's quota, the pin, the export, the client's function, the reply.
// Functions and replies that wait for poll() are in pending_replies.cpp.
#include "firehose/remote/target/remote_target.hpp"

#include "firehose/base/registrar.hpp"
#include "firehose/watch/mutant.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace hydrant {

using namespace remote_wire;

namespace {

constexpr size_t kMaxPendingRefusals = 65536;  // address space
constexpr size_t kMaxIdle = 16;  // firehoses released with a move, and unpinned for it

}  // namespace

Status RemoteTarget::set_up() noexcept HYDRANT_NO_TSA {
  const bool has_tables =
      exports_.set_up(config_.max_firehoses, config_.ranks) &&
      leases_.set_up(config_.budget_bytes, config_.ranks, config_.base_percent) &&
      notices_.map(config_.ranks) && pending_refusals_.map(kMaxPendingRefusals);
  if (!has_tables) return fail_no_tables(config_);
  const size_t granule = domain_.config().granule_bytes;
  if (config_.ranks > 1 && leases_.max_lease() < granule) {
    return fail(Status::kBadArg,
                "of a budget of %llu bytes, %u%% of it split between %u peers, none ever gets the "
                "%zu bytes that domain %s pins at least; raise budget_bytes "
                "(FIREHOSE_REMOTE_BUDGET), or lower base_percent (FIREHOSE_REMOTE_BASE)",
                static_cast<unsigned long long>(config_.budget_bytes), config_.base_percent,
                config_.ranks - 1, granule, domain_.config().name);
  }
  invalidations_seen_.store(domain_.exports().invalidation_log().count(),
                            std::memory_order_relaxed);
  shortages_seen_.store(domain_.exports().budget_shortages(), std::memory_order_relaxed);
  return Status::kOk;
}

uint64_t RemoteTarget::max_lease(bool* is_region) const noexcept {
  const DomainConfig& domain = domain_.config();
  const uint64_t lent = leases_.max_lease();
  // In page mode a long range is many buckets.
  *is_region = domain.mode != HYDRANT_MODE_PAGE && domain.max_region_bytes < lent;
  return *is_region ? domain.max_region_bytes : lent;
}

Status RemoteTarget::fail_too_large(uint32_t from, uint64_t len) const noexcept {
  bool is_region = false;
  const uint64_t most = max_lease(&is_region);
  return fail(Status::kResource, "rank %u asks for %llu bytes; %s %llu bytes: raise %s", from,
              static_cast<unsigned long long>(len),
              is_region ? "the largest region here has" : "a peer can never have more here than",
              static_cast<unsigned long long>(most),
              is_region ? "max_region_bytes or FIREHOSE_MAX_REGION_SIZE"
                        : "budget_bytes or FIREHOSE_REMOTE_BUDGET");
}

const RegionSlot* RemoteTarget::end_export(uint32_t from, uint64_t id, bool by_peer) noexcept {
  ExportTable::Export ended{};
  {
    MutexLock lock(exports_mu_);
    if (!(by_peer ? exports_.release(id, from, &ended) : exports_.drop(id, from, &ended)))
      return nullptr;  // an old id: dropped with its peer, or released twice; or a guessed one
    leases_.release(from, ended.charge);
  }
  (void)domain_.release(ended.slot);
  return ended.slot;
}

void RemoteTarget::release_exports(uint32_t from, const std::byte* ids, size_t n,
                                   uint64_t wanted) noexcept {
  const RegionSlot* idle[kMaxIdle];
  size_t idle_count = 0;
  for (size_t i = 0; i < n; ++i) {
    uint64_t id = 0;
    std::memcpy(&id, ids + i * sizeof id, sizeof id);
    if (id == kReclaimed) {
      MutexLock lock(exports_mu_);
      notices_[from].reclaiming = false;
      continue;
    }
    const RegionSlot* slot = end_export(from, id, true);
    if (slot != nullptr && idle_count < kMaxIdle) idle[idle_count++] = slot;
  }
  if (wanted != 0) domain_.exports().evict_if_short(idle, idle_count, wanted);
}

// Takes the charge out of the peer's lease: for the requested range, or for the required one.
Status RemoteTarget::admit(uint32_t from, const Move& move, MemoryRange* range) noexcept {
  MutexLock lock(exports_mu_);
  if (exports_.counts().zombie_bytes() >= config_.zombie_bytes &&
      exports_.counts().zombies() != 0) {
    return fail(
        Status::kNotReady,
        "%llu bytes that peers may still use are gone, the limit is %llu: nothing more is "
        "exported until they have given back; raise zombie_bytes or FIREHOSE_REMOTE_ZOMBIES",
        static_cast<unsigned long long>(exports_.counts().zombie_bytes()),
        static_cast<unsigned long long>(config_.zombie_bytes));
  }
  bool is_region = false;
  if (move.min_len > max_lease(&is_region)) return fail_too_large(from, move.min_len);
  const bool is_short = (move.flags & kShort) != 0;
  const bool wanted = leases_.admit(from, move.wanted_len, is_short);
  if (wanted) {
    *range = {static_cast<uintptr_t>(move.wanted_addr), static_cast<size_t>(move.wanted_len)};
  } else {
    *range = {static_cast<uintptr_t>(move.min_addr), static_cast<size_t>(move.min_len)};
    if (!leases_.admit(from, range->len, false)) {
      return fail(
          Status::kNotReady,
          "rank %u asks for [%#zx, +%zu), and has %llu of the %llu bytes that it may have here: it "
          "waits for its own releases; raise budget_bytes or FIREHOSE_REMOTE_BUDGET",
          from, static_cast<size_t>(range->addr), range->len,
          static_cast<unsigned long long>(leases_.held(from)),
          static_cast<unsigned long long>(leases_.terms(from).bytes));
    }
  }
  leases_.grant(from, range->len);
  if (leases_.has_change()) channel_.mark_any_pending();
  return Status::kOk;
}

// A firehose of uncached memory comes back some time after its use: the memory may have been released by
// then.
Status RemoteTarget::pin_for_peer(MemoryRange range, Access access, const RegionSlot** slot,
                                  Domain::ExportInfo* memory) noexcept {
  const Status status = domain_.pin(range, access, Domain::MissPolicy::kRegisterSparingly, slot);
  if (status != Status::kOk) return status;
  const bool described = domain_.exports().describe(*slot, range, memory);
  if (described && (memory->cached || !domain_.config().unpin_before_release)) return status;
  (void)domain_.release(*slot);
  if (!described) return Status::kNotReady;
  return fail(Status::kRefused,
              "[%#zx, +%zu) is pinned only while this process uses it, because registrar %s must "
              "unpin before memory goes away: vouch for it, or take it from libhydrant_alloc",
              static_cast<size_t>(range.addr), range.len, domain_.registrar().traits().name);
}

void RemoteTarget::serve(uint32_t from, const Move& asked, MoveResult* served) noexcept {
  const MemoryRange least{static_cast<uintptr_t>(asked.min_addr),
                          static_cast<size_t>(asked.min_len)};
  // The wider range is the peer's guess: no untouched page is populated for it. If memory must be unpinned
  // before its release, none is registered for the guess: an invalidation may just have reported that no pin
  // is left.
  const MemoryRange wanted{static_cast<uintptr_t>(asked.wanted_addr),
                           static_cast<size_t>(asked.wanted_len)};
  const MemoryRange usable = domain_.config().unpin_before_release
                                 ? least
                                 : domain_.exports().without_untouched(least, wanted);
  Move move = asked;
  move.wanted_addr = usable.addr;
  move.wanted_len = usable.len;
  MemoryRange range;
  served->status = admit(from, move, &range);
  if (served->status != Status::kOk) return;
  const auto access = static_cast<Access>(move.access);
  const uint64_t gone = domain_.exports().invalidation_log().count();
  const RegionSlot* slot = nullptr;
  uint64_t charge = range.len;
  // Neighbours that become one region are one registration for all peers, but peers that have the parts hold
  // them meanwhile: if room is short, merging would cost more than it saves.
  served->status = pin_for_peer(range, access, &slot, &served->memory);
  if (served->status != Status::kOk && range != least) {
    range = least;
    served->status = pin_for_peer(range, access, &slot, &served->memory);
  }
  const bool ok = served->status == Status::kOk;
  mutant_delay();  // pinned, and quiet() does not know of it yet
  {
    MutexLock lock(exports_mu_);
    if (!ok || charge != range.len) leases_.release(from, charge - (ok ? range.len : 0));
    charge = range.len;
    if (ok && !notices_[from].gone) {
      // Memory beyond the request is charged, too, or is not granted: otherwise a peer would hold memory
      // beyond its quota. Overlaps with other firehoses of the peer would count twice.
      size_t extra = served->memory.range.len - range.len;
      if (extra != 0 && leases_.fits(from, extra)) {
        served->memory.range = exports_.exclude_overlaps(from, range, served->memory.range);
        extra = served->memory.range.len - range.len;
      }
      if (!leases_.fits(from, extra)) {
        served->memory.range = range;
      } else if (extra != 0) {
        leases_.grant(from, extra);
        charge += extra;
      }
      served->id = exports_.add(slot, served->memory.range, charge, from, !served->memory.cached,
                                served->memory.checked);
      if (served->id != 0) exports_.withhold_until_reply(served->id);
    }
    if (ok && served->id == 0) leases_.release(from, charge);
  }
  if (ok && served->id == 0) {
    (void)domain_.release(slot);
    served->status =
        fail(Status::kNotReady,
             "peers have the %u firehoses that there may be here; raise max_firehoses or "
             "FIREHOSE_REMOTE_MAX",
             config_.max_firehoses);
  }
  if (served->id != 0 && !is_still_there(served->memory, gone)) {
    (void)end_export(from, served->id, false);
    served->id = 0;
    served->status = fail(
        Status::kNotReady,
        "[%#zx, +%zu), which rank %u requests, was released while it was being pinned: try again",
        static_cast<size_t>(least.addr), least.len, from);
  }
  served->charge = charge;
  if (!served->memory.cached) served->flags |= kOnce;
}

// Called once the export is counted. Memory that was released before is not granted: quiet() saw no export,
// and may have reported it as unused by peers. quiet() finds the exports of memory that is released later.
bool RemoteTarget::is_still_there(const Domain::ExportInfo& memory, uint64_t seen) noexcept {
  if (!domain_.exports().sync_invalidations(memory.checked)) return false;
  const uint64_t now = domain_.exports().invalidation_log().count();
  return now == seen || !domain_.exports().invalidation_log().overlaps(memory.range, seen, now);
}

void RemoteTarget::call_remote(uint32_t from, const Move& move, const MoveResult& served,
                               const std::byte* args, Message* answer) noexcept {
  const hydrant_region_t region{served.memory.range.addr, served.memory.range.len,
                                served.memory.key};
  const hydrant_range_t requested{static_cast<uintptr_t>(move.asked_addr),
                                  static_cast<size_t>(move.asked_len)};
  const size_t room = std::min(answer->room(), channel_.max_args());
  const size_t n =
      config_.remote(config_.user, from, served.status == Status::kOk ? &region : nullptr,
                     requested, args, move.args_len, answer->end(), room);
  answer->grow(std::min(n, room));
}

bool RemoteTarget::publish_export(uint32_t from, uint64_t id, Reply* reply) noexcept {
  ExportTable::Export ended{};
  {
    MutexLock lock(exports_mu_);
    const LeaseTable::Terms terms = leases_.terms(from);
    reply->lease = terms.bytes;
    reply->lease_number = terms.number;
    bool is_region = false;
    reply->most = max_lease(&is_region);
    if (is_region) reply->flags |= kMaxIsRegion;
    if (!exports_.publish(id, &ended)) return true;
    leases_.release(from, ended.charge);
  }
  (void)domain_.release(ended.slot);
  return false;
}

// Sends the result of a move. It cannot fail: a reply without room waits for poll().
void RemoteTarget::reply(uint32_t from, uint64_t number, MoveResult& served, const Message& said,
                         void* reply_to) noexcept {
  Message message;
  Reply reply{};
  reply.number = number;
  const Registrar& registrar = domain_.registrar();
  const RegistrarTraits& traits = registrar.traits();
  const size_t max_blob = traits.exports ? traits.export_bytes : traits.key_bytes;
  bool room = message.reserve(sizeof(Header) + sizeof reply + max_blob + said.size());
  message.add(header(Type::kReply));
  const size_t reply_at = message.size();
  message.add(reply);
  if (served.status == Status::kOk && room && served.memory.key != nullptr) {
    size_t len = max_blob;
    if (traits.exports) {
      served.status = domain_.registrar().export_key(served.memory.range, served.memory.key,
                                                     message.end(), &len);
    } else {
      std::memcpy(message.end(), served.memory.key, len);
    }
    if (served.status == Status::kOk) {
      message.grow(len);
      reply.blob_len = static_cast<uint32_t>(len);
    }
  }
  if (!room)
    served.status = fail(
        Status::kResource,
        "the system has no memory for a reply to rank %u: free memory, or raise ulimit -v", from);
  if (served.status != Status::kOk && served.id != 0) (void)end_export(from, served.id, false);
  if (served.status == Status::kOk) {
    reply.id = served.id;
    reply.addr = served.memory.range.addr;
    reply.len = served.memory.range.len;
    reply.charge = served.charge;
  }
  if (room) {
    reply.answer_len = static_cast<uint32_t>(said.size());
    message.add(said.data(), said.size());
  }
  reply.status = to_c(served.status);
  reply.flags = served.flags;
  if (!publish_export(from, reply.id, &reply)) return;
  std::memcpy(message.data() + reply_at, &reply, sizeof reply);
  counts_.served.fetch_add(1, std::memory_order_relaxed);
  if (served.status == Status::kNotReady) counts_.declined.fetch_add(1, std::memory_order_relaxed);
  const Status sent = channel_.send(
      from, reply_to != nullptr ? HYDRANT_LANE_REPLY : HYDRANT_LANE_REQUEST, reply_to, message);
  if (sent != Status::kNotReady) return;
  auto* later = new (std::nothrow) PendingReply;
  if (later != nullptr && later->message.reserve(message.size())) {
    later->to = from;
    later->message.add(message.data(), message.size());
    MutexLock lock(exports_mu_);
    *replies_tail_ = later;
    replies_tail_ = &later->next;
  } else {
    delete later;
    if (served.status == Status::kOk) (void)end_export(from, served.id, false);
    MutexLock lock(exports_mu_);
    if (pending_refusal_count_ < pending_refusals_.size())
      pending_refusals_[pending_refusal_count_++] = {number, from, Status::kResource};
  }
  channel_.mark_pending(from);
}

Status RemoteTarget::on_move(uint32_t from, const Header& header, MessageReader reader,
                             void* reply_to) noexcept {
  Move move{};
  const std::byte* ids = nullptr;
  const std::byte* args = nullptr;
  if (!reader.take(&move) || header.count > reader.left() / sizeof(uint64_t) ||
      (ids = reader.take(header.count * sizeof(uint64_t))) == nullptr ||
      (args = reader.take(move.args_len)) == nullptr || reader.left() != 0) {
    return fail(Status::kBadArg,
                "a remote-pin request of rank %u is cut short, or too long: hand over what its "
                "messenger was given",
                from);
  }
  const MemoryRange least{static_cast<uintptr_t>(move.min_addr), static_cast<size_t>(move.min_len)};
  const MemoryRange wanted{static_cast<uintptr_t>(move.wanted_addr),
                           static_cast<size_t>(move.wanted_len)};
  const MemoryRange asked{static_cast<uintptr_t>(move.asked_addr),
                          static_cast<size_t>(move.asked_len)};
  if (move.access > bits(Access::kAll) || !asked.valid() || !least.valid() || !wanted.valid() ||
      !least.covers(asked) || !wanted.covers(least)) {
    return fail(Status::kBadArg,
                "a remote-pin request of rank %u has no valid range, or unknown rights: hand over "
                "what its messenger was given",
                from);
  }
  release_exports(from, ids, header.count, move.wanted_len);
  MoveResult served;
  serve(from, move, &served);
  const bool call = config_.remote != nullptr && (move.flags & kCall) != 0 &&
                    (served.status == Status::kOk || (move.flags & kCallAnyway) != 0);
  Message said;
  if (call && (config_.flags & HYDRANT_REMOTE_INLINE_REMOTE) == 0) {
    auto* later = new (std::nothrow) DeferredMove;
    if (later != nullptr && later->args.reserve(move.args_len)) {
      later->from = from;
      later->move = move;
      later->served = served;
      later->args.add(args, move.args_len);
      {
        MutexLock lock(exports_mu_);
        *deferred_tail_ = later;
        deferred_tail_ = &later->next;
      }
      channel_.mark_pending(from);
      return Status::kOk;
    }
    delete later;
    if (served.id != 0) (void)end_export(from, served.id, false);
    served.id = 0;
    served.status = fail(
        Status::kResource,
        "the system has no memory for a request of rank %u: free memory, or raise ulimit -v", from);
  } else if (call) {
    (void)said.reserve(channel_.max_args());
    served.flags |= kCalled;
    call_remote(from, move, served, args, &said);
  }
  reply(from, move.number, served, said, reply_to);
  return Status::kOk;
}

}  // namespace hydrant
