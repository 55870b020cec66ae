/* hydrant/gasnet/am_calls.h - the calls that send Active Messages, with 0 to 16 arguments.
 *
 * Each name with a count is an inline function over one library function per kind; the names without a
 * count are macros that count their arguments. All return 0, or nonzero if GEX_FLAG_IMMEDIATE was
 * passed and there was no room. `lc_opt`: GEX_EVENT_NOW, GEX_EVENT_GROUP (requests only) or the place
 * for an event. The library copies the source of a Medium or Long that fits before the call returns, so
 * the event is then GEX_EVENT_INVALID. Requests wait for credit by polling, which runs handlers;
 * replies wait by running reply handlers only.
 */
#ifndef HYDRANT_GASNET_AM_CALLS_H
#define HYDRANT_GASNET_AM_CALLS_H

#include <hydrant/gasnet/am.h>

HYDRANT_GASNET_BEGIN

int hydrant_request_short(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, gex_Flags_t flags,
                          unsigned int nargs, const gex_AM_Arg_t* args);
int hydrant_request_medium(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, const void* source,
                           size_t nbytes, gex_Event_t* lc_opt, gex_Flags_t flags,
                           unsigned int nargs, const gex_AM_Arg_t* args);
int hydrant_request_long(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, const void* source,
                         size_t nbytes, void* dest, gex_Event_t* lc_opt, gex_Flags_t flags,
                         unsigned int nargs, const gex_AM_Arg_t* args);
int hydrant_reply_short(gex_Token_t token, gex_AM_Index_t handler, gex_Flags_t flags,
                        unsigned int nargs, const gex_AM_Arg_t* args);
int hydrant_reply_medium(gex_Token_t token, gex_AM_Index_t handler, const void* source,
                         size_t nbytes, gex_Event_t* lc_opt, gex_Flags_t flags, unsigned int nargs,
                         const gex_AM_Arg_t* args);
int hydrant_reply_long(gex_Token_t token, gex_AM_Index_t handler, const void* source, size_t nbytes,
                       void* dest, gex_Event_t* lc_opt, gex_Flags_t flags, unsigned int nargs,
                       const gex_AM_Arg_t* args);
/* `is_reply` and `is_long` identify the calling function; a descriptor from another kind of prepare
 * call is refused with a text. */
int hydrant_commit(gex_AM_SrcDesc_t sd, int is_reply, int is_long, gex_AM_Index_t handler,
                   size_t nbytes, void* dest, gex_Flags_t flags, unsigned int nargs,
                   const gex_AM_Arg_t* args);

/* HYDRANT_PARAMS_n: ", gex_AM_Arg_t a0, ..."; HYDRANT_ARRAY_n: the same parameters as an array named
 * `args`. */
#define HYDRANT_PARAMS_0
#define HYDRANT_PARAMS_1 , gex_AM_Arg_t a0
#define HYDRANT_PARAMS_2 , gex_AM_Arg_t a0, gex_AM_Arg_t a1
#define HYDRANT_PARAMS_3 , gex_AM_Arg_t a0, gex_AM_Arg_t a1, gex_AM_Arg_t a2
#define HYDRANT_PARAMS_4 , gex_AM_Arg_t a0, gex_AM_Arg_t a1, gex_AM_Arg_t a2, gex_AM_Arg_t a3
#define HYDRANT_PARAMS_5 \
  , gex_AM_Arg_t a0, gex_AM_Arg_t a1, gex_AM_Arg_t a2, gex_AM_Arg_t a3, gex_AM_Arg_t a4
#define HYDRANT_PARAMS_6                                                                 \
  , gex_AM_Arg_t a0, gex_AM_Arg_t a1, gex_AM_Arg_t a2, gex_AM_Arg_t a3, gex_AM_Arg_t a4, \
      gex_AM_Arg_t a5
#define HYDRANT_PARAMS_7                                                                 \
  , gex_AM_Arg_t a0, gex_AM_Arg_t a1, gex_AM_Arg_t a2, gex_AM_Arg_t a3, gex_AM_Arg_t a4, \
      gex_AM_Arg_t a5, gex_AM_Arg_t a6
#define HYDRANT_PARAMS_8                                                                 \
  , gex_AM_Arg_t a0, gex_AM_Arg_t a1, gex_AM_Arg_t a2, gex_AM_Arg_t a3, gex_AM_Arg_t a4, \
      gex_AM_Arg_t a5, gex_AM_Arg_t a6, gex_AM_Arg_t a7
#define HYDRANT_PARAMS_9                                                                 \
  , gex_AM_Arg_t a0, gex_AM_Arg_t a1, gex_AM_Arg_t a2, gex_AM_Arg_t a3, gex_AM_Arg_t a4, \
      gex_AM_Arg_t a5, gex_AM_Arg_t a6, gex_AM_Arg_t a7, gex_AM_Arg_t a8
#define HYDRANT_PARAMS_10                                                                \
  , gex_AM_Arg_t a0, gex_AM_Arg_t a1, gex_AM_Arg_t a2, gex_AM_Arg_t a3, gex_AM_Arg_t a4, \
      gex_AM_Arg_t a5, gex_AM_Arg_t a6, gex_AM_Arg_t a7, gex_AM_Arg_t a8, gex_AM_Arg_t a9
#define HYDRANT_PARAMS_11                                                                  \
  , gex_AM_Arg_t a0, gex_AM_Arg_t a1, gex_AM_Arg_t a2, gex_AM_Arg_t a3, gex_AM_Arg_t a4,   \
      gex_AM_Arg_t a5, gex_AM_Arg_t a6, gex_AM_Arg_t a7, gex_AM_Arg_t a8, gex_AM_Arg_t a9, \
      gex_AM_Arg_t a10
#define HYDRANT_PARAMS_12                                                                  \
  , gex_AM_Arg_t a0, gex_AM_Arg_t a1, gex_AM_Arg_t a2, gex_AM_Arg_t a3, gex_AM_Arg_t a4,   \
      gex_AM_Arg_t a5, gex_AM_Arg_t a6, gex_AM_Arg_t a7, gex_AM_Arg_t a8, gex_AM_Arg_t a9, \
      gex_AM_Arg_t a10, gex_AM_Arg_t a11
#define HYDRANT_PARAMS_13                                                                  \
  , gex_AM_Arg_t a0, gex_AM_Arg_t a1, gex_AM_Arg_t a2, gex_AM_Arg_t a3, gex_AM_Arg_t a4,   \
      gex_AM_Arg_t a5, gex_AM_Arg_t a6, gex_AM_Arg_t a7, gex_AM_Arg_t a8, gex_AM_Arg_t a9, \
      gex_AM_Arg_t a10, gex_AM_Arg_t a11, gex_AM_Arg_t a12
#define HYDRANT_PARAMS_14                                                                  \
  , gex_AM_Arg_t a0, gex_AM_Arg_t a1, gex_AM_Arg_t a2, gex_AM_Arg_t a3, gex_AM_Arg_t a4,   \
      gex_AM_Arg_t a5, gex_AM_Arg_t a6, gex_AM_Arg_t a7, gex_AM_Arg_t a8, gex_AM_Arg_t a9, \
      gex_AM_Arg_t a10, gex_AM_Arg_t a11, gex_AM_Arg_t a12, gex_AM_Arg_t a13
#define HYDRANT_PARAMS_15                                                                  \
  , gex_AM_Arg_t a0, gex_AM_Arg_t a1, gex_AM_Arg_t a2, gex_AM_Arg_t a3, gex_AM_Arg_t a4,   \
      gex_AM_Arg_t a5, gex_AM_Arg_t a6, gex_AM_Arg_t a7, gex_AM_Arg_t a8, gex_AM_Arg_t a9, \
      gex_AM_Arg_t a10, gex_AM_Arg_t a11, gex_AM_Arg_t a12, gex_AM_Arg_t a13, gex_AM_Arg_t a14
#define HYDRANT_PARAMS_16                                                                       \
  , gex_AM_Arg_t a0, gex_AM_Arg_t a1, gex_AM_Arg_t a2, gex_AM_Arg_t a3, gex_AM_Arg_t a4,        \
      gex_AM_Arg_t a5, gex_AM_Arg_t a6, gex_AM_Arg_t a7, gex_AM_Arg_t a8, gex_AM_Arg_t a9,      \
      gex_AM_Arg_t a10, gex_AM_Arg_t a11, gex_AM_Arg_t a12, gex_AM_Arg_t a13, gex_AM_Arg_t a14, \
      gex_AM_Arg_t a15
#define HYDRANT_ARRAY_0 const gex_AM_Arg_t* const args = NULL
#define HYDRANT_ARRAY_1 const gex_AM_Arg_t args[1] = {a0}
#define HYDRANT_ARRAY_2 const gex_AM_Arg_t args[2] = {a0, a1}
#define HYDRANT_ARRAY_3 const gex_AM_Arg_t args[3] = {a0, a1, a2}
#define HYDRANT_ARRAY_4 const gex_AM_Arg_t args[4] = {a0, a1, a2, a3}
#define HYDRANT_ARRAY_5 const gex_AM_Arg_t args[5] = {a0, a1, a2, a3, a4}
#define HYDRANT_ARRAY_6 const gex_AM_Arg_t args[6] = {a0, a1, a2, a3, a4, a5}
#define HYDRANT_ARRAY_7 const gex_AM_Arg_t args[7] = {a0, a1, a2, a3, a4, a5, a6}
#define HYDRANT_ARRAY_8 const gex_AM_Arg_t args[8] = {a0, a1, a2, a3, a4, a5, a6, a7}
#define HYDRANT_ARRAY_9 const gex_AM_Arg_t args[9] = {a0, a1, a2, a3, a4, a5, a6, a7, a8}
#define HYDRANT_ARRAY_10 const gex_AM_Arg_t args[10] = {a0, a1, a2, a3, a4, a5, a6, a7, a8, a9}
#define HYDRANT_ARRAY_11 const gex_AM_Arg_t args[11] = {a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10}
#define HYDRANT_ARRAY_12 \
  const gex_AM_Arg_t args[12] = {a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11}
#define HYDRANT_ARRAY_13 \
  const gex_AM_Arg_t args[13] = {a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12}
#define HYDRANT_ARRAY_14 \
  const gex_AM_Arg_t args[14] = {a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13}
#define HYDRANT_ARRAY_15 \
  const gex_AM_Arg_t args[15] = {a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14}
#define HYDRANT_ARRAY_16                                              \
  const gex_AM_Arg_t args[16] = {a0, a1, a2,  a3,  a4,  a5,  a6,  a7, \
                                 a8, a9, a10, a11, a12, a13, a14, a15}

#define HYDRANT_AM_CALLS(n)                                                                       \
  static inline int gex_AM_RequestShort##n(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler,  \
                                           gex_Flags_t flags HYDRANT_PARAMS_##n) {                \
    HYDRANT_ARRAY_##n;                                                                            \
    return hydrant_request_short(tm, rank, handler, flags, n, args);                              \
  }                                                                                               \
  static inline int gex_AM_RequestMedium##n(                                                      \
      gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, const void* source, size_t nbytes,    \
      gex_Event_t* lc_opt, gex_Flags_t flags HYDRANT_PARAMS_##n) {                                \
    HYDRANT_ARRAY_##n;                                                                            \
    return hydrant_request_medium(tm, rank, handler, source, nbytes, lc_opt, flags, n, args);     \
  }                                                                                               \
  static inline int gex_AM_RequestLong##n(                                                        \
      gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, const void* source, size_t nbytes,    \
      void* dest, gex_Event_t* lc_opt, gex_Flags_t flags HYDRANT_PARAMS_##n) {                    \
    HYDRANT_ARRAY_##n;                                                                            \
    return hydrant_request_long(tm, rank, handler, source, nbytes, dest, lc_opt, flags, n, args); \
  }                                                                                               \
  static inline int gex_AM_ReplyShort##n(gex_Token_t token, gex_AM_Index_t handler,               \
                                         gex_Flags_t flags HYDRANT_PARAMS_##n) {                  \
    HYDRANT_ARRAY_##n;                                                                            \
    return hydrant_reply_short(token, handler, flags, n, args);                                   \
  }                                                                                               \
  static inline int gex_AM_ReplyMedium##n(gex_Token_t token, gex_AM_Index_t handler,              \
                                          const void* source, size_t nbytes, gex_Event_t* lc_opt, \
                                          gex_Flags_t flags HYDRANT_PARAMS_##n) {                 \
    HYDRANT_ARRAY_##n;                                                                            \
    return hydrant_reply_medium(token, handler, source, nbytes, lc_opt, flags, n, args);          \
  }                                                                                               \
  static inline int gex_AM_ReplyLong##n(                                                          \
      gex_Token_t token, gex_AM_Index_t handler, const void* source, size_t nbytes, void* dest,   \
      gex_Event_t* lc_opt, gex_Flags_t flags HYDRANT_PARAMS_##n) {                                \
    HYDRANT_ARRAY_##n;                                                                            \
    return hydrant_reply_long(token, handler, source, nbytes, dest, lc_opt, flags, n, args);      \
  }                                                                                               \
  HYDRANT_COMMIT_CALLS(n, Request, 0)                                                             \
  HYDRANT_COMMIT_CALLS(n, Reply, 1)

#define HYDRANT_COMMIT_CALLS(n, Kind, is_reply)                                                    \
  static inline void gex_AM_Commit##Kind##Medium##n(gex_AM_SrcDesc_t sd, gex_AM_Index_t handler,   \
                                                    size_t nbytes HYDRANT_PARAMS_##n) {            \
    HYDRANT_ARRAY_##n;                                                                             \
    (void)hydrant_commit(sd, is_reply, 0, handler, nbytes, NULL, 0, n, args);                      \
  }                                                                                                \
  static inline int gex_AM_Commit##Kind##Medium##n##_v2(gex_AM_SrcDesc_t sd,                       \
                                                        gex_AM_Index_t handler, size_t nbytes,     \
                                                        gex_Flags_t flags HYDRANT_PARAMS_##n) {    \
    HYDRANT_ARRAY_##n;                                                                             \
    return hydrant_commit(sd, is_reply, 0, handler, nbytes, NULL, flags, n, args);                 \
  }                                                                                                \
  static inline void gex_AM_Commit##Kind##Long##n(gex_AM_SrcDesc_t sd, gex_AM_Index_t handler,     \
                                                  size_t nbytes, void* dest HYDRANT_PARAMS_##n) {  \
    HYDRANT_ARRAY_##n;                                                                             \
    (void)hydrant_commit(sd, is_reply, 1, handler, nbytes, dest, 0, n, args);                      \
  }                                                                                                \
  static inline int gex_AM_Commit##Kind##Long##n##_v2(gex_AM_SrcDesc_t sd, gex_AM_Index_t handler, \
                                                      size_t nbytes, void* dest,                   \
                                                      gex_Flags_t flags HYDRANT_PARAMS_##n) {      \
    HYDRANT_ARRAY_##n;                                                                             \
    return hydrant_commit(sd, is_reply, 1, handler, nbytes, dest, flags, n, args);                 \
  }

HYDRANT_AM_CALLS(0)
HYDRANT_AM_CALLS(1)
HYDRANT_AM_CALLS(2)
HYDRANT_AM_CALLS(3)
HYDRANT_AM_CALLS(4)
HYDRANT_AM_CALLS(5)
HYDRANT_AM_CALLS(6)
HYDRANT_AM_CALLS(7)
HYDRANT_AM_CALLS(8)
HYDRANT_AM_CALLS(9)
HYDRANT_AM_CALLS(10)
HYDRANT_AM_CALLS(11)
HYDRANT_AM_CALLS(12)
HYDRANT_AM_CALLS(13)
HYDRANT_AM_CALLS(14)
HYDRANT_AM_CALLS(15)
HYDRANT_AM_CALLS(16)

/* ---- macros that count the arguments ---- */
#define HYDRANT_JOIN_(a, b, c) a##b##c
#define HYDRANT_JOIN(a, b, c) HYDRANT_JOIN_(a, b, c)
#define HYDRANT_PICK(p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15, p16, p17, \
                     p18, p19, p20, p21, p22, p23, p24, pick, ...)                               \
  pick
/* The number of arguments after the first 3, 4, ... */
#define HYDRANT_ARGS_AFTER_3(...)                                                                 \
  HYDRANT_PICK(__VA_ARGS__, x, x, x, x, x, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, \
               0, x, x, x)
#define HYDRANT_ARGS_AFTER_4(...)                                                                 \
  HYDRANT_PICK(__VA_ARGS__, x, x, x, x, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, \
               x, x, x, x)
#define HYDRANT_ARGS_AFTER_5(...)                                                                 \
  HYDRANT_PICK(__VA_ARGS__, x, x, x, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, x, \
               x, x, x, x)
#define HYDRANT_ARGS_AFTER_6(...)                                                                 \
  HYDRANT_PICK(__VA_ARGS__, x, x, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, x, x, \
               x, x, x, x)
#define HYDRANT_ARGS_AFTER_7(...)                                                                 \
  HYDRANT_PICK(__VA_ARGS__, x, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, x, x, x, \
               x, x, x, x)
#define HYDRANT_ARGS_AFTER_8(...)                                                                 \
  HYDRANT_PICK(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, x, x, x, x, \
               x, x, x, x)
#define gex_AM_RequestShort(...) \
  HYDRANT_JOIN(gex_AM_RequestShort, HYDRANT_ARGS_AFTER_4(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_RequestMedium(...) \
  HYDRANT_JOIN(gex_AM_RequestMedium, HYDRANT_ARGS_AFTER_7(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_RequestLong(...) \
  HYDRANT_JOIN(gex_AM_RequestLong, HYDRANT_ARGS_AFTER_8(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_ReplyShort(...) \
  HYDRANT_JOIN(gex_AM_ReplyShort, HYDRANT_ARGS_AFTER_3(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_ReplyMedium(...) \
  HYDRANT_JOIN(gex_AM_ReplyMedium, HYDRANT_ARGS_AFTER_6(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_ReplyLong(...) \
  HYDRANT_JOIN(gex_AM_ReplyLong, HYDRANT_ARGS_AFTER_7(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_CommitRequestMedium(...) \
  HYDRANT_JOIN(gex_AM_CommitRequestMedium, HYDRANT_ARGS_AFTER_3(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_CommitReplyMedium(...) \
  HYDRANT_JOIN(gex_AM_CommitReplyMedium, HYDRANT_ARGS_AFTER_3(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_CommitRequestLong(...) \
  HYDRANT_JOIN(gex_AM_CommitRequestLong, HYDRANT_ARGS_AFTER_4(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_CommitReplyLong(...) \
  HYDRANT_JOIN(gex_AM_CommitReplyLong, HYDRANT_ARGS_AFTER_4(__VA_ARGS__), )(__VA_ARGS__)
#define gex_AM_CommitRequestMedium_v2(...) \
  HYDRANT_JOIN(gex_AM_CommitRequestMedium, HYDRANT_ARGS_AFTER_4(__VA_ARGS__), _v2)(__VA_ARGS__)
#define gex_AM_CommitReplyMedium_v2(...) \
  HYDRANT_JOIN(gex_AM_CommitReplyMedium, HYDRANT_ARGS_AFTER_4(__VA_ARGS__), _v2)(__VA_ARGS__)
#define gex_AM_CommitRequestLong_v2(...) \
  HYDRANT_JOIN(gex_AM_CommitRequestLong, HYDRANT_ARGS_AFTER_5(__VA_ARGS__), _v2)(__VA_ARGS__)
#define gex_AM_CommitReplyLong_v2(...) \
  HYDRANT_JOIN(gex_AM_CommitReplyLong, HYDRANT_ARGS_AFTER_5(__VA_ARGS__), _v2)(__VA_ARGS__)

HYDRANT_GASNET_END
#endif
