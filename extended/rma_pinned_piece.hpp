// What the parts of the puts and gets between pinned memory share: one that is under way, and what a move of
// ours carries. The way of a hit is in rma_pinned.cpp, that of a blocking one in rma_pinned_blocking.cpp,
// that of those that wait in rma_pinned_waiting.cpp, the target's part in rma_pinned_target.cpp.
#pragma once

#include <hydrant/remote_pin.h>

#include "extended/bounce_pool.hpp"
#include "extended/pieces.hpp"
#include "extended/rma.hpp"
#include "firehose/base/status.hpp"
#include "rdma/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant {

class RmaThread;

// One that is under way: the transport's, the end's of the remote pins, or on the list of those that can go
// on.
struct PinnedPiece : Transport::Completion {
  enum class State : uint8_t {
    kAsking,  // a move is under way
    kPinned,  // both ends are: to be posted
    kPosted,
    kMessages,  // by Active Messages, `sent` bytes so far, counted by `messages`
  };
  Transfer part;
  Pieces* pieces = nullptr;
  RmaThread* home = nullptr;
  hydrant_pin_t remote{};
  hydrant_pin_t local{};
  const std::byte* local_key = nullptr;  // of memory that is not pinned: on_demand.hpp
  BounceBuffer buffer{};
  size_t sent = 0;
  Pieces messages;
  int status = 0;  // what the move answered
  State state = State::kPinned;
  bool called = false;  // the target has done it, or says in `fault` that it could not
  bool fault = false;
  bool is_kept = false;  // by its operation, which outlives what is under way: it is of no pool
  std::byte small[64];   // of a put that needs no local key
  PinnedPiece* next = nullptr;
};

// What a move of ours carries.
struct MoveArgs {
  enum Kind : uint32_t { kPut = 1, kGet = 2, kPutBack = 3 };
  uint32_t kind;
  uint32_t key_bytes;  // kPutBack: of the blob behind this
  uint64_t dest;       // kPutBack
};
enum AnswerByte : uint8_t { kDone = 0, kFault = 1, kNotDone = 2 };

// A piece: what a network's queue takes at once is the transport's business.
constexpr size_t kLongestPiece = size_t{4} << 20;
constexpr uint32_t kPutAccess = HYDRANT_REMOTE_WRITE | HYDRANT_REMOTE_READ;

inline void* local_of(PinnedPiece& piece) noexcept {
  if (piece.buffer.addr != nullptr) return piece.buffer.addr;
  return piece.part.local;
}

// The data of a put, wherever it was kept.
inline std::byte* source_of(PinnedPiece& piece) noexcept {
  if (piece.buffer.addr != nullptr) return static_cast<std::byte*>(piece.buffer.addr);
  return piece.part.local != nullptr ? piece.part.local : piece.small;
}

// The peer has taken back what was to be used, or nobody can use it: messages can.
inline bool is_refusal(Status status) noexcept {
  return status == Status::kRefused || status == Status::kUnsupported;
}
// A piece that is kept, its request, and what it needs of the local end.
struct KeptPiece {
  PinnedPiece piece;
  std::unique_ptr<Transport::Prepared> request;  // null: none, or not asked for yet
  bool is_asked = false;
  bool needs_key = true;
};
// For refused_puts_and_gets().
void note_refusal() noexcept;

// Ends the piece's operation, and gives back what it held.
void end(PinnedPiece* piece, Status status) noexcept;

// kNotReady: later. Others: it is posted, or on its way by messages.
Status post(PinnedPiece& piece) noexcept;

// Whoever polls next takes it.
void hand_back(PinnedPiece* piece) noexcept;

// What a move for this piece would carry.
hydrant_remote_call_t call_for(PinnedPiece& piece) noexcept;

}  // namespace hydrant
