/* hydrant/gasnet/atomic_ops.h - the operations behind gasnett_atomic*: 32 and 64 bits, strong and weak.
 *
 * Not for clients: <hydrant/gasnet/atomics.h> names these operations and explains the flags. Strong
 * operations are always atomic; weak operations are plain loads and stores, for programs with one
 * thread.
 *
 * Flags are almost always constants, so the compiler removes all tests of them. On x86-64 a read is one
 * load. A set is one store, or one xchg with a full fence. Every other operation is one locked
 * instruction, which is a full fence already: a flag then only prevents compiler reordering. Other
 * machines get separate fences before and after a relaxed operation.
 */
#ifndef HYDRANT_GASNET_ATOMIC_OPS_H
#define HYDRANT_GASNET_ATOMIC_OPS_H

#include <hydrant/gasnet/annotations.h>
#include <hydrant/gasnet/membars.h>

#include <stdint.h>

/* Bits of the flags argument. */
#define HYDRANT_TOOLS_WMB_PRE 1
#define HYDRANT_TOOLS_RMB_PRE 2
#define HYDRANT_TOOLS_MB_PRE 4
#define HYDRANT_TOOLS_WMB_POST 8
#define HYDRANT_TOOLS_RMB_POST 16
#define HYDRANT_TOOLS_MB_POST 32
#define HYDRANT_TOOLS_RMB_POST_IF_TRUE 64
#define HYDRANT_TOOLS_RMB_POST_IF_FALSE 128

HYDRANT_TOOLS_BEGIN

/* An integer of exactly this width; may_alias because clients may cast a pointer to a double to it. */
typedef struct {
  uint32_t value;
} HYDRANT_TOOLS_MAY_ALIAS hydrant_tools_atomic32_t;
typedef struct {
  uint64_t value;
} HYDRANT_TOOLS_MAY_ALIAS hydrant_tools_atomic64_t;

GASNETT_INLINE(hydrant_tools_fence_before)
void hydrant_tools_fence_before(int flags) {
  if (flags & HYDRANT_TOOLS_MB_PRE) {
    hydrant_tools_local_mb();
  } else {
    if (flags & HYDRANT_TOOLS_WMB_PRE) hydrant_tools_local_wmb();
    if (flags & HYDRANT_TOOLS_RMB_PRE) hydrant_tools_local_rmb();
  }
}

GASNETT_INLINE(hydrant_tools_fence_after)
void hydrant_tools_fence_after(int flags) {
  if (flags & HYDRANT_TOOLS_MB_POST) {
    hydrant_tools_local_mb();
  } else {
    if (flags & HYDRANT_TOOLS_WMB_POST) hydrant_tools_local_wmb();
    if (flags & HYDRANT_TOOLS_RMB_POST) hydrant_tools_local_rmb();
  }
}

#if defined(__x86_64__)
/* Empty on x86-64, because the memory order of the read-modify-write itself suffices. */
#define HYDRANT_TOOLS_RMW_BEFORE(flags) ((void)0)
#define HYDRANT_TOOLS_RMW_AFTER(flags) ((void)0)
#define HYDRANT_TOOLS_RMW_AFTER_TEST(flags, outcome) ((void)0)
#else
#define HYDRANT_TOOLS_RMW_BEFORE(flags) hydrant_tools_fence_before(flags)
#define HYDRANT_TOOLS_RMW_AFTER(flags) hydrant_tools_fence_after(flags)
#define HYDRANT_TOOLS_RMW_AFTER_TEST(flags, outcome)                                              \
  do {                                                                                            \
    hydrant_tools_fence_after(flags);                                                             \
    if ((flags) & ((outcome) ? HYDRANT_TOOLS_RMB_POST_IF_TRUE : HYDRANT_TOOLS_RMB_POST_IF_FALSE)) \
      hydrant_tools_local_rmb();                                                                  \
  } while (0)
#endif

/* A read-modify-write: relaxed without flags, sequentially consistent with any flag. Written twice
 * because compilers need a constant memory order even without optimisation. */
#define HYDRANT_TOOLS_RMW(result, flags, builtin, ...) \
  do {                                                 \
    HYDRANT_TOOLS_RMW_BEFORE(flags);                   \
    if ((flags) != 0)                                  \
      result = builtin(__VA_ARGS__, __ATOMIC_SEQ_CST); \
    else                                               \
      result = builtin(__VA_ARGS__, __ATOMIC_RELAXED); \
  } while (0)

#define HYDRANT_TOOLS_DEFINE_STRONG(A, T)                                                  \
  GASNETT_INLINE(A##_read) T A##_read(const A##_t* p, int flags) {                         \
    T result;                                                                              \
    hydrant_tools_fence_before(flags);                                                     \
    if (flags & (HYDRANT_TOOLS_RMB_POST | HYDRANT_TOOLS_MB_POST))                          \
      result = __atomic_load_n(&p->value, __ATOMIC_ACQUIRE);                               \
    else                                                                                   \
      result = __atomic_load_n(&p->value, __ATOMIC_RELAXED);                               \
    hydrant_tools_fence_after(flags);                                                      \
    return result;                                                                         \
  }                                                                                        \
  GASNETT_INLINE(A##_set) void A##_set(A##_t* p, T value, int flags) {                     \
    if (flags & (HYDRANT_TOOLS_MB_PRE | HYDRANT_TOOLS_MB_POST)) {                          \
      HYDRANT_TOOLS_RMW_BEFORE(flags);                                                     \
      (void)__atomic_exchange_n(&p->value, value, __ATOMIC_SEQ_CST);                       \
      HYDRANT_TOOLS_RMW_AFTER(flags);                                                      \
      return;                                                                              \
    }                                                                                      \
    hydrant_tools_fence_before(flags);                                                     \
    if (flags & HYDRANT_TOOLS_WMB_PRE)                                                     \
      __atomic_store_n(&p->value, value, __ATOMIC_RELEASE);                                \
    else                                                                                   \
      __atomic_store_n(&p->value, value, __ATOMIC_RELAXED);                                \
    hydrant_tools_fence_after(flags);                                                      \
  }                                                                                        \
  GASNETT_INLINE(A##_add) T A##_add(A##_t* p, T op, int flags) {                           \
    T result;                                                                              \
    HYDRANT_TOOLS_RMW(result, flags, __atomic_add_fetch, &p->value, op);                   \
    HYDRANT_TOOLS_RMW_AFTER(flags);                                                        \
    return result;                                                                         \
  }                                                                                        \
  GASNETT_INLINE(A##_subtract) T A##_subtract(A##_t* p, T op, int flags) {                 \
    T result;                                                                              \
    HYDRANT_TOOLS_RMW(result, flags, __atomic_sub_fetch, &p->value, op);                   \
    HYDRANT_TOOLS_RMW_AFTER(flags);                                                        \
    return result;                                                                         \
  }                                                                                        \
  GASNETT_INLINE(A##_increment) void A##_increment(A##_t* p, int flags) {                  \
    (void)A##_add(p, 1, flags);                                                            \
  }                                                                                        \
  GASNETT_INLINE(A##_decrement) void A##_decrement(A##_t* p, int flags) {                  \
    (void)A##_subtract(p, 1, flags);                                                       \
  }                                                                                        \
  GASNETT_INLINE(A##_decrement_and_test) int A##_decrement_and_test(A##_t* p, int flags) { \
    T left;                                                                                \
    HYDRANT_TOOLS_RMW(left, flags, __atomic_sub_fetch, &p->value, 1);                      \
    HYDRANT_TOOLS_RMW_AFTER_TEST(flags, left == 0);                                        \
    return left == 0;                                                                      \
  }                                                                                        \
  GASNETT_INLINE(A##_swap) T A##_swap(A##_t* p, T value, int flags) {                      \
    T result;                                                                              \
    HYDRANT_TOOLS_RMW(result, flags, __atomic_exchange_n, &p->value, value);               \
    HYDRANT_TOOLS_RMW_AFTER(flags);                                                        \
    return result;                                                                         \
  }                                                                                        \
  GASNETT_INLINE(A##_compare_and_swap)                                                     \
  int A##_compare_and_swap(A##_t* p, T oldval, T newval, int flags) {                      \
    int done;                                                                              \
    HYDRANT_TOOLS_RMW_BEFORE(flags);                                                       \
    if (flags != 0)                                                                        \
      done = __atomic_compare_exchange_n(&p->value, &oldval, newval, 0, __ATOMIC_SEQ_CST,  \
                                         __ATOMIC_SEQ_CST);                                \
    else                                                                                   \
      done = __atomic_compare_exchange_n(&p->value, &oldval, newval, 0, __ATOMIC_RELAXED,  \
                                         __ATOMIC_RELAXED);                                \
    HYDRANT_TOOLS_RMW_AFTER_TEST(flags, done);                                             \
    return done;                                                                           \
  }

/* `W` names the operations, `A` the type. With one thread the flags have no effect. */
#define HYDRANT_TOOLS_DEFINE_WEAK(W, A, T)                                                 \
  GASNETT_INLINE(W##_read) T W##_read(const A##_t* p, int flags) {                         \
    (void)flags;                                                                           \
    return p->value;                                                                       \
  }                                                                                        \
  GASNETT_INLINE(W##_set) void W##_set(A##_t* p, T value, int flags) {                     \
    (void)flags;                                                                           \
    p->value = value;                                                                      \
  }                                                                                        \
  GASNETT_INLINE(W##_add) T W##_add(A##_t* p, T op, int flags) {                           \
    (void)flags;                                                                           \
    return p->value += op;                                                                 \
  }                                                                                        \
  GASNETT_INLINE(W##_subtract) T W##_subtract(A##_t* p, T op, int flags) {                 \
    (void)flags;                                                                           \
    return p->value -= op;                                                                 \
  }                                                                                        \
  GASNETT_INLINE(W##_increment) void W##_increment(A##_t* p, int flags) {                  \
    (void)flags;                                                                           \
    ++p->value;                                                                            \
  }                                                                                        \
  GASNETT_INLINE(W##_decrement) void W##_decrement(A##_t* p, int flags) {                  \
    (void)flags;                                                                           \
    --p->value;                                                                            \
  }                                                                                        \
  GASNETT_INLINE(W##_decrement_and_test) int W##_decrement_and_test(A##_t* p, int flags) { \
    (void)flags;                                                                           \
    return --p->value == 0;                                                                \
  }                                                                                        \
  GASNETT_INLINE(W##_swap) T W##_swap(A##_t* p, T value, int flags) {                      \
    T before = p->value;                                                                   \
    (void)flags;                                                                           \
    p->value = value;                                                                      \
    return before;                                                                         \
  }                                                                                        \
  GASNETT_INLINE(W##_compare_and_swap)                                                     \
  int W##_compare_and_swap(A##_t* p, T oldval, T newval, int flags) {                      \
    (void)flags;                                                                           \
    if (p->value != oldval) return 0;                                                      \
    p->value = newval;                                                                     \
    return 1;                                                                              \
  }

HYDRANT_TOOLS_DEFINE_STRONG(hydrant_tools_atomic32, uint32_t)
HYDRANT_TOOLS_DEFINE_STRONG(hydrant_tools_atomic64, uint64_t)
HYDRANT_TOOLS_DEFINE_WEAK(hydrant_tools_weakatomic32, hydrant_tools_atomic32, uint32_t)
HYDRANT_TOOLS_DEFINE_WEAK(hydrant_tools_weakatomic64, hydrant_tools_atomic64, uint64_t)

#undef HYDRANT_TOOLS_DEFINE_STRONG
#undef HYDRANT_TOOLS_DEFINE_WEAK
#undef HYDRANT_TOOLS_RMW
#undef HYDRANT_TOOLS_RMW_BEFORE
#undef HYDRANT_TOOLS_RMW_AFTER
#undef HYDRANT_TOOLS_RMW_AFTER_TEST

HYDRANT_TOOLS_END

#endif
