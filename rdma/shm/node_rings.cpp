// Sends the messages of a node: steps 4 and 5 of "Tour: an Active Message". node_rings_poll.cpp receives;
// node_rings_idle.cpp handles idle rings.
#include "rdma/shm/node_rings.hpp"

#include "firehose/base/log.hpp"

#include <bit>
#include <cstring>
#include <new>

namespace hydrant::shm {

Status NodeRings::init(const JobTopology& topology, const NodeIndex& index,
                       bool has_fence) noexcept {
  ranks_ = index.size;
  words_ = (ranks_ + 63) / 64;
  index_ = index;
  has_fence_ = has_fence;
  node_ranks_.reset(new (std::nothrow) Rank[ranks_]);
  out_.reset(new (std::nothrow) OutRing[size_t{ranks_} * kLaneCount]);
  in_.reset(new (std::nothrow) InRing[size_t{ranks_} * kLaneCount]);
  if (node_ranks_ == nullptr || out_ == nullptr || in_ == nullptr)
    return fail(Status::kResource, "no memory for the rings of %u ranks", ranks_);
  for (uint32_t i = 0; i < ranks_; ++i) {
    node_ranks_[i] = topology.node_ranks[i];
    out(i, Lane::kRequest).name(i, Lane::kRequest);
    out(i, Lane::kReply).name(i, Lane::kReply);
  }
  cells_[0].name(memory_, Lane::kRequest);
  cells_[1].name(memory_, Lane::kReply);
  return Status::kOk;
}

// ---- sending ----

inline void NodeRings::finish(OutRing& ring, bool polled) noexcept HYDRANT_NO_TSA {
  // Stored only on a change: an unconditional store would cost every message.
  if (partner_.load(std::memory_order_relaxed) != ring.to()) [[unlikely]]
    partner_.store(ring.to(), std::memory_order_relaxed);
  if (!polled) [[unlikely]] {
    counts_.doorbells_rung.fetch_add(1, std::memory_order_relaxed);
    ring.ring_doorbell(memory_.area(ring.to()), memory_.node_rank());
  }
  if (threaded_) ring.lock.unlock();
}

// Returns the ring to `peer`, locked, with room for `lines` lines, or null with *status set.
[[gnu::always_inline]] inline OutRing* NodeRings::enter_ring(
    Rank peer, Lane lane, uint32_t lines, Status* status) noexcept HYDRANT_NO_TSA {
  const uint32_t to = index_.of(peer);
  if (to >= ranks_) [[unlikely]] {
    *status = fail(Status::kBadArg, "rank %u is not on this node", peer);
    return nullptr;
  }
  OutRing& ring = out(to, lane);
  if (threaded_) ring.lock.lock();
  if (!ring.has_room(lines) || lines > kMaxMessageLines) [[unlikely]] {
    *status = reserve_slow(ring, lines);
    if (*status != Status::kOk) {
      if (threaded_) ring.lock.unlock();
      if (*status == Status::kBroken) disconnect_index(to);
      return nullptr;
    }
  }
  return &ring;
}

Status NodeRings::reserve(Rank peer, Lane lane, uint32_t bytes, Outgoing* room) noexcept {
  const uint32_t lines = lines_of(bytes);
  Status status = Status::kOk;
  OutRing* ring = enter_ring(peer, lane, lines, &status);
  if (ring == nullptr) [[unlikely]]
    return status;
  room->head = ring->head();
  room->state[0] = reinterpret_cast<uintptr_t>(ring);
  room->state[1] = lines;
  return Status::kOk;
}

Status NodeRings::post(Rank peer, Lane lane, uint32_t tag, const void* head,
                       uint32_t bytes) noexcept {
  const uint32_t lines = lines_of(bytes);
  Status status = Status::kOk;
  OutRing* ring = enter_ring(peer, lane, lines, &status);
  if (ring == nullptr) [[unlikely]]
    return status;
  // The head has only a few words: an inline copy costs less than a call of memcpy().
  const auto* from = static_cast<const std::byte*>(head);
  std::byte* to = ring->head();
  for (uint32_t done = 0; done < bytes; done += 4) std::memcpy(to + done, from + done, 4);
  finish(*ring, ring->publish(lines, tag, 0, polls_.load(std::memory_order_relaxed)));
  return Status::kOk;
}

Status NodeRings::reserve_slow(OutRing& ring, uint32_t lines) noexcept {
  if (lines > kMaxMessageLines) {
    return fail(Status::kBadArg, "a message of %u lines: at most %u bytes fit in a ring", lines,
                inline_bytes());
  }
  reclaim_waiting();
  if (ring.state() == OutRing::State::kUnopened) {
    const Status opened = open_out(ring);
    if (opened != Status::kOk) return opened;
  }
  if (ring.state() == OutRing::State::kClosed) {
    return fail(Status::kBroken, "rank %u is gone", node_ranks_[ring.to()]);
  }
  switch (ring.make_room(lines)) {
    case OutRing::Room::kYes: return Status::kOk;
    case OutRing::Room::kNo: return Status::kNotReady;
    case OutRing::Room::kCorrupt: break;
  }
  log_error(
      "rank %u has corrupted the memory that it shares with this rank (its position in a ring "
      "is ahead of this rank's): disconnecting it",
      node_ranks_[ring.to()]);
  ring.close();
  return fail(Status::kBroken, "rank %u has corrupted the memory that it shares with this rank",
              node_ranks_[ring.to()]);
}

namespace {

// A request comes with the ring of its reply: a shortage is an error of the rank that asks, which could
// otherwise wait for a reply that its peer cannot send.
Status reserve_rings(NodeMemory& memory, uint32_t to, Lane lane) noexcept {
  const uint32_t from = memory.node_rank();
  if (lane == Lane::kReply) return memory.reserve_ring(from, to, lane, NodeMemory::Owner::kTheirs);
  const Status reserved = memory.reserve_ring(from, to, lane);
  return reserved == Status::kOk ? memory.reserve_ring(to, from, Lane::kReply) : reserved;
}

}  // namespace

Status NodeRings::open_out(OutRing& ring) noexcept {
  const uint32_t to = ring.to();
  if (to == memory_.node_rank()) {
    return fail(Status::kBadArg, "the transport does not send messages to its own rank");
  }
  if (const Status reserved = reserve_rings(memory_, to, ring.lane()); reserved != Status::kOk) {
    return add_context(reserved, "first message to rank %u", node_ranks_[to]);
  }
  const RankArea& reader = memory_.area(to);
  // A reader that has not attached yet may lack membarrier.
  const bool confirm = !has_fence_ || reader.attached.load(std::memory_order_acquire) == 0 ||
                       reader.senders_confirm.load(std::memory_order_relaxed) != 0;
  ring.open(memory_.lines(memory_.node_rank(), to, ring.lane()),
            memory_.control(memory_.node_rank(), to, ring.lane()), confirm);
  return Status::kOk;
}

void NodeRings::commit(Outgoing& room, uint32_t tag) noexcept {
  OutRing& ring = *reinterpret_cast<OutRing*>(room.state[0]);
  finish(ring, ring.publish(static_cast<uint32_t>(room.state[1]), tag, 0,
                            polls_.load(std::memory_order_relaxed)));
}

void NodeRings::commit_with_cell(Outgoing& room, uint32_t tag, const Cell& cell,
                                 uint32_t bytes) noexcept HYDRANT_NO_TSA {
  OutRing& ring = *reinterpret_cast<OutRing*>(room.state[0]);
  const Lane lane = ring.lane();
  const uint32_t polls = polls_.load(std::memory_order_relaxed);
  SenderCells& pool = cells_[static_cast<uint32_t>(lane)];
  if (threaded_) pool.lock.lock();
  pool.send(cell.index, ring.to(), ring.position());
  const bool is_unhurried = pool.is_unhurried(polls);
  if (threaded_) pool.lock.unlock();
  finish(ring, ring.publish(static_cast<uint32_t>(room.state[1]), tag, cell.index + 1, polls));
  if (is_unhurried) warm_next_cell(pool, lane, cell.index, bytes);
}

// The reader of a cell has its lines in its own cache. While the reader uses this cell, this function fetches
// the lines of the next one, expected to be as long, by writing to them: stores wait for all lines in
// parallel, prefetches do not.
void NodeRings::warm_next_cell(SenderCells& pool, Lane lane, uint32_t cell,
                               uint32_t bytes) noexcept HYDRANT_NO_TSA {
  uint32_t next = 0;
  if (threaded_) pool.lock.lock();
  const bool taken = pool.take_next_like(cell, &next);
  if (threaded_) pool.lock.unlock();
  if (!taken) return;
  volatile std::byte* data = memory_.cell(memory_.node_rank(), lane, next);
  for (uint32_t i = 0; i < bytes; i += kLineBytes) data[i] = std::byte{0};
  if (threaded_) pool.lock.lock();
  pool.put_back(next);
  if (threaded_) pool.lock.unlock();
}

Status NodeRings::take_cell(Rank, Lane lane, uint32_t bytes, Cell* cell) noexcept HYDRANT_NO_TSA {
  SenderCells& pool = cells_[static_cast<uint32_t>(lane)];
  uint32_t index = 0;
  if (threaded_) pool.lock.lock();
  Status taken = pool.take(bytes, &index);
  if (taken == Status::kNotReady && reclaim_waiting()) taken = pool.take(bytes, &index);
  if (threaded_) pool.lock.unlock();
  if (taken != Status::kOk) return taken;
  cell->data = memory_.cell(memory_.node_rank(), lane, index);
  cell->bytes = cell_bytes_of(index);
  cell->index = index;
  return Status::kOk;
}

void NodeRings::drop_cell(Rank, Lane lane, const Cell& cell) noexcept HYDRANT_NO_TSA {
  SenderCells& pool = cells_[static_cast<uint32_t>(lane)];
  if (threaded_) pool.lock.lock();
  pool.put_back(cell.index);
  if (threaded_) pool.lock.unlock();
}

// ---- failed peers ----

void NodeRings::disconnect(Rank peer) noexcept {
  const uint32_t index = index_.of(peer);
  if (index >= ranks_ || index == memory_.node_rank()) return;
  if (threaded_) return disconnect_index(index);
  // The caller need not be the one thread that sends, which takes no locks here. That thread closes its rings
  // and reclaims its cells itself: at its next poll, triggered by a doorbell of this rank to itself, or when
  // it finds no room.
  if (!stop_receiving(index)) return;
  connections_.leave_to_sender(index);
  set_doorbell(self_, memory_.node_rank(), Lane::kRequest);
}

void NodeRings::disconnect_index(uint32_t index) noexcept {
  if (stop_receiving(index)) reclaim_cells(index);
}

// False if the peer was disconnected before.
bool NodeRings::stop_receiving(uint32_t index) noexcept {
  if (!connections_.disconnect(index)) return false;
  counts_.disconnected.fetch_add(1, std::memory_order_relaxed);
  for (const Lane lane : {Lane::kRequest, Lane::kReply}) {
    in(index, lane).lost.store(true, std::memory_order_release);
    active_[static_cast<uint32_t>(lane)][index / 64].fetch_and(~(uint64_t{1} << (index % 64)),
                                                               std::memory_order_acq_rel);
  }
  return true;
}

// True if there was a disconnected peer to reclaim from.
bool NodeRings::reclaim_waiting() noexcept {
  return connections_.take_left([this](uint32_t index) noexcept { reclaim_cells(index); });
}

// Closes the rings to a disconnected rank, and frees the cells that were sent to it.
void NodeRings::reclaim_cells(uint32_t index) noexcept HYDRANT_NO_TSA {
  for (const Lane lane : {Lane::kRequest, Lane::kReply}) {
    OutRing& ring = out(index, lane);
    if (threaded_) ring.lock.lock();
    ring.close();
    if (threaded_) ring.lock.unlock();
    SenderCells& pool = cells_[static_cast<uint32_t>(lane)];
    if (threaded_) pool.lock.lock();
    pool.forget(index);
    if (threaded_) pool.lock.unlock();
  }
}

NodeRings::Counts NodeRings::counts() const noexcept {
  Counts now;
  now.doorbells_rung = counts_.doorbells_rung.load(std::memory_order_relaxed);
  now.handled_doorbells = counts_.handled_doorbells.load(std::memory_order_relaxed);
  now.rings_retired = counts_.rings_retired.load(std::memory_order_relaxed);
  now.fences = counts_.fences.load(std::memory_order_relaxed);
  now.disconnected = counts_.disconnected.load(std::memory_order_relaxed);
  return now;
}

uint32_t NodeRings::active_rings() const noexcept {
  int count = 0;
  for (const auto& lane : active_) {
    for (uint32_t word = 0; word < words_; ++word) {
      count += std::popcount(lane[word].load(std::memory_order_relaxed));
    }
  }
  return static_cast<uint32_t>(count);
}

}  // namespace hydrant::shm
