// Creates everything that one peer needs: memory, queue pairs, and room in shared queues. Tour "first
// contact": the peer is created here, before its handshake starts.
#include "rdma/ibv/connection/peer_factory.hpp"

#include "firehose/base/log.hpp"
#include "rdma/ibv/connection/ibv_queue_pair.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace hydrant::ibv {

Status PeerFactory::check_settings(const PeerName& name,
                                   const EndpointAddress& endpoint) const noexcept {
  const ConnectionParameters theirs = endpoint.connection_parameters;
  const ConnectionParameters ours = own_.connection_parameters();
  if (theirs != ours) {
    char text[256] = "";
    const auto compare = [&text](const char* what, uint32_t theirs_one, uint32_t ours_one) {
      const size_t used = strlen(text);
      if (theirs_one != ours_one)
        snprintf(text + used, sizeof text - used, "%s %u %s, not %u", used == 0 ? ":" : ";",
                 theirs_one, what, ours_one);
    };
    compare("bytes of a message", theirs.message_bytes, ours.message_bytes);
    compare("bytes of a cell", theirs.cell_bytes, ours.cell_bytes);
    compare("credits", theirs.credits, ours.credits);
    compare("receive slots", theirs.receive_slots, ours.receive_slots);
    return fail(Status::kBroken,
                "%s has other settings than this one%s (HYDRANT_AM_EAGER and HYDRANT_IBV_CREDITS "
                "have to be the same on all ranks)",
                name.text, text);
  }
  const PortAddress& there = endpoint.address;
  const char* const reason = why_unreachable(port(), there);
  if (reason == nullptr) return Status::kOk;
  return fail(Status::kBroken,
              "%s at %s cannot be reached from %s port %u: %s: choose with HYDRANT_IBV_PORTS",
              name.text, text_of(there).text, port().name, port().number, reason);
}

Status PeerFactory::make(Rank rank, Rank their_rank, const EndpointAddress& endpoint,
                         Peer** made) noexcept {
  const PeerName name = name_of(rank, their_rank, endpoint.group);
  refusal_ = Refusal::kClosed;
  if (!ports_.keep_descriptors()) return device_is_closed(port().name);
  refusal_ = Refusal::kMoved;
  Status status = confirm_address(port(), &endpoint.address, &ports_.all[0].gid_index);
  if (status != Status::kOk) return status;
  refusal_ = Refusal::kSettings;
  status = check_settings(name, endpoint);
  if (status != Status::kOk) return status;
  refusal_ = Refusal::kFull;
  const uint32_t receives = receives_from(rank);
  status = make_room(receives);
  if (status != Status::kOk) return status;
  refusal_ = Refusal::kNoMemory;
  std::unique_ptr<Peer> peer(new (std::nothrow) Peer);
  if (peer == nullptr) return fail(Status::kResource, "no memory for %s", name.text);
  peer->rank = rank;
  peer->is_self = rank == own_.self();
  peer->connection.their_rank = their_rank;
  peer->endpoint = endpoint;
  status = allocate(*peer, receives);
  if (status == Status::kOk) status = open_queue(*peer, receives);
  if (status == Status::kOk && !peer->is_self) status = open_address(*peer);
  if (status != Status::kOk) return status;
  if (!peer->is_self) open_rails(*peer);  // it has atomics alone, which use the first port

  // Posted buffers receive messages of any peer, so from here on the peer is never removed.
  if (receives != 0) ++count_;
  completions_.count_peer();
  Peer& published = peers_.publish(std::move(peer));
  receiving_.add_buffers(published, receives);
  *made = &published;
  return Status::kOk;
}

// No messages come from this process itself, and the receive queue has no room for them.
uint32_t PeerFactory::receives_from(Rank rank) const noexcept {
  return rank != own_.self() ? options_.receives_per_peer() : 0;
}

Status PeerFactory::make_room(uint32_t receives) noexcept {
  if (receives != 0 && uint64_t{count_ + 1} * receives > receiving_.capacity())
    return fail(Status::kResource,
                "%s: the shared receive queue holds %u buffers, %u peers have them all (%u each): "
                "fewer credits (HYDRANT_IBV_CREDITS)",
                port().name, receiving_.capacity(), count_, receives);
  return completions_.make_room();
}

Status PeerFactory::allocate(Peer& peer, uint32_t receives) noexcept {
  const uint32_t slots = options_.send_slots();
  const uint32_t slot_bytes = options_.slot_bytes();
  PeerMemory& memory = peer.memory;
  Status status = memory.buffers.open(port().device.pd, size_t{slots + receives} * slot_bytes,
                                      IBV_ACCESS_LOCAL_WRITE, "a peer's messages");
  if (status == Status::kOk)
    status = memory.receive_slots.open(
        port().device.pd, size_t{kLaneCount} * options_.receive_slots * options_.cell_bytes,
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
        "a peer's cells");
  if (status != Status::kOk) return status;
  memory.received.reset(new (std::nothrow) ReceiveBuffer[receives]);
  if (memory.received == nullptr) return fail(Status::kResource, "no memory for a peer's messages");
  status = peer.slots.open(memory.buffers.data(), slot_bytes, slots);
  if (status == Status::kOk) status = peer.credits.open(options_.credits, options_.receive_slots);
  if (status != Status::kOk) return status;
  for (DeliveryQueue& queue : peer.delivery_queues) queue.set_peer(peer);
  PeerRequests& requests = peer.requests;
  for (SendRequest* request : {&requests.message, &requests.cell, &requests.operation}) {
    request->work.sg_list = &request->piece;
    request->work.num_sge = 1;
  }
  requests.message.piece.lkey = memory.buffers.lkey();
  requests.message.work.opcode = IBV_WR_SEND;
  requests.cell.work.opcode = IBV_WR_RDMA_WRITE;
  requests.cell.work.next = &requests.message.work;
  for (uint32_t i = 0; i < receives; ++i)
    memory.received[i].set(peer.slots.at(slots + i), slot_bytes, memory.buffers.lkey());
  return Status::kOk;
}

Status PeerFactory::open_queue(Peer& peer, uint32_t receives) noexcept {
  if (const Status status = peer.send.open({.peer = &peer,
                                            .port = &port(),
                                            .completions = completions_.get(),
                                            .receives = receiving_.queue(),
                                            .own_receives = receives,
                                            .depth = options_.send_depth,
                                            .inline_bytes = options_.inline_bytes});
      status != Status::kOk)
    return status;
  peer.connection.first_sequence = draw_sequence();
  return start_queue_pair(peer.send.pair(), port());
}

// The last step that can fail. If the adapter has no more address handles now, or the peer's node is silent,
// the handshake waits for one.
Status PeerFactory::open_address(Peer& peer) noexcept {
  Destination* const destination = addresses_.add_user(peer.endpoint.address);
  if (destination == nullptr) return Status::kResource;
  const Status status = addresses_.make(*destination, name_of(peer).text);
  if (status != Status::kOk && status != Status::kNotReady) {
    addresses_.remove_user(*destination);
    return status;
  }
  peer.connection.destination = destination;
  return Status::kOk;
}

// Opens as many rails as both processes have. Rail i is connected with rail i of the peer, so ports that
// reach each other must have the same place in HYDRANT_IBV_PORTS. A rail that cannot be opened is left out.
void PeerFactory::open_rails(Peer& peer) noexcept {
  const uint32_t both = std::min(rails_.count(), peer.endpoint.rail_count);
  if (both == 0) return;
  peer.rails.reset(new (std::nothrow) PeerRails);
  if (peer.rails == nullptr) return;
  for (uint32_t i = 0; i < both; ++i) {
    if (!rails_[i].completions.is_open() || open_rail(peer, i) == Status::kOk) continue;
    peer.rails->rails[i].send.close();
    log_warning(rail_limit_, "%s port %u is not used for %s: %s", rails_[i].port.name,
                rails_[i].port.number, name_of(peer).text, last_error_text());
  }
}

Status PeerFactory::open_rail(Peer& peer, uint32_t index) noexcept {
  Rail& rail = rails_[index];
  PeerRail& end = peer.rails->rails[index];
  const char* const reason = why_unreachable(rail.port, peer.endpoint.rails[index]);
  if (reason != nullptr)
    return fail(Status::kUnsupported,
                "its port %u cannot be reached: %s: name the ports in the same order on all ranks",
                index + 2, reason);
  if (const Status status =
          confirm_address(rail.port, &peer.endpoint.rails[index], &rail.port.gid_index);
      status != Status::kOk)
    return status;
  if (const Status status = rail.completions.make_room(); status != Status::kOk) return status;
  if (const Status status = end.send.open({.peer = &peer,
                                           .port = &rail.port,
                                           .completions = rail.completions.get(),
                                           .receives = nullptr,
                                           .depth = rail.depth,
                                           .inline_bytes = 0});
      status != Status::kOk)
    return status;
  rail.completions.count_peer();
  end.first_sequence = draw_sequence();
  return start_queue_pair(end.send.pair(), rail.port);
}

}  // namespace hydrant::ibv
