/* hydrant/gasnet/debugging.h - ends of programs, backtraces, and waiting for a debugger.
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

/* gasnett_fatalerror(format, ...): "*** FATAL ERROR: in FUNCTION() at FILE:LINE: text" on standard
 * error, then a freeze and a backtrace if the environment asks for them, then abort(). The _nopos form
 * leaves the place out. */
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

/* Ends the process at once: no exit handlers, no flushing. */
GASNETT_NORETURN void hydrant_tools_killmyprocess(int exitcode);

/* "FUNCTION() at FILE:LINE", from malloc(). */
char* hydrant_tools_current_loc(const char* function, const char* file, int line);

/* Sets *flag to 1, says on standard error how to go on, and sleeps until a debugger sets *flag to 0 or
 * the process gets SIGCONT. `flagsymname` is what the debugger's user shall type for the flag. */
void hydrant_tools_freezeForDebuggerNow(volatile int* flag, const char* flagsymname);
/* The same if GASNET_FREEZE_ON_ERROR is set. */
void hydrant_tools_freezeForDebuggerErr(void);

/* Early in main(), with argv[0] or gasnett_exe_name(): reads the settings, loads what a backtrace needs
 * so that it works in a broken process too, and installs the signals of GASNET_BACKTRACE_SIGNAL and
 * GASNET_FREEZE_SIGNAL. */
void hydrant_tools_backtrace_init(const char* exename);
/* Writes the calling thread's backtrace to a file descriptor, one line per frame: number, module or
 * function with offset, address. Returns 0, or non-zero if no mechanism worked. */
int hydrant_tools_print_backtrace(int fd);
/* What errors call; a client may point it elsewhere. At first: hydrant_tools_print_backtrace() if
 * GASNET_BACKTRACE is set and GASNET_BACKTRACE_NODES allows this rank. */
extern int (*hydrant_tools_print_backtrace_ifenabled)(int fd);

/* A client's own mechanism: define a variable `gasnett_backtrace_type_t gasnett_backtrace_user =
 * {...};` with C linkage in one source file. */
typedef struct {
  const char* name;  /* for GASNET_BACKTRACE_TYPE, upper case */
  int (*fnp)(int);   /* writes to a file descriptor; 0 if it could */
  int threadsupport; /* whether it shows the calling thread of several */
} gasnett_backtrace_type_t;
extern gasnett_backtrace_type_t hydrant_tools_backtrace_user;

typedef void (*hydrant_tools_sighandlerfn_t)(int);
/* Installs a handler, SIG_DFL or SIG_IGN and returns the one before; interrupted system calls are
 * restarted. A signal that cannot be caught ends the program with gasnett_fatalerror. */
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

/* With GASNET_DEBUG both are checked when they run; without it they are promises to the compiler, and a
 * broken one leads anywhere. `cond` has no side effects and no calls. */
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
