/* gasnet_coll.h - collectives. The barriers are in gasnetex.h; the others are not in this version.
 */
#ifndef _INCLUDED_GASNET_COLL_H
#define _INCLUDED_GASNET_COLL_H

#include <gasnetex.h>

HYDRANT_LATER(gex_Coll_BroadcastNB, "collectives are not in this version of Hydrant")
HYDRANT_LATER(gex_Coll_ReduceToOneNB, "collectives are not in this version of Hydrant")
HYDRANT_LATER(gex_Coll_ReduceToAllNB, "collectives are not in this version of Hydrant")

#endif
