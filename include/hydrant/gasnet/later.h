/* hydrant/gasnet/later.h - names that a later version has: a call of one is a compile-time error that
 * says so; nothing is defined.
 */
#ifndef HYDRANT_GASNET_LATER_H
#define HYDRANT_GASNET_LATER_H

#if defined(__cplusplus)
#define HYDRANT_LATER(name, text) extern "C" long name(...) __attribute__((__error__(text)));
#else
/* Without a prototype: whatever it is called with, this is the error. */
#define HYDRANT_LATER(name, text)                                           \
  _Pragma("GCC diagnostic push")                                            \
      _Pragma("GCC diagnostic ignored \"-Wstrict-prototypes\"") extern long \
      name() __attribute__((__error__(text)));                              \
  _Pragma("GCC diagnostic pop")
#endif

#endif
