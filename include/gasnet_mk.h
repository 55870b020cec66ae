/* gasnet_mk.h - memory kinds. The only kind is host memory (GEX_MK_HOST, in gasnetex.h). This version
 * has no kinds for accelerators, so it defines no GASNET_HAVE_MK_CLASS_*. */
#ifndef _INCLUDED_GASNET_MK_H
#define _INCLUDED_GASNET_MK_H

#include <gasnetex.h>

typedef enum { GEX_MK_CLASS_HOST = 0 } gex_MK_Class_t;

HYDRANT_LATER(gex_MK_Create, "memory kinds are not in this version of Hydrant")

#endif
