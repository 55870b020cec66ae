/* gasnet_vis.h - vector, indexed and strided put and get (VIS): not in this version. */
#ifndef _INCLUDED_GASNET_VIS_H
#define _INCLUDED_GASNET_VIS_H

#include <gasnetex.h>

#define HYDRANT_LATER_VIS(name)                                                    \
  HYDRANT_LATER(gex_VIS_##name##Blocking, "VIS is not in this version of Hydrant") \
  HYDRANT_LATER(gex_VIS_##name##NB, "VIS is not in this version of Hydrant")       \
  HYDRANT_LATER(gex_VIS_##name##NBI, "VIS is not in this version of Hydrant")
HYDRANT_LATER_VIS(VectorPut)
HYDRANT_LATER_VIS(VectorGet)
HYDRANT_LATER_VIS(IndexedPut)
HYDRANT_LATER_VIS(IndexedGet)
HYDRANT_LATER_VIS(StridedPut)
HYDRANT_LATER_VIS(StridedGet)

#endif
