/* The names of GASNet's internal header that a conduit's firehose files use, without an implementation. */
#ifndef _GASNET_INTERNAL_H
#define _GASNET_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#define GEX_SPEC_VERSION_MAJOR 0
#define GASNET_PAGESIZE 4096
#define GASNETI_INLINE(name) static inline

typedef uint32_t gex_Rank_t;
typedef gex_Rank_t gasnet_node_t;
typedef void (*gex_AM_Fn_t)(void);
typedef struct {
  uint8_t gex_index;
  gex_AM_Fn_t gex_fnptr;
  uint32_t gex_flags;
  unsigned int gex_nargs;
} gex_AM_Entry_t;

extern gex_Rank_t gasneti_mynode;
extern int gasneti_AMPoll(void);

#endif
