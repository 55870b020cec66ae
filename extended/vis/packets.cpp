// Moves vector, indexed and strided transfers by Mediums: the initiator's packets, and the handlers on both
// sides. vis_transfer.cpp calls it.
#include "extended/vis/packets.hpp"

#include "am/job/endpoints.hpp"
#include "am/job/job.hpp"
#include "am/progress/unfinished.hpp"
#include "extended/binding/own_memory.hpp"
#include "extended/message/handlers.hpp"
#include "extended/rma/common/copy.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/rma/paths/message_words.hpp"
#include "extended/rma/paths/rma_rest.hpp"
#include "extended/vis/description.hpp"
#include "extended/vis/peer_completion.hpp"
#include "firehose/base/thread.hpp"

#include <memory>
#include <new>

namespace hydrant {
namespace {

// A get whose answers are awaited. The initiating call and each packet under way hold it.
struct PendingGet {
  CompletionCounter* counter = nullptr;
  Side dest;
  Grid grid;  // copy of a grid, because the call's own ends with the call
  std::atomic<uint64_t> holds{1};
};

PendingGet* new_get(const VisTransfer& what, CompletionCounter& counter) noexcept {
  auto* get = new (std::nothrow) PendingGet;
  if (get == nullptr) return nullptr;
  get->counter = &counter;
  get->dest = *what.dest;
  if (what.dest->kind == Side::Kind::kGrid) {
    get->grid = *what.dest->grid;
    get->dest.grid = &get->grid;
  }
  return get;
}

void drop_get(PendingGet* get) noexcept {
  if (get->holds.fetch_sub(1, std::memory_order_acq_rel) == 1) delete get;
}

uint64_t get_name(PendingGet* get) noexcept { return reinterpret_cast<uintptr_t>(get); }
PendingGet* named_get(int32_t low, int32_t high) noexcept {
  return reinterpret_cast<PendingGet*>(join_words(low, high));
}

// Copies the next `bytes` bytes of a side to a buffer.
void gather_bytes(Cursor& cursor, std::byte* out, size_t bytes) noexcept {
  while (bytes != 0) {
    const Piece piece = cursor.rest();
    const size_t part = std::min(piece.bytes, bytes);
    copy_bytes(out, reinterpret_cast<const void*>(piece.addr), part);
    cursor.advance(part);
    out += part;
    bytes -= part;
  }
}
void scatter_bytes(Cursor& cursor, const std::byte* data, size_t bytes) noexcept {
  while (bytes != 0 && !cursor.at_end()) {
    const Piece piece = cursor.rest();
    const size_t part = std::min(piece.bytes, bytes);
    copy_bytes(reinterpret_cast<void*>(piece.addr), data, part);
    cursor.advance(part);
    data += part;
    bytes -= part;
  }
}

// A Medium that is written in the transport's own memory if it is long, so that it is not copied once more.
class Packet {
 public:
  // `buffer`, of paths().medium_max bytes, is used for short packets, and if the transport has no cell now.
  Packet(Rank peer, Lane lane, size_t bytes, std::byte* buffer) noexcept
      : peer_(peer), lane_(lane), data_(buffer), room_(paths().medium_max) {
    if (bytes < kLeastCell || peer == job().rank()) return;
    const auto wanted = static_cast<uint32_t>(std::min(bytes + kLeastCell, room_));
    has_cell_ = job().channels[peer]->take_cell(peer, lane, wanted, &cell_) == Status::kOk;
    if (!has_cell_) return;
    data_ = cell_.data;
    room_ = std::min<size_t>(cell_.bytes, room_);
  }
  ~Packet() {
    if (has_cell_) job().channels[peer_]->drop_cell(peer_, lane_, cell_);
  }
  Packet(const Packet&) = delete;
  Packet& operator=(const Packet&) = delete;

  std::byte* data() const noexcept { return data_; }
  size_t room() const noexcept { return room_; }

  // Sends the packet as the payload of `message`, a request.
  Status send(OutgoingMessage& message) noexcept {
    message.source = data_;
    message.cell = has_cell_ ? &cell_ : nullptr;
    const Status status = hydrant::send(message);
    if (status == Status::kOk) has_cell_ = false;
    return status;
  }
  // The same for a reply.
  void reply(gex_Token_t token, OutgoingMessage& message) noexcept {
    message.source = data_;
    message.cell = has_cell_ ? &cell_ : nullptr;
    has_cell_ = false;
    rma_reply(token, message);
  }

 private:
  // Shorter packets travel in the ring of messages, or their copy costs little.
  static constexpr size_t kLeastCell = 4096;

  const Rank peer_;
  const Lane lane_;
  std::byte* data_;
  size_t room_;
  Cell cell_ = {};
  bool has_cell_ = false;
};

// ---- the initiator ----

Status start_put_packet(const VisTransfer& what, Packet& packet, const Described& described,
                        CompletionCounter& counter) noexcept {
  const auto args = pack_words(counter_name(counter), uint64_t{described.bytes});
  OutgoingMessage message = rma_request(what.peer, kVisPutHandler, args, what.immediate);
  message.category = Category::kMedium;
  message.bytes = described.bytes + described.data;
  return packet.send(message);
}

Status start_get_packet(const VisTransfer& what, Packet& packet, const Described& described,
                        const Position& dest, PendingGet* get) noexcept {
  const auto args = pack_words(get_name(get), uint64_t{dest.piece}, uint64_t{dest.offset},
                               uint64_t{described.data});
  OutgoingMessage message = rma_request(what.peer, kVisGetHandler, args, what.immediate);
  message.category = Category::kMedium;
  message.bytes = described.bytes;
  get->holds.fetch_add(1, std::memory_order_relaxed);
  const Status status = packet.send(message);
  if (status != Status::kOk) drop_get(get);
  return status;
}

// ---- the target ----

// Copies to and from pieces that a peer names; most of them lie in the segment.
class OwnPieces {
 public:
  bool write(const Piece& piece, const std::byte* data) const noexcept {
    if (!is_inside(piece)) return write_own(piece.addr, data, piece.bytes);
    copy_bytes(reinterpret_cast<void*>(piece.addr), data, piece.bytes);
    return true;
  }
  bool read(const Piece& piece, std::byte* out) const noexcept {
    const void* from = reinterpret_cast<const void*>(piece.addr);
    if (!is_inside(piece)) from = read_own(piece.addr, out, piece.bytes);
    if (from != nullptr && from != out) copy_bytes(out, from, piece.bytes);
    return from != nullptr;
  }

 private:
  bool is_inside(const Piece& piece) const noexcept {
    const uintptr_t offset = piece.addr - segment_.addr;
    return offset < segment_.len && piece.bytes <= segment_.len - offset;
  }
  const MemoryRange segment_ = bound_memory(0);
};

void on_put_packet(gex_Token_t token, void* payload, size_t bytes, int32_t low, int32_t high,
                   int32_t description, int32_t) {
  const auto* data = static_cast<const std::byte*>(payload);
  const auto described = static_cast<size_t>(static_cast<uint32_t>(description));
  const OwnPieces own;
  DescribedPieces pieces(data, described, bytes - described);
  data += described;
  for (Piece piece; pieces.next(&piece); data += piece.bytes) {
    if (own.write(piece, data)) continue;
    reply_done(token, low, high, piece.addr, piece.bytes);
    return;
  }
  reply_done(token, low, high, 0, 0);
}

void refuse_get(gex_Token_t token, int32_t low, int32_t high, const Piece& piece) noexcept {
  const auto args = pack_words(join_words(low, high), uint64_t{piece.addr}, uint64_t{piece.bytes});
  rma_reply(token, rma_request(0, kVisGetRefusedHandler, args, false));
}

void on_get_packet(gex_Token_t token, void* payload, size_t bytes, int32_t low, int32_t high,
                   int32_t piece_low, int32_t piece_high, int32_t offset_low, int32_t offset_high,
                   int32_t data_low, int32_t data_high) {
  const size_t data = join_words(data_low, data_high);
  RmaThread* thread = RmaThread::mine();
  std::byte* buffer = thread != nullptr ? thread->scratch() : nullptr;
  if (buffer == nullptr) fatal("no memory for the answer to a get of rank %u", token->from);
  const OwnPieces own;
  Packet packet(token->from, Lane::kReply, data, buffer);
  DescribedPieces pieces(static_cast<const std::byte*>(payload), bytes, data);
  std::byte* out = packet.data();
  for (Piece piece; pieces.next(&piece); out += piece.bytes) {
    if (own.read(piece, out)) continue;
    refuse_get(token, low, high, piece);
    return;
  }
  const auto args = pack_words(join_words(low, high), join_words(piece_low, piece_high),
                               join_words(offset_low, offset_high));
  OutgoingMessage message = rma_request(0, kVisGotHandler, args, false);
  message.category = Category::kMedium;
  message.bytes = static_cast<size_t>(out - packet.data());
  packet.reply(token, message);
}

// ---- back at the initiator ----

void on_got_packet(gex_Token_t, void* payload, size_t bytes, int32_t low, int32_t high,
                   int32_t piece_low, int32_t piece_high, int32_t offset_low, int32_t offset_high) {
  PendingGet* get = named_get(low, high);
  CompletionCounter& counter = *get->counter;
  {
    Cursor cursor(get->dest,
                  {join_words(piece_low, piece_high), join_words(offset_low, offset_high)});
    scatter_bytes(cursor, static_cast<const std::byte*>(payload), bytes);
  }
  drop_get(get);
  count_done(counter);
}

void on_get_packet_refused(gex_Token_t token, int32_t low, int32_t high, int32_t at_low,
                           int32_t at_high, int32_t bytes_low, int32_t bytes_high) {
  PendingGet* get = named_get(low, high);
  CompletionCounter& counter = *get->counter;
  drop_get(get);
  count_failed(counter, Status::kBadArg, token->from, join_words(at_low, at_high),
               join_words(bytes_low, bytes_high));
}

// The place that a transfer in packets has reached, and what its packets need.
struct Progress {
  Cursor dest;
  Cursor source;
  size_t left;        // bytes
  PendingGet* get;    // null for a put
  std::byte* buffer;  // of the sending thread
};

// Starts a packet of the next pieces. Moves the cursors only if that succeeds.
Status start_packet(const VisTransfer& what, Progress& progress,
                    CompletionCounter& counter) noexcept {
  const Position dest_at = progress.dest.position();
  const Position source_at = progress.source.position();
  Packet packet(what.peer, Lane::kRequest, what.is_put() ? progress.left : 0, progress.buffer);
  const size_t most = packet.room();
  const Described described =
      what.is_put() ? describe(*what.dest, progress.dest, packet.data(), most, most, true)
                    : describe(*what.source, progress.source, packet.data(), most, most, false);
  if (described.data == 0)
    return fail_literal(Status::kUnsupported, "a Medium is too short for a description");
  count_start(counter, what.peer);
  Status status = Status::kOk;
  if (what.is_put()) {
    gather_bytes(progress.source, packet.data() + described.bytes, described.data);
    status = start_put_packet(what, packet, described, counter);
  } else {
    skip_bytes(progress.dest, described.data);
    status = start_get_packet(what, packet, described, dest_at, progress.get);
  }
  if (status == Status::kOk) {
    progress.left -= described.data;
    return status;
  }
  uncount_start(counter);
  progress.dest.seek(dest_at);
  progress.source.seek(source_at);
  return status;
}

// ---- what is left of an immediate transfer ----

struct PacketsRest : Unfinished {
  VisTransfer what;
  // Copies: those of the call end with it.
  Side dest;
  Side source;
  Grid dest_grid;
  Grid source_grid;
  std::unique_ptr<std::byte[]> data;  // of a source that may change
  gex_Memvec_t data_piece;
  Position dest_at;
  Position source_at;
  std::unique_ptr<std::byte[]> buffer;  // for packets
  PendingGet* get = nullptr;
  RestCount count;
  bool is_sent = false;
};

// Sends what there is room for. True: all of it has been sent, or cannot be.
bool send_packets(PacketsRest& rest) noexcept {
  Progress progress{Cursor(rest.dest, rest.dest_at), Cursor(rest.source, rest.source_at),
                    rest.what.bytes, rest.get, rest.buffer.get()};
  Status status = Status::kOk;
  while (status == Status::kOk && !progress.dest.at_end()) {
    const MutexLock lock(carrier_mutex());
    status = start_packet(rest.what, progress, rest.count.pieces);
  }
  rest.dest_at = progress.dest.position();
  rest.source_at = progress.source.position();
  rest.what.bytes = progress.left;
  if (status == Status::kNotReady) return false;
  if (status != Status::kOk) note_unsent(rest.count.pieces, status, rest.what.peer);
  return true;
}

bool proceed_with_packets(Unfinished& operation) noexcept {
  auto& rest = static_cast<PacketsRest&>(operation);
  if (!rest.is_sent) {
    rest.is_sent = send_packets(rest);
    if (rest.is_sent && rest.get != nullptr) drop_get(rest.get);
  }
  if (!rest.is_sent || !rest.count.finish(rest.what.peer)) return false;
  delete &rest;
  return true;
}

void copy_side(const Side& from, Side& side, Grid& grid) noexcept {
  side = from;
  if (from.kind != Side::Kind::kGrid) return;
  grid = *from.grid;
  side.grid = &grid;
}

// Null: there is no memory.
std::unique_ptr<PacketsRest> make_rest(const VisTransfer& what, const Position& dest_at,
                                       const Position& source_at) noexcept {
  std::unique_ptr<PacketsRest> rest(new (std::nothrow) PacketsRest);
  if (rest == nullptr) return nullptr;
  rest->buffer.reset(new (std::nothrow) std::byte[paths().medium_max]);
  if (rest->buffer == nullptr) return nullptr;
  rest->what = what;
  rest->dest_at = dest_at;
  rest->source_at = source_at;
  copy_side(*what.dest, rest->dest, rest->dest_grid);
  copy_side(*what.source, rest->source, rest->source_grid);
  rest->what.dest = &rest->dest;
  rest->what.source = &rest->source;
  rest->what.immediate = true;
  rest->what.grids = nullptr;
  if (!what.is_put()) {
    rest->get = new_get(rest->what, rest->count.pieces);
    return rest->get != nullptr ? std::move(rest) : nullptr;
  }
  if (!what.source_may_change) return rest;
  size_t bytes = 0;
  for (Cursor left(*what.source, source_at); !left.at_end(); left.advance(left.rest().bytes))
    bytes += left.rest().bytes;
  rest->data.reset(new (std::nothrow) std::byte[bytes]);
  if (rest->data == nullptr) return nullptr;
  Cursor from(*what.source, source_at);
  gather_bytes(from, rest->data.get(), bytes);
  rest->data_piece = {rest->data.get(), bytes};
  rest->source = Side::of(&rest->data_piece, 1);
  rest->source_at = {};
  return rest;
}

}  // namespace

Status transfer_in_packets(RmaThread& thread, const VisTransfer& what, const Position& dest_start,
                           const Position& source_start, CompletionCounter& counter) noexcept {
  std::byte* buffer = thread.packet();
  PendingGet* const get = buffer != nullptr && !what.is_put() ? new_get(what, counter) : nullptr;
  if (buffer == nullptr || (get == nullptr && !what.is_put()))
    return fail_literal(Status::kUnsupported, "no memory for packets");
  Progress progress{Cursor(*what.dest, dest_start), Cursor(*what.source, source_start), what.bytes,
                    get, buffer};
  Status status = Status::kOk;
  bool has_started = false;
  while (!progress.dest.at_end()) {
    status = make_room(thread, counter, what.immediate);
    if (status == Status::kOk) status = start_packet(what, progress, counter);
    if (status != Status::kOk) break;
    has_started = true;
  }
  if (get != nullptr) drop_get(get);
  if (status == Status::kNotReady && has_begun(what, progress.dest.position()))
    return finish_in_polls(thread, what, progress.dest.position(), progress.source.position(),
                           counter);
  // The rest cannot go in pieces: packets have begun it. The text says why.
  if (status == Status::kUnsupported && has_started) return Status::kResource;
  return status;
}

bool has_begun(const VisTransfer& what, const Position& dest_at) noexcept {
  const Position start = Cursor(*what.dest).position();
  return dest_at.piece != start.piece || dest_at.offset != start.offset;
}

Status finish_in_polls(RmaThread& thread, const VisTransfer& what, const Position& dest_at,
                       const Position& source_at, CompletionCounter& counter) noexcept {
  std::unique_ptr<PacketsRest> rest = make_rest(what, dest_at, source_at);
  if (rest == nullptr) {
    VisTransfer patient = what;
    patient.immediate = false;
    return transfer_in_packets(thread, patient, dest_at, source_at, counter);
  }
  rest->count.start(counter, what.peer);
  rest->proceed = proceed_with_packets;
  continue_in_polls(*rest.release());
  return Status::kOk;
}

void add_vis_handlers() noexcept {
  HandlerTable& table = job().handlers;
  const auto add = [&table](uint32_t index, auto* function, uint32_t nargs, gex_Flags_t flags,
                            const char* name) {
    table.add_internal(index, reinterpret_cast<gex_AM_Fn_t>(function), nargs, flags, name);
  };
  constexpr gex_Flags_t kRequest = GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST;
  add(kVisPutHandler, on_put_packet, 4, kRequest, "put of pieces");
  add(kVisGetHandler, on_get_packet, 8, kRequest, "get of pieces");
  add(kVisGotHandler, on_got_packet, 6, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, "got pieces");
  add(kVisGetRefusedHandler, on_get_packet_refused, 6, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY,
      "refused pieces");
  add(kVisPeerCompletionHandler, run_peer_completion, 2, kRequest, "peer completion");
}

}  // namespace hydrant
