/* hydrant/gasnet/debugging.h - fatal errors, backtraces, and waiting for a debugger.
 *
 * Environment: GASNET_FREEZE_ON_ERROR, GASNET_FREEZE_SIGNAL, GASNET_BACKTRACE, GASNET_BACKTRACE_TYPE,
 * GASNET_BACKTRACE_NODES, GASNET_BACKTRACE_SIGNAL, GASNET_BACKTRACE_MT (docs/tools.md).
 *
 * Threads  any.
 * Source   GASNet tools specification 1.20, "Backtracing and debugger attach".
 */
#ifndef HYDRANT_GASNET_DEBUGGING_H
#define HYDRANT_GASNET_DEBUGGING_H

#include <hydrant/gasnet/annotations.h>

HYDRANT_TOOLS_BEGIN

/* gasnett_fatalerror(format, ...) prints "*** FATAL ERROR: in FUNCTION() at FILE:LINE: text" on
 * standard error. Then it freezes and prints a backtrace if the environment requests them, and calls
 * abort(). The _nopos form omits the position. */
GASNETT_COLD
GASNETT_FORMAT_PRINTF(hydrant_tools_fatalerror, 4, 5,
                      GASNETT_NORETURN void hydrant_tools_fatalerror(const char* function,
                                                                     const char* file, int line,
                                                                     const char* format, ...));
GASNETT_COLD
GASNETT_FORMAT_PRINTF(hydrant_tools_fatalerror_nopos, 1, 2,
                      GASNETT_NORETURN void hydrant_tools_fatalerror_nopos(const char* format,
                                                                           ...));
GASNETT_NORETURN void hydrant_tools_unreachable(const char* function, const char* file, int line);

/* Ends the process at once, without exit handlers or flushing. */
GASNETT_NORETURN void hydrant_tools_killmyprocess(int exitcode);

/* Returns "FUNCTION() at FILE:LINE", allocated by malloc(). */
char* hydrant_tools_current_loc(const char* function, const char* file, int line);

/* Sets *flag to 1, prints on standard error how to continue, and sleeps until a debugger sets *flag to
 * 0 or the process gets SIGCONT. `flagsymname` is the flag's name for the debugger's user. */
void hydrant_tools_freezeForDebuggerNow(volatile int* flag, const char* flagsymname);
/* The same if GASNET_FREEZE_ON_ERROR is set. */
void hydrant_tools_freezeForDebuggerErr(void);

/* Call it early in main(), with argv[0] or gasnett_exe_name(). Reads the settings, and loads the
 * symbolizer's libraries, so that a backtrace also works in a damaged process. Installs the handlers of
 * GASNET_BACKTRACE_SIGNAL and GASNET_FREEZE_SIGNAL. */
void hydrant_tools_backtrace_init(const char* exename);
/* Writes the calling thread's backtrace to a file descriptor, one line per frame: number, module or
 * function with offset, address. Returns 0, or nonzero if no mechanism worked. */
int hydrant_tools_print_backtrace(int fd);
/* Called on fatal errors; a client may replace it. The default calls hydrant_tools_print_backtrace() if
 * GASNET_BACKTRACE is set and GASNET_BACKTRACE_NODES includes this rank. */
extern int (*hydrant_tools_print_backtrace_ifenabled)(int fd);

/* The client's own backtrace mechanism: define a variable `gasnett_backtrace_type_t
 * gasnett_backtrace_user = {...};` with C linkage in one source file. */
typedef struct {
  const char* name;  /* name in GASNET_BACKTRACE_TYPE, upper case */
  int (*fnp)(int);   /* writes to a file descriptor; returns 0 on success */
  int threadsupport; /* nonzero if it shows the calling thread of several */
} gasnett_backtrace_type_t;
extern gasnett_backtrace_type_t hydrant_tools_backtrace_user;

typedef void (*hydrant_tools_sighandlerfn_t)(int);
/* Installs a handler, SIG_DFL or SIG_IGN and returns the previous one; interrupted system calls are
 * restarted. A signal that cannot be caught is a gasnett_fatalerror. */
hydrant_tools_sighandlerfn_t hydrant_tools_reghandler(int sigtocatch,
                                                      hydrant_tools_sighandlerfn_t fp);
/* "SIGSEGV" for SIGSEGV; never null. */
const char* hydrant_tools_signame_fromval(int sigval);

HYDRANT_TOOLS_END

#define gasnett_fatalerror(...) \
  hydrant_tools_fatalerror(GASNETT_CURRENT_FUNCTION, __FILE__, __LINE__, __VA_ARGS__)
#define gasnett_fatalerror_nopos hydrant_tools_fatalerror_nopos
#define gasnett_killmyprocess hydrant_tools_killmyprocess
#define gasnett_current_loc \
  (hydrant_tools_current_loc(GASNETT_CURRENT_FUNCTION, __FILE__, __LINE__))
#define gasnett_freezeForDebuggerNow hydrant_tools_freezeForDebuggerNow
#define gasnett_freezeForDebuggerErr hydrant_tools_freezeForDebuggerErr
#define gasnett_backtrace_init hydrant_tools_backtrace_init
#define gasnett_print_backtrace hydrant_tools_print_backtrace
#define gasnett_print_backtrace_ifenabled hydrant_tools_print_backtrace_ifenabled
#define gasnett_backtrace_user hydrant_tools_backtrace_user
#define gasnett_sighandlerfn_t hydrant_tools_sighandlerfn_t
#define gasnett_reghandler hydrant_tools_reghandler
#define gasnett_signame_fromval hydrant_tools_signame_fromval

/* With GASNET_DEBUG both are checked at run time. Without it they are promises to the compiler, and a
 * broken one is undefined behaviour. `cond` must have no side effects and no calls. */
#if HYDRANT_TOOLS_DEBUG
#define gasnett_unreachable() \
  hydrant_tools_unreachable(GASNETT_CURRENT_FUNCTION, __FILE__, __LINE__)
#define gasnett_assume(cond) \
  (GASNETT_PREDICT_TRUE(cond) ? (void)0 : gasnett_fatalerror("Assumption does not hold: %s", #cond))
#else
#if GASNETT_USE_BUILTIN_UNREACHABLE
#define gasnett_unreachable() __builtin_unreachable()
#else
#define gasnett_unreachable() ((void)0)
#endif
#if GASNETT_USE_BUILTIN_ASSUME
#define gasnett_assume(cond) ((void)__builtin_assume(!!(cond)))
#else
#define gasnett_assume(cond) (GASNETT_PREDICT_TRUE(cond) ? (void)0 : gasnett_unreachable())
#endif
#endif

#endif
