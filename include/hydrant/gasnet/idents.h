/* hydrant/gasnet/idents.h - what programs that look at a client's binary search for: "$Key: value $".
 * Every object that includes gasnetex.h carries them.
 */
#ifndef HYDRANT_GASNET_IDENTS_H
#define HYDRANT_GASNET_IDENTS_H

#include <hydrant/gasnet/modes.h>

#define HYDRANT_IDENT(name, text) \
  static const char hydrant_ident_##name[] __attribute__((__used__)) = text;

HYDRANT_IDENT(mode, "$GASNetThreadModel: GASNET_" HYDRANT_THREAD_MODE_STR " $")
HYDRANT_IDENT(segment, "$GASNetSegment: GASNET_SEGMENT_" HYDRANT_SEGMENT_MODE_STR " $")
HYDRANT_IDENT(conduit, "$GASNetConduitName: " GASNET_CONDUIT_NAME_STR " $")
HYDRANT_IDENT(config, "$GASNetConfig: (libgasnet.a) " GASNET_CONFIG_STRING " $")
HYDRANT_IDENT(ex_version, "$GASNetEXAPIVersion: 0.19 $")
HYDRANT_IDENT(version, "$GASNetAPIVersion: 1.8 $")
HYDRANT_IDENT(core_name, "$GASNetCoreLibraryName: " GASNET_CORE_NAME_STR " $")
HYDRANT_IDENT(core_version, "$GASNetCoreLibraryVersion: " GASNET_CORE_VERSION_STR " $")
HYDRANT_IDENT(extended_name, "$GASNetExtendedLibraryName: " GASNET_EXTENDED_NAME_STR " $")
HYDRANT_IDENT(extended_version, "$GASNetExtendedLibraryVersion: " GASNET_EXTENDED_VERSION_STR " $")

#endif
