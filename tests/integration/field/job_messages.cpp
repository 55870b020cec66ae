// Active Messages: each request asks for a reply of some form, which carries the data back.
#include "tests/integration/field/job.hpp"

#include <atomic>
#include <thread>

namespace field::messages {
namespace {

constexpr size_t kBytes = 300;
constexpr size_t kRequests = size_t{1} << 20,
                 kReplies = kRequests + 65536;  // offsets in the segments
constexpr gex_AM_Index_t kAskShort = 200, kAsk = 201, kAnswerShort = 202, kAnswer = 203,
                         kArrival = 205;
std::atomic<unsigned> answers{0}, arrivals{0};

// ---- replies, by form ----

char reply_bytes[kBytes];
char* reply_place() { return segments[other] + kReplies; }
gex_AM_SrcDesc_t prepared_medium(gex_Token_t token) {
  const gex_AM_SrcDesc_t sd =
      gex_AM_PrepareReplyMedium(token, nullptr, kBytes, kBytes, nullptr, 0, 1);
  std::memcpy(gex_AM_SrcDescAddr(sd), reply_bytes, kBytes);
  if (gex_AM_SrcDescSize(sd) < kBytes) (void)wrong("gex_AM_SrcDescSize");
  return sd;
}
gex_AM_SrcDesc_t prepared_long(gex_Token_t token) {
  const gex_AM_SrcDesc_t sd =
      gex_AM_PrepareReplyLong(token, nullptr, kBytes, kBytes, nullptr, nullptr, 0, 1);
  std::memcpy(gex_AM_SrcDescAddr(sd), reply_bytes, kBytes);
  return sd;
}

void ask_token(gex_Token_t token) {
  gex_Token_Info_t info{};
  gasnet_node_t from = 99;
  if (gex_Token_Info(token, &info, GEX_TI_ALL) != GEX_TI_ALL || info.gex_srcrank != other ||
      !info.gex_is_req)
    (void)wrong("gex_Token_Info");
  if (gasnet_AMGetMsgSource(token, &from) != GASNET_OK || from != other)
    (void)wrong("gasnet_AMGetMsgSource");
  if (gex_Token_MaxReplyMedium(token, GEX_EVENT_NOW, 0, 1) < gex_AM_LUBReplyMedium())
    (void)wrong("gex_Token_MaxReplyMedium");
  if (gex_Token_MaxReplyLong(token, GEX_EVENT_NOW, 0, 1) < gex_AM_LUBReplyLong())
    (void)wrong("gex_Token_MaxReplyLong");
}

void reply(gex_Token_t token, int form, gex_AM_Arg_t seed) {
  fill(reply_bytes, kBytes, static_cast<unsigned>(seed));
  char* const to = reply_place();
  int code = 0;
  switch (form) {
    case 0: code = gex_AM_ReplyShort1(token, kAnswerShort, 0, seed); break;
    case 1: code = gex_AM_ReplyShort(token, kAnswerShort, 0, seed); break;
    case 2:
      code = gex_AM_ReplyMedium1(token, kAnswer, reply_bytes, kBytes, GEX_EVENT_NOW, 0, seed);
      break;
    case 3:
      code = gex_AM_ReplyMedium(token, kAnswer, reply_bytes, kBytes, GEX_EVENT_NOW, 0, seed);
      break;
    case 4:
      code = gex_AM_ReplyLong1(token, kAnswer, reply_bytes, kBytes, to, GEX_EVENT_NOW, 0, seed);
      break;
    case 5:
      code = gex_AM_ReplyLong(token, kAnswer, reply_bytes, kBytes, to, GEX_EVENT_NOW, 0, seed);
      break;
    case 6: gex_AM_CommitReplyMedium1(prepared_medium(token), kAnswer, kBytes, seed); break;
    case 7: gex_AM_CommitReplyMedium(prepared_medium(token), kAnswer, kBytes, seed); break;
    case 8:
      code = gex_AM_CommitReplyMedium1_v2(prepared_medium(token), kAnswer, kBytes, 0, seed);
      break;
    case 9:
      code = gex_AM_CommitReplyMedium_v2(prepared_medium(token), kAnswer, kBytes, 0, seed);
      break;
    case 10: gex_AM_CommitReplyLong1(prepared_long(token), kAnswer, kBytes, to, seed); break;
    case 11: gex_AM_CommitReplyLong(prepared_long(token), kAnswer, kBytes, to, seed); break;
    case 12:
      code = gex_AM_CommitReplyLong1_v2(prepared_long(token), kAnswer, kBytes, to, 0, seed);
      break;
    case 13:
      code = gex_AM_CommitReplyLong_v2(prepared_long(token), kAnswer, kBytes, to, 0, seed);
      break;
    case 14:
      (void)gex_AM_CancelReplyMedium(prepared_medium(token), 0);
      code = gex_AM_ReplyShort1(token, kAnswerShort, 0, seed);
      break;
    case 15:
      (void)gex_AM_CancelReplyLong(prepared_long(token), 0);
      code = gex_AM_ReplyShort1(token, kAnswerShort, 0, seed);
      break;
    case 16: code = gasnet_AMReplyShort1(token, kAnswerShort, seed); break;
    case 17: code = gasnet_AMReplyShort(token, kAnswerShort, seed); break;
    case 18: code = gasnet_AMReplyMedium1(token, kAnswer, reply_bytes, kBytes, seed); break;
    case 19: code = gasnet_AMReplyMedium(token, kAnswer, reply_bytes, kBytes, seed); break;
    case 20: code = gasnet_AMReplyLong1(token, kAnswer, reply_bytes, kBytes, to, seed); break;
    case 21: code = gasnet_AMReplyLong(token, kAnswer, reply_bytes, kBytes, to, seed); break;
    default: ask_token(token), code = gex_AM_ReplyShort1(token, kAnswerShort, 0, seed);
  }
  if (code != 0) (void)refused(code, nullptr);
}

void on_ask_short(gex_Token_t token, gex_AM_Arg_t form, gex_AM_Arg_t seed) {
  reply(token, form, seed);
}
void on_ask(gex_Token_t token, void* payload, size_t bytes, gex_AM_Arg_t form, gex_AM_Arg_t seed) {
  if (bytes != kBytes || !holds(payload, bytes, static_cast<unsigned>(seed)))
    (void)wrong("the payload of a request");
  reply(token, form, seed);
}
gex_AM_Arg_t expected = 0;
void on_answer_short(gex_Token_t, gex_AM_Arg_t seed) {
  if (seed != expected) (void)wrong("the argument of a reply");
  ++answers;
}
void on_answer(gex_Token_t, void* payload, size_t bytes, gex_AM_Arg_t seed) {
  if (bytes != kBytes || !holds(payload, bytes, static_cast<unsigned>(seed)))
    (void)wrong("the payload of a reply");
  on_answer_short(nullptr, seed);
}
void on_arrival(gex_Token_t, void* payload, size_t bytes) {
  if (bytes != 4 || std::memcmp(payload, "here", 4) != 0)
    (void)wrong("the payload of a peer completion");
  ++arrivals;
}

// ---- requests ----

// Sends by `send`, which takes the form of the reply and the seed, and waits for the reply.
template <int (*send)(gex_AM_Arg_t, gex_AM_Arg_t), int form>
void ask() {
  const unsigned before = answers;
  const auto seed = static_cast<gex_AM_Arg_t>(next_seed());
  expected = seed;
  fill(source, kBytes, static_cast<unsigned>(seed));
  FIELD_DO(send(form, seed));
  GASNET_BLOCKUNTIL(answers != before);
}
#define SEND(name, ...) \
  int name(gex_AM_Arg_t form, gex_AM_Arg_t seed) { return __VA_ARGS__; }
#define MEDIUM kAsk, source, kBytes, GEX_EVENT_NOW, 0, form, seed
#define LONG kAsk, source, kBytes, there(kRequests), GEX_EVENT_NOW, 0, form, seed
SEND(short2, gex_AM_RequestShort2(world, other, kAskShort, 0, form, seed))
SEND(short_, gex_AM_RequestShort(world, other, kAskShort, 0, form, seed))
SEND(medium2, gex_AM_RequestMedium2(world, other, MEDIUM))
SEND(medium, gex_AM_RequestMedium(world, other, MEDIUM))
SEND(long2, gex_AM_RequestLong2(world, other, LONG))
SEND(long_, gex_AM_RequestLong(world, other, LONG))
SEND(short1_2, gasnet_AMRequestShort2(other, kAskShort, form, seed))
SEND(short1_, gasnet_AMRequestShort(other, kAskShort, form, seed))
SEND(medium1_2, gasnet_AMRequestMedium2(other, kAsk, source, kBytes, form, seed))
SEND(medium1_, gasnet_AMRequestMedium(other, kAsk, source, kBytes, form, seed))
SEND(long1_2, gasnet_AMRequestLong2(other, kAsk, source, kBytes, there(kRequests), form, seed))
SEND(long1_, gasnet_AMRequestLong(other, kAsk, source, kBytes, there(kRequests), form, seed))
SEND(long_async2,
     gasnet_AMRequestLongAsync2(other, kAsk, source, kBytes, there(kRequests), form, seed))
SEND(long_async,
     gasnet_AMRequestLongAsync(other, kAsk, source, kBytes, there(kRequests), form, seed))

gex_AM_SrcDesc_t medium_place() {
  const gex_AM_SrcDesc_t sd =
      gex_AM_PrepareRequestMedium(world, other, nullptr, kBytes, kBytes, nullptr, 0, 2);
  std::memcpy(gex_AM_SrcDescAddr(sd), source, kBytes);
  return sd;
}
gex_AM_SrcDesc_t long_place() {
  const gex_AM_SrcDesc_t sd =
      gex_AM_PrepareRequestLong(world, other, nullptr, kBytes, kBytes, nullptr, nullptr, 0, 2);
  std::memcpy(gex_AM_SrcDescAddr(sd), source, kBytes);
  return sd;
}
#define TO_LONG kAsk, kBytes, there(kRequests)
SEND(commit_medium2, (gex_AM_CommitRequestMedium2(medium_place(), kAsk, kBytes, form, seed), 0))
SEND(commit_medium, (gex_AM_CommitRequestMedium(medium_place(), kAsk, kBytes, form, seed), 0))
SEND(commit_medium2_v2, gex_AM_CommitRequestMedium2_v2(medium_place(), kAsk, kBytes, 0, form, seed))
SEND(commit_medium_v2, gex_AM_CommitRequestMedium_v2(medium_place(), kAsk, kBytes, 0, form, seed))
SEND(commit_long2,
     (gex_AM_CommitRequestLong2(long_place(), kAsk, kBytes, there(kRequests), form, seed), 0))
SEND(commit_long,
     (gex_AM_CommitRequestLong(long_place(), kAsk, kBytes, there(kRequests), form, seed), 0))
SEND(commit_long2_v2,
     gex_AM_CommitRequestLong2_v2(long_place(), kAsk, kBytes, there(kRequests), 0, form, seed))
SEND(commit_long_v2,
     gex_AM_CommitRequestLong_v2(long_place(), kAsk, kBytes, there(kRequests), 0, form, seed))

void cancel_requests() {
  FIELD_DO(gex_AM_CancelRequestMedium(medium_place(), 0));
  FIELD_DO(gex_AM_CancelRequestLong(long_place(), 0));
}
void limits() {
  FIELD_IS(gex_AM_MaxArgs() == 16 && gasnet_AMMaxArgs() == 16);
  FIELD_IS(gex_AM_MaxRequestMedium(world, other, GEX_EVENT_NOW, 0, 2) >= gex_AM_LUBRequestMedium());
  FIELD_IS(gex_AM_MaxReplyMedium(world, other, GEX_EVENT_NOW, 0, 2) >= gex_AM_LUBReplyMedium());
  FIELD_IS(gex_AM_MaxRequestLong(world, other, GEX_EVENT_NOW, 0, 2) >= gex_AM_LUBRequestLong());
  FIELD_IS(gex_AM_MaxReplyLong(world, other, GEX_EVENT_NOW, 0, 2) >= gex_AM_LUBReplyLong());
  FIELD_IS(gasnet_AMMaxMedium() >= 512 && gasnet_AMMaxLongRequest() >= 512 &&
           gasnet_AMMaxLongReply() >= 512);
}
void polls() {
  FIELD_DO(gasnet_AMPoll());
  gasnet_hold_interrupts();
  gasnet_resume_interrupts();
  gasnet_set_waitmode(GASNET_WAIT_BLOCK);
  const unsigned before = answers;
  expected = static_cast<gex_AM_Arg_t>(next_seed());
  FIELD_DO(gex_AM_RequestShort2(world, other, kAskShort, 0, 0, expected));
  while (answers == before) {
    const int code = hydrant_wait_for_message(1000000);
    if (code != GASNET_OK && code != GASNET_ERR_NOT_READY) return (void)refused(code, nullptr);
  }
  FIELD_DO(gasnet_set_waitmode(GASNET_WAIT_SPINBLOCK));
}
void descriptors() {
  int descriptor = -1;
  FIELD_DO(hydrant_event_descriptor_open(&descriptor));
  const int code = hydrant_event_descriptor_arm(descriptor);
  if (code != GASNET_OK && code != GASNET_ERR_NOT_READY) (void)refused(code, nullptr);
  FIELD_DO(hydrant_event_descriptor_close(descriptor));
}
// The peer's message may come before this rank begins the row.
void completion_handler() {
  static unsigned rounds = 0;
  ++rounds;
  const gex_Memvec_t from = {source, 64}, to = {there(kRequests), 64};
  gex_VIS_SetPeerCompletionHandler(kArrival, "here", 4, 0);
  gex_Event_Wait(gex_VIS_VectorPutNB(world, other, 1, &to, 1, &from, 0));
  GASNET_BLOCKUNTIL(arrivals >= rounds);
}
// More than the rings hold.
template <int (*send)(gex_AM_Arg_t, gex_AM_Arg_t)>
void flood() {
  const unsigned before = answers;
  const auto seed = static_cast<gex_AM_Arg_t>(next_seed());
  expected = seed;
  fill(source, kBytes, static_cast<unsigned>(seed));
  for (int i = 0; i < 500; ++i) FIELD_DO(send(2, seed));
  GASNET_BLOCKUNTIL(answers == before + 500);
}

const Row kTable[] = {
    {"gex_AM_RequestShort2 gex_AM_ReplyShort1", ask<short2, 0>},
    {"gex_AM_RequestShort gex_AM_ReplyShort", ask<short_, 1>},
    {"gex_AM_RequestMedium2 gex_AM_ReplyMedium1", ask<medium2, 2>},
    {"gex_AM_RequestMedium gex_AM_ReplyMedium", ask<medium, 3>},
    {"gex_AM_RequestLong2 gex_AM_ReplyLong1", ask<long2, 4>},
    {"gex_AM_RequestLong gex_AM_ReplyLong", ask<long_, 5>},
    {"gex_AM_PrepareRequestMedium gex_AM_SrcDescAddr gex_AM_CommitRequestMedium2 "
     "gex_AM_PrepareReplyMedium "
     "gex_AM_SrcDescSize gex_AM_CommitReplyMedium1",
     ask<commit_medium2, 6>},
    {"gex_AM_CommitRequestMedium gex_AM_CommitReplyMedium", ask<commit_medium, 7>},
    {"gex_AM_CommitRequestMedium2_v2 gex_AM_CommitReplyMedium1_v2", ask<commit_medium2_v2, 8>},
    {"gex_AM_CommitRequestMedium_v2 gex_AM_CommitReplyMedium_v2", ask<commit_medium_v2, 9>},
    {"gex_AM_PrepareRequestLong gex_AM_CommitRequestLong2 gex_AM_PrepareReplyLong "
     "gex_AM_CommitReplyLong1",
     ask<commit_long2, 10>},
    {"gex_AM_CommitRequestLong gex_AM_CommitReplyLong", ask<commit_long, 11>},
    {"gex_AM_CommitRequestLong2_v2 gex_AM_CommitReplyLong1_v2", ask<commit_long2_v2, 12>},
    {"gex_AM_CommitRequestLong_v2 gex_AM_CommitReplyLong_v2", ask<commit_long_v2, 13>},
    {"gex_AM_CancelReplyMedium", ask<medium2, 14>},
    {"gex_AM_CancelReplyLong", ask<medium2, 15>},
    {"gasnet_AMRequestShort2 gasnet_AMReplyShort1", ask<short1_2, 16>},
    {"gasnet_AMRequestShort gasnet_AMReplyShort", ask<short1_, 17>},
    {"gasnet_AMRequestMedium2 gasnet_AMReplyMedium1", ask<medium1_2, 18>},
    {"gasnet_AMRequestMedium gasnet_AMReplyMedium", ask<medium1_, 19>},
    {"gasnet_AMRequestLong2 gasnet_AMReplyLong1", ask<long1_2, 20>},
    {"gasnet_AMRequestLong gasnet_AMReplyLong", ask<long1_, 21>},
    {"gasnet_AMRequestLongAsync2", ask<long_async2, 2>},
    {"gasnet_AMRequestLongAsync", ask<long_async, 2>},
    {"gex_Token_Info gex_Token_MaxReplyMedium gex_Token_MaxReplyLong gasnet_AMGetMsgSource",
     ask<medium2, 30>},
    {"gex_AM_CancelRequestMedium gex_AM_CancelRequestLong", cancel_requests},
    {"gex_AM_MaxArgs gex_AM_MaxRequestMedium gex_AM_MaxReplyMedium gex_AM_MaxRequestLong "
     "gex_AM_MaxReplyLong "
     "gex_AM_LUBRequestMedium gex_AM_LUBReplyMedium gex_AM_LUBRequestLong gex_AM_LUBReplyLong "
     "gasnet_AMMaxArgs "
     "gasnet_AMMaxMedium gasnet_AMMaxLongRequest gasnet_AMMaxLongReply",
     limits},
    {"gasnet_AMPoll gasnet_hold_interrupts gasnet_resume_interrupts gasnet_set_waitmode "
     "hydrant_wait_for_message",
     polls},
    {"hydrant_event_descriptor_open hydrant_event_descriptor_arm hydrant_event_descriptor_close",
     descriptors},
    {"gex_VIS_SetPeerCompletionHandler", completion_handler},
    {"gex_AM_RequestMedium2", flood<medium2>},
    {"gex_AM_RequestLong2", flood<long2>},
};

template <typename Function>
gex_AM_Fn_t pointer(Function* function) {
  return reinterpret_cast<gex_AM_Fn_t>(function);
}

}  // namespace

Rows rows() { return {kTable, sizeof kTable / sizeof *kTable}; }

void register_handlers() {
  constexpr gex_Flags_t kRequest = GEX_FLAG_AM_REQUEST, kReply = GEX_FLAG_AM_REPLY;
  gex_AM_Entry_t handlers[] = {
      {kAskShort, pointer(on_ask_short), GEX_FLAG_AM_SHORT | kRequest, 2, nullptr, "ask_short"},
      {kAsk, pointer(on_ask), GEX_FLAG_AM_MEDLONG | kRequest, 2, nullptr, "ask"},
      {kAnswerShort, pointer(on_answer_short), GEX_FLAG_AM_SHORT | kReply, 1, nullptr,
       "answer_short"},
      {kAnswer, pointer(on_answer), GEX_FLAG_AM_MEDLONG | kReply, 1, nullptr, "answer"},
      {kArrival, pointer(on_arrival), GEX_FLAG_AM_MEDIUM | kReply, 0, nullptr, "arrival"},
  };
  FIELD_DO(gex_EP_RegisterHandlers(endpoint, handlers, sizeof handlers / sizeof *handlers));
}

}  // namespace field::messages
