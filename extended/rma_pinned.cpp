#include "extended/rma_pinned.hpp"

#include "am/exit.hpp"
#include "am/job.hpp"
#include "am/waiting.hpp"
#include "extended/bounce_pool.hpp"
#include "extended/firehose_binding.hpp"
#include "extended/own_memory.hpp"
#include "extended/rma_mapped.hpp"
#include "extended/rma_messages.hpp"
#include "extended/rma_thread.hpp"
#include "firehose/base/config.hpp"
#include "firehose/base/log.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace hydrant {

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
  BounceBuffer buffer{};
  size_t sent = 0;
  Pieces messages;
  int status = 0;  // what the move answered
  State state = State::kPinned;
  bool called = false;  // the target has done it, or says in `fault` that it could not
  bool fault = false;
  std::byte small[64];  // of a put that needs no local key
  PinnedPiece* next = nullptr;
};

namespace {

// What a move of ours carries.
struct MoveArgs {
  enum Kind : uint32_t { kPut = 1, kGet = 2, kPutBack = 3 };
  uint32_t kind;
  uint32_t key_bytes;  // kPutBack: of the blob behind this
  uint64_t dest;       // kPutBack
};
enum AnswerByte : uint8_t { kDone = 0, kFault = 1, kNotDone = 2 };

constexpr uint32_t kPutAccess = HYDRANT_REMOTE_WRITE | HYDRANT_REMOTE_READ;
// Registering less than this costs more than copying it (0010, 0016).
constexpr size_t kLeastPinned = 16384;
// A piece: what a network's queue takes at once is the transport's business.
constexpr size_t kLongestPiece = size_t{4} << 20;
constexpr size_t kMostBlob = 256;

size_t in_move_max(Direction direction) noexcept {
  static const size_t put = knob_number(Knob::kPutInMoveMax);
  const size_t room = firehose().max_args - sizeof(MoveArgs);
  // An answer has a byte in front, and is the get's counterpart.
  return direction == Direction::kPut ? std::min(put, room) : std::min(put, room - 1);
}

PinnedPiece* take_piece(RmaThread& thread) noexcept {
  PinnedPiece* piece = thread.pinned.take();
  if (piece == nullptr) piece = new (std::nothrow) PinnedPiece;
  if (piece == nullptr) return nullptr;
  piece->home = &thread;
  piece->remote = piece->local = {};
  piece->buffer = {};
  piece->sent = 0;
  piece->called = piece->fault = false;
  return piece;
}

void give(PinnedPiece* piece) noexcept {
  if (piece->remote.region != nullptr) (void)hydrant_remote_release(piece->remote);
  if (piece->local.region != nullptr) (void)hydrant_release(piece->local);
  if (piece->buffer.addr != nullptr) give_bounce_buffer(piece->buffer.addr);
  if (Adopted<RmaThread>::is_mine(piece->home)) {
    piece->home->pinned.give_mine(piece);
  } else {
    piece->home->pinned.give_back(piece);
  }
}

void end(PinnedPiece* piece, Status status) noexcept {
  Pieces& pieces = *piece->pieces;
  const Rank peer = piece->part.peer;
  const uintptr_t remote = piece->part.remote;
  const size_t bytes = piece->part.bytes;
  give(piece);
  if (status == Status::kOk) {
    count_done(pieces);
  } else {
    count_failed(pieces, status, peer, remote, bytes);
  }
}

// Those that can go on, or could not the last time: a stack that is taken whole.
constinit std::atomic<PinnedPiece*> waiting{nullptr};

void hand_back(PinnedPiece* piece) noexcept {
  PinnedPiece* head = waiting.load(std::memory_order_relaxed);
  do {
    piece->next = head;
    // Pairs with the acquire in go_on_with_pinned().
  } while (!waiting.compare_exchange_weak(head, piece, std::memory_order_release,
                                          std::memory_order_relaxed));
}

void* local_of(PinnedPiece& piece) noexcept {
  if (piece.buffer.addr != nullptr) return piece.buffer.addr;
  return piece.part.local;
}

// ---- posting ------------------------------------------------------------------------------------------

constinit std::atomic<uint64_t> refused{0};

bool is_refusal(Status status) noexcept {
  return status == Status::kRefused || status == Status::kUnsupported;
}

void on_completion(Transport::Completion& completion, Status status) noexcept {
  auto* piece = static_cast<PinnedPiece*>(&completion);
  if (is_refusal(status)) {
    // The peer took it back, and we had not heard: messages find the memory that is there now.
    refused.fetch_add(1, std::memory_order_relaxed);
    piece->state = PinnedPiece::State::kMessages;
    hand_back(piece);
    return;
  }
  if (status == Status::kOk && !piece->part.is_put() && piece->buffer.addr != nullptr)
    std::memcpy(piece->part.local, piece->buffer.addr, piece->part.bytes);
  end(piece, status);
}

// kNotReady: later. Others: it is posted, or on its way by messages.
Status post(PinnedPiece& piece) noexcept {
  Transport& transport = *job().transport;
  const Transport::Pinned remote{piece.part.remote,
                                 static_cast<const std::byte*>(piece.remote.region->key)};
  Transport::Pinned local{reinterpret_cast<uintptr_t>(local_of(piece)), nullptr};
  if (piece.buffer.addr != nullptr) {
    local.key = piece.buffer.key;
  } else if (piece.local.region != nullptr) {
    local.key = static_cast<const std::byte*>(piece.local.region->key);
  } else if (piece.part.local == nullptr) {
    local.addr = reinterpret_cast<uintptr_t>(piece.small);
  }
  piece.done = on_completion;
  piece.state = PinnedPiece::State::kPosted;
  const Status status =
      piece.part.is_put()
          ? transport.put_pinned(piece.part.peer, remote, local, piece.part.bytes, &piece)
          : transport.get_pinned(piece.part.peer, remote, local, piece.part.bytes, &piece);
  if (status == Status::kOk) return status;
  if (is_refusal(status)) refused.fetch_add(1, std::memory_order_relaxed);
  piece.state = is_refusal(status) ? PinnedPiece::State::kMessages : PinnedPiece::State::kPinned;
  return status;
}

// ---- going on -----------------------------------------------------------------------------------------

// Whose room the messages take of operations that no thread of its own goes on with.
struct Carrier {
  Mutex mu;
  RmaThread thread;
};
Carrier& carrier() noexcept {
  alignas(Carrier) static std::byte place[sizeof(Carrier)];
  static auto* const the_carrier = new (place) Carrier;  // never destroyed: threads may be inside
  return *the_carrier;
}

// The data of a put, wherever it was kept.
std::byte* source_of(PinnedPiece& piece) noexcept {
  if (piece.buffer.addr != nullptr) return static_cast<std::byte*>(piece.buffer.addr);
  return piece.part.local != nullptr ? piece.part.local : piece.small;
}

// Sends what there is room for. True: all of it has arrived.
bool send_messages(PinnedPiece& piece) noexcept {
  if (piece.sent == 0) {
    reset(piece.messages);
    piece.messages.thread = &carrier().thread;
    piece.messages.returns_errors = piece.pieces->returns_errors;
  }
  while (piece.sent < piece.part.bytes) {
    Transfer part = piece.part;
    part.remote += piece.sent;
    part.local = (piece.part.is_put() ? source_of(piece) : piece.part.local) + piece.sent;
    part.bytes = std::min(paths().medium_max, piece.part.bytes - piece.sent);
    part.immediate = true;
    Status status = Status::kOk;
    {
      const MutexLock lock(carrier().mu);
      status = send_one_message(part, piece.messages);
    }
    if (status == Status::kNotReady) return false;
    if (status != Status::kOk) {
      // Those that are under way may still write.
      piece.sent = piece.part.bytes;
      piece.messages.failure.store(to_c(status), std::memory_order_relaxed);
      break;
    }
    piece.sent += part.bytes;
  }
  if (!piece.messages.all_done()) return false;
  end(&piece, static_cast<Status>(piece.messages.failure.load(std::memory_order_relaxed)));
  return true;
}

// True: it is through, or somebody else has it.
bool go_on(PinnedPiece& piece) noexcept {
  if (piece.state == PinnedPiece::State::kAsking) {
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

// ---- misses -------------------------------------------------------------------------------------------

void on_move_done(void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t* outcome) {
  auto* piece = static_cast<PinnedPiece*>(context);
  piece->remote = pin;
  piece->status = outcome->status;
  const auto* answer = static_cast<const std::byte*>(outcome->answer);
  if (outcome->called != 0 && outcome->answer_len != 0 &&
      static_cast<uint8_t>(answer[0]) != kNotDone) {
    piece->called = true;
    piece->fault = static_cast<uint8_t>(answer[0]) == kFault;
    if (!piece->part.is_put() && !piece->fault) {
      if (outcome->answer_len == piece->part.bytes + 1) {
        std::memcpy(piece->part.local, answer + 1, piece->part.bytes);
      } else if (piece->buffer.addr != nullptr) {
        // The target has put it there.
        std::memcpy(piece->part.local, piece->buffer.addr, piece->part.bytes);
      }
    }
  }
  hand_back(piece);
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

// Tells the target where the data is wanted, and the key that lets it put it there.
size_t write_put_back(void* context, void* room, size_t bytes) {
  auto& piece = *static_cast<PinnedPiece*>(context);
  MoveArgs args{MoveArgs::kPutBack, 0, reinterpret_cast<uintptr_t>(local_of(piece))};
  size_t blob = std::min(bytes - sizeof args, kMostBlob);
  if (piece.local.region == nullptr ||
      hydrant_export_key(piece.local, static_cast<std::byte*>(room) + sizeof args, &blob) !=
          GASNET_OK)
    return 0;
  args.key_bytes = static_cast<uint32_t>(blob);
  std::memcpy(room, &args, sizeof args);
  return sizeof args + blob;
}

// ---- one piece ----------------------------------------------------------------------------------------

// Pins the piece's local memory, or finds a buffer, and shortens the piece to what that holds. kNotReady:
// there is no buffer now.
Status prepare_local(PinnedPiece& piece) noexcept {
  Transfer& part = piece.part;
  const size_t keyless =
      std::min<size_t>(job().transport->pinned_inline_bytes(), sizeof piece.small);
  if (part.is_put() && part.bytes <= keyless) {
    // A source that its owner may change as soon as the call returns is kept, should the network refuse the
    // put later. From here on other threads may have the piece.
    if (part.source_is_free) {
      std::memcpy(piece.small, part.local, part.bytes);
      part.local = nullptr;
    }
    return Status::kOk;
  }
  if (!(part.is_put() && part.source_is_free)) {
    // (A get that misses small has its data in the answer, or from a buffer.)
    const uint32_t access =
        part.is_put() ? HYDRANT_LOCAL_READ
        : job().transport->abilities_with(part.peer) & Transport::kPutsBeforeMessages
            ? HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_WRITE
            : HYDRANT_LOCAL_WRITE;
    piece.local = part.bytes >= kLeastPinned
                      ? hydrant_pin(firehose().domain, part.local, part.bytes, access)
                      : hydrant_try_pin(firehose().domain, part.local, part.bytes, access);
    if (piece.local.region != nullptr) return Status::kOk;
  }
  const size_t most = bounce_buffer_bytes();
  if (most == 0) return fail_plainly(Status::kUnsupported, "there is no pool of buffers");
  part.bytes = std::min(part.bytes, most);
  const Status status = take_bounce_buffer(part.bytes, part.immediate, &piece.buffer);
  if (status == Status::kOk && part.is_put())
    std::memcpy(piece.buffer.addr, part.local, part.bytes);
  return status;
}

// Which way a piece has gone, for the counts: the one round trip is all, or there is something to post after
// it.
Path path_of_miss(const hydrant_remote_call_t& call) noexcept {
  return call.flags != 0 ? Path::kInMove : Path::kRendezvous;
}

// What a move for this piece would carry.
hydrant_remote_call_t call_for(PinnedPiece& piece) noexcept {
  hydrant_remote_call_t call{};
  call.done = on_move_done;
  call.context = &piece;
  const Transfer& part = piece.part;
  if (part.bytes <= in_move_max(part.direction)) {
    call.flags = HYDRANT_REMOTE_CALL_ANYWAY;
    call.make_args = part.is_put() ? write_put : write_get;
  } else if (!part.is_put() && piece.local.region != nullptr &&
             (job().transport->abilities_with(part.peer) & Transport::kPutsBeforeMessages) != 0) {
    call.flags = HYDRANT_REMOTE_CALL;
    call.make_args = write_put_back;
  }
  return call;
}

Status start(RmaThread& thread, const Transfer& what, Pieces& pieces, size_t* bytes,
             Path* path) noexcept {
  if (const Status room = make_room(thread, pieces, what.immediate); room != Status::kOk)
    return room;
  PinnedPiece* piece = take_piece(thread);
  if (piece == nullptr) return fail_plainly(Status::kUnsupported, "no memory for an operation");
  piece->part = what;
  piece->pieces = &pieces;
  Status status = prepare_local(*piece);
  if (status != Status::kOk) {
    give(piece);
    return status;
  }
  const Transfer& part = piece->part;
  *bytes = part.bytes;
  const hydrant_remote_call_t call = call_for(*piece);
  piece->state = PinnedPiece::State::kAsking;
  count_start(pieces, part.peer);
  hydrant_pin_t pin{};
  const int code =
      hydrant_remote_pin(firehose().end, part.peer, part.remote, part.bytes,
                         part.is_put() ? kPutAccess : HYDRANT_REMOTE_READ, &call, &pin);
  if (code != GASNET_OK) {
    uncount_start(pieces);
    give(piece);
    if (code == HYDRANT_ERR_BROKEN) return fail(Status::kBroken, "%s", hydrant_error_text());
    return fail_plainly(Status::kUnsupported, "the remote memory is not pinned now");
  }
  if (pin.region == nullptr) {
    *path = path_of_miss(call);
    return Status::kOk;
  }
  *path = Path::kFirehose;
  piece->remote = pin;
  piece->state = PinnedPiece::State::kPinned;
  status = post(*piece);
  if (status == Status::kOk) return status;
  if (status == Status::kBroken) {
    uncount_start(pieces);
    give(piece);
    return status;
  }
  hand_back(piece);
  return Status::kOk;
}

}  // namespace

Status transfer_pinned(RmaThread& thread, const Transfer& what, Pieces& pieces) noexcept {
  if (!firehose_is_on()) return fail_plainly(Status::kUnsupported, "no memory can be pinned");
  note_own_segment();
  Path first = Path::kFirehose;
  for (size_t done = 0; done < what.bytes;) {
    Transfer part = what;
    part.remote += done;
    part.local += done;
    part.bytes = std::min(kLongestPiece, what.bytes - done);
    part.immediate = what.immediate && done == 0;
    Path path = Path::kFirehose;
    Status status = start(thread, part, pieces, &part.bytes, &path);
    if (status == Status::kUnsupported && done != 0) {
      part.bytes = what.bytes - done;
      status = go_on_by_messages(thread, part, pieces);
    }
    if (status != Status::kOk) return status;
    if (done == 0) first = path;
    done += part.bytes;
  }
  thread.count(what.direction, what.peer, first, what.bytes);
  return Status::kOk;
}

uint64_t refused_puts_and_gets() noexcept { return refused.load(std::memory_order_relaxed); }

uint32_t go_on_with_pinned() noexcept {
  if (waiting.load(std::memory_order_relaxed) == nullptr) [[likely]]
    return 0;
  PinnedPiece* newest = waiting.exchange(nullptr, std::memory_order_acquire);
  PinnedPiece* list = nullptr;
  while (newest != nullptr) {
    PinnedPiece* next = newest->next;
    newest->next = list;
    list = newest;
    newest = next;
  }
  uint32_t got_on = 0;
  // Once each: who cannot go on waits for the next poll.
  while (list != nullptr) {
    PinnedPiece* piece = list;
    list = piece->next;
    if (go_on(*piece)) {
      ++got_on;
    } else {
      hand_back(piece);
    }
  }
  return got_on;
}

// ---- the target ---------------------------------------------------------------------------------------

namespace {

size_t answer_byte(void* answer, size_t room, AnswerByte byte) noexcept {
  if (room == 0) return 0;
  std::memset(answer, byte, 1);
  return 1;
}

// Nobody waits for it: the message that follows it on its way says that it is there.
void on_put_back(Transport::Completion&, Status) noexcept {}
constinit Transport::Completion put_back_completion{on_put_back};

AnswerByte put_back(uint32_t from, const hydrant_region_t& pinned, hydrant_range_t asked,
                    const MoveArgs& args, const std::byte* blob) noexcept {
  Transport& transport = *job().transport;
  alignas(16) std::byte key[4096];
  if ((transport.abilities() & Transport::kPutsBeforeMessages) == 0 ||
      firehose().key_bytes > sizeof key ||
      hydrant_import_key(firehose().domain, blob, args.key_bytes, key) != GASNET_OK)
    return kNotDone;
  const Transport::Pinned remote{static_cast<uintptr_t>(args.dest), key};
  const Transport::Pinned local{asked.addr, static_cast<const std::byte*>(pinned.key)};
  const Status status = transport.put_pinned(from, remote, local, asked.len, &put_back_completion);
  return status == Status::kOk ? kDone : kNotDone;
}

}  // namespace

size_t serve_move(void*, uint32_t from, const hydrant_region_t* pinned, hydrant_range_t asked,
                  const void* given, size_t given_len, void* answer, size_t room) {
  MoveArgs args{};
  if (given_len < sizeof args) return answer_byte(answer, room, kNotDone);
  std::memcpy(&args, given, sizeof args);
  const auto* rest = static_cast<const std::byte*>(given) + sizeof args;
  const size_t rest_len = given_len - sizeof args;
  switch (args.kind) {
    case MoveArgs::kPut:
      if (rest_len != asked.len) return answer_byte(answer, room, kNotDone);
      return answer_byte(answer, room, write_own(asked.addr, rest, asked.len) ? kDone : kFault);
    case MoveArgs::kGet: {
      if (room < asked.len + 1) return answer_byte(answer, room, kNotDone);
      std::byte* to = static_cast<std::byte*>(answer) + 1;
      const void* data = read_own(asked.addr, to, asked.len);
      if (data == nullptr) return answer_byte(answer, room, kFault);
      if (data != to) std::memcpy(to, data, asked.len);
      return answer_byte(answer, room, kDone) + asked.len;
    }
    case MoveArgs::kPutBack:
      if (pinned == nullptr || rest_len != args.key_bytes)
        return answer_byte(answer, room, kNotDone);
      return answer_byte(answer, room, put_back(from, *pinned, asked, args, rest));
    default: return answer_byte(answer, room, kNotDone);
  }
}

namespace {

// A segment that is small enough is pinned whole and stays so: a peer that asks for some of it gets all.
void pin_small_segment(const hydrant_segment& segment) noexcept {
  if (segment.size > knob_number(Knob::kGasnetM)) return;
  const hydrant_pin_t pin =
      hydrant_pin(firehose().domain, segment.addr, segment.size, HYDRANT_LOCAL_WRITE | kPutAccess);
  if (pin.region == nullptr)
    log_info("the segment is pinned where it is used, not whole: %s", hydrant_error_text());
}

}  // namespace

void note_own_segment() noexcept {
  static std::atomic<const hydrant_segment*> noted{nullptr};
  const hydrant_segment* segment = job().endpoint.segment;
  if (segment == noted.load(std::memory_order_relaxed)) return;
  noted.store(segment, std::memory_order_relaxed);
  if (segment == nullptr || job().segment_mode == kEverything) return;
  (void)hydrant_vouch(firehose().domain, segment->addr, segment->size);
  pin_small_segment(*segment);
}

namespace {

// Of the two kinds of firehoses the one that puts and gets with this peer go by.
hydrant_remote_t end_for(Rank peer) noexcept {
  return paths(peer).pinned ? firehose().end : end_of_mappings(peer);
}

}  // namespace

Status prefetch(Rank peer, uintptr_t remote, size_t bytes) noexcept {
  const hydrant_remote_t end = end_for(peer);
  if (end == 0 || peer == job().rank()) return Status::kOk;
  const int code = hydrant_remote_prefetch(end, peer, remote, bytes, kPutAccess);
  // That it cannot be had now, or ever, is no error of a hint.
  if (code == GASNET_ERR_NOT_READY || code == HYDRANT_ERR_REFUSED || code == GASNET_ERR_RESOURCE)
    return Status::kOk;
  return code == GASNET_OK ? Status::kOk
                           : fail(static_cast<Status>(code), "%s", hydrant_error_text());
}

Status evict(Rank peer, uintptr_t remote, size_t bytes) noexcept {
  const hydrant_remote_t end = paths(peer).pinned ? firehose().end : the_mappings.end;
  if (end != 0 && peer != job().rank()) (void)hydrant_remote_evict(end, peer, remote, bytes);
  return Status::kOk;
}

}  // namespace hydrant
