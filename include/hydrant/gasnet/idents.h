/* hydrant/gasnet/idents.h - identification strings "$Key: value $" that tools search for in a client's
 * binary. Every program with an object that includes gasnetex.h contains each string once. */
#ifndef HYDRANT_GASNET_IDENTS_H
#define HYDRANT_GASNET_IDENTS_H

#include <hydrant/gasnet/ident_text.h>
#include <hydrant/gasnet/modes.h>

HYDRANT_IDENT(mode, "$GASNetThreadModel: GASNET_" HYDRANT_THREAD_MODE_STR " $")
HYDRANT_IDENT(segment, "$GASNetSegment: GASNET_SEGMENT_" HYDRANT_SEGMENT_MODE_STR " $")
HYDRANT_IDENT(conduit, "$GASNetConduitName: " GASNET_CONDUIT_NAME_STR " $")
HYDRANT_IDENT(config, "$GASNetConfig: (libgasnet.a) " GASNET_CONFIG_STRING " $")
HYDRANT_IDENT(ex_version, "$GASNetEXAPIVersion: 0.19 $")
HYDRANT_IDENT(version, "$GASNetAPIVersion: 1.8 $")
HYDRANT_IDENT(core_name, "$GASNetCoreLibraryName: " GASNET_CORE_NAME_STR " $")
HYDRANT_IDENT(core_version, "$GASNetCoreLibraryVersion: " GASNET_CORE_VERSION_STR " $")
HYDRANT_IDENT(extended_name, "$GASNetExtendedLibraryName: " GASNET_EXTENDED_NAME_STR " $")
HYDRANT_IDENT(pshm, "$GASNetPSHM: HYDRANT $")
HYDRANT_IDENT(max_segsize, "$GASNetDefaultMaxSegsizeStr: 0.85/H $")
HYDRANT_IDENT(extended_version, "$GASNetExtendedLibraryVersion: " GASNET_EXTENDED_VERSION_STR " $")

#endif
