/* hydrant/gasnet/tracing.h - GASNet's trace and statistics log: the names, without effect.
 *
 * Nothing is logged, as in a GASNet that was configured without --enable-trace and --enable-stats.
 * Formats are still checked by the compiler; arguments of GASNETT_TRACE_PRINTF and its kin are
 * evaluated, other arguments are not. Masks are "" and GASNETT_TRACE_GETSOURCELINE leaves what it is
 * given alone.
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
