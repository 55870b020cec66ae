// Shared types of the puts and gets between pinned memory: a piece under way, and the arguments of a
// move. Hits are in rma_pinned.cpp, blocking hits in rma_pinned_blocking.cpp, waiting operations in
// rma_pinned_waiting.cpp, the target's part in rma_pinned_target.cpp.
#pragma once

#include <hydrant/remote_pin.h>

#include "am/progress/unfinished.hpp"
#include "extended/event/completion_counter.hpp"
#include "extended/rma/common/transfer.hpp"
#include "extended/rma/paths/bounce_pool.hpp"
#include "firehose/base/status.hpp"
#include "rdma/transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant {

class RmaThread;

// A piece under way. It belongs to the transport, to the endpoint of remote pins, or to the list of
// pieces that can continue.
struct PinnedPiece : Transport::Completion, Unfinished {
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

// The peer has recalled the memory, or the key is unusable: messages still work.
inline bool is_refusal(Status status) noexcept {
  return status == Status::kRefused || status == Status::kUnsupported;
}
// A persistent operation's piece, its prepared request, and the state of its local end.
struct PersistentPiece {
  PinnedPiece piece;
  std::unique_ptr<Transport::PersistentRequest> request;  // null: none, or not requested yet
  bool is_requested = false;
  bool needs_key = true;
};
// Counts for refused_operation_count().
void count_refusal() noexcept;

// Completes the piece and releases everything that it held.
void end(PinnedPiece* piece, Status status) noexcept;

// Posts a piece. kNotReady: retry later. Other codes: posted, or switched to messages.
Status post(PinnedPiece& piece) noexcept;

// Puts the piece on the list that the next poll processes, in any thread.
void queue_for_progress(PinnedPiece* piece) noexcept;

// The arguments of a move for this piece.
hydrant_remote_call_t call_for(PinnedPiece& piece) noexcept;

}  // namespace hydrant
