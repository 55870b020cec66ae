/* hydrant/gasnet/later.h - names that a later version has: a call of one is a compile-time error that
 * says so; nothing is defined.
 */
#ifndef HYDRANT_GASNET_LATER_H
#define HYDRANT_GASNET_LATER_H

#if defined(__cplusplus)
#define HYDRANT_LATER(name, text) extern "C" long name(...) __attribute__((__error__(text)));
#else
#define HYDRANT_LATER(name, text) extern long name() __attribute__((__error__(text)));
#endif

#endif
