// Sends and repeats handshakes. Tour "first contact": each side sends from here until it knows that the other
// can receive.
#include "rdma/ibv/connection/handshake_sender.hpp"

#include "firehose/base/log.hpp"
#include "firehose/base/planted_defect.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace hydrant::ibv {

namespace {

// Until the next try after a handshake that could not leave, if no completion makes room before.
constexpr uint64_t kPauseNs = 20'000'000;

}  // namespace

void HandshakeSender::expect(Peer& peer, uint64_t now) noexcept {
  PeerConnection& connection = peer.connection;
  connection.handshake_interval_ns = parts_.options.handshakes.first_ns;
  connection.handshake_since_ns = now;
  connection.next_handshake_ns =
      std::max(now, AddressHandles::next_ask_ns(*connection.destination));
  connection.gives_up_ns = now + parts_.options.handshakes.connect_ns;
  timer_.add(peer);
}

void HandshakeSender::start(Peer& peer, uint64_t now) noexcept {
  expect(peer, now);
  repeat(now);
}

Status HandshakeSender::send_once(const Handshake& handshake, const DatagramAddress& to,
                                  const char* name) noexcept {
  Destination* const destination = parts_.addresses.add_user(to);
  if (destination == nullptr) return Status::kResource;
  const Status status = datagrams_.send(handshake, *destination, to.datagram_queue, name);
  parts_.addresses.remove_user(*destination);
  return status;
}

// A peer whose handshake is done has no destination any more, and may need an answer nevertheless.
Status HandshakeSender::send(Peer& peer) noexcept {
  const Handshake handshake = connector_.describe(peer, groups_.own_group());
  const DatagramAddress& to = peer.endpoint.address;
  const PeerName name = name_of(peer);
  Destination* const kept = peer.connection.destination;
  const Status status = kept != nullptr
                            ? datagrams_.send(handshake, *kept, to.datagram_queue, name.text)
                            : send_once(handshake, to, name.text);
  if (status == Status::kOk) parts_.counters.handshakes.add();
  return status;
}

void HandshakeSender::stop(Peer& peer) noexcept {
  if (!HandshakeTimer::has(peer)) return;
  timer_.remove(peer);
  parts_.addresses.remove_user(*std::exchange(peer.connection.destination, nullptr));
}

void HandshakeSender::answer(Peer& peer, uint64_t now) noexcept {
  const Status status = send(peer);
  if (!HandshakeTimer::has(peer)) return;
  if (status == Status::kOk) {
    timer_.note_sent(peer, now);
  } else {
    peer.connection.next_handshake_ns = now;
    timer_.reorder(peer);
  }
}

// The peer has answered, so the time in which it has to answer begins again.
void HandshakeSender::postpone(Peer& peer, uint64_t now) noexcept {
  if (!HandshakeTimer::has(peer)) return;
  PeerConnection& connection = peer.connection;
  connection.handshake_since_ns = now;
  connection.gives_up_ns = now + std::max(parts_.options.handshakes.connect_ns,
                                          2 * parts_.options.handshakes.refused_ns);
  connection.handshake_interval_ns = parts_.options.handshakes.refused_ns;
  timer_.note_sent(peer, now);
}

void HandshakeSender::repeat(uint64_t now) noexcept {
  uint64_t next_ns = timer_.next_ns();
  while (next_ns <= now && !parts_.addresses.has_waited()) {
    Peer& peer = timer_.first();
    if (has_ended(peer, now)) {
      stop(peer);
    } else if (now >= peer.connection.gives_up_ns) {  // its next warning
      peer.connection.gives_up_ns =
          now + std::max<uint64_t>(parts_.options.handshakes.connect_ns, 1);
      timer_.reorder(peer);
    } else if (has_defect(Defect::kOneHandshake) &&
               peer.connection.handshake_interval_ns > parts_.options.handshakes.first_ns) {
      timer_.note_sent(peer, now);
    } else if (const Status status = send(peer); status == Status::kOk) {
      timer_.note_sent(peer, now);
    } else if (const uint64_t asked_ns = AddressHandles::next_ask_ns(*peer.connection.destination);
               asked_ns > now) {
      peer.connection.next_handshake_ns = asked_ns;
      timer_.reorder(peer);
    } else if (status == Status::kNotReady) {
      next_ns = now + kPauseNs;
      break;
    } else {
      timer_.note_refused(peer, now);
    }
    next_ns = timer_.next_ns();
  }
  next_ns_.store(next_ns, std::memory_order_relaxed);
}

// True: no further handshake is sent to the peer. For a silent rank of the job it logs a warning and returns
// false, so handshakes continue, unless Options::abandons_silent_ranks is set.
bool HandshakeSender::has_ended(Peer& peer, uint64_t now) noexcept {
  if (peer.state.is_refused()) return true;  // the next poll disconnects it
  const PeerConnection& connection = peer.connection;
  const bool is_late = now >= connection.gives_up_ns;
  if (!peer.state.is_connecting())
    return is_late || PeerConnector::is_handshake_done(peer) || peer.state.is_disconnected();
  if (datagrams_.has_failed()) {
    parts_.disconnector.disconnect_later(peer,
                                         "the handshake queue pair of this process has failed");
    return true;
  }
  if (!is_late) return false;
  const bool goes_on = peer.rank < parts_.own.ranks() && !parts_.options.abandons_silent_ranks;
  warn_of_silence(peer, now, goes_on);
  if (!goes_on) parts_.disconnector.disconnect_later(peer, "it has not answered the handshakes");
  return !goes_on;
}

// Names one of the silent peers each second: there may be thousands.
void HandshakeSender::warn_of_silence(const Peer& peer, uint64_t now, bool goes_on) noexcept {
  uint64_t unnamed = 0;
  if (!silence_limit_.pass(now, &unnamed)) return;
  const Port& port = parts_.ports.all[0];
  char others[64] = "";
  if (unnamed != 0)
    std::snprintf(others, sizeof others, " (%llu more not shown)",
                  static_cast<unsigned long long>(unnamed));
  log_warning(
      "%s at %s has not answered for %llu ms: %s port %u, its handshake queue pair %u%s%s",
      name_of(peer).text, text_of(peer.endpoint.address).text,
      static_cast<unsigned long long>((now - peer.connection.handshake_since_ns) / 1'000'000),
      port.name, port.number, peer.endpoint.address.datagram_queue,
      goes_on ? "; it is computing, stopped or unreachable: handshakes continue" : "", others);
}

}  // namespace hydrant::ibv
