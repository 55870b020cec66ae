/* hydrant/gasnet/threadkeys.h - thread-local pointers.
 *
 *   GASNETT_THREADKEY_DEFINE(key);    at global scope of one source file
 *   GASNETT_THREADKEY_DECLARE(key);   elsewhere, for example in a header
 *   void* gasnett_threadkey_get(key)  null until the thread sets it
 *   gasnett_threadkey_set(key, value)
 * gasnett_threadkey_init(key) and the _noinit forms exist for portability; keys need no initialisation.
 * Files that share a key must agree on whether there are threads (mode.h).
 *
 * Threads  any. Errors: none. Nothing is called with the value when a thread ends.
 * Cost     one access to thread-local storage; without threads, to a global variable.
 */
#ifndef HYDRANT_GASNET_THREADKEYS_H
#define HYDRANT_GASNET_THREADKEYS_H

#include <hydrant/gasnet/annotations.h>

#if HYDRANT_TOOLS_THREADS
#define HYDRANT_TOOLS_PER_THREAD __thread
#else
#define HYDRANT_TOOLS_PER_THREAD
#endif

#define GASNETT_THREADKEY_DECLARE(key) extern HYDRANT_TOOLS_PER_THREAD void* hydrant_threadkey_##key
#define GASNETT_THREADKEY_DEFINE(key) HYDRANT_TOOLS_PER_THREAD void* hydrant_threadkey_##key
#define gasnett_threadkey_get(key) (hydrant_threadkey_##key)
#define gasnett_threadkey_set(key, newval) ((void)(hydrant_threadkey_##key = (newval)))
#define gasnett_threadkey_init(key) ((void)hydrant_threadkey_##key)
/* Clients call this function so that compilers do not report it as unused. It has no effect. */
#define _gasneti_threadkey_init hydrant_tools_no_threadkey_init
static inline void hydrant_tools_no_threadkey_init(void) {}
#define gasnett_threadkey_get_noinit(key) gasnett_threadkey_get(key)
#define gasnett_threadkey_set_noinit(key, newval) gasnett_threadkey_set(key, newval)

#endif
