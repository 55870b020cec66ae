// Puts and gets between pinned memory that wait: misses, refused posts, and the fallback to messages. Called
// by transfer() (rma_transfer.cpp); answers put pieces on the list of unfinished operations, which each poll
// continues.
#include "am/job/job.hpp"
#include "am/progress/unfinished.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/binding/segment_pins.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/rma/paths/bounce_pool.hpp"
#include "extended/rma/paths/rma_messages.hpp"
#include "extended/rma/paths/rma_rest.hpp"
#include "extended/rma/pinned/on_demand.hpp"
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

// The arguments of a move for this piece.
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

// Prepares the local end: no key, a pin, on-demand paging or a bounce buffer. Shortens the piece to the
// buffer's size. kNotReady: no buffer is free now.
Status prepare_local(PinnedPiece& piece) noexcept {
  Transfer& part = piece.part;
  if (needs_no_key(part)) {
    keep_source(piece);
    return Status::kOk;
  }
  if (!(part.is_put() && part.source_may_change)) {
    // Small gets that miss receive their data in the reply or through a buffer, so they are not pinned.
    const uint32_t access = local_access(part);
    piece.local = part.bytes >= kMinPinned
                      ? hydrant_pin(firehose().domain, part.local, part.bytes, access)
                      : hydrant_try_pin(firehose().domain, part.local, part.bytes, access);
    if (piece.local.region != nullptr) return Status::kOk;
    if (part.bytes >= kMinPinned) {
      piece.local_key = on_demand_key(hydrant_pin_status(piece.local), part.direction, part.bytes);
      if (piece.local_key != nullptr) return Status::kOk;
    }
  }
  const size_t most = bounce_buffer_bytes();
  if (most == 0) return fail_literal(Status::kUnsupported, "there is no pool of buffers");
  part.bytes = std::min(part.bytes, most);
  const Status status = take_bounce_buffer(part.bytes, part.immediate, &piece.buffer);
  if (status == Status::kOk && part.is_put())
    std::memcpy(piece.buffer.addr, part.local, part.bytes);
  return status;
}

// The path to count for a miss: kInMove if the move carries the data, else kRendezvous.
Path path_of_miss(const hydrant_remote_call_t& call) noexcept {
  return call.flags != 0 ? Path::kInMove : Path::kRendezvous;
}

Status start(RmaThread& thread, const Transfer& what, CompletionCounter& counter, size_t* bytes,
             Path* path) noexcept {
  if (const Status room = make_room(thread, counter, what.immediate); room != Status::kOk)
    return room;
  PinnedPiece* piece = take_piece(thread);
  if (piece == nullptr) return fail_literal(Status::kUnsupported, "no memory for an operation");
  piece->part = what;
  piece->counter = &counter;
  Status status = prepare_local(*piece);
  if (status != Status::kOk) {
    release_piece(piece);
    return status;
  }
  const Transfer& part = piece->part;
  *bytes = part.bytes;
  const hydrant_remote_call_t call = call_for(*piece);
  piece->state = PinnedPiece::State::kRequested;
  count_start(counter, part.peer);
  hydrant_pin_t pin{};
  const int code =
      hydrant_remote_pin(firehose().end, part.peer, part.remote, part.bytes,
                         part.is_put() ? kPutAccess : HYDRANT_REMOTE_READ, &call, &pin);
  if (code != GASNET_OK) {
    uncount_start(counter);
    release_piece(piece);
    if (code == HYDRANT_ERR_BROKEN) return fail(Status::kBroken, "%s", hydrant_error_text());
    return fail_literal(Status::kUnsupported, "the remote memory is not pinned now");
  }
  if (pin.region == nullptr) {
    *path = path_of_miss(call);
    return Status::kOk;
  }
  *path = Path::kFirehose;
  piece->remote = pin;
  return launch(piece, counter);
}

}  // namespace

Status transfer_pinned(RmaThread& thread, const Transfer& what,
                       CompletionCounter& counter) noexcept {
  if (!is_firehose_enabled()) return fail_literal(Status::kUnsupported, "no memory can be pinned");
  vouch_own_segment();
  Path first = Path::kFirehose;
  for (size_t done = 0; done < what.bytes;) {
    Transfer part = what;
    part.remote += done;
    part.local += done;
    part.bytes = std::min(kMaxPieceBytes, what.bytes - done);
    Path path = Path::kFirehose;
    Status status = start(thread, part, counter, &part.bytes, &path);
    if ((status == Status::kUnsupported || status == Status::kNotReady) && done != 0) {
      part.bytes = what.bytes - done;
      status = continue_by_messages(thread, part, counter);
    }
    if (status != Status::kOk) return status;
    if (done == 0) first = path;
    done += part.bytes;
  }
  thread.count(what.direction, what.peer, first, what.bytes);
  return Status::kOk;
}

}  // namespace hydrant
