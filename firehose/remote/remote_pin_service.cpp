// Implements an end of the remote-pin protocol: its peers, message delivery, poll(), start and end. The
// functions of remote_pin.h call it (firehose/api/remote_pin_api.cpp).
#include "firehose/remote/remote_pin_service.hpp"

#include "firehose/base/cancellation.hpp"
#include "firehose/pin/failure_texts.hpp"

#include <algorithm>
#include <cstring>

namespace hydrant {

using namespace remote_wire;

Status RemotePinService::set_up() noexcept HYDRANT_NO_TSA {
  const RemoteConfig& config = channel_.config();
  if (const Status status = channel_.check_messenger(); status != Status::kOk) return status;
  if (!peers_.map(config.ranks) || !channel_.reserve_tables()) return fail_no_tables(config);
  return target_.set_up();
}

RemotePinService::~RemotePinService() {
  for (uint32_t peer = 0; peer < peers_.size(); ++peer) {
    delete peers_[peer].load(std::memory_order_relaxed);
  }
}

void RemotePinService::shut_down() noexcept {
  {
    // Callbacks may make new requests; the peers are listed under the lock, so that no peer is overlooked
    // below.
    MutexLock lock(peers_mu_);
    is_ending_ = true;
  }
  for (uint32_t peer = 0; peer < channel_.config().ranks; ++peer) {
    PeerCache* known = known_peer(peer);
    if (known != nullptr) {
      known->fail_all(fail_literal(
          Status::kNotInit,
          "this end of the remote pins was ended before the peer answered: create another"));
    }
    target_.drop_exports_of(peer);
  }
  (void)completions_.run();
  target_.drop_replies(channel_.config().ranks);
}

Status RemotePinService::peer(uint32_t peer, PeerCache** out) noexcept {
  *out = known_peer(peer);
  if (*out != nullptr) return Status::kOk;
  if (!channel_.is_peer(peer))
    return channel_.no_peer(peer, "; hydrant_pin() is for its own memory");
  MutexLock lock(peers_mu_);
  *out = peers_[peer].load(std::memory_order_relaxed);
  if (*out != nullptr) return Status::kOk;
  if (is_ending_)
    return fail(Status::kNotInit,
                "this end of the remote pins is being ended by another thread: create another");
  std::unique_ptr<PeerCache> made;
  const Status status = PeerCache::create(channel_, completions_, peer, &made);
  if (status != Status::kOk) return status;
  if (target_.is_gone(peer)) made->fail_all(Status::kBroken);
  *out = made.release();
  peers_[peer].store(*out, std::memory_order_release);
  return Status::kOk;
}

Status RemotePinService::peer_gone(uint32_t peer) noexcept {
  if (!channel_.is_peer(peer)) return channel_.no_peer(peer, ", which is not gone");
  PeerCache* known = nullptr;
  {
    MutexLock lock(peers_mu_);
    target_.note_gone(peer);
    known = known_peer(peer);
  }
  if (known != nullptr) known->fail_all(fail_rank_exited(peer));
  target_.drop_exports_of(peer);
  target_.drop_replies(peer);
  channel_.mark_pending(peer);  // callbacks may wait
  return Status::kOk;
}

Status RemotePinService::deliver(uint32_t from, const void* message, size_t len,
                                 void* reply_to) noexcept {
  if (!channel_.is_peer(from))
    return channel_.no_peer(from, ", which sends itself nothing: whose message is it?");
  MessageReader reader(message, len);
  Header header{};
  if (message == nullptr || !reader.take(&header) || header.magic != kMagic) {
    return fail(Status::kBadArg,
                "%zu bytes from rank %u are a malformed remote-pin message: hand over what its "
                "messenger was given",
                len, from);
  }
  if (header.version != kVersion) {
    return fail(Status::kBadArg,
                "a message of rank %u is of version %u, this end speaks %u: all ranks need the "
                "same library",
                from, header.version, kVersion);
  }
  const auto malformed = [&] {
    return fail(Status::kBadArg,
                "%zu bytes from rank %u are a malformed remote-pin message of type %u: hand over "
                "what its messenger was given",
                len, from, static_cast<unsigned>(header.type));
  };
  if (target_.is_gone(from))
    return Status::kOk;  // the sender has exited: it would never release its grant
  PeerCache* known = known_peer(from);
  switch (header.type) {
    case Type::kMove: return target_.on_move(from, header, reader, reply_to);
    case Type::kReply: {
      Reply reply{};
      const std::byte* blob = nullptr;
      const std::byte* answer = nullptr;
      if (known == nullptr || !reader.take(&reply) ||
          (blob = reader.take(reply.blob_len)) == nullptr ||
          (answer = reader.take(reply.answer_len)) == nullptr || reader.left() != 0)
        return malformed();
      return known->on_reply(reply, blob, answer);
    }
    case Type::kRelease: {
      if (header.count != reader.left() / sizeof(uint64_t) || reader.left() % sizeof(uint64_t) != 0)
        return malformed();
      target_.release_exports(from, reader.take(reader.left()), header.count, 0);
      return Status::kOk;
    }
    case Type::kRecall: {
      constexpr size_t kMax = 64;
      Recalled recalled[kMax];
      if (header.count > kMax || reader.left() != header.count * sizeof(Recalled))
        return malformed();
      for (size_t i = 0; i < header.count; ++i) {
        if (!reader.take(&recalled[i])) return malformed();
      }
      if (known != nullptr) known->on_recall(recalled, header.count, reply_to);
      return Status::kOk;
    }
    case Type::kLease: {
      Lease lease{};
      if (!reader.take(&lease) || reader.left() != 0) return malformed();
      if (known != nullptr) known->on_lease(lease, reply_to);
      return Status::kOk;
    }
    case Type::kAwait: {
      Await await{};
      if (!reader.take(&await) || reader.left() != 0) return malformed();
      return target_.on_await(from, await, reply_to);
    }
    case Type::kRoom: {
      Room room{};
      if (!reader.take(&room) || reader.left() != 0) return malformed();
      if (known != nullptr) known->on_room(room);
      return Status::kOk;
    }
    case Type::kLeaseRequest:
    case Type::kReclaim: {
      Amount amount{};
      if (!reader.take(&amount) || reader.left() != 0) return malformed();
      if (header.type == Type::kReclaim) {
        if (known != nullptr) known->on_reclaim(amount.bytes, reply_to);
        return Status::kOk;
      }
      target_.on_lease_request(from, amount.bytes);
      return Status::kOk;
    }
  }
  return malformed();
}

int RemotePinService::poll() noexcept {
  target_.look();
  if (!channel_.any_pending()) return 0;
  const CancellationDisabled guard;
  channel_.clear_any_pending();
  int did = target_.run_deferred();
  channel_.visit_pending([&](uint32_t peer) {
    did += target_.send_to(peer);
    PeerCache* known = known_peer(peer);
    if (known != nullptr) did += known->work();
  });
  did += target_.send_replies();
  return did + completions_.run();
}

void RemotePinService::read_stats(hydrant_remote_stats_t* stats) noexcept {
  hydrant_remote_stats_t out{};
  const auto read = [](const std::atomic<uint64_t>& count) {
    return count.load(std::memory_order_relaxed);
  };
  for (uint32_t peer = 0; peer < channel_.config().ranks; ++peer) {
    const PeerCache* known = known_peer(peer);
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
  target_.read_stats(&out);
  out.requests = channel_.requests();
  out.replies = channel_.replies();
  out.size = stats->size;
  std::memcpy(stats, &out, std::min(stats->size, sizeof out));
}

}  // namespace hydrant
