/* hydrant/gasnet/am.h - Active Messages: handlers, limits, tokens, negotiated payload, progress. The calls
 * that send are in am_calls.h.
 *
 * A handler runs in a call of this process's own (poll, wait, or a send that has to wait for credit), gets
 * the payload in place until it returns, and may send at most one reply, if it serves a request.
 */
#ifndef HYDRANT_GASNET_AM_H
#define HYDRANT_GASNET_AM_H

#include <hydrant/gasnet/events.h>
#include <hydrant/gasnet/membars.h>

HYDRANT_GASNET_BEGIN

typedef uint8_t gex_AM_Index_t;
typedef int32_t gex_AM_Arg_t;
/* Any function that returns void: cast to it, and declared as the kind of message asks. */
typedef void (*gex_AM_Fn_t)();
typedef struct hydrant_token* gex_Token_t;

typedef struct {
  gex_AM_Index_t gex_index; /* 0: the highest free one, written back */
  gex_AM_Fn_t gex_fnptr;
  gex_Flags_t gex_flags; /* GEX_FLAG_AM_SHORT.. | GEX_FLAG_AM_REQUEST.. */
  unsigned int gex_nargs;
  const void* gex_cdata;
  const char* gex_name;
} gex_AM_Entry_t;

/* Local. Errors: GASNET_ERR_BAD_ARG for an index below GEX_AM_INDEX_BASE, one that is taken, too many
 * arguments or flags that name no category: nothing is registered then. */
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

/* ---- what a handler can ask of its token ---- */
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
/* Fills everything; the answer says which fields are valid: all of them. */
gex_TI_t gex_Token_Info(gex_Token_t token, gex_Token_Info_t* info, gex_TI_t mask);

/* ---- negotiated payload: prepare, write, then commit or cancel in the same thread ---- */
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
/* A buffer of the library's saves a copy of Mediums. */
#define GASNET_NATIVE_NP_ALLOC_REQ_MEDIUM 1
#define GASNET_NATIVE_NP_ALLOC_REP_MEDIUM 1

/* ---- progress ---- */
/* Runs what has come, at most HYDRANT_POLL_MAX handlers. Answers GASNET_OK. Not in handlers. */
int gasnet_AMPoll(void);
/* The same; answers how many things happened. */
uint32_t hydrant_am_poll(void);
/* After `misses` polls in vain: spins or yields a little, as gasnet_set_waitmode() says. Not 0: it is time to
 * sleep. Whoever changes what is waited for sees that; look once more, then hydrant_sleep(). */
int hydrant_give_way(uint32_t misses);
void hydrant_sleep(int needed);

/* Waits until `cond`, which handlers make true, in whichever thread they run. */
#define GASNET_BLOCKUNTIL(cond)                                    \
  do {                                                             \
    uint32_t hydrant_misses_ = 0;                                  \
    while (!(cond)) {                                              \
      if (hydrant_am_poll() != 0) {                                \
        hydrant_misses_ = 0;                                       \
      } else if (!(cond) && hydrant_give_way(++hydrant_misses_)) { \
        hydrant_sleep(!(cond));                                    \
      }                                                            \
    }                                                              \
    hydrant_tools_local_rmb();                                     \
  } while (0)

HYDRANT_GASNET_END
#endif
