/* hydrant/gasnet/later.h - names of a later version. A call of such a name is a compile-time error with
 * a text; no function is defined.
 */
#ifndef HYDRANT_GASNET_LATER_H
#define HYDRANT_GASNET_LATER_H

#if defined(__cplusplus)
#define HYDRANT_LATER(name, text) extern "C" long name(...) __attribute__((__error__(text)));
#else
/* No prototype, so that a call with any arguments gives this error. */
#define HYDRANT_LATER(name, text)                                           \
  _Pragma("GCC diagnostic push")                                            \
      _Pragma("GCC diagnostic ignored \"-Wstrict-prototypes\"") extern long \
      name() __attribute__((__error__(text)));                              \
  _Pragma("GCC diagnostic pop")
#endif

#endif
