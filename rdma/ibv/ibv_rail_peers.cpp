// The rails of this process, and those between it and a peer: made, connected, told of by greetings. A rail
// that cannot be had is done without; what goes by it goes by the others.
#include "firehose/base/config.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "rdma/ibv/ibv_queue_pair.hpp"
#include "rdma/ibv/ibv_transport.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <fcntl.h>
#include <new>

namespace hydrant {

using ibv::Greeting;
using ibv::Peer;
using ibv::PeerRail;
using ibv::PeerRails;
using ibv::Rail;
using ibv::RailRecord;

namespace {

constexpr uint32_t kLeastDepth = 16;
constexpr size_t kLeastStripe = 65536;  // no share is empty, or could do without a key
constexpr uint32_t kPeersAtFirst = 8;

}  // namespace

// ---- of this process ----

void IbvTransport::open_rails() noexcept {
  if (options_.stripe_bytes == 0) options_.stripe_bytes = knob_number(Knob::kIbvStripeMin);
  options_.stripe_bytes = std::max(options_.stripe_bytes, kLeastStripe);
  shares_.reset(new (std::nothrow) ibv::Share[size_t{options_.operations} * (ibv::kMostRails - 1)]);
  if (shares_ == nullptr) {
    log_warning("no memory for several verbs ports: one is used");
    return;
  }
  rail_count_ = ports_.count - 1;
  for (uint32_t i = 0; i < rail_count_; ++i) {
    rails_[i].port = ports_.all[i + 1];
    if (open_rail(rails_[i]) != Status::kOk) {
      log_warning("verbs port %s:%u is left out: %s", rails_[i].port.name, rails_[i].port.number,
                  last_error_text());
      rails_[i].completions.reset();
    }
  }
  max_at_once_ = std::min<size_t>(max_piece_, options_.stripe_bytes - 1);
}

// For people who wonder which of several were taken.
void IbvTransport::say_ports() const noexcept {
  if (!log_enabled(LogLevel::kInfo)) return;
  const ibv::Card card = own_card(rail_count_);
  log_info("verbs: rank %u talks by %s port %u at %s, GID index %u", self_, port_.name,
           port_.number, text_of(card.address).text, port_.gid_index);
  for (uint32_t i = 0; i < rail_count_; ++i) {
    if (rails_[i].completions == nullptr) continue;  // left out, and said
    const ibv::Port& port = rails_[i].port;
    log_info(
        "verbs: rank %u puts and gets by %s port %u at %s, GID index %u, too", self_, port.name,
        port.number,
        ibv::text_of({.lid = port.lid, .is_ethernet = card.rails[i].is_ethernet, .gid = port.gid})
            .text,
        port.gid_index);
  }
}

// Its place among the rails stays, whatever becomes of it: peers have theirs at the same one.
Status IbvTransport::open_rail(Rail& rail) noexcept {
  const ibv::Port& port = rail.port;
  const int async = port.device.context->async_fd;
  if (fcntl(async, F_SETFL, fcntl(async, F_GETFL) | O_NONBLOCK) != 0)
    return fail(Status::kResource, "its events cannot be read without waiting: %s",
                errno_text(errno));
  rail.depth = std::min(options_.send_depth, port.max_sends);
  if (rail.depth < kLeastDepth)
    return fail(Status::kResource, "its send queues have %u entries, %u are the least", rail.depth,
                kLeastDepth);
  rail.mask = std::bit_ceil(rail.depth) - 1;
  const uint32_t others = std::max(places_, 2u) - 1;
  rail.capacity = static_cast<uint32_t>(std::min<uint64_t>(
      uint64_t{std::min(others, kPeersAtFirst)} * rail.depth, port.max_completions));
  errno = 0;
  rail.completions.reset(
      ibv_create_cq(port.device.context, static_cast<int>(rail.capacity), this, nullptr, 0));
  if (rail.completions == nullptr)
    return fail(Status::kResource, "no completion queue of %u entries: %s", rail.capacity,
                errno_text(errno));
  return rail.fence.open(port.device.pd, sizeof(uint64_t),
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, "a rail's fences");
}

void IbvTransport::close_rails() noexcept {
  for (Rail& rail : rails_) {
    rail.completions.reset();
    rail.fence.close();
  }
}

uint32_t IbvTransport::rails_with(Rank rank) const noexcept {
  const Peer* const peer = peer_of(rank);
  if (peer == nullptr || peer->rails == nullptr) return 1;
  return 1 +
         static_cast<uint32_t>(std::popcount(peer->rails->usable.load(std::memory_order_relaxed)));
}

// ---- of a peer ----

// As many as both have. Rail i goes with rail i: whoever names the ports says by their order which reach each
// other.
void IbvTransport::make_peer_rails(Peer& peer) noexcept {
  const uint32_t both = std::min(rail_count_, peer.card.rail_count);
  if (both == 0) return;
  peer.rails.reset(new (std::nothrow) PeerRails);
  if (peer.rails == nullptr) return;
  for (uint32_t i = 0; i < both; ++i) {
    if (rails_[i].completions == nullptr || make_rail(peer, i) == Status::kOk) continue;
    peer.rails->rails[i].queue.reset();
    log_warning("%s port %u is not used to talk to %s: %s", rails_[i].port.name,
                rails_[i].port.number, name_of(peer).text, last_error_text());
  }
}

Status IbvTransport::make_rail(Peer& peer, uint32_t index) noexcept {
  Rail& rail = rails_[index];
  PeerRail& end = peer.rails->rails[index];
  const ibv::RailAddress& there = peer.card.rails[index];
  if ((there.is_ethernet != 0) != rail.port.is_ethernet)
    return fail(Status::kUnsupported,
                "its port %u talks by %s: name the ports in the same order on all ranks", index + 2,
                rail.port.is_ethernet ? "InfiniBand" : "Ethernet");
  // On InfiniBand a LID means something within its subnet only.
  if (!rail.port.is_ethernet &&
      !std::equal(rail.port.gid.raw, rail.port.gid.raw + 8, there.gid.raw))
    return fail(Status::kUnsupported,
                "its port %u is in another subnet: name the ports in the same order on all ranks",
                index + 2);
  if (const Status status = make_room_on_rail(rail); status != Status::kOk) return status;
  end.records.reset(new (std::nothrow) RailRecord[rail.mask + 1]);
  if (end.records == nullptr) return fail(Status::kResource, "no memory for its send queue");
  ibv_qp_init_attr attributes{};
  attributes.qp_context = &peer;
  attributes.send_cq = attributes.recv_cq = rail.completions.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = rail.depth;
  attributes.cap.max_send_sge = 1;
  errno = 0;
  end.queue.reset(ibv_create_qp(rail.port.device.pd, &attributes));
  if (end.queue == nullptr)
    return fail(Status::kResource, "no queue pair: %s (it has %u in all)", errno_text(errno),
                rail.port.max_queue_pairs);
  ++rail.peers;
  end.first_sequence = ibv::draw_sequence();
  return ibv::start_queue_pair(end.queue.get(), rail.port);
}

// For every entry of the send queue, as that is all that is told of there.
Status IbvTransport::make_room_on_rail(Rail& rail) noexcept HYDRANT_NO_TSA {
  const uint64_t needed = uint64_t{rail.peers + 1} * rail.depth;
  if (needed <= rail.capacity) return Status::kOk;
  if (needed > rail.port.max_completions)
    return fail(Status::kResource,
                "its completion queue holds at most %u entries, %u peers have "
                "them all (%u each)",
                rail.port.max_completions, rail.peers, rail.depth);
  const auto wanted =
      static_cast<uint32_t>(std::min<uint64_t>(needed * 2, rail.port.max_completions));
  while (threaded_ && !rails_lock_.try_lock()) sched_yield();
  const int error = ibv_resize_cq(rail.completions.get(), static_cast<int>(wanted));
  if (threaded_) rails_lock_.unlock();
  if (error != 0)
    return fail(Status::kResource, "its completion queue cannot grow from %u to %u entries: %s",
                rail.capacity, wanted, errno_text(error > 0 ? error : errno));
  rail.capacity = wanted;
  return Status::kOk;
}

void IbvTransport::connect_rails(Peer& peer, const Greeting& greeting) noexcept {
  if (peer.rails == nullptr) return;
  const uint32_t both = std::min(rail_count_, greeting.card.rail_count);
  for (uint32_t i = 0; i < both; ++i) {
    PeerRail& end = peer.rails->rails[i];
    if (end.queue == nullptr || greeting.rails[i].queue_pair == 0) continue;
    const ibv::RailAddress& there = greeting.card.rails[i];
    const ibv::PeerName who = name_of(peer);
    const Status status = ibv::connect_queue_pair({.queue = end.queue.get(),
                                                   .port = &rails_[i].port,
                                                   .own_sequence = end.first_sequence,
                                                   .timeout = options_.timeout,
                                                   .peer = who.text,
                                                   .gid = there.gid,
                                                   .lid = there.lid,
                                                   .mtu = there.mtu,
                                                   .number = greeting.rails[i].queue_pair,
                                                   .sequence = greeting.rails[i].sequence});
    end.is_ready = status == Status::kOk;
    end.their_fence = greeting.rails[i].fence;
    end.their_fence_key = greeting.rails[i].fence_key;
    if (!end.is_ready) log_warning("%s", last_error_text());
  }
}

// What this rank says of its ends.
void IbvTransport::name_rails(const Peer& peer, Greeting* greeting) const noexcept {
  if (peer.rails == nullptr) return;
  for (uint32_t i = 0; i < greeting->card.rail_count; ++i) {
    const PeerRail& end = peer.rails->rails[i];
    if (end.queue == nullptr) continue;
    greeting->rails[i] = {.queue_pair = end.queue->qp_num,
                          .sequence = end.first_sequence,
                          .fence_key = rails_[i].fence.rkey(),
                          .fence = reinterpret_cast<uintptr_t>(rails_[i].fence.data()),
                          .is_ready = end.is_ready};
  }
}

// What the peer says of its ends: nothing goes to one that cannot receive.
void IbvTransport::learn_rails(Peer& peer, const Greeting& greeting) noexcept {
  if (peer.rails == nullptr || peer.rails->is_known) return;
  peer.rails->is_known = true;
  uint32_t usable = 0;
  for (uint32_t i = 0; i < std::min(rail_count_, greeting.card.rail_count); ++i) {
    if (peer.rails->rails[i].is_ready && greeting.rails[i].is_ready) usable |= 1U << i;
  }
  const Guard guard(peer.lock, threaded_);
  peer.rails->usable.store(usable, std::memory_order_relaxed);
}

}  // namespace hydrant
