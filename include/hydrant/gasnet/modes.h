/* hydrant/gasnet/modes.h - macros that a client defines before it includes gasnetex.h, and properties
 * that it can test at compile time. One library serves every choice.
 *
 *   GASNET_SEQ, GASNET_PARSYNC, GASNET_PAR    exactly one: which client threads call the library
 *   GASNET_SEGMENT_FAST, _LARGE, _EVERYTHING  at most one (default FAST): what a client may assume; any
 *                                             memory of any rank is a legal target in all three
 *   GASNET_DEBUG or GASNET_NDEBUG             default NDEBUG: checks in inlined code
 */
#ifndef HYDRANT_GASNET_MODES_H
#define HYDRANT_GASNET_MODES_H

#include <hydrant/gasnet/mode.h>

#include <gasnet_config.h>

/* Enclose declarations of the library's functions. Two warnings are disabled. A handler is declared as
 * f(), without a prototype. Inline functions use C casts, about which g++ is silent within extern "C",
 * but Clang is not. */
#ifdef __cplusplus
#define HYDRANT_GASNET_BEGIN                                             \
  extern "C" {                                                           \
  _Pragma("GCC visibility push(default)") _Pragma("GCC diagnostic push") \
      _Pragma("GCC diagnostic ignored \"-Wold-style-cast\"")
#define HYDRANT_GASNET_END                                    \
  _Pragma("GCC diagnostic pop") _Pragma("GCC visibility pop") \
  }
#else
#define HYDRANT_GASNET_BEGIN                                             \
  _Pragma("GCC visibility push(default)") _Pragma("GCC diagnostic push") \
      _Pragma("GCC diagnostic ignored \"-Wstrict-prototypes\"")
#define HYDRANT_GASNET_END _Pragma("GCC diagnostic pop") _Pragma("GCC visibility pop")
#endif

#if defined(GASNET_SEQ) + defined(GASNET_PARSYNC) + defined(GASNET_PAR) != 1
#error define exactly one of GASNET_SEQ, GASNET_PARSYNC and GASNET_PAR before including gasnetex.h
#endif
#undef HYDRANT_THREAD_MODE
#undef HYDRANT_THREAD_MODE_STR
#if defined(GASNET_SEQ)
#undef GASNET_SEQ
#define GASNET_SEQ 1
#define HYDRANT_THREAD_MODE 0
#define HYDRANT_THREAD_MODE_STR "SEQ"
#elif defined(GASNET_PARSYNC)
#undef GASNET_PARSYNC
#define GASNET_PARSYNC 1
#define HYDRANT_THREAD_MODE 1
#define HYDRANT_THREAD_MODE_STR "PARSYNC"
#else
#undef GASNET_PAR
#define GASNET_PAR 1
#define HYDRANT_THREAD_MODE 2
#define HYDRANT_THREAD_MODE_STR "PAR"
#endif

#if defined(GASNET_SEGMENT_FAST) + defined(GASNET_SEGMENT_LARGE) + \
        defined(GASNET_SEGMENT_EVERYTHING) >                       \
    1
#error define at most one of GASNET_SEGMENT_FAST, GASNET_SEGMENT_LARGE and GASNET_SEGMENT_EVERYTHING
#endif
#undef HYDRANT_SEGMENT_MODE
#undef HYDRANT_SEGMENT_MODE_STR
#if defined(GASNET_SEGMENT_EVERYTHING)
#undef GASNET_SEGMENT_EVERYTHING
#define GASNET_SEGMENT_EVERYTHING 1
#define HYDRANT_SEGMENT_MODE 2
#define HYDRANT_SEGMENT_MODE_STR "EVERYTHING"
#elif defined(GASNET_SEGMENT_LARGE)
#undef GASNET_SEGMENT_LARGE
#define GASNET_SEGMENT_LARGE 1
#define HYDRANT_SEGMENT_MODE 1
#define HYDRANT_SEGMENT_MODE_STR "LARGE"
#else
#undef GASNET_SEGMENT_FAST
#define GASNET_SEGMENT_FAST 1
#define HYDRANT_SEGMENT_MODE 0
#define HYDRANT_SEGMENT_MODE_STR "FAST"
#endif

/* The network of a client's build files is only a name, because every name selects the same library. A
 * client built with GASNET_CONDUIT_SMP assumes one node, so it is refused on several nodes. */
#if defined(GASNET_CONDUIT_SMP) && !defined(GASNET_CONDUIT_IBV)
#define HYDRANT_CLIENT_CONFIG GASNET_CONFIG_STRING HYDRANT_ONE_NODE_CONFIG
#else
#define HYDRANT_CLIENT_CONFIG GASNET_CONFIG_STRING
#endif
#define HYDRANT_ONE_NODE_CONFIG ",onenode"
#if !defined(GASNET_CONDUIT_SMP) && !defined(GASNET_CONDUIT_IBV)
#define GASNET_CONDUIT_SMP 1
#endif
#if defined(GASNET_CONDUIT_IBV)
#define GASNET_CONDUIT_NAME IBV
#define GASNET_CONDUIT_NAME_STR "IBV"
#else
#define GASNET_CONDUIT_NAME SMP
#define GASNET_CONDUIT_NAME_STR "SMP"
#endif
#define GASNET_CORE_NAME HYDRANT
#define GASNET_CORE_NAME_STR "HYDRANT"
#define GASNET_CORE_VERSION 0.1
#define GASNET_CORE_VERSION_STR "0.1"
#define GASNET_EXTENDED_NAME HYDRANT
#define GASNET_EXTENDED_NAME_STR "HYDRANT"
#define GASNET_EXTENDED_VERSION 0.1
#define GASNET_EXTENDED_VERSION_STR "0.1"

#define GASNET_ALIGNED_SEGMENTS 0
#define GASNET_PSHM 1
#define GASNET_MAXNODES 0x7fffffffU
#define GASNET_MAXEPS 33
#define GEX_AM_INDEX_BASE 128
/* Handlers run only inside the client's own calls. */
#define GASNET_HIDDEN_AM_CONCURRENCY_LEVEL 0
#define GASNET_SUPPORTS_TI_SRCRANK 1
#define GASNET_SUPPORTS_TI_EP 1
#define GASNET_SUPPORTS_TI_ENTRY 1
#define GASNET_SUPPORTS_TI_IS_REQ 1
#define GASNET_SUPPORTS_TI_IS_LONG 1
#define GASNET_SUPPORTS_AM_CANCEL 20240418L
#define GASNET_SUPPORTS_AM_COMMIT_V2 20240906L

#define GASNET_CONFIG_STRING                                       \
  "RELEASE=2025.8.0,SPEC=0.19,CONDUIT=" GASNET_CONDUIT_NAME_STR    \
  "(HYDRANT-0.1/HYDRANT-0.1),THREADMODEL=" HYDRANT_THREAD_MODE_STR \
  ",SEGMENT=" HYDRANT_SEGMENT_MODE_STR ",PTR=64bit,noalign,pshm,nodebugmalloc,notrace,nostats"

#endif
