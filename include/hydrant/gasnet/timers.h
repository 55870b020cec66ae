/* hydrant/gasnet/timers.h - wall-clock time with fine granularity and low cost.
 *
 * A tick is one count of the processor's time-stamp counter if that has one constant rate on all
 * processors, else (or with GASNET_TSC_RATE=clock) one nanosecond of CLOCK_MONOTONIC. The first call
 * decides which. Ticks of two processes must not be compared.
 *
 * Units    ticks; the conversions to nanoseconds and microseconds are linear.
 * Errors   none returned; a counter whose rate is further off than GASNET_TSC_RATE_HARD_TOLERANCE ends the
 *          program (gasnett_fatalerror).
 * Threads  any.
 * Cost     gasnett_ticks_now() one predicted branch and rdtsc (or a vDSO call); the first conversion
 *          calibrates: it sleeps until about 10 ms have passed since the first tick was read. Later
 *          conversions are one call and one multiplication.
 * Source   GASNet tools specification 1.20, "Timers" (also GASNET_TSC_RATE, ..._TOLERANCE,
 *          ..._HARD_TOLERANCE, GASNET_TSC_VERBOSE; docs/tools.md).
 */
#ifndef HYDRANT_GASNET_TIMERS_H
#define HYDRANT_GASNET_TIMERS_H

#include <hydrant/gasnet/annotations.h>

#include <gasnet_config.h>
#include <stdint.h>

#define GASNETT_TIMER_CONFIG HYDRANT_CONFIG_TIMERS

HYDRANT_TOOLS_BEGIN

typedef uint64_t hydrant_tools_tick_t;

/* 1 once ticks are known to be the time-stamp counter's; only the library writes it, once. */
extern int hydrant_tools_ticks_are_tsc;

hydrant_tools_tick_t hydrant_tools_ticks_now_slowly(void);
uint64_t hydrant_tools_ticks_to_ns(hydrant_tools_tick_t ticks);
uint64_t hydrant_tools_ticks_to_us(hydrant_tools_tick_t ticks);
double hydrant_tools_tick_granularityus(void);
double hydrant_tools_tick_overheadus(void);
uint64_t hydrant_tools_gettimeofday_us(void);
int hydrant_tools_nsleep(uint64_t ns_delay);

GASNETT_INLINE(hydrant_tools_ticks_now)
hydrant_tools_tick_t hydrant_tools_ticks_now(void) {
#if defined(__x86_64__)
  /* Relaxed: the flag selects the counter and protects no data. */
  if (GASNETT_PREDICT_TRUE(__atomic_load_n(&hydrant_tools_ticks_are_tsc, __ATOMIC_RELAXED)))
    return __builtin_ia32_rdtsc();
#endif
  return hydrant_tools_ticks_now_slowly();
}

HYDRANT_TOOLS_END

#define gasnett_tick_t hydrant_tools_tick_t
#define GASNETT_TICK_MIN (HYDRANT_TOOLS_CAST(hydrant_tools_tick_t, 0))
#define GASNETT_TICK_MAX (HYDRANT_TOOLS_CAST(hydrant_tools_tick_t, UINT64_MAX))
#define gasnett_ticks_now() hydrant_tools_ticks_now()
/* Rounded down. Differences of conversions and conversions of differences agree to one unit. */
#define gasnett_ticks_to_ns(ticks) hydrant_tools_ticks_to_ns(ticks)
#define gasnett_ticks_to_us(ticks) hydrant_tools_ticks_to_us(ticks)
/* Microseconds, > 0, measured at the first call (about 1 ms): the smallest observed step of ticks, and
 * the duration of gasnett_ticks_now(). */
#define gasnett_tick_granularityus() hydrant_tools_tick_granularityus()
#define gasnett_tick_overheadus() hydrant_tools_tick_overheadus()
/* Microseconds since 1970, as the system sets its clock: may jump. */
#define gasnett_gettimeofday_us() hydrant_tools_gettimeofday_us()
/* Sleeps at least `ns_delay` nanoseconds; 0 returns at once. Returns 0, or non-zero with errno EINTR if
 * a signal ended the sleep early. */
#define gasnett_nsleep(ns_delay) hydrant_tools_nsleep(ns_delay)

#endif
