// Implements Transport over verbs by passing each call to a part. A call for a peer without contact starts
// the connection.
#include "rdma/ibv/ibv_transport.hpp"

#include "firehose/base/machine/machine_limits.hpp"
#include "firehose/registrars/ibv/ibv_registrar.hpp"
#include "rdma/ibv/registrar/rail_registrar.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

namespace hydrant {

using ibv::Peer;

// ---- messages ----

Status IbvTransport::post(Rank rank, Lane lane, uint32_t tag, const void* head,
                          uint32_t bytes) noexcept {
  Peer* const peer = peers_.find(rank);
  if (peer == nullptr || !messages_.is_copied(bytes)) [[unlikely]]
    return Transport::post(rank, lane, tag, head, bytes);
  return messages_.post(*peer, lane, tag, head, bytes);
}

Status IbvTransport::reserve(Rank rank, Lane lane, uint32_t bytes, Outgoing* room) noexcept {
  if (bytes > options_.eager_bytes) [[unlikely]]
    return fail(Status::kBadArg, "a message of %u bytes; the most is %u", bytes,
                options_.eager_bytes);
  Peer* const peer = peers_.find(rank);
  if (peer == nullptr) [[unlikely]]
    return handshakes_.start_connection(rank);
  return messages_.reserve(*peer, lane, bytes, room);
}

void IbvTransport::commit(Outgoing& room, uint32_t tag) noexcept {
  messages_.commit(room, tag, nullptr, 0);
}

void IbvTransport::commit_with_cell(Outgoing& room, uint32_t tag, const Cell& cell,
                                    uint32_t bytes) noexcept {
  messages_.commit(room, tag, &cell, bytes);
}

Status IbvTransport::take_cell(Rank, Lane lane, uint32_t bytes, Cell* cell) noexcept {
  if (bytes > options_.cell_bytes) [[unlikely]]
    return fail(Status::kBadArg, "a cell of %u bytes; the largest has %u", bytes,
                options_.cell_bytes);
  return cells_[static_cast<uint32_t>(lane)].take(cell);
}

void IbvTransport::drop_cell(Rank, Lane lane, const Cell& cell) noexcept {
  cells_[static_cast<uint32_t>(lane)].release(cell.index);
}

Status IbvTransport::write(Rank, uintptr_t, const void*, size_t) noexcept {
  return fail_literal(Status::kUnsupported, "verbs reach pinned memory only");
}

// ---- operations ----

Status IbvTransport::put_pinned(Rank rank, const Pinned& remote, const Pinned& local, size_t bytes,
                                Completion* completion) noexcept {
  Peer* const peer = peers_.find(rank);
  if (peer == nullptr) [[unlikely]]
    return handshakes_.start_connection(rank);
  return operations_.begin<true>(*peer, remote, local, bytes, completion);
}

Status IbvTransport::get_pinned(Rank rank, const Pinned& remote, const Pinned& local, size_t bytes,
                                Completion* completion) noexcept {
  Peer* const peer = peers_.find(rank);
  if (peer == nullptr) [[unlikely]]
    return handshakes_.start_connection(rank);
  return operations_.begin<false>(*peer, remote, local, bytes, completion);
}

size_t IbvTransport::put_pinned_list(Rank rank, std::span<const PinnedOperation> list) noexcept {
  Peer* const peer = peers_.find(rank);
  return peer != nullptr ? operations_.begin_list<true>(*peer, list) : 0;
}

size_t IbvTransport::get_pinned_list(Rank rank, std::span<const PinnedOperation> list) noexcept {
  Peer* const peer = peers_.find(rank);
  return peer != nullptr ? operations_.begin_list<false>(*peer, list) : 0;
}

std::unique_ptr<Transport::PersistentRequest> IbvTransport::make_persistent_put(
    Rank rank, uintptr_t remote, uintptr_t local, size_t bytes) noexcept {
  Peer* const peer = peers_.find(rank);
  return peer != nullptr ? operations_.prepare(true, *peer, remote, local, bytes) : nullptr;
}

std::unique_ptr<Transport::PersistentRequest> IbvTransport::make_persistent_get(
    Rank rank, uintptr_t remote, uintptr_t local, size_t bytes) noexcept {
  Peer* const peer = peers_.find(rank);
  return peer != nullptr ? operations_.prepare(false, *peer, remote, local, bytes) : nullptr;
}

Status IbvTransport::start_atomic(Rank rank, const Pinned& remote, const Pinned& local,
                                  const Atomic& what, Completion* completion) noexcept {
  if (!has_atomics_)
    return fail(
        Status::kUnsupported,
        "%s has no remote atomic operations, or another device of HYDRANT_IBV_PORTS has not "
        "(ibv_devinfo -v: atomic_cap): send the owner of the word a request message instead",
        port_.name);
  if (remote.addr % sizeof(uint64_t) != 0)
    return fail(Status::kBadArg,
                "an atomic operation on the word at %#zx: its address has to be a multiple of %zu",
                static_cast<size_t>(remote.addr), sizeof(uint64_t));
  if (remote.key == nullptr || local.key == nullptr)
    return fail_literal(Status::kBadArg,
                        "an atomic operation: the remote word or the local result has no key");
  Peer* const peer = peers_.find(rank);
  if (peer == nullptr) {
    return rank == own_.self() ? handshakes_.connect_to_self() : handshakes_.start_connection(rank);
  }
  return operations_.begin_atomic(*peer, remote, local, what, completion);
}

uint32_t IbvTransport::rails_with(Rank rank) const noexcept {
  const Peer* const peer = peers_.find(rank);
  if (peer == nullptr || peer->rails == nullptr) return 1;
  return 1 +
         static_cast<uint32_t>(std::popcount(peer->rails->usable.load(std::memory_order_relaxed)));
}

// The registrar leaves a part of the locked-memory limit to peers that are contacted later.
std::unique_ptr<Registrar> IbvTransport::make_registrar() noexcept {
  const MachineLimits machine = read_machine_limits();
  const Needs needs = needs_of(options_, port_, rails());
  const uint64_t kept =
      machine.memlock_lifted ? 0 : needs.kept_of(machine.memlock_bytes, peers_.places() - 1);
  if (rails_.count() != 0) {
    ibv_pd* domains[ibv::kMaxRails] = {};
    for (uint32_t i = 0; i < rails(); ++i) domains[i] = ports_.all[i].device.pd;
    std::unique_ptr<Registrar> made;
    if (RailRegistrar::create({domains, rails()}, &made, kept) != Status::kOk) return nullptr;
    return made;
  }
  std::unique_ptr<IbvRegistrar> made;
  if (IbvRegistrar::create(port_.device.pd, &made) != Status::kOk) return nullptr;
  made->keep_back(kept);
  return made;
}

// ---- peers and statistics ----

void IbvTransport::disconnect(Rank rank) noexcept {
  if (handshakes_.exists(rank)) peers_.mark_dead(rank);
}

IbvTransport::Counts IbvTransport::counts() const noexcept {
  return {.connected = counters_.connected.value(),
          .handshakes = counters_.handshakes.value(),
          .strangers = counters_.strangers.value(),
          .early = counters_.early.value(),
          .control = counters_.control.value(),
          .probes = counters_.probes.value(),
          .stalls = counters_.stalls.value(),
          .lost = counters_.lost.value(),
          .sleeps = sleeper_.sleeps(),
          .striped = counters_.striped.value()};
}

size_t IbvTransport::list_counts(std::span<Count> rows) const noexcept {
  const Counts now = counts();
  const Count all[] = {
      {"connected", now.connected}, {"handshakes", now.handshakes},
      {"strangers", now.strangers}, {"early", now.early},
      {"control", now.control},     {"probes", now.probes},
      {"stalls", now.stalls},       {"lost", now.lost},
      {"sleeps", now.sleeps},       {"striped", now.striped},
  };
  std::copy_n(all, std::min(rows.size(), std::size(all)), rows.begin());
  return std::size(all);
}

}  // namespace hydrant
