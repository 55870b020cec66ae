// Implements the small C functions of am.h: payload limits, token queries and handler registration. Clients
// call them; the limits come from send.cpp.
#include <hydrant/gasnet/am.h>

#include "am/call/in_call.hpp"
#include "am/call/thread_state.hpp"
#include "am/handler/token.hpp"
#include "am/job/endpoints.hpp"
#include "am/job/job.hpp"
#include "am/message/send.hpp"

#include <algorithm>

using namespace hydrant;

namespace {

// The same for requests and replies, and for all peers.
size_t medium() noexcept { return max_medium(); }
size_t longest(gex_Flags_t flags) noexcept {
  return (flags & GEX_FLAG_AM_PREPARE_LEAST_ALLOC) != 0 ? ThreadState::kBufferBytes : kMaxLong;
}

}  // namespace

extern "C" {

size_t gex_AM_MaxRequestLong(gex_TM_t, gex_Rank_t, const gex_Event_t*, gex_Flags_t flags,
                             unsigned) {
  return longest(flags);
}
size_t gex_AM_MaxReplyLong(gex_TM_t, gex_Rank_t, const gex_Event_t*, gex_Flags_t flags, unsigned) {
  return longest(flags);
}
size_t gex_AM_MaxRequestMedium(gex_TM_t, gex_Rank_t, const gex_Event_t*, gex_Flags_t, unsigned) {
  return medium();
}
size_t gex_AM_MaxReplyMedium(gex_TM_t, gex_Rank_t, const gex_Event_t*, gex_Flags_t, unsigned) {
  return medium();
}
size_t gex_Token_MaxReplyLong(gex_Token_t, const gex_Event_t*, gex_Flags_t flags, unsigned) {
  return longest(flags);
}
size_t gex_Token_MaxReplyMedium(gex_Token_t, const gex_Event_t*, gex_Flags_t, unsigned) {
  return medium();
}
size_t gex_AM_LUBRequestLong(void) { return kMaxLong; }
size_t gex_AM_LUBReplyLong(void) { return kMaxLong; }
size_t gex_AM_LUBRequestMedium(void) { return medium(); }
size_t gex_AM_LUBReplyMedium(void) { return medium(); }

gex_TI_t gex_Token_Info(gex_Token_t token, gex_Token_Info_t* info, gex_TI_t) {
  info->gex_srcrank = token->from;
  info->gex_ep = (token->reply_state & hydrant_token::kAddressed) != 0
                     ? static_cast<AddressedToken*>(token)->endpoint
                     : &job().endpoint;
  info->gex_entry = token->entry;
  info->gex_is_req = token->is_request ? 1 : 0;
  info->gex_is_long = token->is_long ? 1 : 0;
  return GEX_TI_ALL;
}

int gex_EP_RegisterHandlers(gex_EP_t ep, gex_AM_Entry_t* table, size_t numentries) {
  const InCall in_call("gex_EP_RegisterHandlers", CallKind::kLocal);
  if (!is_wired())
    return report(fail(Status::kNotInit, "no client is initialised"), "gex_EP_RegisterHandlers");
  if (!is_endpoint(ep) || (table == nullptr && numentries != 0)) {
    return report(fail(Status::kBadArg, "the endpoint is unknown, or the table is NULL"),
                  "gex_EP_RegisterHandlers");
  }
  return report(handlers_of(*ep).add(table, numentries), "gex_EP_RegisterHandlers");
}

}  // extern "C"
