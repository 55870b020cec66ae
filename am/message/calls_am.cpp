// Implements the C functions behind am_calls.h: checks the arguments, describes the message, and calls send()
// (am/message/send.cpp). Most Shorts skip that and go straight to MessageChannel::post().
#include <hydrant/gasnet/am_calls.h>

#include "am/call/hsl.hpp"
#include "am/call/in_call.hpp"
#include "am/call/thread_state.hpp"
#include "am/handler/token.hpp"
#include "am/job/endpoints.hpp"
#include "am/job/job.hpp"
#include "am/job/resolve.hpp"
#include "am/message/send.hpp"
#include "am/progress/waiting.hpp"
#include "am/segment/segment_check.hpp"
#include "firehose/base/trace/tracer.hpp"

using namespace hydrant;

namespace {

// Local completion: the source may be reused on return. Longs that still read theirs have an event already
// (OutgoingMessage::leaf).
void complete(gex_Event_t* lc_opt) noexcept {
  if (reinterpret_cast<uintptr_t>(lc_opt) > reinterpret_cast<uintptr_t>(GEX_EVENT_GROUP)) {
    *lc_opt = GEX_EVENT_INVALID;
  }
}

// Checks common to all calls. Cheap: comparisons, and no loads beyond the job's state.
Status check(const OutgoingMessage& message, const gex_Event_t* lc_opt) noexcept {
  if (!is_wired()) [[unlikely]]
    return fail(Status::kNotInit, "no client is initialised");
  if (job().careful) [[unlikely]]
    check_before_send("an Active Message is sent");
  if (message.nargs > kMaxArgs) [[unlikely]]
    return fail(Status::kBadArg, "%u arguments exceed the limit of %u", message.nargs, kMaxArgs);
  if (message.category == Category::kMedium && message.bytes > max_medium()) [[unlikely]]
    return fail(Status::kBadArg, "a Medium payload of %zu bytes exceeds the limit of %zu",
                message.bytes, max_medium());
  if (message.category == Category::kLong && message.bytes > kMaxLong) [[unlikely]]
    return fail(Status::kBadArg, "a Long payload of %zu bytes exceeds the limit of %zu",
                message.bytes, kMaxLong);
  if (message.category != Category::kShort && lc_opt == nullptr) [[unlikely]]
    return fail(Status::kBadArg, "lc_opt is NULL; pass GEX_EVENT_NOW or the address of an event");
  if (lc_opt == GEX_EVENT_DEFER && message.category != Category::kShort) [[unlikely]]
    return fail(Status::kBadArg,
                "GEX_EVENT_DEFER is not allowed for Active Messages; pass GEX_EVENT_NOW");
  return Status::kOk;
}

int finish(Status status, gex_Event_t* lc_opt, const char* call) noexcept {
  if (status == Status::kOk) [[likely]] {
    complete(lc_opt);
    return GASNET_OK;
  }
  if (status == Status::kNotReady) return GASNET_ERR_NOT_READY;
  if (status == Status::kBroken && job().ending.load(std::memory_order_relaxed))
    wait_for_job_exit();
  return report(status, call);
}

// Reports the end of a reply call. A handler that cannot reply for want of memory ends the job, because the
// rank that has sent the request may wait for it for ever; with GEX_FLAG_IMMEDIATE it expects a refusal.
int finish_reply(Status status, Rank peer, bool immediate, gex_Event_t* lc_opt,
                 const char* call) noexcept {
  if (status == Status::kResource && !immediate) [[unlikely]]
    fatal("%s: rank %u would wait for ever for a reply that cannot be sent: %s", call, peer,
          last_error_text());
  return finish(status, lc_opt, call);
}

// With GASNET_DEBUG the target of a Long must lie in the segment of the peer's endpoint.
[[gnu::always_inline]] inline void check_target(const OutgoingMessage& message, const char* call,
                                                uint32_t endpoint = 0) noexcept {
  if (message.category == Category::kLong && checks_segments() &&
      check_in_segment(message.peer, endpoint, reinterpret_cast<uintptr_t>(message.dest),
                       message.bytes) != Status::kOk)
    fatal("%s: %s", call, last_error_text());
}

// Sends a request by a pair with an endpoint that is not primordial.
[[gnu::cold, gnu::noinline]] Status request_by_pair(OutgoingMessage& message, gex_TM_t tm,
                                                    gex_Rank_t rank, const char* call) noexcept {
  if (const Status status = resolve(tm, rank, &message.peer); status != Status::kOk) return status;
  const EndpointPair endpoints = endpoints_of(tm);
  if (!has_capabilities(*find_endpoint(endpoints.from), GEX_EP_CAPABILITY_AM))
    return fail(Status::kBadArg,
                "endpoint %u of this process was created without GEX_EP_CAPABILITY_AM",
                endpoints.from);
  check_target(message, call, endpoints.to);
  return send_addressed(message, endpoints);
}

// Replies by a token whose `reply_state` is not 0: to an addressed request, or a second time.
[[gnu::cold, gnu::noinline]] Status reply_addressed(OutgoingMessage& message, hydrant_token& token,
                                                    const char* call) noexcept {
  if ((token.reply_state & hydrant_token::kReplied) != 0)
    return fail(Status::kBadArg,
                "the handler has replied already; a request gets at most one reply");
  const EndpointPair& request = static_cast<AddressedToken&>(token).endpoints;
  message.peer = token.from;
  message.lane = Lane::kReply;
  check_target(message, call, request.from);
  const Status status = send_addressed(message, {.to = request.from, .from = request.to});
  if (status == Status::kOk) token.reply_state |= hydrant_token::kReplied;
  return status;
}

int request(OutgoingMessage& message, gex_TM_t tm, gex_Rank_t rank, gex_Event_t* lc_opt,
            const char* call) noexcept {
  const InCall in_call(call);
  Status status = check(message, lc_opt);
  if (status == Status::kOk && handler_depth != 0) [[unlikely]] {
    status = fail(Status::kBadArg, "a handler must not send requests; it may send one reply");
  }
  if (status == Status::kOk) status = resolve_primordial(tm, rank, &message.peer);
  if (status == Status::kOk) {
    check_target(message, call);
    status = send(message);
  } else if (status == Status::kUnsupported) {
    status = request_by_pair(message, tm, rank, call);
  }
  return finish(status, lc_opt, call);
}

int reply(OutgoingMessage& message, hydrant_token* token, gex_Event_t* lc_opt,
          const char* call) noexcept {
  const InCall in_call(call, CallKind::kReply);
  Status status = check(message, lc_opt);
  if (status == Status::kOk && lc_opt == GEX_EVENT_GROUP) [[unlikely]]
    status =
        fail(Status::kBadArg, "GEX_EVENT_GROUP is not allowed for replies; pass GEX_EVENT_NOW");
  if (status == Status::kOk && (token == nullptr || !token->is_request)) [[unlikely]]
    status = fail(Status::kBadArg, "only the handler of a request may reply");
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): without one it is not kOk
  if (status == Status::kOk && token->reply_state != 0) [[unlikely]] {
    status = reply_addressed(message, *token, call);
  } else if (status == Status::kOk) {
    message.peer = token->from;
    message.lane = Lane::kReply;
    check_target(message, call);
    status = send(message);
    if (status == Status::kOk) token->reply_state = hydrant_token::kReplied;
  }
  return finish_reply(status, message.peer, message.immediate, lc_opt, call);
}

// Most Shorts pass all checks of check() and send() trivially, so they go straight to the channel.
// All other messages, and Shorts without room, take the general path.
bool is_plain(const Job& the_job, unsigned nargs) noexcept {
  const bool is_careful =
      the_job.careful && (the_job.debug || is_tracing() || the_job.hooks.can_send == nullptr ||
                          !the_job.hooks.can_send());
  return the_job.state.load(std::memory_order_acquire) != JobState::kNew && !is_careful &&
         nargs <= kMaxArgs;
}

// Sends a Short to another rank. kNotReady if there is no room.
Status post_short(const Job& the_job, Rank peer, Lane lane, gex_AM_Index_t handler, unsigned nargs,
                  const gex_AM_Arg_t* args) noexcept {
  const Tag tag = {.handler = handler, .nargs = nargs, .category = Category::kShort};
  return the_job.channels[peer]->post(peer, lane, tag.pack(), args, 4 * nargs);
}

OutgoingMessage describe(Category category, gex_AM_Index_t handler, gex_Flags_t flags,
                         unsigned nargs, const gex_AM_Arg_t* args) noexcept {
  return {.category = category,
          .handler = handler,
          .nargs = nargs,
          .args = args,
          .immediate = (flags & GEX_FLAG_IMMEDIATE) != 0};
}

}  // namespace

extern "C" {

int hydrant_request_short(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, gex_Flags_t flags,
                          unsigned nargs, const gex_AM_Arg_t* args) {
  const Job& the_job = job();
  if (is_plain(the_job, nargs) && handler_depth == 0 && tm == &hydrant_world &&
      rank < the_job.size() && rank != the_job.rank()) [[likely]] {
    const Status status = post_short(the_job, rank, Lane::kRequest, handler, nargs, args);
    if (status == Status::kOk) [[likely]]
      return GASNET_OK;
    if (status == Status::kNotReady && (flags & GEX_FLAG_IMMEDIATE) == 0)
      poll_all();
    else
      return finish(status, nullptr, "gex_AM_RequestShort");
  }
  OutgoingMessage message = describe(Category::kShort, handler, flags, nargs, args);
  return request(message, tm, rank, nullptr, "gex_AM_RequestShort");
}

int hydrant_request_medium(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, const void* source,
                           size_t nbytes, gex_Event_t* lc_opt, gex_Flags_t flags, unsigned nargs,
                           const gex_AM_Arg_t* args) {
  OutgoingMessage message = describe(Category::kMedium, handler, flags, nargs, args);
  message.source = source;
  message.bytes = nbytes;
  return request(message, tm, rank, lc_opt, "gex_AM_RequestMedium");
}

int hydrant_request_long(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, const void* source,
                         size_t nbytes, void* dest, gex_Event_t* lc_opt, gex_Flags_t flags,
                         unsigned nargs, const gex_AM_Arg_t* args) {
  OutgoingMessage message = describe(Category::kLong, handler, flags, nargs, args);
  message.source = source;
  message.bytes = nbytes;
  message.dest = dest;
  const bool is_place =
      reinterpret_cast<uintptr_t>(lc_opt) > reinterpret_cast<uintptr_t>(GEX_EVENT_GROUP);
  if (is_place || lc_opt == GEX_EVENT_GROUP) message.leaf = lc_opt;
  if (is_place) *lc_opt = GEX_EVENT_INVALID;
  return request(message, tm, rank, is_place ? GEX_EVENT_NOW : lc_opt, "gex_AM_RequestLong");
}

int hydrant_reply_short(gex_Token_t token, gex_AM_Index_t handler, gex_Flags_t flags,
                        unsigned nargs, const gex_AM_Arg_t* args) {
  const Job& the_job = job();
  if (is_plain(the_job, nargs) && token != nullptr && token->is_request &&
      token->reply_state == 0 && token->from != the_job.rank()) [[likely]] {
    const Status status = post_short(the_job, token->from, Lane::kReply, handler, nargs, args);
    if (status == Status::kOk) [[likely]] {
      token->reply_state = hydrant_token::kReplied;
      return GASNET_OK;
    }
    const bool immediate = (flags & GEX_FLAG_IMMEDIATE) != 0;
    if (status == Status::kNotReady && !immediate)
      poll_replies();
    else
      return finish_reply(status, token->from, immediate, nullptr, "gex_AM_ReplyShort");
  }
  OutgoingMessage message = describe(Category::kShort, handler, flags, nargs, args);
  return reply(message, token, nullptr, "gex_AM_ReplyShort");
}

int hydrant_reply_medium(gex_Token_t token, gex_AM_Index_t handler, const void* source,
                         size_t nbytes, gex_Event_t* lc_opt, gex_Flags_t flags, unsigned nargs,
                         const gex_AM_Arg_t* args) {
  OutgoingMessage message = describe(Category::kMedium, handler, flags, nargs, args);
  message.source = source;
  message.bytes = nbytes;
  return reply(message, token, lc_opt, "gex_AM_ReplyMedium");
}

int hydrant_reply_long(gex_Token_t token, gex_AM_Index_t handler, const void* source, size_t nbytes,
                       void* dest, gex_Event_t* lc_opt, gex_Flags_t flags, unsigned nargs,
                       const gex_AM_Arg_t* args) {
  OutgoingMessage message = describe(Category::kLong, handler, flags, nargs, args);
  message.source = source;
  message.bytes = nbytes;
  message.dest = dest;
  return reply(message, token, lc_opt, "gex_AM_ReplyLong");
}

int gasnet_AMPoll(void) {
  if (!is_wired())
    return report(fail(Status::kNotInit, "no client is initialised"), "gasnet_AMPoll");
  const InCall in_call("gasnet_AMPoll");
  if (job().debug) check_no_locks("gasnet_AMPoll is called");
  poll_all();
  return GASNET_OK;
}

uint32_t hydrant_am_poll(void) {
  const InCall in_call("GASNET_BLOCKUNTIL or a try_sync");
  return poll_all();
}
int hydrant_spin_or_yield(uint32_t misses) { return spin_or_yield(misses) ? 1 : 0; }
void hydrant_sleep(int needed) {
  const InCall in_call("GASNET_BLOCKUNTIL");
  sleep_announced(needed != 0);
}

}  // extern "C"
