// Static probes for bpftrace, perf and gdb; a probe is one nop while no tracer is attached. Provider
// `hydrant`; docs/put_get.md lists names and arguments. Empty if <sys/sdt.h> (Debian: systemtap-sdt-dev) was
// missing at build time.
#pragma once

#if __has_include(<sys/sdt.h>)
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>
// The macros of <sys/sdt.h> contain casts that trigger these warnings. Clang lacks the first.
#ifdef __clang__
#define HYDRANT_PROBE_CASTS
#else
#define HYDRANT_PROBE_CASTS _Pragma("GCC diagnostic ignored \"-Wuseless-cast\"")
#endif
#define HYDRANT_PROBE(name, ...)                                                          \
  do {                                                                                    \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wold-style-cast\"") \
        _Pragma("GCC diagnostic ignored \"-Wsign-conversion\"")                           \
            HYDRANT_PROBE_CASTS STAP_PROBEV(hydrant, name, __VA_ARGS__);                  \
    _Pragma("GCC diagnostic pop")                                                         \
  } while (0)
#else
#define HYDRANT_PROBE(name, ...) ((void)0)
#endif
