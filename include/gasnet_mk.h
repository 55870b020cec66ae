/* gasnet_mk.h - memory kinds: the kinds of memory that segments can be of. The only kind is host memory
 * (GEX_MK_HOST, in gasnetex.h).
 *
 * The classes of device memory have names, so that programs compile, but no support: this header does
 * not define GASNET_HAVE_MK_CLASS_CUDA_UVA, _HIP, _ZE or _MULTIPLE, and gex_MK_Create() refuses them. A
 * program then keeps its data in host memory.
 * Threads: any. Not legal in handlers.
 * Source: GASNet-EX memory kinds 2020.11.0, as in GASNet 2025.8.0 built without devices.
 */
#ifndef _INCLUDED_GASNET_MK_H
#define _INCLUDED_GASNET_MK_H

#include <gasnetex.h>

HYDRANT_GASNET_BEGIN

typedef enum {
  GEX_MK_CLASS_HOST = 0,     /* GEX_MK_HOST is of it; cannot be created */
  GEX_MK_CLASS_CUDA_UVA = 1, /* memory of a CUDA device */
  GEX_MK_CLASS_HIP = 2,      /* memory of a HIP device */
  GEX_MK_CLASS_ZE = 3        /* memory of a Level Zero device */
} gex_MK_Class_t;

/* Fill it with zeros first. The member of gex_args is that of gex_class. */
typedef struct {
  uint64_t gex_flags; /* 0 */
  gex_MK_Class_t gex_class;
  union {
    struct {
      int gex_CUdevice; /* a CUdevice */
    } gex_class_cuda_uva;
    struct {
      int gex_hipDevice; /* a hipDevice_t */
    } gex_class_hip;
    struct {
      void* gex_zeDevice;  /* a ze_device_handle_t */
      void* gex_zeContext; /* a ze_context_handle_t */
      uint32_t gex_zeMemoryOrdinal;
    } gex_class_ze;
  } gex_args;
} gex_MK_Create_args_t;

/* Makes a kind of the class and device of `args`; flags 0. Not collective. *memkind_p is unchanged on errors,
 * and there is always one:
 * GASNET_ERR_BAD_ARG: a class of devices, none of which is supported; GEX_MK_CLASS_HOST, another class, no
 * client, null, flags. (GASNet ends the process for all but the first.) */
int gex_MK_Create(gex_MK_t* memkind_p, gex_Client_t client, const gex_MK_Create_args_t* args,
                  gex_Flags_t flags);
/* Ends the process with a text, as GASNet does for GEX_MK_HOST and GEX_MK_INVALID: there are no others. */
void gex_MK_Destroy(gex_MK_t memkind, gex_Flags_t flags);

/* GEX_MK_CLASS_HOST for GEX_MK_HOST. Other arguments, and those below, end the process with a text: they
 * query kinds that gex_MK_Create() has made. */
gex_MK_Class_t gex_MK_QueryClass(gex_MK_t memkind);
gex_Flags_t gex_MK_QueryFlags(gex_MK_t memkind);
gex_Client_t gex_MK_QueryClient(gex_MK_t memkind);
void* gex_MK_QueryCData(gex_MK_t memkind);
void gex_MK_SetCData(gex_MK_t memkind, const void* value);

HYDRANT_GASNET_END
#endif
