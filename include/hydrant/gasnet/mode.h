/* hydrant/gasnet/mode.h - the client's choices: threads or not, debug or not.
 *
 * Threads: the client defines at most one of GASNETT_THREAD_SAFE, GASNETT_THREAD_SINGLE and
 * GASNETT_LITE_MODE. GASNET_PAR implies the first, GASNET_SEQ and GASNET_PARSYNC the second. Without
 * any of these, the mode is thread-safe if _REENTRANT or _THREAD_SAFE is defined or <pthread.h> was
 * included before, else single. Lite mode works with and without threads and offers only timers, memory
 * barriers and annotations.
 *
 * Debug: GASNET_DEBUG, defined by the client, enables checks in inlined code; otherwise this header
 * defines GASNET_NDEBUG. One library serves every combination.
 *
 * After inclusion: one of the three names is 1, GASNETT_THREAD_MODEL is PAR, SEQ or LITE (unquoted), and
 * HYDRANT_TOOLS_THREADS is 1 if several threads of the client may exist (so also for PARSYNC), else 0.
 */
#ifndef HYDRANT_GASNET_MODE_H
#define HYDRANT_GASNET_MODE_H

#if defined(GASNETT_LITE_MODE) + defined(GASNETT_THREAD_SAFE) + defined(GASNETT_THREAD_SINGLE) > 1
#error Define at most one of GASNETT_THREAD_SAFE, GASNETT_THREAD_SINGLE and GASNETT_LITE_MODE
#endif
#if defined(GASNETT_THREAD_SAFE) && (defined(GASNET_SEQ) || defined(GASNET_PARSYNC))
#error GASNETT_THREAD_SAFE contradicts GASNET_SEQ and GASNET_PARSYNC
#endif
#if defined(GASNETT_THREAD_SINGLE) && defined(GASNET_PAR)
#error GASNETT_THREAD_SINGLE contradicts GASNET_PAR
#endif

#if defined(GASNETT_LITE_MODE)
#undef GASNETT_LITE_MODE
#define GASNETT_LITE_MODE 1
#define GASNETT_THREAD_MODEL LITE
#elif defined(GASNETT_THREAD_SAFE) || defined(GASNET_PAR) ||                                \
    (!defined(GASNETT_THREAD_SINGLE) && !defined(GASNET_SEQ) && !defined(GASNET_PARSYNC) && \
     (defined(_REENTRANT) || defined(_THREAD_SAFE) || defined(PTHREAD_MUTEX_INITIALIZER)))
#undef GASNETT_THREAD_SAFE
#define GASNETT_THREAD_SAFE 1
#define GASNETT_THREAD_MODEL PAR
#else
#undef GASNETT_THREAD_SINGLE
#define GASNETT_THREAD_SINGLE 1
#define GASNETT_THREAD_MODEL SEQ
#endif

#if defined(GASNETT_THREAD_SAFE) || defined(GASNET_PARSYNC) || defined(GASNETT_LITE_MODE)
#define HYDRANT_TOOLS_THREADS 1
#else
#define HYDRANT_TOOLS_THREADS 0
#endif

#if defined(GASNET_DEBUG) && defined(GASNET_NDEBUG)
#error Define at most one of GASNET_DEBUG and GASNET_NDEBUG
#endif
#if defined(GASNET_DEBUG)
#undef GASNET_DEBUG
#define GASNET_DEBUG 1
#define HYDRANT_TOOLS_DEBUG 1
#define GASNETT_DEBUG_CONFIG debug
#else
#undef GASNET_NDEBUG
#define GASNET_NDEBUG 1
#define HYDRANT_TOOLS_DEBUG 0
#define GASNETT_DEBUG_CONFIG nodebug
#endif

#endif
