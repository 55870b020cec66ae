// Sends Active Messages: reserves room in the transport (waiting by polling if it is full), writes the
// message and commits it. Called by calls_am.cpp, gasnet1.cpp, negotiated.cpp and extended/. Messages
// to this rank go straight to run_handler() (deliver.cpp).
#include "am/message/send.hpp"

#include "am/call/thread_state.hpp"
#include "am/exit/exit.hpp"
#include "am/handler/deliver.hpp"
#include "am/job/job.hpp"
#include "am/progress/unfinished.hpp"
#include "am/progress/waiting.hpp"
#include "am/segment/segment_check.hpp"
#include "am/trace/trace_points.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace hydrant {
namespace {

// Polls, so that `lane` may get room; kBroken if the job's grace period is over.
Status wait_for_room(Lane lane, Backoff& backoff) noexcept {
  if (has_exit_grace_expired()) return fail(Status::kBroken, "the job is ending");
  const uint32_t events = lane == Lane::kRequest ? poll_all() : poll_replies();
  backoff.polled(events);
  return Status::kOk;
}

// Repeats `attempt` until it returns anything but kNotReady.
template <typename Attempt>
Status insist(const OutgoingMessage& message, Attempt attempt) noexcept {
  Status status = attempt();
  if (status != Status::kNotReady || message.immediate) [[likely]]
    return status;
  Backoff backoff;
  while (status == Status::kNotReady) {
    if (const Status room = wait_for_room(message.lane, backoff); room != Status::kOk) return room;
    status = attempt();
  }
  return status;
}

Tag tag_of(const OutgoingMessage& message) noexcept {
  return {.handler = message.handler, .nargs = message.nargs, .category = message.category};
}

Status send_short(MessageChannel& channel, const OutgoingMessage& message) noexcept {
  Outgoing room;
  const Status status = insist(message, [&] {
    return channel.reserve(message.peer, message.lane, 4 * message.nargs, &room);
  });
  if (status != Status::kOk) [[unlikely]]
    return status;
  write_args(room.head, Category::kShort, message.nargs, message.args);
  channel.commit(room, tag_of(message).pack());
  return Status::kOk;
}

// Reserves room, writes the head, and the payload too if it is sent inline.
Status reserve_and_write(MessageChannel& channel, const OutgoingMessage& message,
                         uint32_t inline_payload, Outgoing* room) noexcept {
  const uint32_t offset = payload_offset(message.category, message.nargs);
  const uint32_t bytes =
      inline_payload != 0 ? offset + inline_payload : head_bytes(message.category, message.nargs);
  const Status status =
      insist(message, [&] { return channel.reserve(message.peer, message.lane, bytes, room); });
  if (status != Status::kOk) [[unlikely]]
    return status;
  if (message.category == Category::kLong) {
    write_dest(room->head, reinterpret_cast<uintptr_t>(message.dest));
  }
  write_length(room->head, message.category, static_cast<uint32_t>(message.bytes));
  write_args(room->head, message.category, message.nargs, message.args);
  if (inline_payload != 0) std::memcpy(room->head + offset, message.source, inline_payload);
  return Status::kOk;
}

// Sends `message` with its payload, behind the head or in a cell.
Status send_with_payload(MessageChannel& channel, const OutgoingMessage& message,
                         const Tag& tag) noexcept {
  Outgoing room;
  const auto bytes = static_cast<uint32_t>(message.bytes);
  const uint32_t inline_bytes = payload_offset(message.category, message.nargs) + bytes;
  if (message.cell == nullptr && inline_bytes <= channel.inline_bytes()) [[likely]] {
    if (const Status status = reserve_and_write(channel, message, bytes, &room);
        status != Status::kOk)
      return status;
    channel.commit(room, tag.pack());
    return Status::kOk;
  }
  Cell cell;
  if (message.cell != nullptr) {
    cell = *message.cell;
  } else {
    if (const Status status = insist(
            message, [&] { return channel.take_cell(message.peer, message.lane, bytes, &cell); });
        status != Status::kOk)
      return status;
    std::memcpy(cell.data, message.source, bytes);
  }
  if (const Status status = reserve_and_write(channel, message, 0, &room); status != Status::kOk) {
    if (message.cell == nullptr) channel.drop_cell(message.peer, message.lane, cell);
    return status;
  }
  channel.commit_with_cell(room, tag.pack(), cell, bytes);
  return Status::kOk;
}

// Takes the first bytes off a payload.
void advance(OutgoingMessage& payload, size_t bytes) noexcept {
  payload.source = static_cast<const std::byte*>(payload.source) + bytes;
  payload.dest = static_cast<std::byte*>(payload.dest) + bytes;
  payload.bytes -= bytes;
}

// Sends the payload of a Long whose destination only the owner can access: in pieces without a handler,
// which the receiver copies to the destination in the lane's order. Takes off `payload` what has been sent.
Status deposit(MessageChannel& channel, OutgoingMessage& payload) noexcept {
  while (payload.bytes != 0) {
    OutgoingMessage piece = payload;
    piece.handler = 0;
    piece.nargs = 0;
    piece.bytes = std::min<size_t>(job().payload_bytes, payload.bytes);
    Tag tag = tag_of(piece);
    tag.deposit = true;
    if (const Status status = send_with_payload(channel, piece, tag); status != Status::kOk)
      return status;
    advance(payload, piece.bytes);
  }
  return Status::kOk;
}

// Lets the adapter put as much of the payload as it can; deposits the rest. Leaves in `payload` what has not
// gone.
Status put_or_deposit(MessageChannel& channel, OutgoingMessage& payload) noexcept {
  if (job().hooks.put_long != nullptr) {
    size_t done = 0;
    const Job::LongPayload whole = {.peer = payload.peer,
                                    .dest = reinterpret_cast<uintptr_t>(payload.dest),
                                    .source = static_cast<const std::byte*>(payload.source),
                                    .bytes = payload.bytes,
                                    .may_wait = !payload.immediate && handler_depth == 0,
                                    .leaf = payload.leaf};
    const Status status = job().hooks.put_long(whole, &done);
    if (status != Status::kOk) return status;
    advance(payload, done);
  }
  return deposit(channel, payload);
}

// The message that runs the handler of a Long whose payload is there, or on its way.
Status send_head(MessageChannel& channel, const OutgoingMessage& message) noexcept {
  Outgoing room;
  if (const Status status = reserve_and_write(channel, message, 0, &room); status != Status::kOk)
    return status;
  channel.commit(room, tag_of(message).pack());
  return Status::kOk;
}

// An immediate Long of which a part has gone: polls send the rest.
struct UnfinishedLong : Unfinished {
  OutgoingMessage message;
  OutgoingMessage payload;  // the part that has not gone
  std::array<int32_t, kMaxArgs + 1> args;
  std::unique_ptr<std::byte[]> copy;  // of that part
};

// Unfinished Longs by peer; ranks may share a number. A peer gets no immediate Long before the one that has
// begun, so a client that repeats its calls occupies memory for one.
constexpr size_t kPeerCounts = 1024;
constinit std::array<std::atomic<uint32_t>, kPeerCounts> unfinished_longs{};
std::atomic<uint32_t>& unfinished_longs_to(Rank peer) noexcept {
  return unfinished_longs[peer % kPeerCounts];
}

bool proceed_with_long(Unfinished& operation) noexcept {
  auto& self = static_cast<UnfinishedLong&>(operation);
  MessageChannel& channel = *job().channels[self.message.peer];
  Status status = deposit(channel, self.payload);
  if (status == Status::kOk) status = send_head(channel, self.message);
  if (status == Status::kNotReady) return false;
  // A peer that is gone ends the job with a cause of its own.
  if (status != Status::kOk && status != Status::kBroken)
    fatal("the rest of a Long to rank %u: %s", self.message.peer, last_error_text());
  unfinished_longs_to(self.message.peer).fetch_sub(1, std::memory_order_relaxed);
  delete &self;
  return true;
}

// Leaves the rest to the polls. Without memory for it the call waits for room.
Status send_rest_in_polls(MessageChannel& channel, const OutgoingMessage& message,
                          const OutgoingMessage& payload) noexcept {
  std::unique_ptr<UnfinishedLong> rest(new (std::nothrow) UnfinishedLong);
  if (rest != nullptr) rest->copy.reset(new (std::nothrow) std::byte[payload.bytes + 1]);
  if (rest == nullptr || rest->copy == nullptr) {
    OutgoingMessage patient = payload;
    patient.immediate = false;
    if (const Status status = deposit(channel, patient); status != Status::kOk) return status;
    patient = message;
    patient.immediate = false;
    return send_head(channel, patient);
  }
  std::copy_n(message.args, message.nargs, rest->args.begin());
  std::copy_n(static_cast<const std::byte*>(payload.source), payload.bytes, rest->copy.get());
  rest->message = message;
  rest->message.args = rest->args.data();
  rest->payload = payload;
  rest->payload.source = rest->copy.get();
  rest->proceed = proceed_with_long;
  unfinished_longs_to(message.peer).fetch_add(1, std::memory_order_relaxed);
  continue_in_polls(*rest.release());
  return Status::kOk;
}

// Ends the job: the range leaves the segment, so the owner would fault.
[[noreturn, gnu::cold]] void refuse_long(const OutgoingMessage& message) noexcept {
  char relation[kSegmentRelationText];
  const auto dest = reinterpret_cast<uintptr_t>(message.dest);
  fatal("cannot write a Long of %zu bytes to %#zx of rank %u%s", message.bytes,
        static_cast<size_t>(dest), message.peer,
        relate_to_segment(message.peer, dest, message.bytes, relation, sizeof relation));
}

// Writes the payload to memory that is mapped here.
Status send_mapped_long(MessageChannel& channel, const OutgoingMessage& message,
                        void* mapped) noexcept {
  Outgoing room;
  // The payload of an immediate Long without room must not be seen.
  if (!message.immediate) std::memcpy(mapped, message.source, message.bytes);
  if (const Status status = reserve_and_write(channel, message, 0, &room); status != Status::kOk)
    return status;
  if (message.immediate) std::memcpy(mapped, message.source, message.bytes);
  channel.commit(room, tag_of(message).pack());
  return Status::kOk;
}

// The payload reaches the peer's memory before the message that runs its handler. An immediate Long
// returns kNotReady only if no byte was written; after a partial write polls send the rest.
Status send_long(MessageChannel& channel, const OutgoingMessage& message) noexcept {
  if (message.bytes == 0) return send_head(channel, message);
  const auto dest = reinterpret_cast<uintptr_t>(message.dest);
  if (void* mapped = job().memory->mapped(message.peer, dest, message.bytes); mapped != nullptr)
      [[likely]]
    return send_mapped_long(channel, message, mapped);
  if (message.immediate && unfinished_longs_to(message.peer).load(std::memory_order_relaxed) != 0)
    return Status::kNotReady;
  OutgoingMessage payload = message;
  Status status = job().memory->write(message.peer, dest, message.source, message.bytes);
  if (status == Status::kOk) {
    advance(payload, message.bytes);
  } else if (status == Status::kUnsupported) {
    if (leaves_segment(message.peer, dest, message.bytes)) [[unlikely]]
      refuse_long(message);
    status = put_or_deposit(channel, payload);
  }
  if (status == Status::kOk) status = send_head(channel, message);
  if (status == Status::kNotReady && payload.bytes != message.bytes)
    status = send_rest_in_polls(channel, message, payload);
  return status;
}

Status fail_no_memory_to_hold() noexcept {
  return fail(Status::kResource,
              "no memory to hold a message to this process itself until the end of a no-interrupt "
              "section: free memory, or raise ulimit -v");
}

// In a no-interrupt section: copies the payload and queues the message until the section ends.
Status hold(const OutgoingMessage& message, const Tag& tag) noexcept {
  std::unique_ptr<DeferredMessage> held(new (std::nothrow) DeferredMessage);
  if (held == nullptr) return fail_no_memory_to_hold();
  held->tag = tag;
  held->dest = message.dest;
  held->bytes = message.bytes;
  if (message.nargs != 0) std::memcpy(held->args.data(), message.args, size_t{4} * message.nargs);
  if (message.category == Category::kLong && message.bytes != 0) {
    std::memmove(message.dest, message.source, message.bytes);
  } else if (message.category == Category::kMedium) {
    held->payload.reset(new (std::nothrow) std::byte[message.bytes + 1]);
    if (held->payload == nullptr) return fail_no_memory_to_hold();
    if (message.bytes != 0) std::memcpy(held->payload.get(), message.source, message.bytes);
  }
  own_thread_state().deferred_messages.append(std::move(held));
  return Status::kOk;
}

TracedMessage traced_message(const OutgoingMessage& message) noexcept {
  return {.peer = message.peer,
          .lane = static_cast<uint8_t>(message.lane),
          .category = static_cast<uint8_t>(message.category),
          .arguments = static_cast<uint8_t>(message.nargs),
          .handler = static_cast<uint16_t>(message.handler & 0xff),
          .bytes = message.bytes};
}

// Traces the message of a no-interrupt section when it is sent; its handler runs later.
[[gnu::cold]] Status hold_traced(const OutgoingMessage& message, const Tag& tag) noexcept {
  const TracedSend traced(traced_message(message));
  const Status status = hold(message, tag);
  status == Status::kOk ? traced.sent() : traced.failed();
  return status;
}

[[gnu::cold]] void run_here_traced(const OutgoingMessage& message, const Tag& tag,
                                   void* payload) noexcept {
  const TracedMessage what = traced_message(message);
  TracedSend(what).sent();
  const TracedRun run(what, TracedRun::kOwnMessage);
  run_handler(tag, job().rank(), message.lane == Lane::kRequest, message.args, payload,
              message.bytes);
}

[[gnu::always_inline]] inline Status run_here(const OutgoingMessage& message,
                                              const Tag& tag) noexcept {
  const bool is_request = message.lane == Lane::kRequest;
  if (is_request && own_thread_state().held_interrupts != 0) [[unlikely]]
    return is_tracing() ? hold_traced(message, tag) : hold(message, tag);
  void* payload = message.dest;
  if (message.category == Category::kMedium) {
    // A copy, because the handler may write to its payload. Request and reply use different buffers.
    ThreadState& thread = own_thread_state();
    payload = thread.buffer(is_request ? 0 : 1);
    if (payload == nullptr)
      return fail(Status::kResource, "no memory for a message to this process itself");
    if (message.bytes != 0) std::memcpy(payload, message.source, message.bytes);
  } else if (message.category == Category::kLong && message.bytes != 0) {
    std::memmove(message.dest, message.source, message.bytes);
  }
  if (is_tracing()) [[unlikely]]
    run_here_traced(message, tag, payload);
  else
    run_handler(tag, job().rank(), is_request, message.args, payload, message.bytes);
  return Status::kOk;
}

// The message has its number already, in bits that pack() leaves in the tag.
bool is_marked(const OutgoingMessage& message) noexcept {
  return message.handler >> Tag::kMarkShift != 0;
}

// Sends the message with its number in the tag.
[[gnu::cold, gnu::noinline]] Status send_traced(const OutgoingMessage& message) noexcept {
  const TracedSend traced(traced_message(message));
  OutgoingMessage marked = message;
  marked.handler |= traced.mark() << Tag::kMarkShift;
  const Status status = send(marked);
  status == Status::kOk ? traced.sent() : traced.failed();
  return status;
}

}  // namespace

size_t max_medium() noexcept {
  // Messages to this process itself pass through the thread's buffer.
  return std::min<size_t>(job().payload_bytes, ThreadState::kBufferBytes);
}

Status send(const OutgoingMessage& message) noexcept {
  Job& the_job = job();
  if (message.peer == the_job.rank()) return send_to_self(message);
  if (is_tracing() && !is_marked(message)) [[unlikely]]
    return send_traced(message);
  MessageChannel& channel = *the_job.channels[message.peer];
  switch (message.category) {
    case Category::kShort: return send_short(channel, message);
    case Category::kMedium: return send_with_payload(channel, message, tag_of(message));
    case Category::kLong: return send_long(channel, message);
  }
  return Status::kBadArg;
}

Status send_to_self(const OutgoingMessage& message) noexcept {
  return run_here(message, tag_of(message));
}

Status send_addressed(const OutgoingMessage& message, const EndpointPair& endpoints) noexcept {
  std::array<int32_t, kMaxArgs + 1> args;
  std::copy_n(message.args, message.nargs, args.begin());
  args[message.nargs] = endpoints.pack();
  OutgoingMessage sent = message;
  sent.args = args.data();
  sent.nargs = message.nargs + 1;
  if (message.peer == job().rank()) {
    Tag tag = tag_of(sent);
    tag.nargs |= Tag::kAddressed;
    return run_here(sent, tag);
  }
  sent.handler |= kAddressedHandler;
  return send(sent);
}

namespace {

void run_deferred(const DeferredMessage& message, void* payload) noexcept {
  const Tag& tag = message.tag;
  const auto run = [&]() noexcept {
    run_handler(tag, job().rank(), true, message.args.data(), payload, message.bytes);
  };
  if (!is_tracing()) return run();
  const TracedRun traced({.peer = job().rank(),
                          .category = static_cast<uint8_t>(tag.category),
                          .arguments = static_cast<uint8_t>(tag.nargs & ~Tag::kAddressed),
                          .handler = static_cast<uint16_t>(tag.handler),
                          .bytes = message.bytes},
                         TracedRun::kOwnMessage);
  run();
}

}  // namespace

void run_deferred_messages() noexcept {
  // Moved out first, because a handler may hold and resume again.
  DeferredMessages messages(std::move(own_thread_state().deferred_messages));
  while (const std::unique_ptr<DeferredMessage> message = messages.take_first()) {
    void* payload =
        message->tag.category == Category::kLong ? message->dest : message->payload.get();
    run_deferred(*message, payload);
  }
}

}  // namespace hydrant
