// Implements negotiated payload: prepare allocates a buffer, the client writes into it, commit sends it with
// send() (send.cpp).
//
// A Medium to another rank gets a cell of the transport, which commit sends without a copy. All other
// messages use the thread's own buffer, or the client's, and commit is an ordinary send.
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

#include <algorithm>

using namespace hydrant;

namespace {

// Requests and replies use different buffers, as they use different descriptors.
constexpr size_t own_buffer(bool is_reply) noexcept { return is_reply ? 3 : 2; }

struct NegotiatedRequest {
  const char* call = nullptr;
  bool is_reply = false;
  bool is_long = false;
  Rank peer = 0;
  EndpointPair endpoints = {};
  hydrant_token* token = nullptr;
  const void* client_buffer = nullptr;
  size_t least = 0;
  size_t most = 0;
  gex_Event_t* lc_opt = nullptr;
  bool immediate = false;
  uint32_t nargs = 0;
};

size_t limit(const NegotiatedRequest& request) noexcept {
  return request.is_long && request.client_buffer != nullptr ? kMaxLong
         : request.is_long                                   ? ThreadState::kBufferBytes
                                                             : max_medium();
}

Status check(const NegotiatedRequest& request, const SourceDescriptor& source) noexcept {
  if (!is_wired()) return fail(Status::kNotInit, "no client is initialised");
  if (job().careful) check_before_send("an Active Message is prepared");
  if (source.in_use) {
    return fail(Status::kBadArg, "this thread has prepared a %s already; commit or cancel it first",
                request.is_reply ? "reply" : "request");
  }
  if (request.nargs > kMaxArgs)
    return fail(Status::kBadArg, "%u arguments exceed the limit of %u", request.nargs, kMaxArgs);
  if (request.least > request.most || request.least > limit(request)) {
    return fail(Status::kBadArg, "least_payload is %zu, most_payload %zu; the limit is %zu",
                request.least, request.most, limit(request));
  }
  if ((request.client_buffer == nullptr) != (request.lc_opt == nullptr)) {
    return fail(Status::kBadArg, "lc_opt belongs to client_buf: both or neither may be NULL");
  }
  if (request.lc_opt == GEX_EVENT_DEFER ||
      (request.is_reply && request.lc_opt == GEX_EVENT_GROUP)) {
    return fail(Status::kBadArg, "GEX_EVENT_%s is not allowed for %s",
                request.lc_opt == GEX_EVENT_DEFER ? "DEFER" : "GROUP",
                request.is_reply ? "replies" : "Active Messages");
  }
  if (request.is_reply && (request.token == nullptr || !request.token->is_request))
    return fail(Status::kBadArg, "only the handler of a request may reply");
  if (request.is_reply && (request.token->reply_state & hydrant_token::kReplied) != 0)
    return fail(Status::kBadArg,
                "the handler has replied already; a request gets at most one reply");
  if (!request.is_reply && handler_depth != 0)
    return fail(Status::kBadArg, "a handler must not send requests; it may send one reply");
  return Status::kOk;
}

// Finds a buffer for the payload: a cell for a Medium to another rank, else the thread's buffer.
Status find_room(const NegotiatedRequest& request, size_t bytes,
                 SourceDescriptor* source) noexcept {
  source->has_cell = false;
  if (request.client_buffer != nullptr) {
    source->addr = const_cast<void*>(request.client_buffer);
    source->size = bytes;
    return Status::kOk;
  }
  if (!request.is_long && request.peer != job().rank() &&
      bytes > job().channels[request.peer]->inline_bytes()) {
    MessageChannel& channel = *job().channels[request.peer];
    const Lane lane = request.is_reply ? Lane::kReply : Lane::kRequest;
    Backoff backoff;
    Status status =
        channel.take_cell(request.peer, lane, static_cast<uint32_t>(bytes), &source->cell);
    while (status == Status::kNotReady && !request.immediate) {
      backoff.polled(request.is_reply ? poll_replies() : poll_all());
      status = channel.take_cell(request.peer, lane, static_cast<uint32_t>(bytes), &source->cell);
    }
    if (status != Status::kOk) return status;
    source->has_cell = true;
    source->addr = source->cell.data;
    source->size = std::min<size_t>(source->cell.bytes, request.most);
    return Status::kOk;
  }
  source->addr = own_thread_state().buffer(own_buffer(request.is_reply));
  source->size = bytes;
  return source->addr != nullptr ? Status::kOk : fail(Status::kResource, "no memory for a message");
}

EndpointPair endpoints_of_reply(const hydrant_token& token) noexcept {
  if ((token.reply_state & hydrant_token::kAddressed) == 0) return {};
  const EndpointPair& request = static_cast<const AddressedToken&>(token).endpoints;
  return {.to = request.from, .from = request.to};
}

gex_AM_SrcDesc_t prepare(NegotiatedRequest& request) noexcept {
  // Here, and not in the public calls, which need no registers that survive a call.
  const InCall in_call(request.call, request.is_reply ? CallKind::kReply : CallKind::kCommunicates);
  SourceDescriptor* const own = own_thread_state().prepared(request.is_reply);
  if (own == nullptr) fatal("%s: no memory for a message", request.call);
  SourceDescriptor& source = *own;
  Status status = check(request, source);
  if (request.is_reply && status == Status::kOk) {
    request.peer = request.token->from;
    request.endpoints = endpoints_of_reply(*request.token);
  }
  if (status == Status::kOk)
    status = find_room(request, std::min(request.most, limit(request)), &source);
  if (status == Status::kNotReady) return GEX_AM_SRCDESC_NO_OP;
  if (status != Status::kOk) {
    if (status == Status::kBroken && job().ending.load(std::memory_order_relaxed))
      wait_for_job_exit();
    // prepare cannot return a status: the descriptor "no operation" means "not now".
    fatal("%s: %s", request.call, last_error_text());
  }
  source.in_use = true;
  source.is_long = request.is_long;
  source.nargs = request.nargs;
  source.peer = request.peer;
  source.endpoints = request.endpoints;
  source.token = request.token;
  source.lc_opt = request.lc_opt;
  return &source;
}

NegotiatedRequest describe(const char* call, bool is_long, const void* client_buf, size_t least,
                           size_t most, gex_Event_t* lc_opt, gex_Flags_t flags,
                           unsigned nargs) noexcept {
  return {.call = call,
          .is_long = is_long,
          .client_buffer = client_buf,
          .least = least,
          .most = most,
          .lc_opt = lc_opt,
          .immediate = (flags & GEX_FLAG_IMMEDIATE) != 0,
          .nargs = nargs};
}

gex_AM_SrcDesc_t prepare_request(gex_TM_t tm, gex_Rank_t rank, NegotiatedRequest request) noexcept {
  if (!is_wired()) fatal("%s: no client is initialised", request.call);
  if (const Status status = resolve(tm, rank, &request.peer); status != Status::kOk) {
    fatal("%s: %s", request.call, last_error_text());
  }
  request.endpoints = endpoints_of(tm);
  if (request.endpoints.from != 0 &&
      !has_capabilities(*find_endpoint(request.endpoints.from), GEX_EP_CAPABILITY_AM)) [[unlikely]]
    fatal("%s: endpoint %u of this process was created without GEX_EP_CAPABILITY_AM", request.call,
          request.endpoints.from);
  return prepare(request);
}

gex_AM_SrcDesc_t prepare_reply(gex_Token_t token, NegotiatedRequest request) noexcept {
  request.is_reply = true;
  request.token = token;
  return prepare(request);
}

int cancel(gex_AM_SrcDesc_t sd, bool is_reply, bool is_long) noexcept {
  SourceDescriptor* const own = own_thread_state().prepared(is_reply);
  if (own == nullptr || sd != own || !own->in_use || own->is_long != is_long) {
    return report(
        fail(Status::kBadArg,
             "the descriptor is not this thread's prepared message, or is of another kind"),
        "gex_AM_Cancel");
  }
  SourceDescriptor& source = *own;
  if (source.has_cell)
    job().channels[source.peer]->drop_cell(source.peer, is_reply ? Lane::kReply : Lane::kRequest,
                                           source.cell);
  source.in_use = false;
  return GASNET_OK;
}

}  // namespace

extern "C" {

gex_AM_SrcDesc_t gex_AM_PrepareRequestMedium(gex_TM_t tm, gex_Rank_t rank, const void* client_buf,
                                             size_t least, size_t most, gex_Event_t* lc_opt,
                                             gex_Flags_t flags, unsigned nargs) {
  return prepare_request(tm, rank,
                         describe("gex_AM_PrepareRequestMedium", false, client_buf, least, most,
                                  lc_opt, flags, nargs));
}

gex_AM_SrcDesc_t gex_AM_PrepareRequestLong(gex_TM_t tm, gex_Rank_t rank, const void* client_buf,
                                           size_t least, size_t most, void*, gex_Event_t* lc_opt,
                                           gex_Flags_t flags, unsigned nargs) {
  return prepare_request(
      tm, rank,
      describe("gex_AM_PrepareRequestLong", true, client_buf, least, most, lc_opt, flags, nargs));
}

gex_AM_SrcDesc_t gex_AM_PrepareReplyMedium(gex_Token_t token, const void* client_buf, size_t least,
                                           size_t most, gex_Event_t* lc_opt, gex_Flags_t flags,
                                           unsigned nargs) {
  return prepare_reply(token, describe("gex_AM_PrepareReplyMedium", false, client_buf, least, most,
                                       lc_opt, flags, nargs));
}

gex_AM_SrcDesc_t gex_AM_PrepareReplyLong(gex_Token_t token, const void* client_buf, size_t least,
                                         size_t most, void*, gex_Event_t* lc_opt, gex_Flags_t flags,
                                         unsigned nargs) {
  return prepare_reply(token, describe("gex_AM_PrepareReplyLong", true, client_buf, least, most,
                                       lc_opt, flags, nargs));
}

int hydrant_commit(gex_AM_SrcDesc_t sd, int is_reply, int is_long, gex_AM_Index_t handler,
                   size_t nbytes, void* dest, gex_Flags_t flags, unsigned nargs,
                   const gex_AM_Arg_t* args) {
  const InCall in_call("gex_AM_Commit", CallKind::kLocal);
  SourceDescriptor* const own = own_thread_state().prepared(is_reply != 0);
  if (own == nullptr || sd != own || !own->in_use || own->is_long != (is_long != 0)) {
    fatal(
        "gex_AM_Commit: the descriptor is not this thread's prepared message, or is of another "
        "kind");
  }
  SourceDescriptor& source = *own;
  if (nbytes > source.size || nargs != source.nargs) {
    fatal("gex_AM_Commit: %zu bytes and %u arguments; the prepare call allowed %zu and %u", nbytes,
          nargs, source.size, source.nargs);
  }
  if (source.is_long && checks_segments() &&
      check_in_segment(source.peer, source.endpoints.to, reinterpret_cast<uintptr_t>(dest),
                       nbytes) != Status::kOk)
    fatal("gex_AM_Commit: %s", last_error_text());
  // Frees the descriptor before the handler runs: the handler of a message to this process may prepare
  // its reply.
  const SourceDescriptor kept = source;
  source.in_use = false;
  const OutgoingMessage message = {.peer = kept.peer,
                                   .lane = is_reply != 0 ? Lane::kReply : Lane::kRequest,
                                   .category = kept.is_long ? Category::kLong : Category::kMedium,
                                   .handler = handler,
                                   .nargs = nargs,
                                   .args = args,
                                   .source = kept.addr,
                                   .bytes = nbytes,
                                   .dest = dest,
                                   .cell = kept.has_cell ? &kept.cell : nullptr,
                                   .immediate = (flags & GEX_FLAG_IMMEDIATE) != 0};
  const Status status =
      kept.endpoints.are_primordial() ? send(message) : send_addressed(message, kept.endpoints);
  if (status == Status::kNotReady) {
    source = kept;
    return GASNET_ERR_NOT_READY;
  }
  if (status == Status::kBroken && job().ending.load(std::memory_order_relaxed))
    wait_for_job_exit();
  if (status != Status::kOk) fatal("gex_AM_Commit: %s", last_error_text());
  if (kept.token != nullptr) kept.token->reply_state |= hydrant_token::kReplied;
  if (reinterpret_cast<uintptr_t>(kept.lc_opt) > reinterpret_cast<uintptr_t>(GEX_EVENT_GROUP)) {
    *kept.lc_opt = GEX_EVENT_INVALID;
  }
  return GASNET_OK;
}

int gex_AM_CancelRequestMedium(gex_AM_SrcDesc_t sd, gex_Flags_t) {
  const InCall in_call("gex_AM_CancelRequestMedium", CallKind::kLocal);
  return cancel(sd, false, false);
}
int gex_AM_CancelReplyMedium(gex_AM_SrcDesc_t sd, gex_Flags_t) {
  const InCall in_call("gex_AM_CancelReplyMedium", CallKind::kLocal);
  return cancel(sd, true, false);
}
int gex_AM_CancelRequestLong(gex_AM_SrcDesc_t sd, gex_Flags_t) {
  const InCall in_call("gex_AM_CancelRequestLong", CallKind::kLocal);
  return cancel(sd, false, true);
}
int gex_AM_CancelReplyLong(gex_AM_SrcDesc_t sd, gex_Flags_t) {
  const InCall in_call("gex_AM_CancelReplyLong", CallKind::kLocal);
  return cancel(sd, true, true);
}

}  // extern "C"
