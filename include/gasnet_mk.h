/* gasnet_mk.h - kinds of memory: the host's (GEX_MK_HOST, in gasnetex.h) is the only one. Kinds for
 * accelerators are not in this version, so no GASNET_HAVE_MK_CLASS_* is defined.
 */
#ifndef _INCLUDED_GASNET_MK_H
#define _INCLUDED_GASNET_MK_H

#include <gasnetex.h>

typedef enum { GEX_MK_CLASS_HOST = 0 } gex_MK_Class_t;

HYDRANT_LATER(gex_MK_Create, "memory kinds are not in this version of Hydrant")

#endif
