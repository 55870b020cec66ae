/* hydrant/gasnet/annotations.h - annotations of functions, branches and texts, and small syntax helpers.
 *
 * Each name expands to the compiler's attribute or builtin, or to nothing if the compiler lacks it. The
 * client may override the detection: define GASNETT_USE_<FEATURE> (below) to 0 or 1 before inclusion.
 * Prefixes stand before a declaration; GASNETT_NORETURN and GASNETT_MALLOC may also follow it. The
 * ...P(name) forms are for compilers that need a pragma; they expand to nothing here and take no
 * semicolon. No cost.
 */
#ifndef HYDRANT_GASNET_ANNOTATIONS_H
#define HYDRANT_GASNET_ANNOTATIONS_H

#include <hydrant/gasnet/mode.h>
#include <hydrant/gasnet/platform.h>

#ifndef _STRINGIFY
#define HYDRANT_STRINGIFY_TOKENS(x) #x
#define _STRINGIFY(x) HYDRANT_STRINGIFY_TOKENS(x)
#endif
#ifndef _CONCAT
#define HYDRANT_CONCAT_TOKENS(a, b) a##b
#define _CONCAT(a, b) HYDRANT_CONCAT_TOKENS(a, b)
#endif

#ifdef __cplusplus
#define GASNETT_BEGIN_EXTERNC extern "C" {
#define GASNETT_END_EXTERNC }
#define GASNETT_EXTERNC extern "C"
#define HYDRANT_TOOLS_CAST(type, value) (static_cast<type>(value))
#else
#define GASNETT_BEGIN_EXTERNC
#define GASNETT_END_EXTERNC
#define GASNETT_EXTERNC extern
#define HYDRANT_TOOLS_CAST(type, value) ((type)(value))
#endif
/* Enclose the library's declarations: default visibility, whatever -fvisibility says, because the
 * client defines some of them too. */
#define HYDRANT_TOOLS_BEGIN GASNETT_BEGIN_EXTERNC _Pragma("GCC visibility push(default)")
#define HYDRANT_TOOLS_END _Pragma("GCC visibility pop") GASNETT_END_EXTERNC

/* Features of the compiler, unless the client has defined them. */
#if defined(__GNUC__)
#define HYDRANT_TOOLS_GNU 1
#else
#define HYDRANT_TOOLS_GNU 0
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_ALWAYSINLINE
#define GASNETT_USE_GCC_ATTRIBUTE_ALWAYSINLINE HYDRANT_TOOLS_GNU
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_NOINLINE
#define GASNETT_USE_GCC_ATTRIBUTE_NOINLINE HYDRANT_TOOLS_GNU
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_MALLOC
#define GASNETT_USE_GCC_ATTRIBUTE_MALLOC HYDRANT_TOOLS_GNU
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_WARNUNUSEDRESULT
#define GASNETT_USE_GCC_ATTRIBUTE_WARNUNUSEDRESULT HYDRANT_TOOLS_GNU
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_USED
#define GASNETT_USE_GCC_ATTRIBUTE_USED HYDRANT_TOOLS_GNU
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_MAYALIAS
#define GASNETT_USE_GCC_ATTRIBUTE_MAYALIAS HYDRANT_TOOLS_GNU
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_NORETURN
#define GASNETT_USE_GCC_ATTRIBUTE_NORETURN HYDRANT_TOOLS_GNU
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_PURE
#define GASNETT_USE_GCC_ATTRIBUTE_PURE HYDRANT_TOOLS_GNU
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_CONST
#define GASNETT_USE_GCC_ATTRIBUTE_CONST HYDRANT_TOOLS_GNU
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_HOT
#define GASNETT_USE_GCC_ATTRIBUTE_HOT HYDRANT_TOOLS_GNU
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_COLD
#define GASNETT_USE_GCC_ATTRIBUTE_COLD HYDRANT_TOOLS_GNU
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_DEPRECATED
#define GASNETT_USE_GCC_ATTRIBUTE_DEPRECATED HYDRANT_TOOLS_GNU
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_FORMAT
#define GASNETT_USE_GCC_ATTRIBUTE_FORMAT HYDRANT_TOOLS_GNU
#endif
#ifndef GASNETT_USE_GCC_ATTRIBUTE_FORMAT_FUNCPTR
#define GASNETT_USE_GCC_ATTRIBUTE_FORMAT_FUNCPTR HYDRANT_TOOLS_GNU
#endif
#ifndef GASNETT_USE_BUILTIN_CONSTANT_P
#define GASNETT_USE_BUILTIN_CONSTANT_P HYDRANT_TOOLS_GNU
#endif
#ifndef GASNETT_USE_BUILTIN_EXPECT
#define GASNETT_USE_BUILTIN_EXPECT HYDRANT_TOOLS_GNU
#endif
#ifndef GASNETT_USE_BUILTIN_UNREACHABLE
#define GASNETT_USE_BUILTIN_UNREACHABLE HYDRANT_TOOLS_GNU
#endif
#ifndef GASNETT_USE_BUILTIN_ASSUME
#if defined(__clang__)
#define GASNETT_USE_BUILTIN_ASSUME 1
#else
#define GASNETT_USE_BUILTIN_ASSUME 0
#endif
#endif
#ifndef GASNETT_USE_CXX11_ATTRIBUTE_FALLTHROUGH
#if defined(__cplusplus) && __cplusplus >= 201703L
#define GASNETT_USE_CXX11_ATTRIBUTE_FALLTHROUGH 1
#else
#define GASNETT_USE_CXX11_ATTRIBUTE_FALLTHROUGH 0
#endif
#endif

/* GASNETT_INLINE(f) replaces `static inline` before the definition of f and forces inlining. */
#if GASNETT_USE_GCC_ATTRIBUTE_ALWAYSINLINE
#define GASNETT_INLINE(fnname) __attribute__((__always_inline__)) static inline
#else
#define GASNETT_INLINE(fnname) static inline
#endif
#if GASNETT_USE_GCC_ATTRIBUTE_NOINLINE
#define GASNETT_NEVER_INLINE(fnname, declarator) __attribute__((__noinline__)) declarator
#else
#define GASNETT_NEVER_INLINE(fnname, declarator) declarator
#endif

#if defined(GASNETT_USE_RESTRICT)
#define GASNETT_RESTRICT GASNETT_USE_RESTRICT
#elif defined(__GNUC__)
#define GASNETT_RESTRICT __restrict__
#elif !defined(__cplusplus)
#define GASNETT_RESTRICT restrict
#else
#define GASNETT_RESTRICT
#endif

#if GASNETT_USE_GCC_ATTRIBUTE_NORETURN
#define GASNETT_NORETURN __attribute__((__noreturn__))
#else
#define GASNETT_NORETURN
#endif
#define GASNETT_NORETURNP(fnname)
#if GASNETT_USE_GCC_ATTRIBUTE_MALLOC
#define GASNETT_MALLOC __attribute__((__malloc__))
#else
#define GASNETT_MALLOC
#endif
#define GASNETT_MALLOCP(fnname)
#if GASNETT_USE_GCC_ATTRIBUTE_PURE
#define GASNETT_PURE __attribute__((__pure__))
#else
#define GASNETT_PURE
#endif
#define GASNETT_PUREP(fnname)
#if GASNETT_USE_GCC_ATTRIBUTE_CONST
#define GASNETT_CONST __attribute__((__const__))
#else
#define GASNETT_CONST
#endif
#define GASNETT_CONSTP(fnname)
#if GASNETT_USE_GCC_ATTRIBUTE_HOT
#define GASNETT_HOT __attribute__((__hot__))
#else
#define GASNETT_HOT
#endif
#if GASNETT_USE_GCC_ATTRIBUTE_COLD
#define GASNETT_COLD __attribute__((__cold__))
#else
#define GASNETT_COLD
#endif
#if GASNETT_USE_GCC_ATTRIBUTE_DEPRECATED
#define GASNETT_DEPRECATED __attribute__((__deprecated__))
#else
#define GASNETT_DEPRECATED
#endif
#if GASNETT_USE_GCC_ATTRIBUTE_WARNUNUSEDRESULT
#define GASNETT_WARN_UNUSED_RESULT __attribute__((__warn_unused_result__))
#else
#define GASNETT_WARN_UNUSED_RESULT
#endif
#if GASNETT_USE_GCC_ATTRIBUTE_USED
#define GASNETT_USED __attribute__((__used__))
#else
#define GASNETT_USED
#endif
#if GASNETT_USE_GCC_ATTRIBUTE_MAYALIAS
#define HYDRANT_TOOLS_MAY_ALIAS __attribute__((__may_alias__))
#else
#define HYDRANT_TOOLS_MAY_ALIAS
#endif

/* Encloses the whole declaration of a function like printf; `fmtarg` and `firstvararg` count from 1. */
#if GASNETT_USE_GCC_ATTRIBUTE_FORMAT
#define GASNETT_FORMAT_PRINTF(fnname, fmtarg, firstvararg, declarator) \
  __attribute__((__format__(__printf__, fmtarg, firstvararg))) declarator
#else
#define GASNETT_FORMAT_PRINTF(fnname, fmtarg, firstvararg, declarator) declarator
#endif
#if GASNETT_USE_GCC_ATTRIBUTE_FORMAT_FUNCPTR
#define GASNETT_FORMAT_PRINTF_FUNCPTR(fnname, fmtarg, firstvararg, declarator) \
  __attribute__((__format__(__printf__, fmtarg, firstvararg))) declarator
#else
#define GASNETT_FORMAT_PRINTF_FUNCPTR(fnname, fmtarg, firstvararg, declarator) declarator
#endif

/* Follows the last statement of a case that falls through; no semicolon. */
#if GASNETT_USE_CXX11_ATTRIBUTE_FALLTHROUGH
#define GASNETT_FALLTHROUGH [[fallthrough]];
#elif defined(__GNUC__)
#define GASNETT_FALLTHROUGH __attribute__((__fallthrough__));
#else
#define GASNETT_FALLTHROUGH
#endif

/* Branch prediction: the value is that of expr, as 0 or 1. if_pf and if_pt replace `if`. */
#if GASNETT_USE_BUILTIN_EXPECT
#define GASNETT_PREDICT_TRUE(expr) __builtin_expect(!!(expr), 1)
#define GASNETT_PREDICT_FALSE(expr) __builtin_expect(!!(expr), 0)
#else
#define GASNETT_PREDICT_TRUE(expr) (!!(expr))
#define GASNETT_PREDICT_FALSE(expr) (!!(expr))
#endif
#ifndef if_pf
#define if_pf(cond) if (GASNETT_PREDICT_FALSE(cond))
#define if_pt(cond) if (GASNETT_PREDICT_TRUE(cond))
#endif

#if GASNETT_USE_BUILTIN_CONSTANT_P
#define gasnett_constant_p(expr) __builtin_constant_p(expr)
#else
#define gasnett_constant_p(expr) 0
#endif

/* Evaluate every argument once and discard the values. */
#define GASNETT_UNUSED_ARGS1(a1) ((void)(a1))
#define GASNETT_UNUSED_ARGS2(a1, a2) ((void)(a1), (void)(a2))
#define GASNETT_UNUSED_ARGS3(a1, a2, a3) ((void)(a1), (void)(a2), (void)(a3))
#define GASNETT_UNUSED_ARGS4(a1, a2, a3, a4) (GASNETT_UNUSED_ARGS3(a1, a2, a3), (void)(a4))
#define GASNETT_UNUSED_ARGS5(a1, a2, a3, a4, a5) (GASNETT_UNUSED_ARGS4(a1, a2, a3, a4), (void)(a5))
#define GASNETT_UNUSED_ARGS6(a1, a2, a3, a4, a5, a6) \
  (GASNETT_UNUSED_ARGS5(a1, a2, a3, a4, a5), (void)(a6))
#define GASNETT_UNUSED_ARGS7(a1, a2, a3, a4, a5, a6, a7) \
  (GASNETT_UNUSED_ARGS6(a1, a2, a3, a4, a5, a6), (void)(a7))
#define GASNETT_UNUSED_ARGS8(a1, a2, a3, a4, a5, a6, a7, a8) \
  (GASNETT_UNUSED_ARGS7(a1, a2, a3, a4, a5, a6, a7), (void)(a8))

/* GASNETT_IDENT(name, "text"); at global scope puts a text into the program, which the linker keeps
 * even with --gc-sections. `name` is any identifier unused in the file. */
#if defined(__has_attribute)
#if __has_attribute(__retain__)
#define HYDRANT_TOOLS_RETAIN __attribute__((__retain__))
#endif
#endif
#ifndef HYDRANT_TOOLS_RETAIN
#define HYDRANT_TOOLS_RETAIN
#endif
#define GASNETT_IDENT(identName, identText) \
  GASNETT_USED HYDRANT_TOOLS_RETAIN static const char identName[] = identText

#define GASNETT_CURRENT_FUNCTION __func__

/* The compiler that reads this header; no other compiler is known at configure time. */
#define GASNETT_PLATFORM_COMPILER_IDSTR PLATFORM_COMPILER_IDSTR
#define GASNETT_PLATFORM_COMPILER_FAMILYID PLATFORM_COMPILER_FAMILYID
#define GASNETT_PLATFORM_COMPILER_ID PLATFORM_COMPILER_ID
#define GASNETT_PLATFORM_COMPILER_VERSION PLATFORM_COMPILER_VERSION

#endif
