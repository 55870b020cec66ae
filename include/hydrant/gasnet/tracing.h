/* hydrant/gasnet/tracing.h - the client's part of GASNet's trace and statistics.
 *
 * Texts go to the files that GASNET_TRACEFILE and GASNET_STATSFILE name (docs/tracing.md), as kind H, or U
 * for the _FORCE variants, which no mask leaves out. Without a file, and outside a job, nothing is written,
 * masks are "", and GASNETT_TRACE_GETSOURCELINE leaves its arguments unchanged.
 *
 * Masks are letters as in GASNET_TRACEMASK. A mask holds for what happens after the call. The text that a
 * GETMASK returns stays the same until 64 other masks have been set. Files of source lines are not copied.
 * Threads  any. Not in signal handlers.
 * Cost     without a trace a call and the evaluation of the arguments. With one about 500 ns, which format
 *          and allocate the text.
 */
#ifndef HYDRANT_GASNET_TRACING_H
#define HYDRANT_GASNET_TRACING_H

#include <hydrant/gasnet/annotations.h>

HYDRANT_TOOLS_BEGIN

GASNETT_FORMAT_PRINTF(hydrant_tools_no_trace, 1, 2,
                      static inline void hydrant_tools_no_trace(const char* format, ...));
static inline void hydrant_tools_no_trace(const char* format, ...) { (void)format; }

GASNETT_FORMAT_PRINTF(hydrant_tools_trace_printf, 1, 2,
                      void hydrant_tools_trace_printf(const char* format, ...));
GASNETT_FORMAT_PRINTF(hydrant_tools_trace_printf_force, 1, 2,
                      void hydrant_tools_trace_printf_force(const char* format, ...));
/* 1 if a text of kind H is written, else 0. */
int hydrant_tools_trace_enabled(void);
const char* hydrant_tools_trace_getmask(void);
void hydrant_tools_trace_setmask(const char* mask);
/* Whether puts and gets of this rank's own memory are traced. */
int hydrant_tools_trace_get_tracelocal(void);
void hydrant_tools_trace_set_tracelocal(int wanted);
/* Sets the client's source line for further events of the calling thread; a NULL file keeps the file. */
void hydrant_tools_trace_setsourceline(const char* file, unsigned int line);
void hydrant_tools_trace_getsourceline(const char** file, unsigned int* line);
/* Between the two, which nest, setsourceline has no effect. */
void hydrant_tools_trace_freezesourceline(void);
void hydrant_tools_trace_unfreezesourceline(void);

/* A function that adds texts to each dump, by the function that it gets. */
typedef void (*hydrant_tools_stats_callback_t)(void (*print)(const char* format, ...));
/* Sets it, and returns 1 if texts of kind H are written. */
int hydrant_tools_stats_init(hydrant_tools_stats_callback_t callback);
GASNETT_FORMAT_PRINTF(hydrant_tools_stats_printf, 1, 2,
                      void hydrant_tools_stats_printf(const char* format, ...));
GASNETT_FORMAT_PRINTF(hydrant_tools_stats_printf_force, 1, 2,
                      void hydrant_tools_stats_printf_force(const char* format, ...));
const char* hydrant_tools_stats_getmask(void);
void hydrant_tools_stats_setmask(const char* mask);
/* Writes the statistics so far; `reset` sets the events' counts to 0 afterwards. */
void hydrant_tools_stats_dump(int reset);

HYDRANT_TOOLS_END

/* GASNet's own name, which clients use. */
#define _gasnett_trace_printf_noop hydrant_tools_no_trace

#define GASNETT_TRACE_SETSOURCELINE(file, line) \
  hydrant_tools_trace_setsourceline((const char*)(file), (unsigned int)(line))
#define GASNETT_TRACE_GETSOURCELINE(pfile, pline) hydrant_tools_trace_getsourceline(pfile, pline)
#define GASNETT_TRACE_FREEZESOURCELINE() hydrant_tools_trace_freezesourceline()
#define GASNETT_TRACE_UNFREEZESOURCELINE() hydrant_tools_trace_unfreezesourceline()

#define GASNETT_TRACE_ENABLED (hydrant_tools_trace_enabled())
#define GASNETT_TRACE_PRINTF hydrant_tools_trace_printf
#define GASNETT_TRACE_PRINTF_FORCE hydrant_tools_trace_printf_force
#define GASNETT_TRACE_GETMASK() hydrant_tools_trace_getmask()
#define GASNETT_TRACE_SETMASK(mask) hydrant_tools_trace_setmask(mask)
#define GASNETT_TRACE_GET_TRACELOCAL() hydrant_tools_trace_get_tracelocal()
#define GASNETT_TRACE_SET_TRACELOCAL(newval) hydrant_tools_trace_set_tracelocal(newval)

#define GASNETT_STATS_INIT(callbackfn) hydrant_tools_stats_init(callbackfn)
#define GASNETT_STATS_PRINTF hydrant_tools_stats_printf
#define GASNETT_STATS_PRINTF_FORCE hydrant_tools_stats_printf_force
#define GASNETT_STATS_GETMASK() hydrant_tools_stats_getmask()
#define GASNETT_STATS_SETMASK(mask) hydrant_tools_stats_setmask(mask)
#define GASNETT_STATS_DUMP(reset) hydrant_tools_stats_dump(reset)

#endif
