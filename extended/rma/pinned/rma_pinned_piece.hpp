// Shared types of the puts and gets between pinned memory: a piece under way, and the arguments of a
// move. Pieces and hits are in rma_pinned.cpp, blocking hits in rma_pinned_blocking.cpp, misses in
// rma_pinned_misses.cpp, the target's part in rma_pinned_target.cpp.
#pragma once

#include <hydrant/remote_pin.h>

#include "am/job/job.hpp"
#include "am/progress/unfinished.hpp"
#include "extended/event/completion_counter.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/common/transfer.hpp"
#include "extended/rma/paths/bounce_pool.hpp"
#include "firehose/base/status.hpp"
#include "rdma/transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace hydrant {

class RmaThread;

// A piece under way. It belongs to the transport, to the endpoint of remote pins, or to the list of
// pieces that can continue.
struct PinnedPiece : Completion, Unfinished {
  enum class State : uint8_t {
    kRequested,  // a move is under way
    kPinned,     // both ends are pinned; ready to post
    kPosted,
    kMessages,  // sent by Active Messages, `sent` bytes so far, counted by `messages`
  };
  Transfer part;
  CompletionCounter* counter = nullptr;
  RmaThread* home = nullptr;
  hydrant_pin_t remote{};
  hydrant_pin_t local{};
  const std::byte* local_key = nullptr;  // for memory that is not pinned: on_demand.hpp
  BounceBuffer buffer{};
  size_t sent = 0;
  CompletionCounter messages;
  int status = 0;  // status of the move
  State state = State::kPinned;
  bool called = false;  // the target has executed it, or reports a failure in `fault`
  bool fault = false;
  bool is_kept = false;         // owned by a persistent operation, not by a pool
  std::byte small[64];          // data of a put that needs no local key
  PinnedPiece* next = nullptr;  // in its thread's pool
};

// Arguments of a move.
struct MoveArgs {
  enum Kind : uint32_t { kPut = 1, kGet = 2, kPutBack = 3 };
  uint32_t kind;
  uint32_t key_bytes;  // kPutBack: size of the key blob that follows
  uint64_t dest;       // kPutBack
};
enum MoveStatus : uint8_t { kDone = 0, kFault = 1, kNotDone = 2 };

// Maximum size of a piece; the transport splits it further if necessary.
constexpr size_t kMaxPieceBytes = size_t{4} << 20;
constexpr uint32_t kPutAccess = HYDRANT_REMOTE_WRITE | HYDRANT_REMOTE_READ;

inline void* local_of(PinnedPiece& piece) noexcept {
  if (piece.buffer.addr != nullptr) return piece.buffer.addr;
  return piece.part.local;
}

// The data of a put: buffer, local memory, or the copy in `small`.
inline std::byte* source_of(PinnedPiece& piece) noexcept {
  if (piece.buffer.addr != nullptr) return static_cast<std::byte*>(piece.buffer.addr);
  return piece.part.local != nullptr ? piece.part.local : piece.small;
}

// Access rights for the local end. For a get they include remote writes, because on a miss the target
// may put the data.
inline uint32_t local_access(const Transfer& part) noexcept {
  if (part.is_put()) return HYDRANT_LOCAL_READ;
  return pinned_puts_come_first(part.peer) ? HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_WRITE
                                           : HYDRANT_LOCAL_WRITE;
}

// Small puts are copied into the work request, so they need no local key.
inline bool needs_no_key(const Transfer& part) noexcept {
  return part.is_put() && part.bytes <= sizeof PinnedPiece::small &&
         part.bytes <= job().pinned->keyless_bytes();
}

// Copies a source that the caller may change after the call, in case the network refuses the put later.
// Afterwards other threads may own the piece.
inline void keep_source(PinnedPiece& piece) noexcept {
  Transfer& part = piece.part;
  if (!part.is_put() || !part.source_may_change) return;
  std::memcpy(piece.small, part.local, part.bytes);
  part.local = nullptr;
}

// The peer has recalled the memory, or the key is unusable: messages still work.
inline bool is_refusal(Status status) noexcept {
  return status == Status::kRefused || status == Status::kUnsupported;
}
// A persistent operation's piece, its prepared request, and the state of its local end.
struct PersistentPiece {
  PinnedPiece piece;
  std::unique_ptr<PinnedOperations::PersistentRequest> request;  // null: none, or not requested yet
  bool is_requested = false;
  bool needs_key = true;
};
// Counts for refused_operation_count().
void count_refusal() noexcept;

// Null: there is no memory.
PinnedPiece* take_piece(RmaThread& thread) noexcept;
// Releases everything that the piece holds, and the piece.
void release_piece(PinnedPiece* piece) noexcept;
// Completes the piece and releases it.
void end(PinnedPiece* piece, Status status) noexcept;

// Posts a piece. kNotReady: retry later. Other codes: posted, or switched to messages.
Status post(PinnedPiece& piece) noexcept;
// Posts a counted piece whose both ends are pinned: under way at return, or uncounted and released (kBroken).
Status launch(PinnedPiece* piece, CompletionCounter& counter) noexcept;

// Puts the piece on the list that the next poll processes, in any thread.
void queue_for_progress(PinnedPiece* piece) noexcept;

}  // namespace hydrant
