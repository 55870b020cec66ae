/* hydrant/gasnet/atomics.h - gasnett_atomic*: atomic integers with optional fences.
 * Three types, two strengths, the same operations for each:
 *   gasnett_atomic_        at least 24 bits by the specification, 32 here
 *   gasnett_atomic32_      exactly a uint32_t, also laid over an int32_t or float
 *   gasnett_atomic64_      exactly a uint64_t, also laid over an int64_t or double
 *   gasnett_strongatomic_, gasnett_strongatomic32_, gasnett_strongatomic64_
 * The first three are plain, non-atomic operations in a program without threads (mode.h). The strong
 * types are always atomic, also towards signal handlers and between processes.
 *
 *   X_t                        the type; X_init(value) its static initialiser
 *   value X_read(p, flags)     void X_set(p, value, flags)
 *   value X_add(p, op, flags)  value X_subtract(p, op, flags)         return the new value
 *   void X_increment(p, flags) void X_decrement(p, flags)
 *   int X_decrement_and_test(p, flags)                                non-zero iff now 0
 *   value X_swap(p, value, flags)                                     returns the old value
 *   int X_compare_and_swap(p, oldval, newval, flags)                  non-zero iff it was oldval; never
 *                                                                     fails without reason
 * Values are unsigned and wrap around. Arguments are evaluated once.
 *
 * Flags, or'd: nothing is ordered unless asked for.
 *   GASNETT_ATOMIC_{RMB,WMB,MB}_PRE    a read, write or full fence before the operation
 *   GASNETT_ATOMIC_{RMB,WMB,MB}_POST   after it
 *   GASNETT_ATOMIC_RMB_POST_IF_{TRUE,FALSE}  after it, if it answered so: compare_and_swap and
 *                                            decrement_and_test
 *   GASNETT_ATOMIC_REL = WMB_PRE, ACQ = RMB_POST, ACQ_IF_{TRUE,FALSE} = RMB_POST_IF_{TRUE,FALSE}
 *
 * Errors   none. Threads: any, and signal handlers.
 * Cost     x86-64: one instruction each; locked, except reads and sets without MB (atomic_ops.h).
 * Source   GASNet tools specification 1.20, "Atomic operations".
 */
#ifndef HYDRANT_GASNET_ATOMICS_H
#define HYDRANT_GASNET_ATOMICS_H

#include <hydrant/gasnet/atomic_ops.h>

#include <gasnet_config.h>

#define GASNETT_ATOMIC_CONFIG HYDRANT_CONFIG_ATOMICS
#define GASNETT_ATOMIC32_CONFIG HYDRANT_CONFIG_ATOMIC32
#define GASNETT_ATOMIC64_CONFIG HYDRANT_CONFIG_ATOMIC64

#define GASNETT_ATOMIC_NONE 0
#define GASNETT_ATOMIC_WMB_PRE HYDRANT_TOOLS_WMB_PRE
#define GASNETT_ATOMIC_RMB_PRE HYDRANT_TOOLS_RMB_PRE
#define GASNETT_ATOMIC_MB_PRE HYDRANT_TOOLS_MB_PRE
#define GASNETT_ATOMIC_WMB_POST HYDRANT_TOOLS_WMB_POST
#define GASNETT_ATOMIC_RMB_POST HYDRANT_TOOLS_RMB_POST
#define GASNETT_ATOMIC_MB_POST HYDRANT_TOOLS_MB_POST
#define GASNETT_ATOMIC_RMB_POST_IF_TRUE HYDRANT_TOOLS_RMB_POST_IF_TRUE
#define GASNETT_ATOMIC_RMB_POST_IF_FALSE HYDRANT_TOOLS_RMB_POST_IF_FALSE
#define GASNETT_ATOMIC_REL GASNETT_ATOMIC_WMB_PRE
#define GASNETT_ATOMIC_ACQ GASNETT_ATOMIC_RMB_POST
#define GASNETT_ATOMIC_ACQ_IF_TRUE GASNETT_ATOMIC_RMB_POST_IF_TRUE
#define GASNETT_ATOMIC_ACQ_IF_FALSE GASNETT_ATOMIC_RMB_POST_IF_FALSE

/* Values of gasnett_atomic_t: as unsigned, and reinterpreted as signed. */
#define gasnett_atomic_val_t uint32_t
#define gasnett_atomic_sval_t int32_t
#define GASNETT_ATOMIC_MAX (HYDRANT_TOOLS_CAST(uint32_t, UINT32_MAX))
#define GASNETT_ATOMIC_SIGNED_MIN (HYDRANT_TOOLS_CAST(int32_t, INT32_MIN))
#define GASNETT_ATOMIC_SIGNED_MAX (HYDRANT_TOOLS_CAST(int32_t, INT32_MAX))
#define gasnett_atomic_signed(v) (HYDRANT_TOOLS_CAST(int32_t, v))

/* Every operation exists for every type, always. */
#define GASNETT_HAVE_ATOMIC_ADD_SUB 1
#define GASNETT_HAVE_ATOMIC_CAS 1
#define GASNETT_HAVE_STRONGATOMIC_ADD_SUB 1
#define GASNETT_HAVE_STRONGATOMIC_CAS 1

#define HYDRANT_TOOLS_ATOMIC32_INIT(v) \
  { HYDRANT_TOOLS_CAST(uint32_t, v) }
#define HYDRANT_TOOLS_ATOMIC64_INIT(v) \
  { HYDRANT_TOOLS_CAST(uint64_t, v) }

#define gasnett_strongatomic_t hydrant_tools_atomic32_t
#define gasnett_strongatomic_init(v) HYDRANT_TOOLS_ATOMIC32_INIT(v)
#define gasnett_strongatomic_read hydrant_tools_atomic32_read
#define gasnett_strongatomic_set hydrant_tools_atomic32_set
#define gasnett_strongatomic_add hydrant_tools_atomic32_add
#define gasnett_strongatomic_subtract hydrant_tools_atomic32_subtract
#define gasnett_strongatomic_increment hydrant_tools_atomic32_increment
#define gasnett_strongatomic_decrement hydrant_tools_atomic32_decrement
#define gasnett_strongatomic_decrement_and_test hydrant_tools_atomic32_decrement_and_test
#define gasnett_strongatomic_swap hydrant_tools_atomic32_swap
#define gasnett_strongatomic_compare_and_swap hydrant_tools_atomic32_compare_and_swap

#define gasnett_strongatomic32_t hydrant_tools_atomic32_t
#define gasnett_strongatomic32_init(v) HYDRANT_TOOLS_ATOMIC32_INIT(v)
#define gasnett_strongatomic32_read hydrant_tools_atomic32_read
#define gasnett_strongatomic32_set hydrant_tools_atomic32_set
#define gasnett_strongatomic32_add hydrant_tools_atomic32_add
#define gasnett_strongatomic32_subtract hydrant_tools_atomic32_subtract
#define gasnett_strongatomic32_increment hydrant_tools_atomic32_increment
#define gasnett_strongatomic32_decrement hydrant_tools_atomic32_decrement
#define gasnett_strongatomic32_decrement_and_test hydrant_tools_atomic32_decrement_and_test
#define gasnett_strongatomic32_swap hydrant_tools_atomic32_swap
#define gasnett_strongatomic32_compare_and_swap hydrant_tools_atomic32_compare_and_swap

#define gasnett_strongatomic64_t hydrant_tools_atomic64_t
#define gasnett_strongatomic64_init(v) HYDRANT_TOOLS_ATOMIC64_INIT(v)
#define gasnett_strongatomic64_read hydrant_tools_atomic64_read
#define gasnett_strongatomic64_set hydrant_tools_atomic64_set
#define gasnett_strongatomic64_add hydrant_tools_atomic64_add
#define gasnett_strongatomic64_subtract hydrant_tools_atomic64_subtract
#define gasnett_strongatomic64_increment hydrant_tools_atomic64_increment
#define gasnett_strongatomic64_decrement hydrant_tools_atomic64_decrement
#define gasnett_strongatomic64_decrement_and_test hydrant_tools_atomic64_decrement_and_test
#define gasnett_strongatomic64_swap hydrant_tools_atomic64_swap
#define gasnett_strongatomic64_compare_and_swap hydrant_tools_atomic64_compare_and_swap

#if HYDRANT_TOOLS_THREADS
#define HYDRANT_TOOLS_ATOMIC(operation) hydrant_tools_atomic##operation
#else
#define HYDRANT_TOOLS_ATOMIC(operation) hydrant_tools_weakatomic##operation
#endif

#define gasnett_atomic_t hydrant_tools_atomic32_t
#define gasnett_atomic_init(v) HYDRANT_TOOLS_ATOMIC32_INIT(v)
#define gasnett_atomic_read HYDRANT_TOOLS_ATOMIC(32_read)
#define gasnett_atomic_set HYDRANT_TOOLS_ATOMIC(32_set)
#define gasnett_atomic_add HYDRANT_TOOLS_ATOMIC(32_add)
#define gasnett_atomic_subtract HYDRANT_TOOLS_ATOMIC(32_subtract)
#define gasnett_atomic_increment HYDRANT_TOOLS_ATOMIC(32_increment)
#define gasnett_atomic_decrement HYDRANT_TOOLS_ATOMIC(32_decrement)
#define gasnett_atomic_decrement_and_test HYDRANT_TOOLS_ATOMIC(32_decrement_and_test)
#define gasnett_atomic_swap HYDRANT_TOOLS_ATOMIC(32_swap)
#define gasnett_atomic_compare_and_swap HYDRANT_TOOLS_ATOMIC(32_compare_and_swap)

#define gasnett_atomic32_t hydrant_tools_atomic32_t
#define gasnett_atomic32_init(v) HYDRANT_TOOLS_ATOMIC32_INIT(v)
#define gasnett_atomic32_read HYDRANT_TOOLS_ATOMIC(32_read)
#define gasnett_atomic32_set HYDRANT_TOOLS_ATOMIC(32_set)
#define gasnett_atomic32_add HYDRANT_TOOLS_ATOMIC(32_add)
#define gasnett_atomic32_subtract HYDRANT_TOOLS_ATOMIC(32_subtract)
#define gasnett_atomic32_increment HYDRANT_TOOLS_ATOMIC(32_increment)
#define gasnett_atomic32_decrement HYDRANT_TOOLS_ATOMIC(32_decrement)
#define gasnett_atomic32_decrement_and_test HYDRANT_TOOLS_ATOMIC(32_decrement_and_test)
#define gasnett_atomic32_swap HYDRANT_TOOLS_ATOMIC(32_swap)
#define gasnett_atomic32_compare_and_swap HYDRANT_TOOLS_ATOMIC(32_compare_and_swap)

#define gasnett_atomic64_t hydrant_tools_atomic64_t
#define gasnett_atomic64_init(v) HYDRANT_TOOLS_ATOMIC64_INIT(v)
#define gasnett_atomic64_read HYDRANT_TOOLS_ATOMIC(64_read)
#define gasnett_atomic64_set HYDRANT_TOOLS_ATOMIC(64_set)
#define gasnett_atomic64_add HYDRANT_TOOLS_ATOMIC(64_add)
#define gasnett_atomic64_subtract HYDRANT_TOOLS_ATOMIC(64_subtract)
#define gasnett_atomic64_increment HYDRANT_TOOLS_ATOMIC(64_increment)
#define gasnett_atomic64_decrement HYDRANT_TOOLS_ATOMIC(64_decrement)
#define gasnett_atomic64_decrement_and_test HYDRANT_TOOLS_ATOMIC(64_decrement_and_test)
#define gasnett_atomic64_swap HYDRANT_TOOLS_ATOMIC(64_swap)
#define gasnett_atomic64_compare_and_swap HYDRANT_TOOLS_ATOMIC(64_compare_and_swap)

#endif
