// One end as a target: serving moves, telling peers what is gone, asking for room.
#include "firehose/base/log.hpp"
#include "firehose/remote_pins.hpp"
#include "firehose/watch/mutant.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace hydrant {

using namespace remote_wire;

namespace {

constexpr size_t kMostRecalls = 16;  // of a message: fits the shortest
constexpr size_t kMostIdle = 16;     // given back with a move, and dropped for it
constexpr uint64_t kLeastReclaim = 64u << 10;
// Who leaves so many shortages without an answer is busy elsewhere: others are asked.
constexpr uint64_t kPatience = 64;

}  // namespace

// What a move got.
struct RemotePins::Served {
  Status status = Status::kOk;
  uint64_t id = 0;
  Domain::Exported memory;
  uint64_t charge = 0;
  uint32_t flags = 0;
};

// A move whose function waits for poll(). Behind it lie the arguments.
struct RemotePins::Deferred {
  Deferred* next = nullptr;
  uint32_t from = 0;
  Move move{};
  Served served;
  Message args;
};

// A reply that the messenger had no room for.
struct RemotePins::Answer {
  Answer* next = nullptr;
  uint32_t to = 0;
  Message message;
};

// ---- moves --------------------------------------------------------------------------------------------

const RegionSlot* RemotePins::end_export(uint32_t from, uint64_t id, bool by_peer) noexcept {
  RemoteExports::Export ended{};
  {
    MutexLock lock(exports_mu_);
    if (!(by_peer ? exports_.release(id, from, &ended) : exports_.drop(id, from, &ended)))
      return nullptr;  // an old one: it was dropped with its peer, or twice; or a guess
    leases_.give_back(from, ended.charge);
  }
  (void)domain_.release(ended.slot);
  return ended.slot;
}

void RemotePins::give_back(uint32_t from, const std::byte* ids, size_t n,
                           uint64_t wanted) noexcept {
  const RegionSlot* idle[kMostIdle];
  size_t idle_count = 0;
  for (size_t i = 0; i < n; ++i) {
    uint64_t id = 0;
    std::memcpy(&id, ids + i * sizeof id, sizeof id);
    if (id == kReclaimed) {
      MutexLock lock(exports_mu_);
      dues_[from].reclaiming = false;
      continue;
    }
    const RegionSlot* slot = end_export(from, id, true);
    if (slot != nullptr && idle_count < kMostIdle) idle[idle_count++] = slot;
  }
  if (wanted != 0) domain_.drop_idle(idle, idle_count, wanted);
}

// Takes what it will cost out of the peer's lease: for all that would be welcome, or for what is needed.
Status RemotePins::admit(uint32_t from, const Move& move, MemoryRange* range) noexcept {
  MutexLock lock(exports_mu_);
  if (exports_.zombie_bytes() >= config_.zombie_bytes && exports_.zombies() != 0) {
    return fail(
        Status::kNotReady,
        "%llu bytes that peers may still use are gone, the limit is %llu: nothing more is "
        "exported until they have given back; raise zombie_bytes or FIREHOSE_REMOTE_ZOMBIES",
        static_cast<unsigned long long>(exports_.zombie_bytes()),
        static_cast<unsigned long long>(config_.zombie_bytes));
  }
  const bool is_short = (move.flags & kShort) != 0;
  const bool wanted = leases_.admit(from, move.wanted_len, is_short);
  if (wanted) {
    *range = {static_cast<uintptr_t>(move.wanted_addr), static_cast<size_t>(move.wanted_len)};
  } else {
    *range = {static_cast<uintptr_t>(move.least_addr), static_cast<size_t>(move.least_len)};
    if (!leases_.admit(from, range->len, false)) {
      return fail(Status::kNotReady, "rank %u has %llu of the %llu bytes that it may have here",
                  from, static_cast<unsigned long long>(leases_.held(from)),
                  static_cast<unsigned long long>(leases_.lease(from)));
    }
  }
  leases_.grant(from, range->len);
  if (leases_.has_change()) note_any_due();
  return Status::kOk;
}

void RemotePins::serve(uint32_t from, const Move& move, Served* served) noexcept {
  MemoryRange range;
  served->status = admit(from, move, &range);
  if (served->status != Status::kOk) return;
  const auto access = static_cast<Access>(move.access);
  const MemoryRange least{static_cast<uintptr_t>(move.least_addr),
                          static_cast<size_t>(move.least_len)};
  const uint64_t gone = domain_.gone().count();
  const RegionSlot* slot = nullptr;
  uint64_t charge = range.len;
  // Neighbours that become one region are one registration for all peers, but those who have the parts hold
  // these meanwhile: where room is short that would cost more than it saves.
  served->status = domain_.pin(range, access, Domain::Effort::kRegisterSparingly, &slot);
  if (served->status != Status::kOk && range != least) {
    range = least;
    served->status = domain_.pin(range, access, Domain::Effort::kRegisterSparingly, &slot);
  }
  if (served->status == Status::kOk && !domain_.describe_export(slot, range, &served->memory)) {
    (void)domain_.release(slot);
    served->status = Status::kNotReady;
  }
  const bool ok = served->status == Status::kOk;
  mutant_delay();  // pinned, and quiet() does not know of it yet
  {
    MutexLock lock(exports_mu_);
    if (!ok || charge != range.len) leases_.give_back(from, charge - (ok ? range.len : 0));
    charge = range.len;
    if (ok && !dues_[from].gone) {
      // More than was asked for counts, too, or is not granted: a peer would hold what it has no quota for.
      // What overlaps other firehoses of the peer would count twice.
      size_t extra = served->memory.range.len - range.len;
      if (extra != 0 && leases_.fits(from, extra)) {
        served->memory.range = exports_.beside_others(from, range, served->memory.range);
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
      if (served->id != 0) exports_.withhold(served->id);
    }
    if (ok && served->id == 0) leases_.give_back(from, charge);
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
    served->status = fail_plainly(Status::kNotReady, "the memory went away while it was pinned");
  }
  served->charge = charge;
  if (!served->memory.cached) served->flags |= kOnce;
}

// Asked once the export is counted. What was released before may have been said to be out of reach, because
// quiet() saw no exports: it is not granted then. What is released later, quiet() finds.
bool RemotePins::is_still_there(const Domain::Exported& memory, uint64_t seen) noexcept {
  if (!domain_.settle_releases(memory.checked)) return false;
  const uint64_t now = domain_.gone().count();
  return now == seen || !domain_.gone().overlaps(memory.range, seen, now);
}

void RemotePins::call_remote(uint32_t from, const Move& move, const Served& served,
                             const std::byte* args, Message* answer) noexcept {
  const hydrant_region_t region{served.memory.range.addr, served.memory.range.len,
                                served.memory.key};
  const hydrant_range_t asked{static_cast<uintptr_t>(move.asked_addr),
                              static_cast<size_t>(move.asked_len)};
  const size_t room = std::min(answer->room(), max_args_);
  const size_t n =
      config_.remote(config_.user, from, served.status == Status::kOk ? &region : nullptr, asked,
                     args, move.args_len, answer->end(), room);
  answer->grow(std::min(n, room));
}

bool RemotePins::tell_export(uint32_t from, uint64_t id, Reply* reply) noexcept {
  RemoteExports::Export ended{};
  {
    MutexLock lock(exports_mu_);
    reply->lease = leases_.lease(from);
    reply->lease_number = leases_.number(from);
    if (!exports_.tell(id, &ended)) return true;
    leases_.give_back(from, ended.charge);
  }
  (void)domain_.release(ended.slot);
  return false;
}

// Says what became of a move. It cannot fail: what has no room now waits for poll().
void RemotePins::answer(uint32_t from, uint64_t number, Served& served, const Message& said,
                        void* reply_to) noexcept {
  Message message;
  Reply reply{};
  reply.number = number;
  const Registrar& registrar = domain_.registrar();
  const RegistrarTraits& traits = registrar.traits();
  const size_t most_blob = traits.exports ? traits.export_bytes : traits.key_bytes;
  bool room = message.reserve(sizeof(Header) + sizeof reply + most_blob + said.size());
  message.add(header(Type::kReply));
  const size_t reply_at = message.size();
  message.add(reply);
  if (served.status == Status::kOk && room && served.memory.key != nullptr) {
    size_t len = most_blob;
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
  if (!room) served.status = fail(Status::kResource, "no memory for a reply");
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
  if (!tell_export(from, reply.id, &reply)) return;
  std::memcpy(message.data() + reply_at, &reply, sizeof reply);
  counts_.served.fetch_add(1, std::memory_order_relaxed);
  if (served.status == Status::kNotReady) counts_.declined.fetch_add(1, std::memory_order_relaxed);
  const Status sent = send(from, reply_to != nullptr ? HYDRANT_LANE_REPLY : HYDRANT_LANE_REQUEST,
                           reply_to, message);
  if (sent != Status::kNotReady) return;
  auto* later = new (std::nothrow) Answer;
  if (later != nullptr && later->message.reserve(message.size())) {
    later->to = from;
    later->message.add(message.data(), message.size());
    MutexLock lock(exports_mu_);
    *answers_tail_ = later;
    answers_tail_ = &later->next;
  } else {
    delete later;
    if (served.status == Status::kOk) (void)end_export(from, served.id, false);
    MutexLock lock(exports_mu_);
    if (owed_count_ < owed_.size()) owed_[owed_count_++] = {number, from, Status::kResource};
  }
  note_due(from);
}

Status RemotePins::on_move(uint32_t from, const Header& header, Parts parts,
                           void* reply_to) noexcept {
  Move move{};
  const std::byte* ids = nullptr;
  const std::byte* args = nullptr;
  if (!parts.take(&move) || header.count > parts.left() / sizeof(uint64_t) ||
      (ids = parts.take(header.count * sizeof(uint64_t))) == nullptr ||
      (args = parts.take(move.args_len)) == nullptr || parts.left() != 0) {
    return fail(Status::kBadArg, "a move of rank %u is cut short, or too long", from);
  }
  const MemoryRange least{static_cast<uintptr_t>(move.least_addr),
                          static_cast<size_t>(move.least_len)};
  const MemoryRange wanted{static_cast<uintptr_t>(move.wanted_addr),
                           static_cast<size_t>(move.wanted_len)};
  const MemoryRange asked{static_cast<uintptr_t>(move.asked_addr),
                          static_cast<size_t>(move.asked_len)};
  if (move.access > bits(Access::kAll) || !asked.valid() || !least.valid() || !wanted.valid() ||
      !least.covers(asked) || !wanted.covers(least)) {
    return fail(Status::kBadArg, "a move of rank %u asks for no range, or for unknown rights",
                from);
  }
  give_back(from, ids, header.count, move.wanted_len);
  Served served;
  serve(from, move, &served);
  const bool call = config_.remote != nullptr && (move.flags & kCall) != 0 &&
                    (served.status == Status::kOk || (move.flags & kCallAnyway) != 0);
  Message said;
  if (call && (config_.flags & HYDRANT_REMOTE_INLINE_REMOTE) == 0) {
    auto* later = new (std::nothrow) Deferred;
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
      note_due(from);
      return Status::kOk;
    }
    delete later;
    if (served.id != 0) (void)end_export(from, served.id, false);
    served.id = 0;
    served.status = fail(Status::kResource, "no memory for a request that waits for poll");
  } else if (call) {
    (void)said.reserve(max_args_);
    served.flags |= kCalled;
    call_remote(from, move, served, args, &said);
  }
  answer(from, move.number, served, said, reply_to);
  return Status::kOk;
}

int RemotePins::run_deferred() noexcept {
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
    (void)said.reserve(max_args_);
    next->served.flags |= kCalled;
    call_remote(next->from, next->move, next->served, next->args.data(), &said);
    answer(next->from, next->move.number, next->served, said, nullptr);
    delete next;
    ++ran;
  }
}

// ---- what is gone, and what is wanted back ------------------------------------------------------------

bool RemotePins::look_for_gone() noexcept {
  const GoneLog& gone = domain_.gone();
  if (gone.count() == gone_seen_.load(std::memory_order_acquire)) return false;
  bool any = false;
  MutexLock lock(exports_mu_);
  uint64_t from = gone_seen_.load(std::memory_order_relaxed);
  const uint64_t to = gone.count();
  if (exports_.count() == 0 || is_mutant(Mutant::kDropRecall)) from = to;
  if (to - from > GoneLog::kKept) {
    any = exports_.doom(MemoryRange{0, SIZE_MAX});
  } else {
    for (; from != to; ++from) any = exports_.doom(gone.at(from)) || any;
  }
  gone_seen_.store(to, std::memory_order_release);
  if (!any) return false;
  for (uint32_t peer = 0; peer < config_.ranks; ++peer) {
    if (exports_.has_recalls(peer)) note_due(peer);
  }
  return true;
}

// A pin of this process's memory found no room, or a peer's move did: whoever has most here is asked for some
// of what he does not use; once, until he has said that it is done. One shortage is many failed pins.
void RemotePins::look_for_hunger() noexcept {
  const uint64_t starved = domain_.starved();
  if (starved == starved_seen_.load(std::memory_order_relaxed)) return;
  starved_seen_.store(starved, std::memory_order_relaxed);
  MutexLock lock(exports_mu_);
  const uint32_t peer = leases_.fattest([&](uint32_t of) HYDRANT_NO_TSA {
    return dues_[of].reclaiming && starved >= dues_[of].reclaimed_at + kPatience;
  });
  if (peer == config_.ranks || dues_[peer].reclaiming) return;
  dues_[peer].reclaiming = true;
  dues_[peer].reclaimed_at = starved;
  dues_[peer].reclaim_bytes = std::max(leases_.held(peer) / 4, kLeastReclaim);
  note_due(peer);
}

int RemotePins::send_target_things(uint32_t peer) noexcept {
  int did = 0;
  for (;;) {
    uint64_t ids[kMostRecalls];
    MemoryRange ranges[kMostRecalls];
    size_t n = 0;
    {
      MutexLock lock(exports_mu_);
      n = exports_.take_recalls(peer, ids, ranges, kMostRecalls);
    }
    if (n == 0) break;
    Message message;
    message.add(header(Type::kRecall, n));
    for (size_t i = 0; i < n; ++i) message.add(Recalled{ids[i], ranges[i].addr, ranges[i].len});
    const Status status = send(peer, HYDRANT_LANE_REQUEST, nullptr, message);
    if (status == Status::kOk) {
      counts_.recalls.fetch_add(n, std::memory_order_relaxed);
      did += static_cast<int>(n);
      if (!is_mutant(Mutant::kNoQuarantine)) continue;
      for (size_t i = 0; i < n; ++i) (void)end_export(peer, ids[i], false);
      continue;
    }
    MutexLock lock(exports_mu_);
    if (status == Status::kNotReady) {
      exports_.list_again(ids, n);
      note_due(peer);
    }
    break;
  }
  uint64_t reclaim = 0;
  bool tell = false;
  Lease lease{};
  {
    MutexLock lock(exports_mu_);
    reclaim = std::exchange(dues_[peer].reclaim_bytes, 0);
    tell = std::exchange(dues_[peer].lease, false);
    lease = {leases_.lease(peer), leases_.number(peer), 0};
  }
  // A reclaim may be lost: the next shortage asks again. A lease may not: whoever was cut because he is idle
  // gets no reply that would tell him, and is not cut again.
  if (reclaim != 0) {
    Message message;
    message.add(header(Type::kReclaim));
    message.add(Amount{reclaim});
    if (send(peer, HYDRANT_LANE_REQUEST, nullptr, message) == Status::kOk) {
      counts_.reclaims.fetch_add(1, std::memory_order_relaxed);
      ++did;
    } else {
      MutexLock lock(exports_mu_);
      dues_[peer].reclaiming = false;
    }
  }
  if (tell) {
    Message message;
    message.add(header(Type::kLease));
    message.add(lease);
    const Status status = send(peer, HYDRANT_LANE_REQUEST, nullptr, message);
    if (status == Status::kOk) ++did;
    if (status == Status::kNotReady) {
      MutexLock lock(exports_mu_);
      dues_[peer].lease = true;
      note_due(peer);
    }
  }
  return did;
}

// A peer that takes nothing keeps nobody else waiting.
int RemotePins::send_answers() noexcept {
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
    if (next->to != deaf &&
        send(next->to, HYDRANT_LANE_REQUEST, nullptr, next->message) != Status::kNotReady) {
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
    if (dues_[next->to].gone) {  // meanwhile
      delete next;
      continue;
    }
    next->next = nullptr;
    *answers_tail_ = next;
    answers_tail_ = &next->next;
    note_due(next->to);
  }
  return did + send_owed();
}

int RemotePins::send_owed() noexcept {
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
    }
    reply.number = owed.number;
    reply.status = to_c(owed.status);
    Message message;
    message.add(header(Type::kReply));
    message.add(reply);
    if (send(owed.peer, HYDRANT_LANE_REQUEST, nullptr, message) != Status::kNotReady) {
      ++did;
      continue;
    }
    MutexLock lock(exports_mu_);
    if (owed_count_ == owed_.size() || dues_[owed.peer].gone) continue;
    // Where it was, so that each is tried once.
    const size_t at = std::min(i, owed_count_);
    owed_[owed_count_++] = owed_[at];
    owed_[at] = owed;
    ++i;
    note_due(owed.peer);
  }
}

void RemotePins::drop_exports_of(uint32_t peer) noexcept {
  uint32_t from = 0;
  for (;;) {
    RemoteExports::Export ended{};
    {
      MutexLock lock(exports_mu_);
      if (!exports_.release_any(peer, &from, &ended)) {
        leases_.forget(peer);
        return;
      }
      leases_.give_back(peer, ended.charge);
    }
    (void)domain_.release(ended.slot);
  }
}

void RemotePins::drop_answers(uint32_t peer) noexcept {
  Deferred* dropped = unlist_answers(peer);
  while (dropped != nullptr) {
    Deferred* later = dropped;
    dropped = later->next;
    if (later->served.id != 0) (void)end_export(later->from, later->served.id, false);
    delete later;
  }
}

RemotePins::Deferred* RemotePins::unlist_answers(uint32_t peer) noexcept {
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

Status RemotePins::quiet() noexcept {
  if (exports_.count() == 0) return Status::kOk;
  if (!domain_.settle_releases(exports_.checked() != 0)) {
    return fail_plainly(Status::kNotReady, "releases of memory are under way in other threads");
  }
  (void)look_for_gone();
  if (exports_.zombies() == 0) return Status::kOk;
  return fail_plainly(Status::kNotReady, "peers may still use memory that is gone: poll");
}

}  // namespace hydrant
