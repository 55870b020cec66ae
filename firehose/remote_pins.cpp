#include "firehose/remote_pins.hpp"

#include "firehose/base/log.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace hydrant {

using namespace remote_wire;

namespace {

constexpr size_t kMostOwed = 65536;  // address space

// 64 peers of the map.
constexpr uint32_t word_of(uint32_t peer) { return peer / 64; }
constexpr uint64_t bit_of(uint32_t peer) { return uint64_t{1} << (peer % 64); }

}  // namespace

bool Message::reserve(size_t room) noexcept {
  if (room <= room_) return true;
  auto* fresh = static_cast<std::byte*>(::operator new(room, std::nothrow));
  if (fresh == nullptr) return false;
  std::memcpy(fresh, bytes_, size_);
  if (bytes_ != inline_) ::operator delete(bytes_);
  bytes_ = fresh;
  room_ = room;
  return true;
}

// ---- life ---------------------------------------------------------------------------------------------

Status RemotePins::set_up() noexcept HYDRANT_NO_TSA {
  const RegistrarTraits& traits = domain_.registrar().traits();
  const size_t key = traits.exports ? traits.export_bytes : traits.key_bytes;
  const size_t longest = config_.messenger.max_message_bytes;
  if (longest < kOverhead + key) {
    return fail(Status::kBadArg,
                "a messenger of %zu bytes is too short for keys of %zu bytes: %zu are needed",
                longest, key, kOverhead + key);
  }
  max_args_ = longest - kOverhead - key;
  if (!peers_.map(config_.ranks) || !due_.map(word_of(config_.ranks) + 1) ||
      !exports_.set_up(config_.max_firehoses, config_.ranks) ||
      !leases_.set_up(config_.budget_bytes, config_.ranks, config_.base_percent) ||
      !dues_.map(config_.ranks) || !owed_.map(kMostOwed)) {
    return fail(Status::kResource, "no address space for the tables of %u peers and %u firehoses",
                config_.ranks, config_.max_firehoses);
  }
  const size_t granule = domain_.config().granule_bytes;
  if (config_.ranks > 1 && leases_.most_of_one() < granule) {
    return fail(Status::kBadArg,
                "of a budget of %llu bytes, %u%% of it split between %u peers, none ever gets the "
                "%zu bytes that domain %s pins at least; raise budget_bytes "
                "(FIREHOSE_REMOTE_BUDGET), or lower base_percent (FIREHOSE_REMOTE_BASE)",
                static_cast<unsigned long long>(config_.budget_bytes), config_.base_percent,
                config_.ranks - 1, granule, domain_.config().name);
  }
  gone_seen_.store(domain_.gone().count(), std::memory_order_relaxed);
  starved_seen_.store(domain_.starved(), std::memory_order_relaxed);
  return Status::kOk;
}

RemotePins::~RemotePins() {
  for (uint32_t peer = 0; peer < peers_.size(); ++peer) {
    delete peers_[peer].load(std::memory_order_relaxed);
  }
}

void RemotePins::shut_down() noexcept {
  {
    // Callbacks may ask for more: of nobody who would be overlooked below.
    MutexLock lock(peers_mu_);
    is_ending_ = true;
  }
  for (uint32_t peer = 0; peer < config_.ranks; ++peer) {
    RemotePeer* known = known_peer(peer);
    if (known != nullptr) {
      known->give_up(fail_plainly(Status::kNotInit, "this end of the remote pins was ended"));
    }
    drop_exports_of(peer);
  }
  (void)run_done();
  drop_answers(config_.ranks);
}

Status RemotePins::no_peer(uint32_t rank, const char* if_self) const noexcept {
  if (rank == config_.rank) {
    return fail(Status::kBadArg, "rank %u of %u is this process itself%s", rank, config_.ranks,
                if_self);
  }
  return fail(Status::kBadArg, "there is no rank %u: the %u ranks are 0 to %u (this one is %u)",
              rank, config_.ranks, config_.ranks - 1, config_.rank);
}

Status RemotePins::peer(uint32_t peer, RemotePeer** out) noexcept {
  *out = known_peer(peer);
  if (*out != nullptr) return Status::kOk;
  if (!is_peer(peer)) return no_peer(peer, "; hydrant_pin() is for its own memory");
  MutexLock lock(peers_mu_);
  *out = peers_[peer].load(std::memory_order_relaxed);
  if (*out != nullptr) return Status::kOk;
  if (is_ending_) return fail(Status::kNotInit, "this end of the remote pins is being ended");
  std::unique_ptr<RemotePeer> made;
  const Status status = RemotePeer::create(*this, peer, &made);
  if (status != Status::kOk) return status;
  {
    MutexLock exports(exports_mu_);
    if (dues_[peer].gone) made->give_up(Status::kBroken);
  }
  *out = made.release();
  peers_[peer].store(*out, std::memory_order_release);
  return Status::kOk;
}

Status RemotePins::peer_gone(uint32_t peer) noexcept {
  if (!is_peer(peer)) return no_peer(peer, ", which is not gone");
  RemotePeer* known = nullptr;
  {
    MutexLock lock(peers_mu_);
    MutexLock exports(exports_mu_);
    dues_[peer].gone = true;
    known = known_peer(peer);
  }
  if (known != nullptr) known->give_up(fail(Status::kBroken, "rank %u is gone", peer));
  drop_exports_of(peer);
  drop_answers(peer);
  note_due(peer);  // callbacks may wait
  return Status::kOk;
}

// ---- messages -----------------------------------------------------------------------------------------

Status RemotePins::send(uint32_t peer, uint32_t lane, void* reply_to,
                        const Message& message) noexcept {
  const int code = config_.messenger.send(config_.messenger.user, peer, lane, reply_to,
                                          message.data(), message.size());
  if (code == GASNET_OK) {
    auto& sent = lane == HYDRANT_LANE_REPLY ? counts_.replies : counts_.requests;
    sent.fetch_add(1, std::memory_order_relaxed);
    return Status::kOk;
  }
  if (code == GASNET_ERR_NOT_READY) return Status::kNotReady;
  return fail(Status::kBroken, "the messenger cannot reach rank %u: %s", peer,
              status_name(static_cast<Status>(code)));
}

Status RemotePins::deliver(uint32_t from, const void* message, size_t len,
                           void* reply_to) noexcept {
  if (!is_peer(from)) return no_peer(from, ", which sends itself nothing: whose message is it?");
  Parts parts(message, len);
  Header header{};
  if (message == nullptr || !parts.take(&header) || header.magic != kMagic) {
    return fail(Status::kBadArg, "%zu bytes from rank %u are no message of remote pins", len, from);
  }
  if (header.version != kVersion) {
    return fail(Status::kBadArg,
                "a message of rank %u is of version %u, this end speaks %u: all ranks need the "
                "same library",
                from, header.version, kVersion);
  }
  const auto malformed = [&] {
    return fail(Status::kBadArg, "%zu bytes from rank %u are no message of type %u", len, from,
                static_cast<unsigned>(header.type));
  };
  if (is_gone(from))
    return Status::kOk;  // it was under way: nobody would give back what it asks for
  RemotePeer* known = known_peer(from);
  switch (header.type) {
    case Type::kMove: return on_move(from, header, parts, reply_to);
    case Type::kReply: {
      Reply reply{};
      const std::byte* blob = nullptr;
      const std::byte* answer = nullptr;
      if (known == nullptr || !parts.take(&reply) ||
          (blob = parts.take(reply.blob_len)) == nullptr ||
          (answer = parts.take(reply.answer_len)) == nullptr || parts.left() != 0)
        return malformed();
      return known->on_reply(reply, blob, answer);
    }
    case Type::kRelease: {
      if (header.count != parts.left() / sizeof(uint64_t) || parts.left() % sizeof(uint64_t) != 0)
        return malformed();
      give_back(from, parts.take(parts.left()), header.count, 0);
      return Status::kOk;
    }
    case Type::kRecall: {
      constexpr size_t kMost = 64;
      Recalled recalled[kMost];
      if (header.count > kMost || parts.left() != header.count * sizeof(Recalled))
        return malformed();
      for (size_t i = 0; i < header.count; ++i) {
        if (!parts.take(&recalled[i])) return malformed();
      }
      if (known != nullptr) known->on_recall(recalled, header.count, reply_to);
      return Status::kOk;
    }
    case Type::kLease: {
      Lease lease{};
      if (!parts.take(&lease) || parts.left() != 0) return malformed();
      if (known != nullptr) known->on_lease(lease, reply_to);
      return Status::kOk;
    }
    case Type::kAsk:
    case Type::kReclaim: {
      Amount amount{};
      if (!parts.take(&amount) || parts.left() != 0) return malformed();
      if (header.type == Type::kReclaim) {
        if (known != nullptr) known->on_reclaim(amount.bytes, reply_to);
        return Status::kOk;
      }
      {
        MutexLock lock(exports_mu_);
        leases_.ask(from, std::min(amount.bytes, config_.budget_bytes));
        dues_[from].lease = true;
      }
      note_due(from);
      return Status::kOk;
    }
  }
  return malformed();
}

// ---- progress -----------------------------------------------------------------------------------------

void RemotePins::note_due(uint32_t peer) noexcept {
  due_[word_of(peer)].fetch_or(bit_of(peer), std::memory_order_relaxed);
  note_any_due();
}

void RemotePins::note_any_due() noexcept { (void)any_due_.exchange(1, std::memory_order_release); }

void RemotePins::finish(RemoteRequest* request, const std::byte* answer,
                        size_t answer_len) noexcept {
  if ((config_.flags & HYDRANT_REMOTE_INLINE_DONE) != 0) {
    request->outcome.answer = answer;
    request->outcome.answer_len = answer_len;
    request->done(request->context, request->pin, &request->outcome);
    request->drop();
    return;
  }
  if (answer_len != 0 && !request->answer.reserve(answer_len)) {
    // Without what was answered the request has failed.
    if (request->pin.region != nullptr) (void)hydrant_remote_release(request->pin);
    request->pin = {nullptr, GASNET_ERR_RESOURCE};
    request->outcome.status = GASNET_ERR_RESOURCE;
    answer_len = 0;
  }
  request->answer.add(answer, answer_len);
  {
    MutexLock lock(done_mu_);
    done_.push(request);
  }
  note_any_due();
}

int RemotePins::run_done() noexcept {
  RemoteRequest* list = nullptr;
  {
    MutexLock lock(done_mu_);
    list = done_.take_all();
  }
  int ran = 0;
  while (list != nullptr) {
    RemoteRequest* request = list;
    list = request->next;
    request->outcome.answer = request->answer.data();
    request->outcome.answer_len = request->answer.size();
    request->done(request->context, request->pin, &request->outcome);
    request->drop();
    ++ran;
  }
  return ran;
}

int RemotePins::poll() noexcept {
  (void)look_for_gone();
  look_for_hunger();
  if (any_due_.load(std::memory_order_acquire) == 0) return 0;
  // An exchange, and it acquires: whoever has set it before has left what is due where it is seen below. Who
  // sets it later is seen by the next poll, be it that his bit is taken now.
  (void)any_due_.exchange(0, std::memory_order_acq_rel);
  int did = run_deferred();
  tell_leases();
  for (uint32_t word = 0; word <= word_of(config_.ranks - 1); ++word) {
    if (due_[word].load(std::memory_order_relaxed) == 0) continue;
    uint64_t bits = due_[word].exchange(0, std::memory_order_acq_rel);
    while (bits != 0) {
      const uint32_t peer = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
      bits &= bits - 1;
      did += send_target_things(peer);
      RemotePeer* known = known_peer(peer);
      if (known != nullptr) did += known->work();
    }
  }
  did += send_answers();
  return did + run_done();
}

void RemotePins::tell_leases() noexcept {
  MutexLock lock(exports_mu_);
  uint32_t peer = 0;
  while (leases_.take_change(&peer)) {
    dues_[peer].lease = true;
    note_due(peer);
  }
}

void RemotePins::read_stats(hydrant_remote_stats_t* stats) noexcept {
  hydrant_remote_stats_t out{};
  const auto read = [](const std::atomic<uint64_t>& count) {
    return count.load(std::memory_order_relaxed);
  };
  for (uint32_t peer = 0; peer < config_.ranks; ++peer) {
    const RemotePeer* known = known_peer(peer);
    if (known == nullptr) continue;
    hydrant_stats_t of{};
    of.size = sizeof of;
    known->domain().read_stats(&of);
    out.hits += of.hits + of.refills;
    out.not_ready += of.not_ready;
    out.refusals += of.refusals;
    out.evictions += of.evictions;
    out.firehoses += of.regions;
    out.firehose_bytes += of.charged_bytes;
    out.moves += read(known->counts().moves);
    out.joins += read(known->counts().joins);
    out.recalled += read(known->counts().recalled);
    out.releases_alone += read(known->counts().releases_alone);
  }
  out.served = read(counts_.served);
  out.declined = read(counts_.declined);
  out.recalls = read(counts_.recalls);
  out.reclaims = read(counts_.reclaims);
  out.requests = read(counts_.requests);
  out.replies = read(counts_.replies);
  MutexLock lock(exports_mu_);
  out.exports = exports_.count();
  out.exported_bytes = exports_.bytes();
  out.lent_bytes = leases_.lent();
  out.zombies = exports_.zombies();
  out.zombie_bytes = exports_.zombie_bytes();
  out.size = stats->size;
  std::memcpy(stats, &out, std::min(stats->size, sizeof out));
}

}  // namespace hydrant
