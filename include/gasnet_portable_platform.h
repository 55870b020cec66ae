/* gasnet_portable_platform.h - defines PLATFORM_*, under the file name that clients include. */
#ifndef HYDRANT_GASNET_PORTABLE_PLATFORM_H
#define HYDRANT_GASNET_PORTABLE_PLATFORM_H

#include <hydrant/gasnet/platform.h>

#endif
