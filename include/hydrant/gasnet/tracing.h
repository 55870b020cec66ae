/* hydrant/gasnet/tracing.h - GASNet's trace and statistics log: names without effect.
 *
 * No log is written, as in a GASNet configured without --enable-trace and --enable-stats. The compiler
 * still checks formats. GASNETT_TRACE_PRINTF and its variants evaluate their arguments; the other
 * macros do not. Masks are "" and GASNETT_TRACE_GETSOURCELINE leaves its arguments unchanged.
 * Cost     the evaluation of arguments.
 */
#ifndef HYDRANT_GASNET_TRACING_H
#define HYDRANT_GASNET_TRACING_H

#include <hydrant/gasnet/annotations.h>

HYDRANT_TOOLS_BEGIN

GASNETT_FORMAT_PRINTF(hydrant_tools_no_trace, 1, 2,
                      static inline void hydrant_tools_no_trace(const char* format, ...));
static inline void hydrant_tools_no_trace(const char* format, ...) { (void)format; }

HYDRANT_TOOLS_END

/* GASNet's own name, which clients use. */
#define _gasnett_trace_printf_noop hydrant_tools_no_trace

#define GASNETT_TRACE_SETSOURCELINE(file, line) ((void)0)
#define GASNETT_TRACE_GETSOURCELINE(pfile, pline) ((void)0)
#define GASNETT_TRACE_FREEZESOURCELINE() ((void)0)
#define GASNETT_TRACE_UNFREEZESOURCELINE() ((void)0)

#define GASNETT_TRACE_ENABLED 0
#define GASNETT_TRACE_PRINTF hydrant_tools_no_trace
#define GASNETT_TRACE_PRINTF_FORCE hydrant_tools_no_trace
#define GASNETT_TRACE_GETMASK() ""
#define GASNETT_TRACE_SETMASK(mask) ((void)0)
#define GASNETT_TRACE_GET_TRACELOCAL() (0)
#define GASNETT_TRACE_SET_TRACELOCAL(newval) ((void)0)

#define GASNETT_STATS_INIT(callbackfn) 0
#define GASNETT_STATS_PRINTF hydrant_tools_no_trace
#define GASNETT_STATS_PRINTF_FORCE hydrant_tools_no_trace
#define GASNETT_STATS_GETMASK() ""
#define GASNETT_STATS_SETMASK(mask) ((void)0)
#define GASNETT_STATS_DUMP(reset) ((void)0)

#endif
