/* gasnet_tools.h - the GASNet tools: gasnett_* and GASNETT_*, with or without the rest of GASNet's API.
 *
 * Atomics, timers, memory barriers, locks, pointers per thread, settings, backtraces, annotations.
 * Follows the GASNet tools specification 1.20. Link libhydrant_tools, or libhydrant, which has them
 * too; never both.
 *
 * A client of gasnetex.h includes that first; others may define one of GASNETT_THREAD_SAFE,
 * GASNETT_THREAD_SINGLE and GASNETT_LITE_MODE (<hydrant/gasnet/mode.h>). Lite mode has what comes
 * before the #if below. Many names are macros: no address may be taken of them. gasnett_run_diagnostics and
 * gasnett_diagnostic_gethandlers are not in this version. docs/tools.md says what differs from GASNet's
 * own.
 */
#ifndef HYDRANT_GASNET_TOOLS_H
#define HYDRANT_GASNET_TOOLS_H
#define _INCLUDED_GASNET_TOOLS_H

#if !defined(_INCLUDED_GASNETEX_H) && \
    (defined(GASNET_SEQ) || defined(GASNET_PARSYNC) || defined(GASNET_PAR))
#error Include gasnetex.h before gasnet_tools.h where GASNET_SEQ, GASNET_PARSYNC or GASNET_PAR is defined
#endif
#if defined(_INCLUDED_GASNETEX_H) && defined(GASNETT_LITE_MODE)
#error GASNETT_LITE_MODE is for programs that do not use gasnetex.h
#endif

#include <hydrant/gasnet/annotations.h>
#include <hydrant/gasnet/membars.h>
#include <hydrant/gasnet/mode.h>
#include <hydrant/gasnet/platform.h>
#include <hydrant/gasnet/timers.h>

#include <errno.h>
#include <gasnet_config.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GASNETT_RELEASE_VERSION_MAJOR GASNET_RELEASE_VERSION_MAJOR
#define GASNETT_RELEASE_VERSION_MINOR GASNET_RELEASE_VERSION_MINOR
#define GASNETT_RELEASE_VERSION_PATCH GASNET_RELEASE_VERSION_PATCH
#define GASNETT_PTR_CONFIG HYDRANT_CONFIG_PTR

#define HYDRANT_TOOLS_LITE_CONFIG \
  "RELEASE=" _STRINGIFY(HYDRANT_CONFIG_RELEASE) ",SPEC=" _STRINGIFY(                            \
      GASNETT_SPEC_VERSION_MAJOR) "." _STRINGIFY(GASNETT_SPEC_VERSION_MINOR) ",PTR=" _STRINGIFY( \
      GASNETT_PTR_CONFIG) "," _STRINGIFY(GASNETT_DEBUG_CONFIG) "," _STRINGIFY(                   \
      GASNETT_THREAD_MODEL) "," _STRINGIFY(GASNETT_TIMER_CONFIG) "," _STRINGIFY(                 \
      GASNETT_MEMBAR_CONFIG)

/* A library whose inlined parts differ from these headers lacks this variable: the program does not
 * link or load. */
#define GASNETT_LINKCONFIG_IDIOTCHECK(name) _CONCAT(hydrant_tools_linkconfig_, name)
HYDRANT_TOOLS_BEGIN
extern const int GASNETT_LINKCONFIG_IDIOTCHECK(ABI_1);
GASNETT_USED static const int* const hydrant_tools_linkconfig =
    &GASNETT_LINKCONFIG_IDIOTCHECK(ABI_1);
HYDRANT_TOOLS_END

#if defined(GASNETT_LITE_MODE)
#define GASNETT_CONFIG_STRING HYDRANT_TOOLS_LITE_CONFIG
#else
#include <hydrant/gasnet/atomics.h>
#include <hydrant/gasnet/debugging.h>
#include <hydrant/gasnet/env.h>
#include <hydrant/gasnet/formatters.h>
#include <hydrant/gasnet/locks.h>
#include <hydrant/gasnet/misc.h>
#include <hydrant/gasnet/threadkeys.h>
#include <hydrant/gasnet/tracing.h>

#define GASNETT_CONFIG_STRING                                                     \
  HYDRANT_TOOLS_LITE_CONFIG "," _STRINGIFY(GASNETT_ATOMIC_CONFIG) "," _STRINGIFY( \
      GASNETT_ATOMIC32_CONFIG) "," _STRINGIFY(GASNETT_ATOMIC64_CONFIG)
#endif

#endif
