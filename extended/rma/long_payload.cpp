// Sends the payloads of Longs by one-sided puts. Called by put_or_deposit() (am/message/send.cpp) through
// Job::Hooks::put_long.
#include "extended/rma/long_payload.hpp"

#include "am/call/thread_state.hpp"
#include "am/exit/exit.hpp"
#include "am/job/job.hpp"
#include "am/progress/waiting.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/binding/segment_pins.hpp"
#include "extended/event/completion_counter.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/leaf_event.hpp"
#include "extended/rma/paths/bounce_pool.hpp"
#include "extended/rma/pinned/rma_pinned.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>

namespace hydrant {
namespace {

// The access of all firehoses for puts, so that they share their regions.
constexpr uint32_t kAccess = HYDRANT_REMOTE_WRITE | HYDRANT_REMOTE_READ;
// Waiting for a put costs about as much as copying this many bytes.
constexpr size_t kMinUncopied = 32768;
// A put in the background costs about as much as copying this many bytes.
constexpr size_t kMinInBackground = 8192;

// A put under way. It lies at the front of its bounce buffer, on the stack of the waiting caller, or, in the
// background, on the heap.
struct Piece : Completion {
  Rank peer = 0;
  hydrant_pin_t remote{};
  void* buffer = nullptr;  // for the pool at completion; null: the caller waits for `is_over`
  std::atomic<bool> is_over{false};
  // In the background.
  hydrant_pin_t local{};
  CompletionCounter* counter = nullptr;
};

// A held firehose cannot be recalled, so only a lost peer can fail the put; then the job ends anyway.
void on_done(Completion& completion, Status status) noexcept {
  auto& piece = static_cast<Piece&>(completion);
  const hydrant_pin_t remote = piece.remote;
  if (status != Status::kOk && status != Status::kBroken)
    fatal("the payload of a Long was refused by rank %u: %s", piece.peer, status_name(status));
  if (piece.counter != nullptr) {
    CompletionCounter& counter = *piece.counter;
    (void)hydrant_release(piece.local);
    delete &piece;
    count_done(counter);
  } else if (piece.buffer == nullptr) {
    piece.is_over.store(true, std::memory_order_release);
  } else {
    release_bounce_buffer(piece.buffer);
  }
  (void)hydrant_remote_release(remote);
}

Status post(Piece& piece, uintptr_t dest, const std::byte* source, const std::byte* key,
            size_t bytes, bool may_wait) noexcept {
  piece.done = on_done;
  const PinnedOperations::Pinned remote{dest,
                                        static_cast<const std::byte*>(piece.remote.region->key)};
  const PinnedOperations::Pinned local{reinterpret_cast<uintptr_t>(source), key};
  Backoff backoff;
  for (;;) {
    const Status status = job().pinned->put(piece.peer, remote, local, bytes, &piece);
    if (status != Status::kNotReady || !may_wait || has_exit_grace_expired()) return status;
    backoff.polled(poll_all());
  }
}

// Puts the whole payload from its place. kUnsupported: it is not pinned.
Status put_uncopied(Rank peer, uintptr_t dest, const std::byte* source, size_t bytes) noexcept {
  const hydrant_pin_t local = hydrant_try_pin(firehose().domain, source, bytes, HYDRANT_LOCAL_READ);
  if (local.region == nullptr) return Status::kUnsupported;
  Piece piece;
  piece.peer = peer;
  piece.remote = hydrant_try_remote_pin(firehose().end, peer, dest, bytes, kAccess);
  Status status = Status::kUnsupported;
  if (piece.remote.region != nullptr) {
    status =
        post(piece, dest, source, static_cast<const std::byte*>(local.region->key), bytes, true);
    if (status != Status::kOk) (void)hydrant_remote_release(piece.remote);
  }
  Backoff backoff;
  // A lost peer also completes the put.
  while (status == Status::kOk && !piece.is_over.load(std::memory_order_acquire))
    backoff.polled(poll_all());
  (void)hydrant_release(local);
  return status;
}

// Starts to put the whole payload from its place, and reports its completion to `payload.leaf`. False: it is
// not under way; take another way.
bool put_in_background(const Job::LongPayload& payload) noexcept {
  std::unique_ptr<Piece> piece(new (std::nothrow) Piece);
  if (piece == nullptr) return false;
  const auto [peer, dest, source, bytes, may_wait, leaf] = payload;
  piece->peer = peer;
  piece->remote = hydrant_try_remote_pin(firehose().end, peer, dest, bytes, kAccess);
  if (piece->remote.region == nullptr) return false;
  piece->local = bytes >= kMinPinned
                     ? hydrant_pin(firehose().domain, source, bytes, HYDRANT_LOCAL_READ)
                     : hydrant_try_pin(firehose().domain, source, bytes, HYDRANT_LOCAL_READ);
  if (piece->local.region != nullptr) {
    LeafEvent event(leaf);
    piece->counter = event.count(peer);
    const auto* key = static_cast<const std::byte*>(piece->local.region->key);
    if (piece->counter != nullptr && post(*piece, dest, source, key, bytes, false) == Status::kOk) {
      (void)piece.release();  // on_done() deletes it
      event.hand_over();
      return true;
    }
    if (piece->counter != nullptr) uncount_start(*piece->counter);
    (void)hydrant_release(piece->local);
  }
  (void)hydrant_remote_release(piece->remote);
  return false;
}

// Puts the next piece of at most `bytes` from a bounce buffer; returns its size, or 0 if that is
// impossible now.
size_t put_copy(Rank peer, uintptr_t dest, const std::byte* source, size_t bytes, bool may_wait,
                Status* status) noexcept {
  const size_t most = bounce_buffer_bytes();
  if (most <= 2 * sizeof(Piece)) return 0;
  const size_t part = std::min(bytes, most - sizeof(Piece));
  const hydrant_pin_t remote = hydrant_try_remote_pin(firehose().end, peer, dest, part, kAccess);
  if (remote.region == nullptr) return 0;
  BounceBuffer buffer;
  *status = take_bounce_buffer(part + sizeof(Piece), !may_wait, &buffer);
  if (*status == Status::kOk) {
    auto* piece = new (buffer.addr) Piece;
    std::byte* data = static_cast<std::byte*>(buffer.addr) + sizeof(Piece);
    piece->peer = peer;
    piece->remote = remote;
    piece->buffer = buffer.addr;
    std::memcpy(data, source, part);
    *status = post(*piece, dest, data, buffer.key, part, may_wait);
    if (*status == Status::kOk) return part;
    release_bounce_buffer(buffer.addr);
  }
  (void)hydrant_remote_release(remote);
  if (*status != Status::kBroken) *status = Status::kOk;
  return 0;
}

}  // namespace

Status put_long_payload(const Job::LongPayload& payload, size_t* done) noexcept {
  const auto [peer, dest, source, bytes, may_wait, leaf] = payload;
  *done = 0;
  if (!is_firehose_enabled() || !pinned_puts_come_first(peer)) return Status::kOk;
  if (bytes >= kMinInBackground) vouch_own_segment();  // the source may lie in it
  if (leaf != nullptr && may_wait && bytes >= kMinInBackground && put_in_background(payload)) {
    *done = bytes;
    return Status::kOk;
  }
  Status status = Status::kOk;
  if (may_wait && bytes >= kMinUncopied) {
    status = put_uncopied(peer, dest, source, bytes);
    if (status == Status::kOk) *done = bytes;
    if (status == Status::kOk || status == Status::kBroken) return status;
    status = Status::kOk;
  }
  while (*done < bytes) {
    const size_t part =
        put_copy(peer, dest + *done, source + *done, bytes - *done, may_wait, &status);
    if (part == 0) break;
    *done += part;
  }
  // A handler must not send the request.
  if (*done == 0 && status == Status::kOk && handler_depth == 0) (void)prefetch(peer, dest, bytes);
  return status;
}

}  // namespace hydrant
