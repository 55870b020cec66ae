// Answers handshakes. Tour "first contact": the peer's handshake arrives here, and the connection is made or
// refused.
#include "rdma/ibv/connection/handshake_server.hpp"

#include "firehose/base/log.hpp"
#include "firehose/base/planted_defect.hpp"

#include <algorithm>
#include <cerrno>

namespace hydrant::ibv {

bool HandshakeServer::receive(const Handshake* handshake) noexcept {
  const Rank from = handshake != nullptr ? sender_of(*handshake) : kNoRank;
  if (from == kNoRank) {
    parts_.counters.strangers.add();
    if (log_enabled(LogLevel::kDebug))
      log_debug("verbs: ignored a datagram: %s", last_error_text());
    return false;
  }
  if (parts_.peers.is_dead(from)) return false;
  if (handshake->refusal != Refusal::kNone) {
    take_refusal(*handshake, parts_.peers.find(from), parts_.now_ns());
  } else {
    connect(*handshake, from, parts_.now_ns());
  }
  return true;
}

// Returns the number of the sender in this process; kNoRank, with an error text, if the sender is no peer. A
// process that is not joined yet gets no reply, and repeats its handshake.
Rank HandshakeServer::sender_of(const Handshake& handshake) noexcept {
  const OwnEndpoint& own = parts_.own;
  const uint64_t group = handshake.endpoint.group;
  if (handshake.to != own.self() || handshake.to_nonce != own.nonce()) {
    (void)fail(Status::kBadArg, "a handshake from rank %u to rank %u of another job",
               handshake.from, handshake.to);
    return kNoRank;
  }
  if (group == 0) {
    if (handshake.from < own.ranks() && handshake.from != own.self() &&
        handshake.index_at_peer == own.self())
      return handshake.from;
    (void)fail(Status::kBadArg, "a handshake from rank %u, which knows this process as rank %u",
               handshake.from, handshake.index_at_peer);
    return kNoRank;
  }
  const Rank number = groups_.number_of(group, handshake.from);
  if (number == kNoRank) {
    parts_.counters.early.add();
    (void)fail(Status::kBadArg, "a handshake from rank %u of group %016llx, which is not joined",
               handshake.from, static_cast<unsigned long long>(group));
    return kNoRank;
  }
  if (groups_.at(number).endpoint.address.nonce == handshake.endpoint.address.nonce) return number;
  (void)fail(Status::kBadArg, "a handshake as from rank %u of group %016llx, by another process",
             handshake.from, static_cast<unsigned long long>(group));
  return kNoRank;
}

void HandshakeServer::connect(const Handshake& handshake, Rank from, uint64_t now) noexcept {
  Peer* peer = parts_.peers.find(from);
  if (peer == nullptr) {
    if (parts_.factory.make(from, handshake.from, handshake.endpoint, &peer) != Status::kOk) {
      log_warning(refused_here_, "%s cannot be connected: %s",
                  name_of(from, handshake.from, handshake.endpoint.group).text, last_error_text());
      refuse(handshake, from, parts_.factory.refusal(), now);
      return;
    }
    sender_.expect(*peer, now);
  }
  if (peer->endpoint.address.nonce != handshake.endpoint.address.nonce) {
    parts_.counters.strangers.add();
    return;
  }
  if (peer->state.is_disconnected() || peer->state.is_refused()) {
    refuse(handshake, from, Refusal::kEnded, now);
    return;
  }
  peer->state.note_refusal_by_peer(Refusal::kNone);
  if (!peer->connection.can_receive && !connect_pairs(*peer, handshake)) return;
  if (handshake.can_receive) {
    connector_.learn_rails(*peer, handshake);
    if (peer->state.open()) parts_.counters.connected.add();
  }
  if (!handshake.open) sender_.answer(*peer, now);
  if (PeerConnector::is_handshake_done(*peer)) sender_.stop(*peer);
}

// False: it has failed, or waits for a later handshake because the peer's node is silent, or no memory was
// left for what the connection needs. The peer is connecting, so it has a destination.
bool HandshakeServer::connect_pairs(Peer& peer, const Handshake& handshake) noexcept {
  Destination& destination = *peer.connection.destination;
  if (parts_.addresses.is_silent(destination)) return false;
  // The peer may send as many messages as it has buffers here. One that found none would wait for this
  // process to poll, and look like an adapter that does nothing.
  if (!peer.credits.are_posted(parts_.options.receives_per_peer()) &&
      !has_defect(Defect::kEarlyContact))
    return false;
  const uint64_t since_ns = parts_.now_ns();
  const Status status = connector_.connect(peer, handshake);
  parts_.addresses.note_asked(destination, status == Status::kNotReady ? ETIMEDOUT : 0, since_ns);
  if (status == Status::kOk) return true;
  if (status == Status::kResource) {
    log_warning(refused_here_, "%s", last_error_text());
    return false;
  }
  log_warning("%s", last_error_text());
  if (status != Status::kNotReady)
    parts_.disconnector.disconnect_later(peer, "its queue pair could not be connected");
  return false;
}

// ---- refusals ----

bool HandshakeServer::may_refuse(uint64_t now) noexcept {
  if (now - second_ns_ >= RateLimit::kSecond) {
    second_ns_ = now;
    refusals_ = 0;
  }
  return refusals_++ < kRefusalsPerSecond;
}

// Without room, or in a storm, nothing is sent: the process repeats its handshake.
void HandshakeServer::refuse(const Handshake& handshake, Rank from, Refusal why,
                             uint64_t now) noexcept {
  if (!may_refuse(now)) return;
  const DatagramAddress& to = handshake.endpoint.address;
  const PeerName name = name_of(from, handshake.from, handshake.endpoint.group);
  Handshake refusal;
  refusal.endpoint =
      parts_.own.address(std::min(parts_.rails.count(), handshake.endpoint.rail_count));
  if (handshake.endpoint.group != 0) refusal.endpoint.group = groups_.own_group();
  refusal.to_nonce = to.nonce;
  refusal.from = parts_.own.self();
  refusal.to = handshake.from;
  refusal.index_at_peer = from;
  refusal.refusal = why;
  (void)sender_.send_once(refusal, to, name.text);
}

// The peer may change its mind, so handshakes to it go on, but rarely.
void HandshakeServer::take_refusal(const Handshake& handshake, Peer* peer, uint64_t now) noexcept {
  if (peer == nullptr || !peer->state.is_connecting() ||
      peer->endpoint.address.nonce != handshake.endpoint.address.nonce) {
    parts_.counters.strangers.add();
    return;
  }
  if (peer->state.refusal_by_peer() != handshake.refusal) {
    peer->state.note_refusal_by_peer(handshake.refusal);
    (void)report_not_ready(*peer);
    log_warning(refused_there_, "%s; handshakes continue", last_error_text());
  }
  sender_.postpone(*peer, now);
}

}  // namespace hydrant::ibv
