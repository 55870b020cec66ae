/* hydrant/gasnet/platform.h - PLATFORM_*: macros for the compiler, system and processor, for use in #if.
 *
 * Names and meanings are those of GASNet's portable platform header. The macro of a compiler, system or
 * processor is 1 if it applies and undefined otherwise, so `#if PLATFORM_OS_LINUX` always works. Only
 * platforms that can compile Hydrant are distinguished; others are UNKNOWN. If the original header was
 * included first, its definitions are used; included later, it replaces these definitions.
 */
#ifndef HYDRANT_GASNET_PLATFORM_H
#define HYDRANT_GASNET_PLATFORM_H

#ifndef PLATFORM_HEADER_VERSION

#ifndef PLATFORM_STRINGIFY
#define PLATFORM_STRINGIFY_HELPER(x) #x
#define PLATFORM_STRINGIFY(x) PLATFORM_STRINGIFY_HELPER(x)
#endif

/* Compiler: FAMILYNAME is an unquoted word, FAMILYID and VERSION are integers, *_STR are literals. */
#define PLATFORM_COMPILER_VERSION_INT(maj, min, pat) (((maj) << 16) | ((min) << 8) | (pat))
#if defined(__clang__)
#define PLATFORM_COMPILER_CLANG 1
#define PLATFORM_COMPILER_FAMILYNAME CLANG
#define PLATFORM_COMPILER_FAMILYID 19
#ifdef __cplusplus
#define PLATFORM_COMPILER_CLANG_CXX 1
#else
#define PLATFORM_COMPILER_CLANG_C 1
#endif
#define PLATFORM_COMPILER_VERSION \
  PLATFORM_COMPILER_VERSION_INT(__clang_major__, __clang_minor__, __clang_patchlevel__)
#define PLATFORM_COMPILER_VERSION_STR __clang_version__
#elif defined(__GNUC__)
#define PLATFORM_COMPILER_GNU 1
#define PLATFORM_COMPILER_FAMILYNAME GNU
#define PLATFORM_COMPILER_FAMILYID 1
#ifdef __cplusplus
#define PLATFORM_COMPILER_GNU_CXX 1
#else
#define PLATFORM_COMPILER_GNU_C 1
#endif
#define PLATFORM_COMPILER_VERSION \
  PLATFORM_COMPILER_VERSION_INT(__GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__)
#define PLATFORM_COMPILER_VERSION_STR \
  PLATFORM_STRINGIFY(__GNUC__)        \
  "." PLATFORM_STRINGIFY(__GNUC_MINOR__) "." PLATFORM_STRINGIFY(__GNUC_PATCHLEVEL__)
#else
#define PLATFORM_COMPILER_UNKNOWN 1
#define PLATFORM_COMPILER_FAMILYNAME UNKNOWN
#define PLATFORM_COMPILER_FAMILYID 0
#define PLATFORM_COMPILER_VERSION 0
#define PLATFORM_COMPILER_VERSION_STR "0"
#endif

#define PLATFORM_COMPILER_VERSION_GT(maj, min, pat) \
  PLATFORM_COMPILER_VERSION > PLATFORM_COMPILER_VERSION_INT(maj, min, pat)
#define PLATFORM_COMPILER_VERSION_GE(maj, min, pat) \
  PLATFORM_COMPILER_VERSION >= PLATFORM_COMPILER_VERSION_INT(maj, min, pat)
#define PLATFORM_COMPILER_VERSION_EQ(maj, min, pat) \
  PLATFORM_COMPILER_VERSION == PLATFORM_COMPILER_VERSION_INT(maj, min, pat)
#define PLATFORM_COMPILER_VERSION_LE(maj, min, pat) \
  PLATFORM_COMPILER_VERSION <= PLATFORM_COMPILER_VERSION_INT(maj, min, pat)
#define PLATFORM_COMPILER_VERSION_LT(maj, min, pat) \
  PLATFORM_COMPILER_VERSION < PLATFORM_COMPILER_VERSION_INT(maj, min, pat)

/* Unlike FAMILYID, distinguishes the C++ compiler of a family from its C compiler. LANGLVL is the
 * standard's date. */
#ifdef __cplusplus
#define PLATFORM_COMPILER_ID (10000 + PLATFORM_COMPILER_FAMILYID)
#define PLATFORM_COMPILER_CXX_LANGLVL __cplusplus
#define HYDRANT_PLATFORM_LANGUAGE "__cplusplus=" PLATFORM_STRINGIFY(__cplusplus)
#else
#define PLATFORM_COMPILER_ID PLATFORM_COMPILER_FAMILYID
#if defined(__STDC_VERSION__)
#define PLATFORM_COMPILER_C_LANGLVL __STDC_VERSION__
#define HYDRANT_PLATFORM_LANGUAGE "__STDC_VERSION__=" PLATFORM_STRINGIFY(__STDC_VERSION__)
#else
#define PLATFORM_COMPILER_C_LANGLVL 199000L
#define HYDRANT_PLATFORM_LANGUAGE "__STDC__"
#endif
#endif
#define PLATFORM_COMPILER_IDSTR \
  "|COMPILER_FAMILY:" PLATFORM_STRINGIFY(                                                         \
      PLATFORM_COMPILER_FAMILYNAME) "|COMPILER_VERSION:" PLATFORM_COMPILER_VERSION_STR            \
                                    "|COMPILER_FAMILYID:" PLATFORM_STRINGIFY(                     \
                                        PLATFORM_COMPILER_FAMILYID) "|STD"                        \
                                                                    ":" HYDRANT_PLATFORM_LANGUAGE \
                                                                    "|misc:" __VERSION__ "|"

/* System. */
#if defined(__linux__)
#define PLATFORM_OS_LINUX 1
#define PLATFORM_OS_FAMILYNAME LINUX
#else
#define PLATFORM_OS_UNKNOWN 1
#define PLATFORM_OS_FAMILYNAME UNKNOWN
#endif

/* Processor: one family, exactly one of 32 and 64 (pointers), one byte order. */
#if defined(__x86_64__)
#define PLATFORM_ARCH_X86_64 1
#define PLATFORM_ARCH_FAMILYNAME X86_64
#elif defined(__i386__)
#define PLATFORM_ARCH_X86 1
#define PLATFORM_ARCH_FAMILYNAME X86
#elif defined(__aarch64__)
#define PLATFORM_ARCH_AARCH64 1
#define PLATFORM_ARCH_FAMILYNAME AARCH64
#elif defined(__arm__)
#define PLATFORM_ARCH_ARM 1
#define PLATFORM_ARCH_FAMILYNAME ARM
#elif defined(__powerpc__) || defined(__powerpc64__)
#define PLATFORM_ARCH_POWERPC 1
#define PLATFORM_ARCH_FAMILYNAME POWERPC
#elif defined(__riscv)
#define PLATFORM_ARCH_RISCV 1
#define PLATFORM_ARCH_FAMILYNAME RISCV
#elif defined(__s390__)
#define PLATFORM_ARCH_S390 1
#define PLATFORM_ARCH_FAMILYNAME S390
#else
#define PLATFORM_ARCH_UNKNOWN 1
#define PLATFORM_ARCH_FAMILYNAME UNKNOWN
#endif
#if __SIZEOF_POINTER__ == 8
#define PLATFORM_ARCH_64 1
#else
#define PLATFORM_ARCH_32 1
#endif
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define PLATFORM_ARCH_BIG_ENDIAN 1
#else
#define PLATFORM_ARCH_LITTLE_ENDIAN 1
#endif

#endif /* PLATFORM_HEADER_VERSION */

#endif
