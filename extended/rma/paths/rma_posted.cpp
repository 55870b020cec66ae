// Posts one-sided puts and gets to a transport that completes them later, from the caller's memory or through
// bounce buffers, for transfer() (rma_transfer.cpp); and atomic operations of the adapter.
#include "extended/rma/paths/rma_posted.hpp"

#include "am/exit/exit.hpp"
#include "am/job/job.hpp"
#include "am/progress/waiting.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/rma/paths/bounce_pool.hpp"
#include "extended/rma/paths/rma_messages.hpp"
#include "firehose/base/log.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace hydrant {

// A piece under way. The completion returns it to its pool.
struct PostedPiece : Completion {
  CompletionCounter* counter = nullptr;
  RmaThread* home = nullptr;
  BounceBuffer buffer{};    // from the pool, or null
  void* copy_to = nullptr;  // destination of a get through a buffer
  bool is_atomic = false;
  Rank peer = 0;
  uintptr_t remote = 0;
  size_t bytes = 0;
  PostedPiece* next = nullptr;
};

namespace {

void release_piece(PostedPiece* piece) noexcept {
  if (piece->buffer.addr != nullptr) release_bounce_buffer(piece->buffer.addr);
  if (ThreadLocalPool<RmaThread>::is_mine(piece->home)) {
    piece->home->posted.free_local(piece);
  } else {
    piece->home->posted.free_from_any(piece);
  }
}

void on_completion(Completion& completion, Status status) noexcept {
  auto* piece = static_cast<PostedPiece*>(&completion);
  if (status == Status::kOk && piece->copy_to != nullptr)
    std::memcpy(piece->copy_to, piece->buffer.addr, piece->bytes);
  CompletionCounter& counter = *piece->counter;
  const Rank peer = piece->peer;
  const uintptr_t remote = piece->remote;
  const size_t bytes = piece->bytes;
  const bool is_atomic = piece->is_atomic;
  release_piece(piece);
  if (status == Status::kOk) {
    count_done(counter);
  } else if (is_atomic && status == Status::kRefused) {
    // The memory stays pinned while its rank has the domain. A rank that leaves unpins it before its end is
    // known here; the end of the job then has the cause.
    static RateLimit limit(RateLimit::kSecond);
    log_warning(limit,
                "an atomic operation on %#zx of rank %u: the rank's adapter refuses the key of its "
                "segment: the rank is leaving, or has destroyed the domain",
                static_cast<size_t>(remote), peer);
    count_failed(counter, Status::kBroken, peer, remote, bytes);
  } else {
    count_failed(counter, status == Status::kUnsupported ? Status::kBadArg : status, peer, remote,
                 bytes);
  }
}

PostedPiece* take_piece(RmaThread& thread) noexcept {
  PostedPiece* piece = thread.posted.take();
  if (piece == nullptr) piece = new (std::nothrow) PostedPiece;
  if (piece == nullptr) return nullptr;
  piece->done = on_completion;
  piece->home = &thread;
  piece->buffer = {};
  piece->copy_to = nullptr;
  piece->is_atomic = false;
  return piece;
}

// Calls start(), which posts to the transport. Polls while that has no room, unless `immediate`.
template <typename Start>
Status post(bool immediate, Start start) noexcept {
  Backoff backoff;
  for (;;) {
    const Status status = start();
    if (status != Status::kNotReady || immediate) return status;
    if (has_exit_grace_expired()) return fail(Status::kBroken, "the job is ending");
    backoff.polled(poll_all());
  }
}

// Starts one piece: waits for room, takes a record and possibly a buffer, posts.
Status start(RmaThread& thread, const Transfer& part, CompletionCounter& counter,
             bool bounces) noexcept {
  if (const Status room = make_room(thread, counter, part.immediate); room != Status::kOk)
    return room;
  PostedPiece* piece = take_piece(thread);
  if (piece == nullptr) return fail(Status::kResource, "no memory for an operation");
  piece->counter = &counter;
  piece->peer = part.peer;
  piece->remote = part.remote;
  piece->bytes = part.bytes;
  void* local = part.local;
  if (bounces) {
    const Status status = take_bounce_buffer(part.bytes, part.immediate, &piece->buffer);
    if (status != Status::kOk) {
      release_piece(piece);
      return status;
    }
    local = piece->buffer.addr;
    if (part.is_put()) {
      std::memcpy(local, part.local, part.bytes);
    } else {
      piece->copy_to = part.local;
    }
  }
  count_start(counter, part.peer);
  MemoryAccess& memory = *job().memory;
  const Status status = post(part.immediate, [&] {
    return part.is_put() ? memory.put(part.peer, part.remote, local, part.bytes, piece)
                         : memory.get(part.peer, part.remote, local, part.bytes, piece);
  });
  if (status != Status::kOk) {
    uncount_start(counter);
    release_piece(piece);
  }
  return status;
}

Status start_all(RmaThread& thread, const Transfer& what, CompletionCounter& counter, bool bounces,
                 size_t most) noexcept {
  const Path path = bounces ? Path::kBounce : Path::kDirect;
  for (size_t done = 0; done < what.bytes;) {
    Transfer part = what;
    part.remote += done;
    part.local += done;
    part.bytes = std::min(most, what.bytes - done);
    Status status = start(thread, part, counter, bounces);
    if ((status == Status::kUnsupported || status == Status::kNotReady) && done != 0) {
      // Posted pieces cannot be cancelled, so the rest is sent in messages.
      part.bytes = what.bytes - done;
      status = continue_by_messages(thread, part, counter);
    }
    if (status != Status::kOk) return status;
    done += part.bytes;
  }
  thread.count(what.direction, what.peer, path, what.bytes);
  return Status::kOk;
}

}  // namespace

Status transfer_direct(RmaThread& thread, const Transfer& what,
                       CompletionCounter& counter) noexcept {
  // Fits the length field of every network.
  constexpr size_t kMax = size_t{1} << 30;
  return start_all(thread, what, counter, false, kMax);
}

Status transfer_bounced(RmaThread& thread, const Transfer& what,
                        CompletionCounter& counter) noexcept {
  const size_t most = bounce_buffer_bytes();
  if (most == 0) return fail_literal(Status::kUnsupported, "there is no pool of buffers");
  return start_all(thread, what, counter, true, most);
}

Status post_atomic(RmaThread& thread, const PostedAtomic& atomic,
                   CompletionCounter& counter) noexcept {
  if (const Status room = make_room(thread, counter, atomic.immediate); room != Status::kOk)
    return room;
  PostedPiece* piece = take_piece(thread);
  if (piece == nullptr) return fail(Status::kResource, "no memory for an atomic operation");
  piece->counter = &counter;
  piece->peer = atomic.peer;
  piece->remote = atomic.word.addr;
  piece->bytes = sizeof(uint64_t);
  piece->copy_to = atomic.result;
  piece->is_atomic = true;
  Status status = take_bounce_buffer(piece->bytes, atomic.immediate, &piece->buffer);
  if (status != Status::kOk) {
    release_piece(piece);
    return status;
  }
  const PinnedOperations::Pinned old{reinterpret_cast<uintptr_t>(piece->buffer.addr),
                                     piece->buffer.key};
  count_start(counter, atomic.peer);
  status = post(atomic.immediate, [&] {
    return job().pinned->start_atomic(atomic.peer, atomic.word, old, atomic.what, piece);
  });
  if (status != Status::kOk) {
    uncount_start(counter);
    release_piece(piece);
  }
  return status;
}

}  // namespace hydrant
