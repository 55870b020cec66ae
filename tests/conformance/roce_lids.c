/* A preloaded library for programs that address their peers by InfiniBand LIDs alone, as GASNet's conduit
 * does, so that they can use RoCE ports, which have no LIDs. The LID of a port is the last 16 bits of its
 * IPv4 address; a LID stands for the GID that ends with it. All ports have to be in one network of 16
 * bits. */
#define _GNU_SOURCE
#include <infiniband/verbs.h>

#include <dlfcn.h>
#include <stdlib.h>

#define IPV4_GID 1
#define HOPS 64

typedef int query_port_function(struct ibv_context*, uint8_t, struct ibv_port_attr*, size_t);
static query_port_function* query_port_of_the_device;

static void* next(const char* name) {
  void* const function = dlvsym(RTLD_NEXT, name, "IBVERBS_1.1");
  if (function == NULL) abort();
  return function;
}

static int query_port(struct ibv_context* context, uint8_t port, struct ibv_port_attr* attributes,
                      size_t size) {
  union ibv_gid gid;
  int status = query_port_of_the_device(context, port, attributes, size);
  if (status == 0 && attributes->lid == 0 && ibv_query_gid(context, port, IPV4_GID, &gid) == 0)
    attributes->lid = (uint16_t)(gid.raw[14] << 8 | gid.raw[15]);
  return status;
}

struct ibv_context* ibv_open_device(struct ibv_device* device) {
  struct ibv_context* (*const open_device)(struct ibv_device*) = next("ibv_open_device");
  struct ibv_context* const context = open_device(device);
  struct verbs_context* const verbs =
      context == NULL ? NULL : verbs_get_ctx_op(context, query_port);
  if (verbs != NULL && verbs->query_port != query_port) {
    query_port_of_the_device = verbs->query_port;
    verbs->query_port = query_port;
  }
  return context;
}

static struct ibv_ah_attr by_gid(struct ibv_context* context, struct ibv_ah_attr address) {
  union ibv_gid gid;
  if (address.is_global || ibv_query_gid(context, address.port_num, IPV4_GID, &gid) != 0)
    return address;
  gid.raw[14] = (uint8_t)(address.dlid >> 8);
  gid.raw[15] = (uint8_t)address.dlid;
  address.is_global = 1;
  address.grh = (struct ibv_global_route){.dgid = gid, .sgid_index = IPV4_GID, .hop_limit = HOPS};
  return address;
}

int ibv_modify_qp(struct ibv_qp* queue_pair, struct ibv_qp_attr* attributes, int mask) {
  int (*const modify)(struct ibv_qp*, struct ibv_qp_attr*, int) = next("ibv_modify_qp");
  struct ibv_qp_attr changed = *attributes;
  if (mask & IBV_QP_AV) changed.ah_attr = by_gid(queue_pair->context, attributes->ah_attr);
  return modify(queue_pair, &changed, mask);
}

struct ibv_ah* ibv_create_ah(struct ibv_pd* domain, struct ibv_ah_attr* attributes) {
  struct ibv_ah* (*const create)(struct ibv_pd*, struct ibv_ah_attr*) = next("ibv_create_ah");
  struct ibv_ah_attr changed = by_gid(domain->context, *attributes);
  return create(domain, &changed);
}
