/* The part of GASNet's internal header that a conduit with remote pins uses, in the same form: the
 * calls of GASNet-EX are macros. The implementation is two processes and a socket (conduit.c). */
#ifndef _GASNET_INTERNAL_H
#define _GASNET_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#define GEX_SPEC_VERSION_MAJOR 0
#define GASNET_PAGESIZE 4096
#define GASNETI_INLINE(name) static inline

typedef uint32_t gex_Rank_t;
typedef uint16_t gex_Flags_t;
typedef struct test_tm* gex_TM_t;
typedef struct test_token* gex_Token_t;
typedef void (*gex_AM_Fn_t)(void);
typedef struct {
  uint8_t gex_index;
  gex_AM_Fn_t gex_fnptr;
  gex_Flags_t gex_flags;
  unsigned int gex_nargs;
  const void* gex_cdata;
  const char* gex_name;
} gex_AM_Entry_t;
typedef struct {
  gex_Rank_t gex_srcrank;
} gex_Token_Info_t;

#define GEX_FLAG_AM_MEDIUM 2
#define GEX_FLAG_AM_REQUEST 8
#define GEX_FLAG_AM_REPLY 16
#define GEX_TI_SRCRANK 1
#define GEX_EVENT_NOW NULL

extern gex_Rank_t gasneti_mynode, gasneti_nodes;
extern gex_TM_t gasneti_thunk_tm;
#define gasneti_THUNK_TM gasneti_thunk_tm
extern int gasneti_AMPoll(void);

extern unsigned int test_token_info(gex_Token_t token, gex_Token_Info_t* info);
extern int test_send(int is_reply, gex_Rank_t node, int handler, const void* data, size_t len);
#define TEST_MAX_MEDIUM 4096
#define gex_AM_LUBRequestMedium() ((size_t)TEST_MAX_MEDIUM)
#define gex_AM_LUBReplyMedium() ((size_t)TEST_MAX_MEDIUM)
#define gex_Token_Info(token, info, mask) ((void)(mask), test_token_info(token, info))
#define gex_AM_RequestMedium0(tm, node, handler, data, len, lc, flags) \
  ((void)(tm), (void)(lc), (void)(flags), test_send(0, node, handler, data, len))
#define gex_AM_ReplyMedium0(token, handler, data, len, lc, flags) \
  ((void)(token), (void)(lc), (void)(flags), test_send(1, 1 - gasneti_mynode, handler, data, len))

#endif
