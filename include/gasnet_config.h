/* gasnet_config.h - the results of GASNet's configure step, fixed for this implementation.
 *
 * Versions of the API, sizes of the machine as preprocessor integers, and the pieces of
 * GASNET_CONFIG_STRING (gasnetex.h) and GASNETT_CONFIG_STRING (gasnet_tools.h). Usable from C99 and
 * C++, in #if, in any order with other headers; includes nothing. */
#ifndef GASNET_CONFIG_H
#define GASNET_CONFIG_H

/* The GASNet release whose interfaces these headers follow, and the versions of its three
 * specifications. */
#define GASNET_RELEASE_VERSION_MAJOR 2025
#define GASNET_RELEASE_VERSION_MINOR 8
#define GASNET_RELEASE_VERSION_PATCH 0

#define GEX_SPEC_VERSION_MAJOR 0
#define GEX_SPEC_VERSION_MINOR 19
#define GASNET_SPEC_VERSION_MAJOR 1
#define GASNET_SPEC_VERSION_MINOR 8
#define GASNETT_SPEC_VERSION_MAJOR 1
#define GASNETT_SPEC_VERSION_MINOR 20

/* Page size in bytes; the largest common one where the kernel supports several. */
#if defined(__x86_64__) || defined(__i386__)
#define GASNET_PAGESIZE 4096
#define HYDRANT_PAGESHIFT 12
#else
#define GASNET_PAGESIZE 65536
#define HYDRANT_PAGESHIFT 16
#endif

/* Cache line size in bytes. */
#if defined(__powerpc64__) || (defined(__aarch64__) && defined(__APPLE__))
#define HYDRANT_CACHE_LINE_BYTES 128
#else
#define HYDRANT_CACHE_LINE_BYTES 64
#endif

/* Maximum number of client threads per process that may call the library at the same time, in threaded
 * modes. */
#define HYDRANT_MAX_THREADS 256

#if defined(__x86_64__)
#define HYDRANT_SYSTEM_TUPLE "x86_64-unknown-linux-gnu"
#elif defined(__aarch64__)
#define HYDRANT_SYSTEM_TUPLE "aarch64-unknown-linux-gnu"
#elif defined(__powerpc64__)
#define HYDRANT_SYSTEM_TUPLE "powerpc64le-unknown-linux-gnu"
#elif defined(__riscv)
#define HYDRANT_SYSTEM_TUPLE "riscv64-unknown-linux-gnu"
#else
#define HYDRANT_SYSTEM_TUPLE "unknown-unknown-linux-gnu"
#endif

/* Type sizes and the printf formats for size_t, under the names that client sources use. */
#ifndef SIZEOF_INT
#define SIZEOF_INT 4
#define SIZEOF_LONG 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_VOID_P 8
#endif
#ifndef PRIuSZ
#define PRIuSZ "zu"
#define PRIdSZ "zd"
#define PRIxSZ "zx"
#endif

/* Threads are always available. Client sources test these names. */
#ifndef HAVE_PTHREAD_H
#define HAVE_PTHREAD_H 1
#endif
#ifndef HAVE_MMAP
#define HAVE_MMAP 1
#endif

/* CompletionCounter of the configuration strings: identifiers, which users of these macros stringify. */
#define HYDRANT_CONFIG_RELEASE 2025.8.0
#if defined(__LP64__)
#define HYDRANT_CONFIG_PTR 64bit
#else
#define HYDRANT_CONFIG_PTR 32bit
#endif
#define HYDRANT_CONFIG_TIMERS timers_native
#define HYDRANT_CONFIG_MEMBARS membars_native
#define HYDRANT_CONFIG_ATOMICS atomics_native
#define HYDRANT_CONFIG_ATOMIC32 atomic32_native
#define HYDRANT_CONFIG_ATOMIC64 atomic64_native

#endif
