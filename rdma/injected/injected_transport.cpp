// Accepts messages and operations for the injected network, and delays them. injected_progress.cpp delivers
// them when they are due.
#include "rdma/injected/injected_transport.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/thread_without_signals.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace hydrant {

InjectedTransport::InjectedTransport(std::unique_ptr<Transport> inside,
                                     const Options& options) noexcept
    : inside_(std::move(inside)),
      there_(inside_->memory()),
      sleeping_there_(inside_->sleeping()),
      network_(options.network),
      clock_(options.clock),
      wants_thread_(options.has_thread) {
  constexpr uint32_t kNeeded = kOneSided | kCompletesAtOnce;
  if ((inside_->capabilities() & kNeeded) == kNeeded) depth_ = network_.depth;
}

Status InjectedTransport::open(std::unique_ptr<Transport> inside, const JobTopology& topology,
                               const Options& options,
                               std::unique_ptr<Transport>* transport) noexcept {
  std::unique_ptr<InjectedTransport> made(new (std::nothrow)
                                              InjectedTransport(std::move(inside), options));
  if (made == nullptr) return fail(Status::kResource, "no memory for the injected network");
  if (const Status status = made->init(topology); status != Status::kOk) return status;
  *transport = std::move(made);
  return Status::kOk;
}

Status InjectedTransport::init(const JobTopology& topology) noexcept {
  ranks_ = static_cast<uint32_t>(topology.node_ranks.size());
  self_ = topology.rank;
  pairs_.reset(new (std::nothrow) Pair[ranks_]);
  {
    const MutexLock lock(mu_);
    operations_.reset(new (std::nothrow) DelayedOperation[std::max(depth_, 1u)]);
    if (pairs_ == nullptr || operations_ == nullptr)
      return fail(Status::kResource, "no memory for the injected network");
  }
  if (network_.has_pins && depth_ != 0) {
    if (const Status status = open_pins(); status != Status::kOk) return status;
  }
  for (uint32_t i = 0; i < ranks_; ++i) {
    Pair& pair = pairs_[i];
    pair.peer = topology.node_ranks[i];
    pair.channel = &inside_->messages(pair.peer);
    pair.out = InjectedLink(network_, topology.rank, pair.peer);
    pair.back = InjectedLink(network_, pair.peer, topology.rank);
  }
  if (!wants_thread_) return Status::kOk;
  const int error = create_thread_without_signals(&thread_, run_thread, this);
  if (error != 0)
    return fail(Status::kResource, "no thread for the injected network: %s", errno_text(error));
  has_thread_ = true;
  return Status::kOk;
}

InjectedTransport::~InjectedTransport() {
  if (!has_thread_) return;
  {
    const MutexLock lock(mu_);
    ends_ = true;
    work_.notify_all();
  }
  uncancelled::pthread_join(thread_, nullptr);
}

InjectedTransport::Pair* InjectedTransport::pair_with(Rank peer) const noexcept {
  Pair* const end = pairs_.get() + ranks_;
  Pair* const found =
      std::lower_bound(pairs_.get(), end, peer,
                       [](const Pair& pair, Rank rank) noexcept { return pair.peer < rank; });
  if (found != end && found->peer == peer) return found;
  (void)fail(Status::kBadArg, "rank %u is not on this node", peer);
  return nullptr;
}

// Records that work is due at `due_ns`, and wakes sleepers so that none sleeps longer.
void InjectedTransport::expect(uint64_t due_ns) noexcept {
  if (rests_) {
    rests_ = false;
    work_.notify_all();
  }
  if (due_ns >= next_due_ns_) return;
  next_due_ns_ = due_ns;
  if (sleepers_ != 0) sleeping_there_.wake();
}

// ---- messages ----

Status InjectedTransport::reserve(Rank peer, Lane lane, uint32_t bytes, Outgoing* room) noexcept {
  Pair* pair = pair_with(peer);
  if (pair == nullptr) return Status::kBadArg;
  if (peer == self_)
    return fail(Status::kBadArg, "the transport does not send messages to its own rank");
  if (bytes > inline_bytes())
    return fail(Status::kBadArg, "a message of %u bytes; the most is %u", bytes, inline_bytes());
  const MutexLock lock(mu_);
  advance(clock_());
  return reserve_locked(*pair, lane, bytes, room);
}

Status InjectedTransport::reserve_locked(Pair& pair, Lane lane, uint32_t bytes,
                                         Outgoing* room) noexcept {
  if (pair.is_lost) return fail(Status::kBroken, "rank %u is gone", pair.peer);
  InjectedStream& stream = pair.streams[static_cast<uint32_t>(lane)];
  if (!stream.is_open()) {
    const Status opened = stream.open(network_.credits, inline_bytes());
    if (opened != Status::kOk) return opened;
  }
  if (!stream.has_free()) return Status::kNotReady;
  const uint64_t under_way = stream.bytes_under_way();
  if (network_.window_bytes != 0 && under_way != 0 && under_way + bytes > network_.window_bytes)
    return Status::kNotReady;
  const uint32_t slot = stream.take(bytes);
  stream.message(slot).head_bytes = bytes;
  room->head = stream.head(slot);
  room->state[0] = reinterpret_cast<uintptr_t>(&pair);
  room->state[1] = static_cast<uint64_t>(lane);
  room->state[2] = slot;
  return Status::kOk;
}

void InjectedTransport::commit(Outgoing& room, uint32_t tag) noexcept {
  finish_commit(room, tag, nullptr, 0);
}

void InjectedTransport::commit_with_cell(Outgoing& room, uint32_t tag, const Cell& cell,
                                         uint32_t bytes) noexcept {
  finish_commit(room, tag, &cell, bytes);
}

void InjectedTransport::finish_commit(Outgoing& room, uint32_t tag, const Cell* cell,
                                      uint32_t bytes) noexcept {
  Pair& pair = *reinterpret_cast<Pair*>(room.state[0]);
  const auto lane = static_cast<Lane>(room.state[1]);
  const auto slot = static_cast<uint32_t>(room.state[2]);
  InjectedStream& stream = pair.streams[room.state[1]];
  const MutexLock lock(mu_);
  InjectedStream::Message& message = stream.message(slot);
  message.tag = tag;
  message.puts_before = pair.puts_begun;
  if (cell != nullptr) {
    message.cell = *cell;
    message.cell_bytes = bytes;
    message.has_cell = true;
    stream.add_bytes(slot, bytes);
  }
  if (pair.is_lost) {
    if (cell != nullptr) pair.channel->drop_cell(pair.peer, lane, *cell);
    if (cell != nullptr) release_cell(lane);
    stream.put_back(slot);
    return;
  }
  const uint64_t arrives = pair.out.send(clock_(), message.bytes);
  stream.enqueue(slot, std::max(arrives, pair.last_put_ns));
  expect(message.due_ns);
}

Status InjectedTransport::take_cell(Rank peer, Lane lane, uint32_t bytes, Cell* cell) noexcept {
  const MutexLock lock(mu_);
  uint32_t& out = cells_out_[static_cast<uint32_t>(lane)];
  if (network_.cells != 0 && out >= network_.cells) {
    advance(clock_());
    if (out >= network_.cells) return Status::kNotReady;
  }
  const Status taken = inside_->messages(peer).take_cell(peer, lane, bytes, cell);
  if (taken == Status::kOk) ++out;
  return taken;
}

void InjectedTransport::drop_cell(Rank peer, Lane lane, const Cell& cell) noexcept {
  const MutexLock lock(mu_);
  inside_->messages(peer).drop_cell(peer, lane, cell);
  release_cell(lane);
}

// ---- memory ----

Status InjectedTransport::write(Rank peer, uintptr_t dest, const void* source,
                                size_t bytes) noexcept {
  Pair* pair = pair_with(peer);
  if (pair == nullptr) return Status::kBadArg;
  if (pins_ != nullptr)
    return fail_literal(Status::kUnsupported, "this transport reaches pinned memory only");
  const Status written = there_.write(peer, dest, source, bytes);
  if (written != Status::kOk) return written;
  const MutexLock lock(mu_);
  pair->out.occupy(clock_(), bytes);
  return Status::kOk;
}

Status InjectedTransport::put(Rank peer, uintptr_t remote, const void* local, size_t bytes,
                              Completion* completion) noexcept {
  return begin(peer, {.is_put = true,
                      .remote = remote,
                      .local = const_cast<void*>(local),
                      .bytes = bytes,
                      .completion = completion});
}

Status InjectedTransport::get(Rank peer, uintptr_t remote, void* local, size_t bytes,
                              Completion* completion) noexcept {
  return begin(peer, {.remote = remote, .local = local, .bytes = bytes, .completion = completion});
}

// Tests at once whether the kernel may copy: a client can choose another path now, but not after the
// completion.
Status InjectedTransport::reach(Pair& pair, uintptr_t remote, size_t bytes) noexcept {
  if (pair.is_reached || there_.mapped(pair.peer, remote, bytes) != nullptr) return Status::kOk;
  std::byte byte;
  const Status status = there_.get(pair.peer, remote, &byte, 1, nullptr);
  pair.is_reached = status == Status::kOk;
  return status;
}

Status InjectedTransport::admit(Pair& pair, uint64_t now) noexcept {
  advance(now);
  if (pair.is_lost) return fail(Status::kBroken, "rank %u is gone", pair.peer);
  return operation_count_ == depth_ ? Status::kNotReady : Status::kOk;
}

Status InjectedTransport::begin(Rank peer, const DelayedOperation& wanted) noexcept {
  if (depth_ == 0)
    return fail_literal(Status::kUnsupported, "this transport has no one-sided operations");
  if (pins_ != nullptr)
    return fail_literal(Status::kUnsupported, "this transport reaches pinned memory only");
  Pair* pair = pair_with(peer);
  if (pair == nullptr) return Status::kBadArg;
  const MutexLock lock(mu_);
  const uint64_t now = clock_();
  if (const Status admitted = admit(*pair, now); admitted != Status::kOk) return admitted;
  if (const Status reached = reach(*pair, wanted.remote, wanted.bytes); reached != Status::kOk)
    return reached;
  start(*pair, wanted, now);
  return Status::kOk;
}

void InjectedTransport::start(Pair& pair, const DelayedOperation& wanted, uint64_t now) noexcept {
  DelayedOperation& operation = operations_[operation_count_++];
  operation = wanted;
  operation.pair = &pair;
  if (wanted.is_put) {
    ++pair.puts_begun;
    pair.last_put_ns = std::max(pair.last_put_ns, pair.out.send(now, wanted.bytes));
    operation.copy_ns = pair.last_put_ns;
    operation.done_ns = operation.copy_ns + network_.delay_ns;
  } else {
    // The request travels to the peer, the data travels back.
    operation.copy_ns = pair.back.send(pair.out.send(now, 0), wanted.bytes);
    operation.done_ns = operation.copy_ns;
  }
  expect(operation.copy_ns);
}

Status InjectedTransport::put_pieces(Rank, std::span<const Piece>) noexcept {
  return fail_literal(Status::kUnsupported, "this transport does not complete at once");
}

Status InjectedTransport::get_pieces(Rank, std::span<const Piece>) noexcept {
  return fail_literal(Status::kUnsupported, "this transport does not complete at once");
}

}  // namespace hydrant
