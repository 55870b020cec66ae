/* gasnet_tools.h - the GASNet tools: gasnett_* and GASNETT_*, with or without the rest of GASNet's API.
 *
 * Atomics, timers, memory barriers, locks, per-thread pointers, settings, backtraces, annotations.
 * Follows the GASNet tools specification 1.20. Link either libhydrant_tools or libhydrant, which
 * contains the tools; never both.
 *
 * A client of gasnetex.h includes that header first. Other clients may define one of
 * GASNETT_THREAD_SAFE, GASNETT_THREAD_SINGLE and GASNETT_LITE_MODE (<hydrant/gasnet/mode.h>). Lite mode
 * has only the names that precede the #if below. Many names are macros, so they have no address.
 * docs/tools.md lists the differences from GASNet.
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

/* A link or load error on this variable means that the library's inlined parts differ from these
 * headers. */
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
#include <hydrant/gasnet/ident_text.h>
#include <hydrant/gasnet/locks.h>
#include <hydrant/gasnet/misc.h>
#include <hydrant/gasnet/threadkeys.h>
#include <hydrant/gasnet/tracing.h>
#if defined(_INCLUDED_GASNETEX_H)
#include <hydrant/gasnet/diagnostics.h>
#endif

#define GASNETT_CONFIG_STRING                                                     \
  HYDRANT_TOOLS_LITE_CONFIG "," _STRINGIFY(GASNETT_ATOMIC_CONFIG) "," _STRINGIFY( \
      GASNETT_ATOMIC32_CONFIG) "," _STRINGIFY(GASNETT_ATOMIC64_CONFIG)

/* The tools' share of the identification strings; hydrant/gasnet/idents.h has the others. */
HYDRANT_IDENT(tools_mode, "$GASNetToolsThreadModel: " _STRINGIFY(GASNETT_THREAD_MODEL) " $")
HYDRANT_IDENT(tools_config, "$GASNetToolsConfig: " GASNETT_CONFIG_STRING " $")
HYDRANT_IDENT(build_id, "$GASNetBuildId: hydrant-0.1 $")
HYDRANT_IDENT(configure_args, "$GASNetConfigureArgs: " GASNETT_CONFIGURE_ARGS " $")
HYDRANT_IDENT(system_tuple, "$GASNetSystemTuple: " GASNETT_SYSTEM_TUPLE " $")
HYDRANT_IDENT(compiler, "$GASNetCompilerID: " GASNETT_PLATFORM_COMPILER_IDSTR " $")
#endif

#endif
