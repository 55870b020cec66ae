// Moves puts, gets and fills by Active Messages: the initiator's pieces and the handlers on both sides.
// transfer() (rma_transfer.cpp) calls it as the fallback; it sends with am/message/send.cpp.
#include "extended/rma/paths/rma_messages.hpp"

#include "am/handler/token.hpp"
#include "am/job/job.hpp"
#include "am/message/send.hpp"
#include "extended/binding/own_memory.hpp"
#include "extended/message/handlers.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/rma/paths/message_words.hpp"
#include "extended/rma/paths/rma_rest.hpp"

#include <algorithm>
#include <cstring>

namespace hydrant {

void rma_reply(gex_Token_t token, OutgoingMessage message) noexcept {
  message.peer = token->from;
  message.lane = Lane::kReply;
  token->reply_state = hydrant_token::kReplied;
  // A failure because the job ends is harmless. After any other failure the peer would wait for ever.
  if (const Status status = send(message); status != Status::kOk && status != Status::kBroken)
    fatal("the reply to a put, get or atomic operation of rank %u failed: %s", message.peer,
          last_error_text());
}

void reply_done(gex_Token_t token, int32_t low, int32_t high, uintptr_t at, size_t bytes) noexcept {
  const auto args = pack_words(join_words(low, high), uint64_t{at}, uint64_t{bytes});
  rma_reply(token, rma_request(0, kDoneHandler, args, false));
}

namespace {

Status start_put(const Transfer& piece, Path path, CompletionCounter& counter) noexcept {
  const auto args = pack_words(counter_name(counter), piece.remote);
  OutgoingMessage message =
      rma_request(piece.peer, path == Path::kAmLong ? kPutLongHandler : kPutMediumHandler, args,
                  piece.immediate);
  message.category = path == Path::kAmLong ? Category::kLong : Category::kMedium;
  message.source = piece.local;
  message.bytes = piece.bytes;
  message.dest = reinterpret_cast<void*>(piece.remote);
  return send(message);
}

Status start_get(const Transfer& piece, Path path, CompletionCounter& counter) noexcept {
  const auto args = pack_words(counter_name(counter), reinterpret_cast<uintptr_t>(piece.local),
                               piece.remote, uint64_t{piece.bytes});
  return send(rma_request(piece.peer, path == Path::kAmLong ? kGetLongHandler : kGetMediumHandler,
                          args, piece.immediate));
}

// ---- handlers: at the target ----

void on_put_medium(gex_Token_t token, void* data, size_t bytes, int32_t low, int32_t high,
                   int32_t dest_low, int32_t dest_high) {
  const auto dest = static_cast<uintptr_t>(join_words(dest_low, dest_high));
  const bool written = write_own(dest, data, bytes);
  reply_done(token, low, high, dest, written ? 0 : bytes);
}

void on_put_long(gex_Token_t token, void*, size_t, int32_t low, int32_t high, int32_t, int32_t) {
  reply_done(token, low, high, 0, 0);
}

void on_fill(gex_Token_t token, int32_t low, int32_t high, int32_t dest_low, int32_t dest_high,
             int32_t bytes_low, int32_t bytes_high, int32_t value, int32_t) {
  const auto dest = static_cast<uintptr_t>(join_words(dest_low, dest_high));
  const size_t bytes = join_words(bytes_low, bytes_high);
  const bool written = fill_own(dest, value, bytes);
  reply_done(token, low, high, dest, written ? 0 : bytes);
}

const void* find_long_source(uintptr_t source, size_t bytes) noexcept {
  return can_read_own(source, bytes) ? reinterpret_cast<const void*>(source) : nullptr;
}
// Returns the data of a get, in place or copied, wherever it can be sent from. Null: unreadable.
const void* find_source(uintptr_t source, size_t bytes) noexcept {
  RmaThread* thread = RmaThread::mine();
  std::byte* scratch = thread != nullptr ? thread->scratch() : nullptr;
  if (scratch == nullptr || bytes > RmaThread::kScratchBytes)
    return find_long_source(source, bytes);
  return read_own(source, scratch, bytes);
}

void on_get(gex_Token_t token, Category category, int32_t low, int32_t high, uint64_t dest,
            uintptr_t source, size_t bytes) noexcept {
  const void* data =
      category == Category::kMedium ? find_source(source, bytes) : find_long_source(source, bytes);
  if (data == nullptr) {
    reply_done(token, low, high, source, bytes);
    return;
  }
  const auto args = pack_words(join_words(low, high), dest);
  OutgoingMessage message = rma_request(
      0, category == Category::kMedium ? kGotMediumHandler : kGotLongHandler, args, false);
  message.category = category;
  message.source = data;
  message.bytes = bytes;
  message.dest = reinterpret_cast<void*>(dest);
  rma_reply(token, message);
}

void on_get_medium(gex_Token_t token, int32_t low, int32_t high, int32_t dest_low,
                   int32_t dest_high, int32_t source_low, int32_t source_high, int32_t bytes_low,
                   int32_t bytes_high) {
  on_get(token, Category::kMedium, low, high, join_words(dest_low, dest_high),
         static_cast<uintptr_t>(join_words(source_low, source_high)),
         join_words(bytes_low, bytes_high));
}

void on_get_long(gex_Token_t token, int32_t low, int32_t high, int32_t dest_low, int32_t dest_high,
                 int32_t source_low, int32_t source_high, int32_t bytes_low, int32_t bytes_high) {
  on_get(token, Category::kLong, low, high, join_words(dest_low, dest_high),
         static_cast<uintptr_t>(join_words(source_low, source_high)),
         join_words(bytes_low, bytes_high));
}

// ---- handlers: back at the initiator ----

void on_done(gex_Token_t token, int32_t low, int32_t high, int32_t at_low, int32_t at_high,
             int32_t bytes_low, int32_t bytes_high) {
  CompletionCounter& counter = named_counter(low, high);
  const size_t bytes = join_words(bytes_low, bytes_high);
  if (bytes == 0) {
    count_done(counter);
  } else {
    count_failed(counter, Status::kBadArg, token->from,
                 static_cast<uintptr_t>(join_words(at_low, at_high)), bytes);
  }
}

void on_got_medium(gex_Token_t, void* data, size_t bytes, int32_t low, int32_t high,
                   int32_t dest_low, int32_t dest_high) {
  std::memcpy(reinterpret_cast<void*>(join_words(dest_low, dest_high)), data, bytes);
  count_done(named_counter(low, high));
}

void on_got_long(gex_Token_t, void*, size_t, int32_t low, int32_t high, int32_t, int32_t) {
  count_done(named_counter(low, high));
}

// ---- the pieces of an operation ----

Status start_pieces(RmaThread& thread, Path path, const Transfer& what,
                    CompletionCounter& counter) noexcept {
  const size_t most = path == Path::kAmLong ? kLongPiece : paths().medium_max;
  for (size_t done = 0; done < what.bytes;) {
    Transfer piece = what;
    piece.remote += done;
    piece.local += done;
    piece.bytes = std::min(most, what.bytes - done);
    Status status = make_room(thread, counter, what.immediate);
    if (status == Status::kOk) {
      count_start(counter, what.peer);
      status = what.is_put() ? start_put(piece, path, counter) : start_get(piece, path, counter);
      if (status != Status::kOk) uncount_start(counter);
    }
    if (status == Status::kNotReady && done != 0) {
      piece.bytes = what.bytes - done;
      return finish_in_polls(thread, piece, counter);
    }
    if (status != Status::kOk) return status;
    done += piece.bytes;
  }
  return Status::kOk;
}

}  // namespace

Status transfer_by_messages(RmaThread& thread, Path path, const Transfer& what,
                            CompletionCounter& counter) noexcept {
  const Status status = start_pieces(thread, path, what, counter);
  if (status == Status::kOk) thread.count(what.direction, what.peer, path, what.bytes);
  return status;
}

Status continue_by_messages(RmaThread& thread, const Transfer& rest,
                            CompletionCounter& counter) noexcept {
  const Status status = start_pieces(thread, choose_messages(paths(), rest), rest, counter);
  return status == Status::kNotReady ? finish_in_polls(thread, rest, counter) : status;
}

Status send_one_message(const Transfer& part, CompletionCounter& counter) noexcept {
  count_start(counter, part.peer);
  const Status status = part.is_put() ? start_put(part, Path::kAmMedium, counter)
                                      : start_get(part, Path::kAmMedium, counter);
  if (status != Status::kOk) uncount_start(counter);
  return status;
}

Status fill_by_messages(RmaThread& thread, Rank peer, uintptr_t remote, int value, size_t bytes,
                        CompletionCounter& counter) noexcept {
  if (const Status room = make_room(thread, counter, false); room != Status::kOk) return room;
  count_start(counter, peer);
  const auto args = pack_words(counter_name(counter), uint64_t{remote}, uint64_t{bytes},
                               uint64_t{static_cast<uint8_t>(value)});
  const Status status = send(rma_request(peer, kFillHandler, args, false));
  if (status != Status::kOk) {
    uncount_start(counter);
    return status;
  }
  thread.count(Direction::kPut, peer, Path::kAmMedium, bytes);
  return Status::kOk;
}

void add_rma_handlers() noexcept {
  constexpr gex_Flags_t kShortRequest = GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST;
  constexpr gex_Flags_t kShortReply = GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY;
  constexpr gex_Flags_t kMediumRequest = GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST;
  constexpr gex_Flags_t kMediumReply = GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY;
  constexpr gex_Flags_t kLongRequest = GEX_FLAG_AM_LONG | GEX_FLAG_AM_REQUEST;
  constexpr gex_Flags_t kLongReply = GEX_FLAG_AM_LONG | GEX_FLAG_AM_REPLY;
  HandlerTable& table = job().handlers;
  const auto add = [&table](uint32_t index, auto* function, uint32_t nargs, gex_Flags_t flags,
                            const char* name) {
    table.add_internal(index, reinterpret_cast<gex_AM_Fn_t>(function), nargs, flags, name);
  };
  add(kPutMediumHandler, on_put_medium, 4, kMediumRequest, "put");
  add(kPutLongHandler, on_put_long, 4, kLongRequest, "long put");
  add(kFillHandler, on_fill, 8, kShortRequest, "fill");
  add(kDoneHandler, on_done, 6, kShortReply, "done");
  add(kGetMediumHandler, on_get_medium, 8, kShortRequest, "get");
  add(kGetLongHandler, on_get_long, 8, kShortRequest, "long get");
  add(kGotMediumHandler, on_got_medium, 4, kMediumReply, "got");
  add(kGotLongHandler, on_got_long, 4, kLongReply, "long got");
}

}  // namespace hydrant
