/* gasnet.h - GASNet-1 (specification 1.8), implemented by the same library as gasnetex.h. Includes
 * gasnetex.h and gasnet_tools.h. */
#ifndef _INCLUDED_GASNET_H
#define _INCLUDED_GASNET_H

#include <gasnetex.h>
#include <hydrant/gasnet/rma1.h>
#include <hydrant/gasnet/vis1.h>

#include <gasnet_tools.h>

HYDRANT_GASNET_BEGIN

#define GASNET_VERSION GASNET_SPEC_VERSION_MAJOR
/* Not part of the specification: GASNet's own testlegacy program reads this name. */
#define gasneti_mynode (hydrant_job_info.rank)

typedef gex_AM_Index_t gasnet_handler_t;
typedef gex_AM_Arg_t gasnet_handlerarg_t;
typedef gex_Token_t gasnet_token_t;
typedef struct {
  gasnet_handler_t index;
  void (*fnptr)();
} gasnet_handlerentry_t;

/* ---- init and attach ---- */
int hydrant_gasnet1_init(int* argc, char*** argv, const struct hydrant_client_info* info);
/* Connects the processes of the job and removes the library's own arguments from argv. Errors:
 * GASNET_ERR_NOT_INIT if called twice or if the job cannot be connected. */
static inline int gasnet_init(int* argc, char*** argv) {
  static const struct hydrant_client_info info = {HYDRANT_GASNET_LAYOUT, HYDRANT_THREAD_MODE,
                                                  HYDRANT_SEGMENT_MODE, HYDRANT_HSL_DEBUG,
                                                  HYDRANT_CLIENT_CONFIG};
  return hydrant_gasnet1_init(argc, argv, &info);
}
/* Collective. `segsize` is in bytes, a multiple of GASNET_PAGESIZE; 0 counts as one page.
 * `minheapoffset` must be the same on all ranks and is otherwise ignored, because segments do not lie
 * in the heap. */
int gasnet_attach(gasnet_handlerentry_t* table, int numentries, uintptr_t segsize,
                  uintptr_t minheapoffset);
void gasnet_QueryGexObjects(gex_Client_t* client_p, gex_EP_t* endpoint_p, gex_TM_t* tm_p,
                            gex_Segment_t* segment_p);
#define gasnet_mynode() gex_System_QueryJobRank()
#define gasnet_nodes() gex_System_QueryJobSize()
/* The rank as a variable, for GASNet's own test programs. */
#define gasneti_mynode (hydrant_job_info.rank)

/* ---- no-interrupt sections: handlers run only inside library calls ---- */
void gasnet_hold_interrupts(void);
void gasnet_resume_interrupts(void);

/* ---- Active Messages ---- */
#define gasnet_AMMaxArgs() ((size_t)gex_AM_MaxArgs())
#define gasnet_AMMaxMedium() hydrant_am_max_medium()
#define gasnet_AMMaxLongRequest() gex_AM_LUBRequestLong()
#define gasnet_AMMaxLongReply() gex_AM_LUBReplyLong()
size_t hydrant_am_max_medium(void);
int gasnet_AMGetMsgSource(gasnet_token_t token, gasnet_node_t* srcindex);

#define HYDRANT_GASNET1_CALLS(n)                                                                   \
  static inline int gasnet_AMRequestShort##n(gasnet_node_t rank,                                   \
                                             gasnet_handler_t handler HYDRANT_PARAMS_##n) {        \
    HYDRANT_ARRAY_##n;                                                                             \
    return hydrant_request_short(&hydrant_world, rank, handler, 0, n, args);                       \
  }                                                                                                \
  static inline int gasnet_AMRequestMedium##n(gasnet_node_t rank, gasnet_handler_t handler,        \
                                              void* source, size_t nbytes HYDRANT_PARAMS_##n) {    \
    HYDRANT_ARRAY_##n;                                                                             \
    return hydrant_request_medium(&hydrant_world, rank, handler, source, nbytes, GEX_EVENT_NOW, 0, \
                                  n, args);                                                        \
  }                                                                                                \
  static inline int gasnet_AMRequestLong##n(gasnet_node_t rank, gasnet_handler_t handler,          \
                                            void* source, size_t nbytes,                           \
                                            void* dest HYDRANT_PARAMS_##n) {                       \
    HYDRANT_ARRAY_##n;                                                                             \
    return hydrant_request_long(&hydrant_world, rank, handler, source, nbytes, dest,               \
                                GEX_EVENT_NOW, 0, n, args);                                        \
  }                                                                                                \
  static inline int gasnet_AMRequestLongAsync##n(gasnet_node_t rank, gasnet_handler_t handler,     \
                                                 void* source, size_t nbytes,                      \
                                                 void* dest HYDRANT_PARAMS_##n) {                  \
    HYDRANT_ARRAY_##n;                                                                             \
    return hydrant_request_long(&hydrant_world, rank, handler, source, nbytes, dest,               \
                                GEX_EVENT_GROUP, 0, n, args);                                      \
  }                                                                                                \
  static inline int gasnet_AMReplyShort##n(gasnet_token_t token,                                   \
                                           gasnet_handler_t handler HYDRANT_PARAMS_##n) {          \
    HYDRANT_ARRAY_##n;                                                                             \
    return hydrant_reply_short(token, handler, 0, n, args);                                        \
  }                                                                                                \
  static inline int gasnet_AMReplyMedium##n(gasnet_token_t token, gasnet_handler_t handler,        \
                                            void* source, size_t nbytes HYDRANT_PARAMS_##n) {      \
    HYDRANT_ARRAY_##n;                                                                             \
    return hydrant_reply_medium(token, handler, source, nbytes, GEX_EVENT_NOW, 0, n, args);        \
  }                                                                                                \
  static inline int gasnet_AMReplyLong##n(gasnet_token_t token, gasnet_handler_t handler,          \
                                          void* source, size_t nbytes,                             \
                                          void* dest HYDRANT_PARAMS_##n) {                         \
    HYDRANT_ARRAY_##n;                                                                             \
    return hydrant_reply_long(token, handler, source, nbytes, dest, GEX_EVENT_NOW, 0, n, args);    \
  }

HYDRANT_GASNET1_CALLS(0)
HYDRANT_GASNET1_CALLS(1)
HYDRANT_GASNET1_CALLS(2)
HYDRANT_GASNET1_CALLS(3)
HYDRANT_GASNET1_CALLS(4)
HYDRANT_GASNET1_CALLS(5)
HYDRANT_GASNET1_CALLS(6)
HYDRANT_GASNET1_CALLS(7)
HYDRANT_GASNET1_CALLS(8)
HYDRANT_GASNET1_CALLS(9)
HYDRANT_GASNET1_CALLS(10)
HYDRANT_GASNET1_CALLS(11)
HYDRANT_GASNET1_CALLS(12)
HYDRANT_GASNET1_CALLS(13)
HYDRANT_GASNET1_CALLS(14)
HYDRANT_GASNET1_CALLS(15)
HYDRANT_GASNET1_CALLS(16)

/* ---- macros that count the arguments ---- */
#define HYDRANT_ARGS_AFTER_2(...)                                                                 \
  HYDRANT_PICK(__VA_ARGS__, x, x, x, x, x, x, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, \
               1, 0, x, x)
#define gasnet_AMRequestShort(...) \
  HYDRANT_JOIN(gasnet_AMRequestShort, HYDRANT_ARGS_AFTER_2(__VA_ARGS__), )(__VA_ARGS__)
#define gasnet_AMRequestMedium(...) \
  HYDRANT_JOIN(gasnet_AMRequestMedium, HYDRANT_ARGS_AFTER_4(__VA_ARGS__), )(__VA_ARGS__)
#define gasnet_AMRequestLong(...) \
  HYDRANT_JOIN(gasnet_AMRequestLong, HYDRANT_ARGS_AFTER_5(__VA_ARGS__), )(__VA_ARGS__)
#define gasnet_AMRequestLongAsync(...) \
  HYDRANT_JOIN(gasnet_AMRequestLongAsync, HYDRANT_ARGS_AFTER_5(__VA_ARGS__), )(__VA_ARGS__)
#define gasnet_AMReplyShort(...) \
  HYDRANT_JOIN(gasnet_AMReplyShort, HYDRANT_ARGS_AFTER_2(__VA_ARGS__), )(__VA_ARGS__)
#define gasnet_AMReplyMedium(...) \
  HYDRANT_JOIN(gasnet_AMReplyMedium, HYDRANT_ARGS_AFTER_4(__VA_ARGS__), )(__VA_ARGS__)
#define gasnet_AMReplyLong(...) \
  HYDRANT_JOIN(gasnet_AMReplyLong, HYDRANT_ARGS_AFTER_5(__VA_ARGS__), )(__VA_ARGS__)

HYDRANT_GASNET_END
#endif
