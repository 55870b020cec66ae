// Puts and gets between pinned memory: pieces and their completion, hits and persistent operations. Called by
// transfer() (rma_transfer.cpp); looks memory up in the pin cache and posts through PinnedOperations::put()
// and get().
#include "extended/rma/pinned/rma_pinned.hpp"

#include "am/job/job.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/rma/paths/bounce_pool.hpp"
#include "extended/rma/pinned/rma_pinned_piece.hpp"
#include "firehose/remote/initiator/remote_hit.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace hydrant {

PinnedPiece* take_piece(RmaThread& thread) noexcept {
  PinnedPiece* piece = thread.pinned.take();
  if (piece == nullptr) piece = new (std::nothrow) PinnedPiece;
  if (piece == nullptr) return nullptr;
  piece->home = &thread;
  piece->remote = piece->local = {};
  piece->local_key = nullptr;
  piece->buffer = {};
  piece->sent = 0;
  piece->called = piece->fault = false;
  return piece;
}

void release_piece(PinnedPiece* piece) noexcept {
  if (piece->remote.region != nullptr) (void)hydrant_remote_release(piece->remote);
  if (piece->local.region != nullptr) (void)hydrant_release(piece->local);
  if (piece->buffer.addr != nullptr) release_bounce_buffer(piece->buffer.addr);
  if (piece->is_kept) return;
  if (ThreadLocalPool<RmaThread>::is_mine(piece->home)) {
    piece->home->pinned.free_local(piece);
  } else {
    piece->home->pinned.free_from_any(piece);
  }
}

void end(PinnedPiece* piece, Status status) noexcept {
  CompletionCounter& counter = *piece->counter;
  const Rank peer = piece->part.peer;
  const uintptr_t remote = piece->part.remote;
  const size_t bytes = piece->part.bytes;
  release_piece(piece);
  if (status == Status::kOk) {
    count_done(counter);
  } else {
    count_failed(counter, status, peer, remote, bytes);
  }
}

// ---- posting ------------------------------------------------------------------------------------------

namespace {

constinit std::atomic<uint64_t> refused{0};

}  // namespace

void count_refusal() noexcept { refused.fetch_add(1, std::memory_order_relaxed); }

namespace {

void on_completion(Completion& completion, Status status) noexcept {
  auto* piece = static_cast<PinnedPiece*>(&completion);
  if (is_refusal(status)) {
    // The peer recalled the memory before its message reached this rank. Send by messages, which use
    // the memory mapped now.
    count_refusal();
    piece->state = PinnedPiece::State::kMessages;
    queue_for_progress(piece);
    return;
  }
  if (status == Status::kOk && !piece->part.is_put() && piece->buffer.addr != nullptr)
    std::memcpy(piece->part.local, piece->buffer.addr, piece->part.bytes);
  end(piece, status);
}

// Describes the piece for the transport. The piece counts as posted unless the transport refuses it.
PinnedOperations::Operation operation_of(PinnedPiece& piece) noexcept {
  const PinnedOperations::Pinned remote{piece.part.remote,
                                        static_cast<const std::byte*>(piece.remote.region->key)};
  PinnedOperations::Pinned local{reinterpret_cast<uintptr_t>(local_of(piece)), nullptr};
  if (piece.buffer.addr != nullptr) {
    local.key = piece.buffer.key;
  } else if (piece.local.region != nullptr) {
    local.key = static_cast<const std::byte*>(piece.local.region->key);
  } else if (piece.local_key != nullptr) {
    local.key = piece.local_key;
  } else if (piece.part.local == nullptr) {
    local.addr = reinterpret_cast<uintptr_t>(piece.small);
  }
  piece.done = on_completion;
  piece.state = PinnedPiece::State::kPosted;
  return {remote, local, piece.part.bytes, &piece};
}

void not_posted(PinnedPiece& piece, Status status) noexcept {
  if (is_refusal(status)) count_refusal();
  piece.state = is_refusal(status) ? PinnedPiece::State::kMessages : PinnedPiece::State::kPinned;
}

}  // namespace

Status post(PinnedPiece& piece) noexcept {
  PinnedOperations& pinned = *job().pinned;
  const PinnedOperations::Operation one = operation_of(piece);
  const Rank peer = piece.part.peer;
  const Status status = piece.part.is_put()
                            ? pinned.put(peer, one.remote, one.local, one.bytes, &piece)
                            : pinned.get(peer, one.remote, one.local, one.bytes, &piece);
  if (status != Status::kOk) not_posted(piece, status);
  return status;
}

namespace {

// Handles the result of a post of a counted piece: under way at return, or uncounted and released.
Status launched(PinnedPiece* piece, CompletionCounter& counter, Status status) noexcept {
  if (status == Status::kOk) [[likely]]
    return status;
  if (status == Status::kBroken) {
    uncount_start(counter);
    release_piece(piece);
    return status;
  }
  queue_for_progress(piece);
  return Status::kOk;
}

}  // namespace

Status launch(PinnedPiece* piece, CompletionCounter& counter) noexcept {
  piece->state = PinnedPiece::State::kPinned;
  return launched(piece, counter, post(*piece));
}

// ---- hits ----------------------------------------------------------------------------------------------

namespace {

// Sets the local end of a hit. True if it needs no key, or if its memory is pinned already.
bool find_local(PinnedPiece& piece) noexcept {
  const Transfer& part = piece.part;
  if (needs_no_key(part)) return true;
  if (part.is_put() && part.source_may_change) return false;
  piece.local = try_local_hit(firehose().domain, part.local, part.bytes, local_access(part));
  return piece.local.region != nullptr;
}

// Returns a counted piece that holds firehoses on both ends; null if they are not cached or there is no
// room.
PinnedPiece* prepare_hit(RmaThread& thread, const Transfer& what,
                         CompletionCounter& counter) noexcept {
  if (what.bytes > kMaxPieceBytes || !has_room(thread, counter)) return nullptr;
  const hydrant_pin_t remote = try_remote_hit(firehose().end, what.peer, what.remote, what.bytes,
                                              what.is_put() ? kPutAccess : HYDRANT_REMOTE_READ);
  if (remote.region == nullptr) return nullptr;
  PinnedPiece* piece = take_piece(thread);
  if (piece == nullptr) {
    uncount_hit(remote);
    (void)hydrant_remote_release(remote);
    return nullptr;
  }
  piece->remote = remote;
  piece->part = what;
  piece->counter = &counter;
  if (!find_local(*piece)) {
    uncount_hit(remote);
    release_piece(piece);
    return nullptr;
  }
  keep_source(*piece);
  count_start(counter, what.peer);
  return piece;
}

// Requests the transport's prepared request. Only after the first firehose, because then a connection
// exists.
[[gnu::noinline]] void create_request(PersistentPiece& persistent) noexcept {
  const Transfer& what = persistent.piece.part;
  const auto local = reinterpret_cast<uintptr_t>(what.local);
  PinnedOperations& pinned = *job().pinned;
  persistent.is_requested = true;
  persistent.request = what.is_put()
                           ? pinned.make_persistent_put(what.peer, what.remote, local, what.bytes)
                           : pinned.make_persistent_get(what.peer, what.remote, local, what.bytes);
}

Status post_persistent(PersistentPiece& persistent, const std::byte* local_key) noexcept {
  PinnedPiece& piece = persistent.piece;
  if (!persistent.is_requested) [[unlikely]]
    create_request(persistent);
  if (persistent.request == nullptr) return post(piece);
  piece.state = PinnedPiece::State::kPosted;
  const auto* remote_key = static_cast<const std::byte*>(piece.remote.region->key);
  const Status status = persistent.request->start(remote_key, local_key, &piece);
  if (status != Status::kOk) [[unlikely]]
    not_posted(piece, status);
  return status;
}

}  // namespace

bool start_hit(RmaThread& thread, const Transfer& what, CompletionCounter& counter) noexcept {
  PinnedPiece* const piece = prepare_hit(thread, what, counter);
  if (piece == nullptr || launch(piece, counter) != Status::kOk) return false;
  thread.count(what.direction, what.peer, Path::kFirehose, what.bytes);
  return true;
}

void make_persistent(PersistentPiece& persistent, const Transfer& what,
                     CompletionCounter& counter) noexcept {
  persistent.piece.part = what;
  persistent.piece.counter = &counter;
  persistent.piece.done = on_completion;
  persistent.piece.is_kept = true;
  // The source does not change while the operation is under way, so it needs no copy.
  persistent.needs_key = !what.is_put() || what.bytes > job().pinned->keyless_bytes();
}

bool start_persistent(RmaThread& thread, PersistentPiece& persistent) noexcept {
  PinnedPiece& piece = persistent.piece;
  const Transfer& what = piece.part;
  CompletionCounter& counter = *piece.counter;
  if (!has_room(thread, counter)) return false;
  piece.remote = try_remote_hit(firehose().end, what.peer, what.remote, what.bytes,
                                what.is_put() ? kPutAccess : HYDRANT_REMOTE_READ);
  if (piece.remote.region == nullptr) return false;
  const std::byte* local_key = nullptr;
  if (persistent.needs_key) {
    piece.local = try_local_hit(firehose().domain, what.local, what.bytes,
                                what.is_put() ? HYDRANT_LOCAL_READ : HYDRANT_LOCAL_WRITE);
    if (piece.local.region == nullptr) {
      uncount_hit(piece.remote);
      (void)hydrant_remote_release(piece.remote);
      return false;
    }
    local_key = static_cast<const std::byte*>(piece.local.region->key);
  }
  piece.sent = 0;
  count_start(counter, what.peer);
  const Status status = post_persistent(persistent, local_key);
  if (launched(&piece, counter, status) != Status::kOk) return false;
  thread.count(what.direction, what.peer, Path::kFirehose, what.bytes);
  return true;
}

size_t start_hits(RmaThread& thread, std::span<const Transfer> list,
                  CompletionCounter& counter) noexcept {
  PinnedPiece* prepared[kMaxBatch];
  PinnedOperations::Operation operations[kMaxBatch];
  size_t count = 0;
  for (; count < std::min(list.size(), kMaxBatch); ++count) {
    prepared[count] = prepare_hit(thread, list[count], counter);
    if (prepared[count] == nullptr) break;
    operations[count] = operation_of(*prepared[count]);
  }
  if (count == 0) return 0;
  PinnedOperations& pinned = *job().pinned;
  const std::span all(operations, count);
  const Transfer& first = list[0];
  size_t started =
      first.is_put() ? pinned.put_list(first.peer, all) : pinned.get_list(first.peer, all);
  while (started < count && launch(prepared[started], counter) == Status::kOk) ++started;
  // Releases the pieces after the one that failed, which launch() has released.
  for (size_t i = started + 1; i < count; ++i) {
    uncount_start(counter);
    release_piece(prepared[i]);
  }
  for (const Transfer& what : list.first(started))
    thread.count(what.direction, what.peer, Path::kFirehose, what.bytes);
  return started;
}

uint64_t refused_operation_count() noexcept { return refused.load(std::memory_order_relaxed); }

}  // namespace hydrant
