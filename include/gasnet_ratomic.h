/* gasnet_ratomic.h - remote atomics: not in this version. */
#ifndef _INCLUDED_GASNET_RATOMIC_H
#define _INCLUDED_GASNET_RATOMIC_H

#include <gasnetex.h>

HYDRANT_LATER(gex_AD_Create, "remote atomics are not in this version of Hydrant")
HYDRANT_LATER(gex_AD_Destroy, "remote atomics are not in this version of Hydrant")

#endif
