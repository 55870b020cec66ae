// Puts and gets between pinned memory that wait: misses, refused posts, and the fallback to messages.
// Completions put pieces on the list of unfinished operations, which each poll continues.
#include "am/job/job.hpp"
#include "am/progress/unfinished.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/paths/rma_rest.hpp"
#include "extended/rma/pinned/rma_pinned.hpp"
#include "extended/rma/pinned/rma_pinned_piece.hpp"
#include "rdma/config/job_knobs.hpp"

#include <algorithm>
#include <cstring>

namespace hydrant {

namespace {

constexpr size_t kMaxBlob = 256;

size_t in_move_max(Direction direction) noexcept {
  static const size_t put = knob_number(JobKnob::kPutInMoveMax);
  const size_t room = firehose().max_args - sizeof(MoveArgs);
  // A reply starts with one status byte.
  return direction == Direction::kPut ? std::min(put, room) : std::min(put, room - 1);
}

// ---- progress -----------------------------------------------------------------------------------------

// Sends as many messages as there is room for. True: all data has arrived.
bool send_messages(PinnedPiece& piece) noexcept {
  if (piece.sent == 0) count_by_carrier(piece.messages, *piece.counter);
  Transfer part = piece.part;
  if (part.is_put()) part.local = source_of(piece);
  if (!send_rest(part, &piece.sent, piece.messages) || !piece.messages.all_done()) return false;
  end(&piece, static_cast<Status>(piece.messages.failure.load(std::memory_order_relaxed)));
  return true;
}

// Returns true if the piece is complete or passed on.
bool continue_piece(Unfinished& operation) noexcept {
  auto& piece = static_cast<PinnedPiece&>(operation);
  if (piece.state == PinnedPiece::State::kRequested) {
    if (piece.called) {
      end(&piece, piece.fault ? Status::kBadArg : Status::kOk);
      return true;
    }
    piece.state = piece.remote.region != nullptr ? PinnedPiece::State::kPinned
                                                 : PinnedPiece::State::kMessages;
    if (piece.status == HYDRANT_ERR_BROKEN) {
      end(&piece, Status::kBroken);
      return true;
    }
  }
  if (piece.state == PinnedPiece::State::kPinned) {
    const Status status = post(piece);
    if (status == Status::kOk) return true;
    if (status == Status::kNotReady) return false;
    if (piece.state != PinnedPiece::State::kMessages) {
      end(&piece, status);
      return true;
    }
  }
  return send_messages(piece);
}

}  // namespace

void queue_for_progress(PinnedPiece* piece) noexcept {
  piece->proceed = continue_piece;
  continue_in_polls(*piece);
}

// ---- misses -------------------------------------------------------------------------------------------

namespace {

void on_move_done(void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t* outcome) {
  auto* piece = static_cast<PinnedPiece*>(context);
  piece->remote = pin;
  piece->status = outcome->status;
  const auto* reply = static_cast<const std::byte*>(outcome->answer);
  if (outcome->called != 0 && outcome->answer_len != 0 &&
      static_cast<uint8_t>(reply[0]) != kNotDone) {
    piece->called = true;
    piece->fault = static_cast<uint8_t>(reply[0]) == kFault;
    if (!piece->part.is_put() && !piece->fault) {
      if (outcome->answer_len == piece->part.bytes + 1) {
        std::memcpy(piece->part.local, reply + 1, piece->part.bytes);
      } else if (piece->buffer.addr != nullptr) {
        // The target has put the data into the buffer.
        std::memcpy(piece->part.local, piece->buffer.addr, piece->part.bytes);
      }
    }
  }
  queue_for_progress(piece);
}

size_t write_put(void* context, void* room, size_t) {
  auto& piece = *static_cast<PinnedPiece*>(context);
  const MoveArgs args{MoveArgs::kPut, 0, 0};
  std::memcpy(room, &args, sizeof args);
  std::memcpy(static_cast<std::byte*>(room) + sizeof args, source_of(piece), piece.part.bytes);
  return sizeof args + piece.part.bytes;
}

size_t write_get(void*, void* room, size_t) {
  const MoveArgs args{MoveArgs::kGet, 0, 0};
  std::memcpy(room, &args, sizeof args);
  return sizeof args;
}

// Writes the destination of the data and its exported key, for the target.
size_t write_put_back(void* context, void* room, size_t bytes) {
  auto& piece = *static_cast<PinnedPiece*>(context);
  MoveArgs args{MoveArgs::kPutBack, 0, reinterpret_cast<uintptr_t>(local_of(piece))};
  size_t blob = std::min(bytes - sizeof args, kMaxBlob);
  if (piece.local.region == nullptr ||
      hydrant_export_key(piece.local, static_cast<std::byte*>(room) + sizeof args, &blob) !=
          GASNET_OK)
    return 0;
  args.key_bytes = static_cast<uint32_t>(blob);
  std::memcpy(room, &args, sizeof args);
  return sizeof args + blob;
}

}  // namespace

hydrant_remote_call_t call_for(PinnedPiece& piece) noexcept {
  hydrant_remote_call_t call{};
  call.done = on_move_done;
  call.context = &piece;
  const Transfer& part = piece.part;
  if (part.bytes <= in_move_max(part.direction)) {
    call.flags = HYDRANT_REMOTE_CALL_ANYWAY;
    call.make_args = part.is_put() ? write_put : write_get;
  } else if (!part.is_put() && piece.local.region != nullptr && pinned_puts_come_first(part.peer)) {
    call.flags = HYDRANT_REMOTE_CALL;
    call.make_args = write_put_back;
  }
  return call;
}

}  // namespace hydrant
