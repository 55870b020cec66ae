// How a queue pair is connected: by datagrams that each side repeats until it knows that the other can
// receive. Both may begin; each has one queue pair for the other, so that greetings that cross are one
// connection as well.
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "rdma/ibv/ibv_transport.hpp"

#include <algorithm>
#include <cstring>

namespace hydrant {

using ibv::Greeting;
using ibv::Peer;

namespace {

constexpr uint64_t kCardNs = 10'000'000'000;
constexpr uint64_t kLongestIntervalNs = 500'000'000;

}  // namespace

// Asks the launcher for the card of a rank of this job.
Status IbvTransport::read_card(Rank rank, ibv::Card* card) noexcept {
  std::byte bytes[ibv::kMostCardBytes + 1];
  size_t length = 0;
  const Status status = bootstrap_.get(rank, kCardKey, bytes, &length, now_ns() + kCardNs);
  if (status == Status::kNotReady)
    return fail(Status::kBroken, "rank %u has no card of verbs: it talks by something else", rank);
  if (status != Status::kOk) return status;
  if (ibv::decode_card({bytes, std::min(length, sizeof bytes)}, card) != Status::kOk)
    return Status::kBroken;
  return card->group == 0 ? Status::kOk
                          : fail(Status::kBroken, "rank %u has the card of another job", rank);
}

// Asks for the peer's card, makes a queue pair, and greets.
Status IbvTransport::contact(Rank rank) noexcept {
  if (rank == self_)
    return fail(Status::kBadArg, "a message to oneself does not go through the transport");
  const uint32_t joined = joined_count_.load(std::memory_order_acquire);
  if (rank >= ranks_ + joined)
    return fail(Status::kBadArg, "rank %u does not exist; the job has %u, and %u have been joined",
                rank, ranks_, joined);
  if (buried_[rank].load(std::memory_order_acquire))
    return fail(Status::kBroken, "%s %u is gone: the job has buried it",
                rank < ranks_ ? "rank" : "peer", rank);
  const MutexLock lock(contact_mu_);
  if (peer_of(rank) != nullptr) return Status::kNotReady;
  Peer* peer = nullptr;
  Status status = Status::kOk;
  ibv::PeerName who = name_of(rank, rank, 0);
  if (rank >= ranks_) {
    const ibv::GroupCard& theirs = joined_[rank - ranks_];
    who = name_of(rank, theirs.rank, theirs.card.group);
    status = make_peer(rank, theirs.rank, theirs.card, &peer);
  } else {
    ibv::Card card;
    status = read_card(rank, &card);
    if (status == Status::kOk) status = make_peer(rank, rank, card, &peer);
  }
  if (status != Status::kOk) return add_context(status, "first contact with %s", who.text);
  start_connecting(*peer);
  return Status::kNotReady;
}

void IbvTransport::start_connecting(Peer& peer) noexcept {
  peer.greeting_interval_ns = options_.greeting_ns;
  peer.greeted_since_ns = now_ns();
  peer.gives_up_ns = peer.greeted_since_ns + options_.connect_ns;
  peer.next_connecting = connecting_;
  connecting_ = &peer;
  connecting_count_.fetch_add(1, std::memory_order_relaxed);
  repeat_greetings(now_ns());
}

// False if there is no room for it now.
bool IbvTransport::greet(Peer& peer) noexcept {
  if (datagram_sends_ == kDatagramSends) return false;
  Greeting greeting;
  greeting.card = own_card(std::min(rail_count_, peer.card.rail_count));
  if (peer.card.group != 0) greeting.card.group = group_;
  greeting.to_nonce = peer.card.address.nonce;
  greeting.from = self_;
  greeting.to = peer.their_rank;
  greeting.known_as = peer.rank;
  greeting.queue_pair = peer.queue->qp_num;
  greeting.sequence = peer.first_sequence;
  greeting.landing = reinterpret_cast<uintptr_t>(peer.landings.data());
  greeting.landing_key = peer.landings.rkey();
  greeting.heard = peer.heard;
  greeting.open = is_settled(peer);
  name_rails(peer, &greeting);

  std::byte* slot = datagram_memory_.data() + size_t{kDatagrams + next_datagram_ % kDatagramSends} *
                                                  datagram_bytes(rail_count_);
  ibv::encode_greeting(greeting, slot);
  const size_t bytes = ibv::greeting_bytes(greeting.card.rail_count);
  ibv_sge piece{reinterpret_cast<uintptr_t>(slot), static_cast<uint32_t>(bytes),
                datagram_memory_.lkey()};
  ibv_send_wr request{};
  request.wr_id = kDatagrams;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.ud.ah = peer.address.get();
  request.wr.ud.remote_qpn = peer.card.address.datagram_queue;
  request.wr.ud.remote_qkey = kGreetingKey;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(datagrams_.get(), &request, &bad);
  if (error != 0) {
    static RateLimit limit(RateLimit::kSecond);
    log_warning(limit, "%s: a greeting to %s cannot be sent: %s; trying again", port_.name,
                name_of(peer).text, errno_text(error));
    return false;
  }
  ++datagram_sends_;
  ++next_datagram_;
  counts_.greetings.fetch_add(1, std::memory_order_relaxed);
  return true;
}

Status IbvTransport::post_datagram_receive(uint32_t index) noexcept {
  const uint32_t room = datagram_bytes(rail_count_);
  std::byte* buffer = datagram_memory_.data() + size_t{index} * room;
  ibv_sge piece{reinterpret_cast<uintptr_t>(buffer), room, datagram_memory_.lkey()};
  ibv_recv_wr request{};
  request.wr_id = index;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(datagrams_.get(), &request, &bad);
  if (error == 0) return Status::kOk;
  return fail(Status::kResource, "%s: a buffer for greetings cannot be posted: %s", port_.name,
              errno_text(error));
}

// Greetings that have come, and those that are to be repeated. Answers how many came.
uint32_t IbvTransport::shake_hands() noexcept {
  if (!contact_mu_.try_lock()) return 0;
  ibv_wc completions[kBatch];
  const int count = ibv_poll_cq(datagram_completions_.get(), kBatch, completions);
  for (int i = 0; i < count; ++i) hear(completions[i]);
  if (connecting_ != nullptr) repeat_greetings(now_ns());
  contact_mu_.unlock();
  return count > 0 ? static_cast<uint32_t>(count) : 0;
}

void IbvTransport::hear(const ibv_wc& completion) noexcept {
  if (completion.wr_id >= kDatagrams) {
    --datagram_sends_;  // lost or not: it is repeated
    return;
  }
  const auto index = static_cast<uint32_t>(completion.wr_id);
  Greeting greeting;
  Rank from = kNoRank;
  if (completion.status == IBV_WC_SUCCESS && completion.byte_len >= kGrhBytes &&
      completion.byte_len <= datagram_bytes(rail_count_)) {
    const std::byte* buffer = datagram_memory_.data() + size_t{index} * datagram_bytes(rail_count_);
    const size_t bytes = completion.byte_len - kGrhBytes;
    if (ibv::decode_greeting({buffer + kGrhBytes, bytes}, &greeting) == Status::kOk)
      from = sender_of(greeting);
  }
  // The buffer is empty from here on.
  if (post_datagram_receive(index) != Status::kOk) log_warning("%s", last_error_text());
  if (from != kNoRank) {
    answer(greeting, from);
    return;
  }
  counts_.strangers.fetch_add(1, std::memory_order_relaxed);
  if (log_enabled(LogLevel::kDebug))
    log_debug("verbs: a datagram is ignored: %s", last_error_text());
}

void IbvTransport::answer(const Greeting& greeting, Rank from) noexcept {
  if (buried_[from].load(std::memory_order_acquire)) return;
  Peer* peer = peer_of(from);
  if (peer == nullptr) {
    if (make_peer(from, greeting.from, greeting.card, &peer) != Status::kOk) {
      static RateLimit limit(RateLimit::kSecond);
      log_warning(limit, "%s cannot be connected: %s",
                  name_of(from, greeting.from, greeting.card.group).text, last_error_text());
      return;
    }
    start_connecting(*peer);
  }
  if (peer->card.address.nonce != greeting.card.address.nonce ||
      peer->state.load(std::memory_order_acquire) == Peer::State::kLost) {
    counts_.strangers.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (!peer->heard && connect(*peer, greeting) != Status::kOk) {
    log_warning("%s", last_error_text());
    lose(*peer, "its queue pair could not be connected");
    return;
  }
  if (greeting.heard) {
    learn_rails(*peer, greeting);
    now_open(*peer);
  }
  if (!greeting.open) (void)greet(*peer);
}

// Nothing is left to be asked of the peer.
bool IbvTransport::is_settled(const Peer& peer) noexcept {
  return peer.state.load(std::memory_order_acquire) == Peer::State::kOpen &&
         (peer.rails == nullptr || peer.rails->is_known);
}

// The peer can receive. Also called when a message has come: whoever sends has heard.
void IbvTransport::now_open(Peer& peer) noexcept {
  Peer::State expected = Peer::State::kConnecting;
  if (peer.state.compare_exchange_strong(expected, Peer::State::kOpen, std::memory_order_acq_rel))
    counts_.connected.fetch_add(1, std::memory_order_relaxed);
}

void IbvTransport::repeat_greetings(uint64_t now) noexcept {
  uint64_t next_ns = UINT64_MAX;
  for (Peer** link = &connecting_; *link != nullptr;) {
    Peer& peer = **link;
    const bool is_connecting =
        peer.state.load(std::memory_order_acquire) == Peer::State::kConnecting;
    bool is_over =
        !is_connecting && (is_settled(peer) || now >= peer.gives_up_ns ||
                           peer.state.load(std::memory_order_acquire) == Peer::State::kLost);
    if (is_connecting && now >= peer.gives_up_ns) {
      const bool asks_on = peer.rank < ranks_ && !options_.gives_silent_ranks_up;
      log_warning("%s at %s has not answered for %llu ms: %s port %u, its queue for greetings %u%s",
                  name_of(peer).text, text_of(peer.card.address).text,
                  static_cast<unsigned long long>((now - peer.greeted_since_ns) / 1'000'000),
                  port_.name, port_.number, peer.card.address.datagram_queue,
                  asks_on ? "; it computes, is stopped, or cannot be reached: asking on" : "");
      if (asks_on) {
        peer.gives_up_ns = now + options_.connect_ns;
      } else {
        lose(peer, "it has not answered when it was to be connected");
        is_over = true;
      }
    }
    if (is_over) {
      *link = peer.next_connecting;
      connecting_count_.fetch_sub(1, std::memory_order_relaxed);
      continue;
    }
    if (now >= peer.next_greeting_ns) {
      (void)greet(peer);
      peer.next_greeting_ns = now + peer.greeting_interval_ns;
      peer.greeting_interval_ns = std::min(peer.greeting_interval_ns * 2, kLongestIntervalNs);
    }
    next_ns = std::min({next_ns, peer.next_greeting_ns, peer.gives_up_ns});
    link = &peer.next_connecting;
  }
  next_greeting_ns_.store(next_ns, std::memory_order_relaxed);
}

// ---- what the device says of itself ----

void IbvTransport::read_events() noexcept {
  for (uint32_t i = 0; i < ports_.count; ++i) {
    bool is_read = false;
    for (uint32_t j = 0; j < i; ++j)
      is_read |= ports_.all[j].device.context == ports_.all[i].device.context;
    if (!is_read) read_events_of(ports_.all[i]);
  }
}

// Of the device of `port`.
void IbvTransport::read_events_of(const ibv::Port& port) noexcept {
  ibv_async_event event{};
  while (ibv_get_async_event(port.device.context, &event) == 0) {
    const char* text = ibv_event_type_str(event.event_type);
    switch (event.event_type) {
      case IBV_EVENT_DEVICE_FATAL:
      case IBV_EVENT_CQ_ERR:
      case IBV_EVENT_SRQ_ERR:
        log_error("verbs device %s has failed: %s", port.name, text);
        lose_all("the verbs device has failed");
        break;
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_PATH_MIG_ERR: {
        auto* peer = static_cast<Peer*>(event.element.qp->qp_context);
        if (peer == nullptr) break;
        log_warning("the queue pair to %s has failed: %s", name_of(*peer).text, text);
        lose(*peer, "its queue pair has failed");
        break;
      }
      case IBV_EVENT_PORT_ERR:
        // What is under way waits as long as the queue pairs repeat their packets, and then fails.
        for (uint32_t i = 0; i < ports_.count; ++i) {
          const ibv::Port& down = ports_.all[i];
          if (down.device.context == port.device.context && down.number == event.element.port_num)
            log_warning("%s port %u is down", down.name, down.number);
        }
        break;
      default: log_debug("%s: %s", port.name, text); break;
    }
    ibv_ack_async_event(&event);
  }
}

}  // namespace hydrant
