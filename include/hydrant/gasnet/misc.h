/* hydrant/gasnet/misc.h - properties of the machine, small data helpers, standard streams, limits.
 *
 * Threads  any. Cost: properties of the machine are read once and cached.
 * Source   GASNet tools specification 1.20, "System properties", "Miscellaneous tools".
 */
#ifndef HYDRANT_GASNET_MISC_H
#define HYDRANT_GASNET_MISC_H

#include <hydrant/gasnet/annotations.h>

#include <gasnet_config.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GASNETT_PAGESIZE GASNET_PAGESIZE
#define GASNETT_PAGESHIFT HYDRANT_PAGESHIFT
#define GASNETT_CACHE_LINE_BYTES HYDRANT_CACHE_LINE_BYTES
#define GASNETT_SYSTEM_TUPLE HYDRANT_SYSTEM_TUPLE
#define GASNETT_CONFIGURE_ARGS ""
#define GASNETT_SET_AFFINITY_SUPPORT 1
#ifndef GASNETT_MAX_THREADS
#if HYDRANT_TOOLS_THREADS
#define GASNETT_MAX_THREADS HYDRANT_MAX_THREADS
#else
#define GASNETT_MAX_THREADS 1
#endif
#endif

#ifndef MIN
#define MIN(x, y) ((x) < (y) ? (x) : (y))
#endif
#ifndef MAX
#define MAX(x, y) ((x) > (y) ? (x) : (y))
#endif

HYDRANT_TOOLS_BEGIN

/* Online processors, counting each hardware thread; 0 if unknown. */
int hydrant_tools_cpu_count(void);
/* Bytes of physical memory; if unknown, 0 or (with `failure_is_fatal`) a fatal error. */
uint64_t hydrant_tools_getPhysMemSz(int failure_is_fatal);
/* The result of gethostname(). */
const char* hydrant_tools_gethostname(void);
/* Absolute path of the running program; "" if unknown. */
const char* hydrant_tools_exe_name(void);
/* Binds the calling thread to processor `rank` modulo the number of online processors. Returns 0 on
 * success. */
int hydrant_tools_set_affinity(int rank);
/* Raises a soft limit (RLIMIT_*) to the hard limit; returns nonzero if it is there now. If
 * GASNET_MAXIMIZE_<desc> is false, leaves the limit alone and succeeds. */
int hydrant_tools_maximize_rlimit(int res, const char* lim_desc);
/* The same for processor time, data, stack, resident and address space; nonzero if all succeeded. */
int hydrant_tools_maximize_rlimits(void);
/* Zeroed, private, page-aligned memory from the kernel, or MAP_FAILED; release it with munmap(). */
void* hydrant_tools_mmap(uintptr_t size);

/* Best effort: errors are ignored. After closing, the standard streams refer to /dev/null. */
void hydrant_tools_flush_streams(void);
void hydrant_tools_close_streams(void);

/* A 64-bit checksum against accidental changes, not cryptographic. The same on all machines with the
 * same byte order. */
uint64_t hydrant_tools_checksum(const void* p, int numbytes);
/* Count the bytes that are 0; the second function also copies them (no overlap). About 8 bytes at a
 * time. */
size_t hydrant_tools_count0s(const void* p, size_t numbytes);
size_t hydrant_tools_count0s_copy(void* GASNETT_RESTRICT dst, const void* GASNETT_RESTRICT src,
                                  size_t numbytes);

/* Lines that list why this build is slow; "" if it is not. */
const char* hydrant_tools_performance_warning_str(void);
/* The release whose interfaces the library follows: "2025.8.0", and major * 10^6 + minor * 10^4 + patch. */
const char* hydrant_tools_release_version_str(void);
uint64_t hydrant_tools_release_version(void);

/* Sets the top bit of each zero byte and clears all other bits; carries never cross a byte. */
GASNETT_INLINE(hydrant_tools_zero_bytes)
uint64_t hydrant_tools_zero_bytes(uint64_t x) {
  const uint64_t low7 = UINT64_C(0x7f7f7f7f7f7f7f7f);
  return ~(((x & low7) + low7) | x | low7);
}
GASNETT_INLINE(hydrant_tools_count0s_uint64)
int hydrant_tools_count0s_uint64(uint64_t x) {
  /* The shift leaves one bit per zero byte, in the lowest bit of the byte; the multiplication sums them in
   * the highest byte. */
  return HYDRANT_TOOLS_CAST(
      int, ((hydrant_tools_zero_bytes(x) >> 7) * UINT64_C(0x0101010101010101)) >> 56);
}
GASNETT_INLINE(hydrant_tools_count0s_uint32)
int hydrant_tools_count0s_uint32(uint32_t x) {
  return hydrant_tools_count0s_uint64(x) - 4; /* the upper four bytes are zero */
}

HYDRANT_TOOLS_END

#define gasnett_cpu_count hydrant_tools_cpu_count
#define gasnett_getPhysMemSz hydrant_tools_getPhysMemSz
#define gasnett_gethostname hydrant_tools_gethostname
#define gasnett_exe_name hydrant_tools_exe_name
#define gasnett_set_affinity hydrant_tools_set_affinity
#define gasnett_maximize_rlimit hydrant_tools_maximize_rlimit
#define gasnett_maximize_rlimits hydrant_tools_maximize_rlimits
#define gasnett_mmap(sz) hydrant_tools_mmap(sz)
#define gasnett_flush_streams hydrant_tools_flush_streams
#define gasnett_close_streams hydrant_tools_close_streams
#define gasnett_checksum hydrant_tools_checksum
#define gasnett_count0s hydrant_tools_count0s
#define gasnett_count0s_copy hydrant_tools_count0s_copy
#define gasnett_count0s_uint32_t hydrant_tools_count0s_uint32
#define gasnett_count0s_uint64_t hydrant_tools_count0s_uint64
#if defined(__LP64__)
#define gasnett_count0s_uintptr_t hydrant_tools_count0s_uint64
#else
#define gasnett_count0s_uintptr_t hydrant_tools_count0s_uint32
#endif
#define gasnett_performance_warning_str hydrant_tools_performance_warning_str
#define gasnett_release_version_str hydrant_tools_release_version_str
#define gasnett_release_version hydrant_tools_release_version

#define gasnett_sched_yield() ((void)sched_yield())
#define gasnett_isLittleEndian() (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)

/* Copies of a small constant size, where compilers do better than a function. The value forms move the
 * `nbytes` (1 to 8) low-order bytes of an integer. VALUE_RETURN returns from the enclosing function. */
#define GASNETT_FAST_ALIGNED_MEMCPY(dest, src, nbytes) ((void)memcpy(dest, src, nbytes))
#define GASNETT_FAST_UNALIGNED_MEMCPY(dest, src, nbytes) ((void)memcpy(dest, src, nbytes))
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define HYDRANT_TOOLS_UNUSED_BITS(nbytes) 0
#else
#define HYDRANT_TOOLS_UNUSED_BITS(nbytes) (64 - 8 * (nbytes))
#endif
#define GASNETT_VALUE_ASSIGN(dest, value, nbytes)                        \
  do {                                                                   \
    const uint64_t hydrant_value = HYDRANT_TOOLS_CAST(uint64_t, value)   \
                                   << HYDRANT_TOOLS_UNUSED_BITS(nbytes); \
    (void)memcpy(dest, &hydrant_value, nbytes);                          \
  } while (0)
#define GASNETT_VALUE_RETURN(src, nbytes)                      \
  do {                                                         \
    uint64_t hydrant_value = 0;                                \
    (void)memcpy(&hydrant_value, src, nbytes);                 \
    return hydrant_value >> HYDRANT_TOOLS_UNUSED_BITS(nbytes); \
  } while (0)

#endif
