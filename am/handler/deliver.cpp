// Dispatches received Active Messages: checks the message, finds arguments and payload, and calls the
// handler (call_handler.hpp). Called by the transport during poll_all(), and by send.cpp for messages
// to this rank.
#include "am/handler/deliver.hpp"

#include "am/call/hsl.hpp"
#include "am/call/in_call.hpp"
#include "am/call/thread_state.hpp"
#include "am/handler/call_handler.hpp"
#include "am/handler/token.hpp"
#include "am/job/endpoints.hpp"
#include "am/job/job.hpp"
#include "am/trace/trace_points.hpp"
#include "firehose/base/cancellation.hpp"

#include <cstring>

namespace hydrant {
namespace {

[[gnu::cold]] void refuse(const Tag& tag, const gex_AM_Entry_t& entry, Rank from, bool is_request) {
  if (entry.gex_fnptr == nullptr) {
    fatal(
        "rank %u sent a %s for handler %u, which is not registered here: register it before ranks "
        "communicate",
        from, is_request ? "request" : "reply", tag.handler);
  }
  fatal("rank %u sent a %s with %u arguments for handler %u (%s), which is registered with %u",
        from, is_request ? "request" : "reply", tag.nargs, tag.handler,
        entry.gex_name != nullptr ? entry.gex_name : "no name", entry.gex_nargs);
}

// Debug clients: the kind of message must match the handler's registration.
[[gnu::cold]] void check_use(const Tag& tag, const gex_AM_Entry_t& entry, Rank from,
                             bool is_request) {
  const gex_Flags_t category = tag.category == Category::kShort    ? GEX_FLAG_AM_SHORT
                               : tag.category == Category::kMedium ? GEX_FLAG_AM_MEDIUM
                                                                   : GEX_FLAG_AM_LONG;
  const gex_Flags_t direction = is_request ? GEX_FLAG_AM_REQUEST : GEX_FLAG_AM_REPLY;
  if ((entry.gex_flags & category) == 0 || (entry.gex_flags & direction) == 0) {
    fatal(
        "rank %u sent handler %u (%s) a message of a kind that it is not registered for (flags "
        "%#x)",
        from, tag.handler, entry.gex_name != nullptr ? entry.gex_name : "no name", entry.gex_flags);
  }
}

[[gnu::cold]] void check_return(const hydrant_token& token) noexcept {
  check_no_locks("a handler returns");
  check_reply_is_committed(token.entry->gex_index, token.entry->gex_name);
}

// `call` runs the function with the token.
template <typename Call>
inline void run_with_token(const Job& the_job, hydrant_token& token, Call call) noexcept {
  const bool debug = the_job.debug;
  const auto run = [&]() noexcept {
    ++handler_depth;
    call(token.entry->gex_fnptr, &token);
    if (debug) [[unlikely]]
      check_return(token);
    --handler_depth;
  };
  if (!the_job.guards_handlers) return run();
  // A cancellation inside the client's handler would end this thread in the middle of a poll, which
  // other threads share.
  const CancellationDisabled guard;
  run();
}

// `call` runs the entry's function with the token; `addressed` is called instead for an addressed message.
template <typename Call, typename Addressed>
inline void with_token(const Tag& tag, Rank from, bool is_request, Call call,
                       Addressed addressed) noexcept {
  const Job& the_job = job();
  const gex_AM_Entry_t& entry = the_job.handlers.at(tag.handler);
  if (entry.gex_nargs != tag.nargs || entry.gex_fnptr == nullptr) [[unlikely]] {
    if ((tag.nargs & Tag::kAddressed) != 0) return addressed();
    if (entry.gex_nargs != HandlerTable::kAnyNumber) refuse(tag, entry, from, is_request);
  }
  if (the_job.debug) [[unlikely]]
    check_use(tag, entry, from, is_request);
  hydrant_token token = {.from = from,
                         .is_request = is_request,
                         .is_long = tag.category == Category::kLong,
                         .reply_state = 0,
                         .entry = &entry};
  run_with_token(the_job, token, call);
}

// The endpoint that an addressed message names; ends the job if it takes no messages.
hydrant_endpoint& receiving_endpoint(const EndpointPair& endpoints, Rank from) noexcept {
  hydrant_endpoint* endpoint = find_endpoint(endpoints.to);
  if (endpoint == nullptr)
    fatal(
        "rank %u sent a message to endpoint %u, which does not exist here: create endpoints before "
        "ranks send to them",
        from, endpoints.to);
  if (!has_capabilities(*endpoint, GEX_EP_CAPABILITY_AM))
    fatal("rank %u sent a message to endpoint %u, which was created without GEX_EP_CAPABILITY_AM",
          from, endpoints.to);
  return *endpoint;
}

// Runs the handler of an addressed message. An endpoint without a handler of that index uses the primordial
// endpoint's.
[[gnu::cold, gnu::noinline]] void run_addressed(Tag tag, Rank from, bool is_request,
                                                const int32_t* args, void* payload,
                                                size_t bytes) noexcept {
  tag.nargs = (tag.nargs & ~Tag::kAddressed) - 1;
  const Job& the_job = job();
  const EndpointPair endpoints = EndpointPair::unpack(args[tag.nargs]);
  hydrant_endpoint& endpoint = receiving_endpoint(endpoints, from);
  const gex_AM_Entry_t* entry = &handlers_of(endpoint).at(tag.handler);
  if (entry->gex_fnptr == nullptr) entry = &the_job.handlers.at(tag.handler);
  if (entry->gex_fnptr == nullptr ||
      (entry->gex_nargs != tag.nargs && entry->gex_nargs != HandlerTable::kAnyNumber))
    refuse(tag, *entry, from, is_request);
  if (the_job.debug) check_use(tag, *entry, from, is_request);
  AddressedToken token;
  token.from = from;
  token.is_request = is_request;
  token.is_long = tag.category == Category::kLong;
  token.reply_state = hydrant_token::kAddressed;
  token.entry = entry;
  token.endpoint = &endpoint;
  token.endpoints = endpoints;
  run_with_token(the_job, token, [&](gex_AM_Fn_t function, hydrant_token* itself) noexcept {
    if (tag.category == Category::kShort)
      call_handler<gex_Token_t>(function, tag.nargs, args, itself);
    else
      call_handler<gex_Token_t, void*, size_t>(function, tag.nargs, args, itself, payload, bytes);
  });
}

void run_short(const Tag& tag, Rank from, bool is_request, const int32_t* args) noexcept {
  with_token(
      tag, from, is_request,
      [&](gex_AM_Fn_t function, hydrant_token* token) noexcept {
        call_handler<gex_Token_t>(function, tag.nargs, args, token);
      },
      [&]() noexcept { run_addressed(tag, from, is_request, args, nullptr, 0); });
}

void run_with_payload(const Tag& tag, Rank from, bool is_request, const int32_t* args,
                      void* payload, size_t bytes) noexcept {
  with_token(
      tag, from, is_request,
      [&](gex_AM_Fn_t function, hydrant_token* token) noexcept {
        call_handler<gex_Token_t, void*, size_t>(function, tag.nargs, args, token, payload, bytes);
      },
      [&]() noexcept { run_addressed(tag, from, is_request, args, payload, bytes); });
}

// Pointer to the arguments: heads are aligned to 8, and the offset is a multiple of 4.
const int32_t* args_of(const Incoming& message, Category category) noexcept {
  const void* place = message.head + args_offset(category);
  return static_cast<const int32_t*>(place);
}

// `nargs` counts the arguments in the head: tag.nargs, but for addressed messages. Inlined, so that it costs
// the others nothing.
[[gnu::always_inline]] inline void deliver_with_payload(const Tag& tag, uint32_t nargs,
                                                        const Incoming& message,
                                                        bool is_request) noexcept {
  const uint32_t bytes = read_length(message.head, tag.category);
  std::byte* payload = message.payload;
  if (payload == nullptr) {
    // The head is const because handlers must not write to it; the payload behind it is writable.
    payload = const_cast<std::byte*>(message.head) + payload_offset(tag.category, nargs);
  }
  if (tag.category == Category::kLong) {
    auto* dest = reinterpret_cast<std::byte*>(read_dest(message.head));
    if (tag.deposit) std::memcpy(dest, payload, bytes);
    if (tag.deposit && tag.handler == 0) return;
    payload = dest;
  }
  run_with_payload(tag, message.from, is_request, args_of(message, tag.category), payload, bytes);
}

// Delivers an addressed message; ends the job if the message is malformed.
[[gnu::cold, gnu::noinline]] void deliver_addressed(const Tag& tag,
                                                    const Incoming& message) noexcept {
  const bool is_request = message.lane == Lane::kRequest;
  Tag in_head = tag;
  in_head.nargs = tag.nargs & ~Tag::kAddressed;
  if ((tag.nargs & Tag::kAddressed) == 0 || in_head.nargs == 0 ||
      !is_whole(in_head, message, kMaxArgs + 1)) {
    fatal(
        "malformed message from rank %u (tag %#x, %u bytes, cell of %u bytes): ranks of different "
        "builds, or corrupt memory",
        message.from, message.tag, message.head_room, message.payload_room);
  }
  if (tag.category == Category::kShort) {
    run_short(tag, message.from, is_request, args_of(message, Category::kShort));
  } else {
    deliver_with_payload(tag, in_head.nargs, message, is_request);
  }
}

}  // namespace

void run_handler(const Tag& tag, Rank from, bool is_request, const int32_t* args, void* payload,
                 size_t bytes) noexcept {
  if (tag.category == Category::kShort) {
    run_short(tag, from, is_request, args);
  } else {
    run_with_payload(tag, from, is_request, args, payload, bytes);
  }
}

namespace {

class AmReceiver final : public Receiver {
 public:
  void deliver(const Incoming& message) noexcept override;
};

void AmReceiver::deliver(const Incoming& message) noexcept {
  const Tag tag = Tag::unpack(message.tag);
  if (!is_whole(tag, message)) [[unlikely]]
    return deliver_addressed(tag, message);
  const bool is_request = message.lane == Lane::kRequest;
  if (tag.category == Category::kShort) {
    run_short(tag, message.from, is_request, args_of(message, Category::kShort));
  } else {
    deliver_with_payload(tag, tag.nargs, message, is_request);
  }
}

constinit AmReceiver g_receiver;

class TracingReceiver final : public Receiver {
 public:
  void deliver(const Incoming& message) noexcept override {
    const Tag tag = Tag::unpack(message.tag);
    const bool is_piece = tag.deposit && tag.handler == 0;
    const bool is_addressed = (tag.nargs & Tag::kAddressed) != 0;
    Tag in_head = tag;
    in_head.nargs = tag.nargs & ~Tag::kAddressed;
    // The receiver reports malformed messages; pieces of a Long run no handler.
    if (is_piece || !is_whole(in_head, message, kMaxArgs + 1)) return g_receiver.deliver(message);
    const bool has_length = tag.category != Category::kShort;
    const TracedRun traced(
        {.peer = message.from,
         .lane = static_cast<uint8_t>(message.lane),
         .category = static_cast<uint8_t>(tag.category),
         .arguments = static_cast<uint8_t>(in_head.nargs - (is_addressed ? 1 : 0)),
         .handler = static_cast<uint16_t>(tag.handler),
         .bytes = has_length ? read_length(message.head, tag.category) : 0},
        Tag::mark(message.tag));
    g_receiver.deliver(message);
  }
};
constinit TracingReceiver g_tracing_receiver;

}  // namespace

Receiver& am_receiver() noexcept {
  if (is_tracing()) [[unlikely]]
    return g_tracing_receiver;
  return g_receiver;
}

}  // namespace hydrant
