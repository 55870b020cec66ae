/* All numbers of arguments, kinds and directions, in both APIs: checks values and signs. */
#include "client.h"

#define P0
#define P1 P0, gex_AM_Arg_t a0
#define P2 P1, gex_AM_Arg_t a1
#define P3 P2, gex_AM_Arg_t a2
#define P4 P3, gex_AM_Arg_t a3
#define P5 P4, gex_AM_Arg_t a4
#define P6 P5, gex_AM_Arg_t a5
#define P7 P6, gex_AM_Arg_t a6
#define P8 P7, gex_AM_Arg_t a7
#define P9 P8, gex_AM_Arg_t a8
#define P10 P9, gex_AM_Arg_t a9
#define P11 P10, gex_AM_Arg_t a10
#define P12 P11, gex_AM_Arg_t a11
#define P13 P12, gex_AM_Arg_t a12
#define P14 P13, gex_AM_Arg_t a13
#define P15 P14, gex_AM_Arg_t a14
#define P16 P15, gex_AM_Arg_t a15
#define A0
#define A1 A0, a0
#define A2 A1, a1
#define A3 A2, a2
#define A4 A3, a3
#define A5 A4, a4
#define A6 A5, a5
#define A7 A6, a6
#define A8 A7, a7
#define A9 A8, a8
#define A10 A9, a9
#define A11 A10, a10
#define A12 A11, a11
#define A13 A12, a12
#define A14 A13, a13
#define A15 A14, a14
#define A16 A15, a15
#define V0
#define V1 V0, value(0)
#define V2 V1, value(1)
#define V3 V2, value(2)
#define V4 V3, value(3)
#define V5 V4, value(4)
#define V6 V5, value(5)
#define V7 V6, value(6)
#define V8 V7, value(7)
#define V9 V8, value(8)
#define V10 V9, value(9)
#define V11 V10, value(10)
#define V12 V11, value(11)
#define V13 V12, value(12)
#define V14 V13, value(13)
#define V15 V14, value(14)
#define V16 V15, value(15)
#define EACH(X) \
  X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16)

enum { REQ_SHORT, REQ_MEDIUM, REQ_LONG, REP_SHORT, REP_MEDIUM, REP_LONG, KINDS };
#define BYTES(n) ((size_t)(n)*37 + 3)

static gex_AM_Index_t handler[KINDS][17];
static volatile unsigned replies;

/* Negative values at odd positions. */
static gex_AM_Arg_t value(int i) { return (i & 1) ? -0x7ffffff0 - i : 0x01020304 * (i + 1); }

static void check_args(const gex_AM_Arg_t* got, int n) {
  for (int i = 0; i < n; ++i) CHECK(got[i] == value(i));
}
static gex_Rank_t check_token(gex_Token_t token, int kind, int n) {
  gex_Token_Info_t info;
  const gex_TI_t valid = gex_Token_Info(token, &info, GEX_TI_ALL);
  CHECK((valid & (GEX_TI_SRCRANK | GEX_TI_EP)) == (GEX_TI_SRCRANK | GEX_TI_EP));
  CHECK(info.gex_srcrank < size && info.gex_ep == endpoint);
  CHECK(info.gex_is_req == (kind <= REQ_LONG));
  CHECK(info.gex_is_long == (kind == REQ_LONG || kind == REP_LONG));
  CHECK(info.gex_entry->gex_index == handler[kind][n]);
  return info.gex_srcrank;
}
static void check_payload(const void* payload, size_t bytes, int n, gex_Rank_t from) {
  CHECK(bytes == BYTES(n));
  CHECK(holds(payload, bytes, (unsigned)n + from));
}

#define HANDLERS(n)                                                                             \
  static void req_short##n(gex_Token_t t P##n) {                                                \
    const gex_AM_Arg_t got[] = {0 A##n};                                                        \
    check_args(got + 1, n);                                                                     \
    check_token(t, REQ_SHORT, n);                                                               \
    CHECK(gex_AM_ReplyShort##n(t, handler[REP_SHORT][n], 0 A##n) == 0);                         \
  }                                                                                             \
  static void req_medium##n(gex_Token_t t, void* p, size_t b P##n) {                            \
    const gex_AM_Arg_t got[] = {0 A##n};                                                        \
    char answer[BYTES(16)];                                                                     \
    check_args(got + 1, n);                                                                     \
    check_payload(p, b, n, check_token(t, REQ_MEDIUM, n));                                      \
    CHECK(((uintptr_t)p & 7) == 0);                                                             \
    fill(answer, b, n + me);                                                                    \
    CHECK(gex_AM_ReplyMedium##n(t, handler[REP_MEDIUM][n], answer, b, GEX_EVENT_NOW, 0 A##n) == \
          0);                                                                                   \
  }                                                                                             \
  static void req_long##n(gex_Token_t t, void* p, size_t b P##n) {                              \
    const gex_AM_Arg_t got[] = {0 A##n};                                                        \
    char answer[BYTES(16)];                                                                     \
    const gex_Rank_t from = check_token(t, REQ_LONG, n);                                        \
    check_args(got + 1, n);                                                                     \
    check_payload(p, b, n, from);                                                               \
    CHECK((char*)p == area(me, from, 0));                                                       \
    fill(answer, b, n + me);                                                                    \
    CHECK(gex_AM_ReplyLong##n(t, handler[REP_LONG][n], answer, b, area(from, me, 1),            \
                              GEX_EVENT_NOW, 0 A##n) == 0);                                     \
  }                                                                                             \
  static void rep_short##n(gex_Token_t t P##n) {                                                \
    const gex_AM_Arg_t got[] = {0 A##n};                                                        \
    check_args(got + 1, n);                                                                     \
    check_token(t, REP_SHORT, n);                                                               \
    ++replies;                                                                                  \
  }                                                                                             \
  static void rep_medium##n(gex_Token_t t, void* p, size_t b P##n) {                            \
    const gex_AM_Arg_t got[] = {0 A##n};                                                        \
    check_args(got + 1, n);                                                                     \
    check_payload(p, b, n, check_token(t, REP_MEDIUM, n));                                      \
    ++replies;                                                                                  \
  }                                                                                             \
  static void rep_long##n(gex_Token_t t, void* p, size_t b P##n) {                              \
    const gex_AM_Arg_t got[] = {0 A##n};                                                        \
    const gex_Rank_t from = check_token(t, REP_LONG, n);                                        \
    check_args(got + 1, n);                                                                     \
    check_payload(p, b, n, from);                                                               \
    CHECK((char*)p == area(me, from, 1));                                                       \
    ++replies;                                                                                  \
  }                                                                                             \
  static void send##n(gex_Rank_t to) {                                                          \
    char data[BYTES(16)];                                                                       \
    gex_Event_t lc;                                                                             \
    const unsigned before = replies;                                                            \
    fill(data, BYTES(n), n + me);                                                               \
    CHECK(gex_AM_RequestShort##n(team, to, handler[REQ_SHORT][n], 0 V##n) == 0);                \
    CHECK(gex_AM_RequestMedium##n(team, to, handler[REQ_MEDIUM][n], data, BYTES(n), &lc,        \
                                  0 V##n) == 0);                                                \
    gex_Event_Wait(lc);                                                                         \
    CHECK(gex_AM_RequestLong##n(gex_TM_Pair(endpoint, 0), to, handler[REQ_LONG][n], data,       \
                                BYTES(n), area(to, me, 0), GEX_EVENT_GROUP, 0 V##n) == 0);      \
    gex_NBI_Wait(GEX_EC_AM, 0);                                                                 \
    GASNET_BLOCKUNTIL(replies == before + 3);                                                   \
    CHECK(gasnet_AMRequestShort##n(to, handler[REQ_SHORT][n] V##n) == GASNET_OK);               \
    CHECK(gasnet_AMRequestMedium##n(to, handler[REQ_MEDIUM][n], data, BYTES(n) V##n) ==         \
          GASNET_OK);                                                                           \
    CHECK(gasnet_AMRequestLong##n(to, handler[REQ_LONG][n], data, BYTES(n),                     \
                                  area(to, me, 0) V##n) == GASNET_OK);                          \
    GASNET_BLOCKUNTIL(replies == before + 6);                                                   \
    CHECK(gasnet_AMRequestLongAsync##n(to, handler[REQ_LONG][n], data, BYTES(n),                \
                                       area(to, me, 0) V##n) == GASNET_OK);                     \
    GASNET_BLOCKUNTIL(replies == before + 7);                                                   \
  }
EACH(HANDLERS)

static void enlist(int kind, int n, gex_AM_Fn_t function, gex_Flags_t flags) {
  gex_AM_Entry_t entry = {0, NULL, 0, 0, NULL, "arity"};
  entry.gex_fnptr = function;
  entry.gex_flags = flags;
  entry.gex_nargs = (unsigned)n;
  CHECK(gex_EP_RegisterHandlers(endpoint, &entry, 1) == GASNET_OK);
  CHECK(entry.gex_index >= GEX_AM_INDEX_BASE);
  handler[kind][n] = entry.gex_index;
}

void test_arities(void) {
#define ENLIST(n)                                                                              \
  enlist(REQ_SHORT, n, (gex_AM_Fn_t)req_short##n, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST);    \
  enlist(REQ_MEDIUM, n, (gex_AM_Fn_t)req_medium##n, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST); \
  enlist(REQ_LONG, n, (gex_AM_Fn_t)req_long##n, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REQUEST);       \
  enlist(REP_SHORT, n, (gex_AM_Fn_t)rep_short##n, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY);      \
  enlist(REP_MEDIUM, n, (gex_AM_Fn_t)rep_medium##n, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY);   \
  enlist(REP_LONG, n, (gex_AM_Fn_t)rep_long##n, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REPLY);
  EACH(ENLIST)
  BARRIER();
  for (gex_Rank_t to = 0; to < size; ++to) {
#define SEND(n) send##n(to);
    EACH(SEND)
  }
  CHECK(replies == 7 * 17 * size);
}
