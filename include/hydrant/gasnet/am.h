/* hydrant/gasnet/am.h - Active Messages: handlers, limits, tokens, negotiated payload, progress. The
 * sending calls are in am_calls.h.
 *
 * A handler runs inside a library call of this process: a poll, a wait, or a send that waits for
 * credit. It may read the payload in place until it returns. A request handler may send at most one
 * reply.
 */
#ifndef HYDRANT_GASNET_AM_H
#define HYDRANT_GASNET_AM_H

#include <hydrant/gasnet/events.h>
#include <hydrant/gasnet/membars.h>

HYDRANT_GASNET_BEGIN

typedef uint8_t gex_AM_Index_t;
typedef int32_t gex_AM_Arg_t;
/* Any function that returns void, cast to this type; its parameters depend on the kind of message. */
typedef void (*gex_AM_Fn_t)();
typedef struct hydrant_token* gex_Token_t;

typedef struct {
  gex_AM_Index_t gex_index; /* 0: the library assigns the highest free index and stores it here */
  gex_AM_Fn_t gex_fnptr;
  gex_Flags_t gex_flags; /* GEX_FLAG_AM_SHORT.. | GEX_FLAG_AM_REQUEST.. */
  unsigned int gex_nargs;
  const void* gex_cdata;
  const char* gex_name;
} gex_AM_Entry_t;

/* Registers handlers of an endpoint; local. An endpoint that gex_EP_Create() has made runs the primordial
 * one's handler where it has none of that index.
 * Errors: GASNET_ERR_BAD_ARG for an index below GEX_AM_INDEX_BASE or already in use, too many arguments,
 * or flags without a category; then no handler is registered. */
int gex_EP_RegisterHandlers(gex_EP_t ep, gex_AM_Entry_t* table, size_t numentries);

/* ---- limits, in bytes ---- */
#define HYDRANT_AM_MAX_ARGS 16
static inline unsigned int gex_AM_MaxArgs(void) { return HYDRANT_AM_MAX_ARGS; }
size_t gex_AM_MaxRequestLong(gex_TM_t tm, gex_Rank_t other_rank, const gex_Event_t* lc_opt,
                             gex_Flags_t flags, unsigned int numargs);
size_t gex_AM_MaxReplyLong(gex_TM_t tm, gex_Rank_t other_rank, const gex_Event_t* lc_opt,
                           gex_Flags_t flags, unsigned int numargs);
size_t gex_AM_MaxRequestMedium(gex_TM_t tm, gex_Rank_t other_rank, const gex_Event_t* lc_opt,
                               gex_Flags_t flags, unsigned int numargs);
size_t gex_AM_MaxReplyMedium(gex_TM_t tm, gex_Rank_t other_rank, const gex_Event_t* lc_opt,
                             gex_Flags_t flags, unsigned int numargs);
size_t gex_Token_MaxReplyLong(gex_Token_t token, const gex_Event_t* lc_opt, gex_Flags_t flags,
                              unsigned int numargs);
size_t gex_Token_MaxReplyMedium(gex_Token_t token, const gex_Event_t* lc_opt, gex_Flags_t flags,
                                unsigned int numargs);
size_t gex_AM_LUBRequestLong(void);
size_t gex_AM_LUBReplyLong(void);
size_t gex_AM_LUBRequestMedium(void);
size_t gex_AM_LUBReplyMedium(void);

/* ---- information about a message, for its handler ---- */
typedef struct {
  gex_Rank_t gex_srcrank;
  gex_EP_t gex_ep;
  const gex_AM_Entry_t* gex_entry;
  int gex_is_req;
  int gex_is_long;
} gex_Token_Info_t;
typedef uint32_t gex_TI_t;
#define GEX_TI_SRCRANK 1u
#define GEX_TI_EP 2u
#define GEX_TI_ENTRY 4u
#define GEX_TI_IS_REQ 8u
#define GEX_TI_IS_LONG 16u
#define GEX_TI_ALL 31u
/* Fills all fields, whatever `mask` says, and returns GEX_TI_ALL. */
gex_TI_t gex_Token_Info(gex_Token_t token, gex_Token_Info_t* info, gex_TI_t mask);

/* ---- negotiated payload: prepare, write the payload, then commit or cancel in the same thread ---- */
typedef struct hydrant_srcdesc* gex_AM_SrcDesc_t;
struct hydrant_srcdesc {
  void* addr;
  size_t size;
};
#define GEX_AM_SRCDESC_NO_OP ((gex_AM_SrcDesc_t)(uintptr_t)0)
static inline void* gex_AM_SrcDescAddr(gex_AM_SrcDesc_t sd) { return sd->addr; }
static inline size_t gex_AM_SrcDescSize(gex_AM_SrcDesc_t sd) { return sd->size; }
gex_AM_SrcDesc_t gex_AM_PrepareRequestMedium(gex_TM_t tm, gex_Rank_t rank, const void* client_buf,
                                             size_t least_payload, size_t most_payload,
                                             gex_Event_t* lc_opt, gex_Flags_t flags,
                                             unsigned int numargs);
gex_AM_SrcDesc_t gex_AM_PrepareReplyMedium(gex_Token_t token, const void* client_buf,
                                           size_t least_payload, size_t most_payload,
                                           gex_Event_t* lc_opt, gex_Flags_t flags,
                                           unsigned int numargs);
gex_AM_SrcDesc_t gex_AM_PrepareRequestLong(gex_TM_t tm, gex_Rank_t rank, const void* client_buf,
                                           size_t least_payload, size_t most_payload,
                                           void* dest_addr, gex_Event_t* lc_opt, gex_Flags_t flags,
                                           unsigned int numargs);
gex_AM_SrcDesc_t gex_AM_PrepareReplyLong(gex_Token_t token, const void* client_buf,
                                         size_t least_payload, size_t most_payload, void* dest_addr,
                                         gex_Event_t* lc_opt, gex_Flags_t flags,
                                         unsigned int numargs);
int gex_AM_CancelRequestMedium(gex_AM_SrcDesc_t sd, gex_Flags_t flags);
int gex_AM_CancelReplyMedium(gex_AM_SrcDesc_t sd, gex_Flags_t flags);
int gex_AM_CancelRequestLong(gex_AM_SrcDesc_t sd, gex_Flags_t flags);
int gex_AM_CancelReplyLong(gex_AM_SrcDesc_t sd, gex_Flags_t flags);
/* A buffer from the library saves a copy of Mediums. */
#define GASNET_NATIVE_NP_ALLOC_REQ_MEDIUM 1
#define GASNET_NATIVE_NP_ALLOC_REP_MEDIUM 1

/* ---- progress ---- */
/* Polls the network and runs at most HYDRANT_POLL_MAX handlers. Returns GASNET_OK. Not legal in
 * handlers. */
int gasnet_AMPoll(void);
/* Like gasnet_AMPoll(); returns the number of events processed. */
uint32_t hydrant_am_poll(void);
/* Backs off after `misses` polls without events: spins or yields, as set by gasnet_set_waitmode().
 * Returns nonzero when it is time to sleep. The caller then checks its condition once more, so that no
 * wakeup is lost, and calls hydrant_sleep(). */
int hydrant_spin_or_yield(uint32_t misses);
void hydrant_sleep(int needed);

/* Waits until `cond` is true. Handlers make it true, in any thread. */
#define GASNET_BLOCKUNTIL(cond)                                         \
  do {                                                                  \
    uint32_t hydrant_misses_ = 0;                                       \
    while (!(cond)) {                                                   \
      if (hydrant_am_poll() != 0) {                                     \
        hydrant_misses_ = 0;                                            \
      } else if (!(cond) && hydrant_spin_or_yield(++hydrant_misses_)) { \
        hydrant_sleep(!(cond));                                         \
      }                                                                 \
    }                                                                   \
    hydrant_tools_local_rmb();                                          \
  } while (0)

HYDRANT_GASNET_END
#endif
