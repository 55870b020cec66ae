// Connects peers by handshakes. Tour "first contact": the endpoint address is read, the peer created, and
// handshakes are exchanged until both sides can receive.
#include "rdma/ibv/connection/handshakes.hpp"

namespace hydrant::ibv {

Status Handshakes::open(ibv_comp_channel* channel) noexcept {
  const MutexLock lock(mu_);
  if (const Status status = groups_.open(parts_.options.max_joined); status != Status::kOk)
    return status;
  if (const Status status = sender_.open(parts_.peers.places()); status != Status::kOk)
    return status;
  if (const Status status = datagrams_.open(parts_.ports.all[0], channel, parts_.rails.count());
      status != Status::kOk)
    return status;
  parts_.own.set_datagram_queue(datagrams_.number());
  return Status::kOk;
}

void Handshakes::close() noexcept {
  const MutexLock lock(mu_);
  datagrams_.close();
  parts_.addresses.close();
}

// ---- first contact ----

// kOk: there is such a peer, and no contact with it yet.
Status Handshakes::check_new(Rank number) const noexcept HYDRANT_NO_TSA {
  const OwnEndpoint& own = parts_.own;
  if (number == own.self())
    return fail(Status::kBadArg, "a message to oneself does not go through the transport");
  if (!exists(number))
    return fail(Status::kBadArg, "rank %u does not exist; the job has %u, and %u have been joined",
                number, own.ranks(), groups_.count());
  if (parts_.peers.is_dead(number))
    return fail(Status::kBroken, "%s %u is gone: the job has declared it dead",
                number < own.ranks() ? "rank" : "peer", number);
  return parts_.peers.find(number) != nullptr ? Status::kNotReady : Status::kOk;
}

Status Handshakes::start_connection(Rank number) noexcept {
  Status status = check_new(number);
  if (status != Status::kOk) return status;
  GroupAddress theirs;
  theirs.rank = number;
  if (number < parts_.own.ranks()) {
    status = book_.try_look_up(number, &theirs.endpoint);
    if (status == Status::kNotReady) return status;
    if (status != Status::kOk) return add_context(status, "first contact with rank %u", number);
  }
  const MutexLock lock(mu_);
  status = check_new(number);  // again, because a handshake of the peer may have come meanwhile
  if (status != Status::kOk) return status;
  if (datagrams_.has_failed()) return cannot_reach(number);
  parts_.addresses.begin_turn();
  if (number >= parts_.own.ranks()) theirs = groups_.at(number);
  Peer* peer = nullptr;
  status = parts_.factory.make(number, theirs.rank, theirs.endpoint, &peer);
  if (status != Status::kOk)
    return add_context(status, "first contact with %s",
                       name_of(number, theirs.rank, theirs.endpoint.group).text);
  const uint64_t next_ns = sender_.next_ns();
  sender_.start(*peer, parts_.now_ns());
  if (thread_ != nullptr && sender_.next_ns() < next_ns) thread_->wake();
  eager_polls_.store(kEagerPolls, std::memory_order_relaxed);
  return Status::kNotReady;
}

Status Handshakes::cannot_reach(Rank number) noexcept {
  const Port& port = parts_.ports.all[0];
  return fail(
      Status::kBroken,
      "%s %u cannot be reached: the handshake queue pair of this process, at %s port %u, has "
      "failed and could not be reset; start the job again",
      number < parts_.own.ranks() ? "rank" : "peer", number, port.name, port.number);
}

Status Handshakes::connect_to_self() noexcept {
  const Rank self = parts_.own.self();
  const MutexLock lock(mu_);
  if (parts_.peers.find(self) != nullptr) return Status::kNotReady;
  Peer* peer = nullptr;
  Status status = parts_.factory.make(self, self, parts_.own.address(0), &peer);
  if (status == Status::kOk) {
    status = connector_.connect(*peer, connector_.describe(*peer, groups_.own_group()));
    // Not by the disconnector, which would report that this rank has failed.
    if (status != Status::kOk) peer->state.disconnect("its queue pair cannot be connected");
  }
  if (status != Status::kOk) return add_context(status, "the connection of this rank with itself");
  if (peer->state.open()) parts_.counters.connected.add();
  return Status::kNotReady;
}

// ---- receiving ----

uint32_t Handshakes::poll() noexcept {
  if (!mu_.try_lock()) return 0;
  const uint32_t count = poll_locked();
  mu_.unlock();
  return count;
}

uint32_t Handshakes::wait_and_poll() noexcept {
  // The rank may compute, and then no poll posts what the adapter has refused.
  if (parts_.receiving.has_unposted()) parts_.receiving.post_unposted();
  const MutexLock lock(mu_);
  return poll_locked();
}

uint32_t Handshakes::poll_locked() noexcept {
  if (const uint32_t left = eager_polls_.load(std::memory_order_relaxed); left != 0)
    eager_polls_.store(left - 1, std::memory_order_relaxed);
  parts_.addresses.begin_turn();
  uint32_t count = 0;
  uint32_t batch = DatagramQueue::kBatch;
  for (; batch == DatagramQueue::kBatch && count < kMostAtOnce; count += batch) {
    batch = datagrams_.poll([this](const Handshake* handshake) HYDRANT_NO_TSA {
      if (server_.receive(handshake)) eager_polls_.store(kEagerPolls, std::memory_order_relaxed);
    });
  }
  // A datagram that has left makes room for another, and one that has arrived may change what is due.
  const uint64_t next_ns = count != 0 ? 0 : sender_.next_ns();
  if (next_ns != UINT64_MAX) {
    const uint64_t now = parts_.now_ns();
    if (now >= next_ns) sender_.repeat(now);
  }
  return count;
}

// ---- groups that meet ----

Status Handshakes::find_own_group() noexcept {
  {
    const MutexLock lock(mu_);
    if (groups_.own_group() != 0) return Status::kOk;
  }
  uint64_t nonce = parts_.own.nonce();
  if (parts_.own.self() != 0) {
    EndpointAddress endpoint;
    if (const Status status = book_.look_up(0, &endpoint); status != Status::kOk)
      return add_context(status, "cannot find the name of this group");
    nonce = endpoint.address.nonce;
  }
  if (nonce == 0) return fail(Status::kBroken, "the endpoint address of rank 0 names no process");
  const MutexLock lock(mu_);
  groups_.set_own_group(nonce);
  return Status::kOk;
}

Status Handshakes::group_address(std::span<std::byte> blob, size_t* bytes) noexcept {
  const size_t needed = group_address_bytes(parts_.rails.count());
  if (blob.size() < needed)
    return fail(Status::kBadArg,
                "the group address has %zu bytes, the buffer %zu: pass one of %zu bytes", needed,
                blob.size(), kMaxGroupAddressBytes);
  if (const Status status = find_own_group(); status != Status::kOk) return status;
  const MutexLock lock(mu_);
  GroupAddress made{parts_.own.self(), parts_.own.ranks(), parts_.own.address()};
  made.endpoint.group = groups_.own_group();
  encode_group_address(made, blob.data());
  *bytes = needed;
  return Status::kOk;
}

Status Handshakes::join(std::span<const std::span<const std::byte>> endpoints,
                        std::span<Rank> numbers) noexcept {
  if (numbers.size() < endpoints.size())
    return fail(Status::kBadArg, "%zu endpoint addresses, and room for the numbers of %zu",
                endpoints.size(), numbers.size());
  if (const Status status = find_own_group(); status != Status::kOk) return status;
  const MutexLock lock(mu_);
  return groups_.join(endpoints, numbers);
}

}  // namespace hydrant::ibv
