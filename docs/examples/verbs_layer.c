/* A network layer over verbs with libfirehose_ibv: its own queue pairs and messages, local and remote
 * firehoses. Two processes; the first writes into the memory of the second. A put whose memory is pinned at
 * both ends is one RDMA write and no message; else the data travels in messages. C99.
 *
 *     verbs_layer [DEVICE]      exit status 77 without a verbs device, 2 for usage
 *
 * Read put_data(), then send_message() and receive(): these three are where a layer meets the cache. */
#define _GNU_SOURCE
#include <hydrant/ibv_registrar.h>
#include <hydrant/remote_pin.h>

#include <infiniband/verbs.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB ((size_t)1024)
#define MEMORY (16384 * KIB)  /* of the target, which the initiator writes to */
#define MAX_MESSAGE (4 * KIB) /* longest message, its header included */
#define SENDS 32u             /* message buffers on their way, at most */
#define RECEIVES 64u          /* message buffers to receive into */
#define PUTS 16u              /* puts under way, at most */
#define BUFFER_BYTES ((SENDS + RECEIVES) * MAX_MESSAGE)

/* The first bytes of each message. Messages of remote firehoses have their lane as kind. */
#define DATA 2u
struct header {
  uint32_t kind, len; /* len: bytes that follow */
  uint64_t offset;    /* of data, in the target's memory */
};

#define MAX_BODY (MAX_MESSAGE - sizeof(struct header))
struct put {
  struct layer* layer; /* null: not in use */
  int copies;          /* nonzero: the data travels in messages */
  const char* from;
  uint64_t offset; /* in the target's memory */
  size_t len, copied;
  hydrant_pin_t local, target;
};

struct layer {
  uint32_t rank;
  int error; /* errno, if the devices cannot be listed */
  struct ibv_context* device;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  char* buffers; /* of messages: SENDS, then RECEIVES */
  struct ibv_mr* buffers_mr;
  uint32_t free_sends[SENDS], free_count;
  hydrant_domain_t domain;
  hydrant_remote_t remote;
  char* memory; /* the target's own */
  pid_t peer;
  uint64_t peer_memory; /* address of the target's */
  struct put puts[PUTS];
  long messages, writes, copied_bytes;
};

static void fail(const char* what) { exit((fprintf(stderr, "verbs_layer: %s\n", what), 1)); }

/* ---- verbs: one reliable connection, as any layer has ------------------------------------------------- */

struct address {
  uint32_t qp_num;
  uint16_t lid;
  union ibv_gid gid;
  uint64_t memory;
};

static void post_receive(struct layer* l, uint32_t i) {
  struct ibv_sge piece = {(uintptr_t)(l->buffers + (SENDS + i) * MAX_MESSAGE), MAX_MESSAGE,
                          l->buffers_mr->lkey};
  struct ibv_recv_wr work = {.wr_id = i, .sg_list = &piece, .num_sge = 1}, *bad;
  if (ibv_post_recv(l->qp, &work, &bad)) fail("ibv_post_recv failed");
}

static void make_queue_pair(struct layer* l) {
  struct ibv_qp_init_attr want = {.qp_type = IBV_QPT_RC};
  want.cap.max_send_wr = SENDS + PUTS;
  want.cap.max_recv_wr = RECEIVES;
  want.cap.max_send_sge = want.cap.max_recv_sge = 1;
  l->pd = ibv_alloc_pd(l->device);
  l->cq = ibv_create_cq(l->device, SENDS + PUTS + RECEIVES, NULL, NULL, 0);
  want.send_cq = want.recv_cq = l->cq;
  l->qp = l->pd && l->cq ? ibv_create_qp(l->pd, &want) : NULL;
  if (!l->qp) fail("no protection domain, completion queue or queue pair");
  /* The layer's own buffers are registered once, for its life; the cache is for memory of its clients. */
  l->buffers = malloc(BUFFER_BYTES);
  l->buffers_mr =
      l->buffers ? ibv_reg_mr(l->pd, l->buffers, BUFFER_BYTES, IBV_ACCESS_LOCAL_WRITE) : NULL;
  if (!l->buffers_mr) fail("the message buffers cannot be registered: raise ulimit -l");
  for (uint32_t i = 0; i < SENDS; ++i) l->free_sends[l->free_count++] = i;
}

static struct address own_address(struct layer* l, uint8_t* gid_index) {
  struct ibv_port_attr port;
  struct address own = {.qp_num = l->qp->qp_num, .memory = (uintptr_t)l->memory};
  if (ibv_query_port(l->device, 1, &port)) fail("ibv_query_port failed");
  own.lid = port.lid;
  /* The last GID that is set: with RoCE usually the one of the interface's IPv4 address, version 2. */
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    union ibv_gid gid;
    if (ibv_query_gid(l->device, 1, i, &gid) == 0 && gid.global.interface_id != 0)
      own.gid = gid, *gid_index = (uint8_t)i;
  }
  return own;
}

static void modify(struct layer* l, struct ibv_qp_attr attributes, int mask) {
  if (ibv_modify_qp(l->qp, &attributes, mask)) fail("the queue pairs cannot be connected");
}

/* clang-format off */
static void connect_to(struct layer* l, const struct address* peer, uint8_t gid_index) {
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1,
                             .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  modify(l, init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  for (uint32_t i = 0; i < RECEIVES; ++i) post_receive(l, i);
  struct ibv_ah_attr to = {.dlid = peer->lid, .port_num = 1, .is_global = 1,
                           .grh = {.dgid = peer->gid, .sgid_index = gid_index, .hop_limit = 64}};
  struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR, .dest_qp_num = peer->qp_num, .ah_attr = to,
                                .path_mtu = IBV_MTU_1024, .max_dest_rd_atomic = 1, .min_rnr_timer = 12};
  modify(l, receive, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  /* rnr_retry 7: a message waits until the peer has a buffer for it. */
  struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
  modify(l, send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                  IBV_QP_MAX_QP_RD_ATOMIC);
}
/* clang-format on */

/* ---- messages ------------------------------------------------------------------------------------------ */

/* Work request ids: an index of a buffer or put, and what it was. */
#define SEND_ID ((uint64_t)1 << 32)
#define WRITE_ID ((uint64_t)2 << 32)

/* Posts one send or RDMA write of registered memory; `id` comes back with its completion. */
static int post(struct layer* l, uint64_t id, const void* from, size_t len, uint32_t lkey,
                struct ibv_send_wr work) {
  struct ibv_sge piece = {(uintptr_t)from, (uint32_t)len, lkey};
  struct ibv_send_wr* bad = NULL;
  work.wr_id = id;
  work.sg_list = &piece;
  work.num_sge = 1;
  work.send_flags = IBV_SEND_SIGNALED;
  return ibv_post_send(l->qp, &work, &bad) ? HYDRANT_ERR_BROKEN : GASNET_OK;
}

static int send_frame(struct layer* l, const struct header* header, const void* body) {
  if (l->free_count == 0) return GASNET_ERR_NOT_READY; /* progress() frees buffers */
  uint32_t i = l->free_sends[--l->free_count];
  char* buffer = l->buffers + i * MAX_MESSAGE;
  memcpy(buffer, header, sizeof *header);
  memcpy(buffer + sizeof *header, body, header->len);
  ++l->messages;
  return post(l, SEND_ID | i, buffer, sizeof *header + header->len, l->buffers_mr->lkey,
              (struct ibv_send_wr){.opcode = IBV_WR_SEND});
}

/* The messenger of the remote firehoses: their protocol travels in this layer's messages. */
static int send_message(void* user, uint32_t peer, uint32_t lane, void* reply_to,
                        const void* message, size_t len) {
  struct header header = {.kind = lane, .len = (uint32_t)len};
  (void)peer, (void)reply_to; /* there is one peer */
  return send_frame(user, &header, message);
}

static void receive(struct layer* l, uint32_t i) {
  const char* buffer = l->buffers + (SENDS + i) * MAX_MESSAGE;
  struct header header;
  memcpy(&header, buffer, sizeof header);
  const char* body = buffer + sizeof header;
  if (header.kind == DATA)
    memcpy(l->memory + header.offset, body, header.len);
  else if (hydrant_remote_deliver(l->remote, 1 - l->rank, body, header.len,
                                  header.kind == HYDRANT_LANE_REQUEST ? l : NULL))
    fail(hydrant_error_text());
  post_receive(l, i);
}

/* ---- puts ---------------------------------------------------------------------------------------------- */

static void post_write(struct layer* l, struct put* p) {
  struct ibv_send_wr work = {.opcode = IBV_WR_RDMA_WRITE};
  const uint32_t lkey = hydrant_ibv_key(p->local)->lkey;
  work.wr.rdma.remote_addr = l->peer_memory + p->offset;
  work.wr.rdma.rkey = hydrant_ibv_key(p->target)->rkey;
  if (post(l, WRITE_ID | (uint64_t)(p - l->puts), p->from, p->len, lkey, work)) fail("broken");
  ++l->writes;
}

/* A remote miss has been answered. Runs in hydrant_remote_poll(). */
static void granted(void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t* outcome) {
  struct put* p = context;
  p->target = pin;
  p->copies = pin.region == NULL; /* *outcome says why */
  (void)outcome;
  if (pin.region) post_write(p->layer, p);
}

/* Starts a put. progress() completes it. */
static void put_data(struct layer* l, struct put* p) {
  hydrant_remote_call_t call = {.done = granted, .context = p};
  p->local = hydrant_pin(l->domain, p->from, p->len, HYDRANT_LOCAL_READ);
  if (!p->local.region) { /* no budget now, too large, or not pinnable: hydrant_error_text() */
    p->copies = 1;
    return;
  }
  int status = hydrant_remote_pin(l->remote, 1 - l->rank, l->peer_memory + p->offset, p->len,
                                  HYDRANT_REMOTE_WRITE, &call, &p->target);
  if (status != GASNET_OK)
    p->copies = 1;
  else if (p->target.region)
    post_write(l, p); /* a hit at both ends */
}

static void finish(struct layer* l, struct put* p) {
  if (p->local.region) hydrant_release(p->local);
  if (p->target.region) hydrant_remote_release(p->target);
  l->copied_bytes += (long)p->copied;
  memset(p, 0, sizeof *p);
}

static void continue_copies(struct layer* l, struct put* p) {
  while (p->copied < p->len) {
    size_t len = p->len - p->copied < MAX_BODY ? p->len - p->copied : MAX_BODY;
    struct header header = {.kind = DATA, .len = (uint32_t)len, .offset = p->offset + p->copied};
    int status = send_frame(l, &header, p->from + p->copied);
    if (status == GASNET_ERR_NOT_READY) return;
    if (status != GASNET_OK) fail("the connection is broken");
    p->copied += len;
  }
  finish(l, p); /* the data is in the layer's buffers */
}

static void progress(struct layer* l) {
  struct ibv_wc done[16];
  int n = ibv_poll_cq(l->cq, 16, done);
  for (int i = 0; i < n; ++i) {
    uint32_t index = (uint32_t)done[i].wr_id; /* without the kind */
    if (done[i].status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(done[i].status));
    if (done[i].wr_id & SEND_ID)
      l->free_sends[l->free_count++] = index;
    else if (done[i].wr_id & WRITE_ID)
      finish(l, &l->puts[index]); /* keys were in use until now */
    else
      receive(l, index);
  }
  hydrant_remote_poll(l->remote);
  for (uint32_t i = 0; i < PUTS; ++i)
    if (l->puts[i].copies) continue_copies(l, &l->puts[i]);
}

/* Puts [from, from+len) in pieces, several at a time, and waits until all are sent. */
static void put_all(struct layer* l, const char* from, size_t len, size_t piece) {
  for (size_t done = 0; done < len; progress(l)) {
    for (struct put* p = l->puts; p < l->puts + PUTS && done < len; ++p) {
      if (p->layer) continue; /* under way */
      *p = (struct put){.layer = l, .from = from + done, .offset = done, .len = piece};
      put_data(l, p);
      done += piece;
    }
  }
  for (uint32_t i = 0; i < PUTS; ++i)
    while (l->puts[i].layer) progress(l);
}

/* ---- both processes ----------------------------------------------------------------------------------- */

static int start(struct layer* l, const char* device, int wire) {
  hydrant_registrar_t registrar;
  hydrant_domain_options_t options;
  hydrant_ibv_options_t verbs;
  hydrant_remote_options_t remote;
  hydrant_messenger_t messenger = {sizeof messenger, l, MAX_BODY, send_message};
  struct address peer;
  uint8_t gid_index = 0;
  struct ibv_device** list = ibv_get_device_list(NULL);
  for (int i = 0; list && list[i] && !l->device; ++i)
    if (!device || !strcmp(device, ibv_get_device_name(list[i])))
      l->device = ibv_open_device(list[i]);
  if (!l->device) {
    l->error = list ? 0 : errno; /* ENOSYS: the kernel module ib_uverbs is not loaded */
    return 77;
  }
  make_queue_pair(l);

  hydrant_ibv_options_init(&verbs);
  verbs.reserve_bytes = BUFFER_BYTES; /* of RLIMIT_MEMLOCK, registered above */
  if (hydrant_ibv_registrar_create(l->pd, &verbs, &registrar) != GASNET_OK)
    fail(hydrant_error_text());
  hydrant_domain_options_init(&options);
  options.registrar = &registrar;
  if (hydrant_domain_create(&options, &l->domain) != GASNET_OK) fail(hydrant_error_text());
  hydrant_remote_options_init(&remote);
  remote.domain = l->domain;
  remote.rank = l->rank;
  remote.ranks = 2;
  remote.messenger = &messenger;
  if (hydrant_remote_create(&remote, &l->remote) != GASNET_OK) fail(hydrant_error_text());

  const struct address own = own_address(l, &gid_index);
  if (write(wire, &own, sizeof own) < 0 || read(wire, &peer, sizeof peer) != sizeof peer) return 77;
  l->peer_memory = peer.memory;
  connect_to(l, &peer, gid_index);
  /* Both have posted their receives once each has had a byte from the other. */
  return write(wire, "", 1) == 1 && read(wire, &gid_index, 1) == 1 ? 0 : 1;
}

static void stop(struct layer* l) {
  hydrant_remote_destroy(l->remote);
  hydrant_domain_destroy(l->domain, HYDRANT_FINI_UNPIN); /* before its protection domain */
  if (ibv_destroy_qp(l->qp) || ibv_dereg_mr(l->buffers_mr) || ibv_destroy_cq(l->cq) ||
      ibv_dealloc_pd(l->pd))
    fail("something is still in use");
  ibv_close_device(l->device);
}

static int serve(const char* device, int wire) {
  struct layer l = {.rank = 1, .memory = calloc(1, MEMORY)};
  char byte; /* never comes */
  int result = start(&l, device, wire);
  if (result) return result;
  while (recv(wire, &byte, 1, MSG_DONTWAIT) != 0) progress(&l); /* until the other end is closed */
  stop(&l);
  free(l.memory);
  return 0;
}

/* Sends of both processes by the device's own count; 0 if it has none. */
static long device_sends(struct layer* l) {
  char path[512]; /* ibdev_path has 256 */
  long n = 0;
  snprintf(path, sizeof path, "%s/ports/1/hw_counters/rdma_sends", l->device->device->ibdev_path);
  FILE* f = fopen(path, "r");
  if (f && fscanf(f, "%ld", &n) != 1) n = 0;
  if (f) fclose(f);
  return n;
}

/* Puts, waits until the target has the data, and prints what it took. Returns the sends of both. */
static long show(struct layer* l, const char* what, const char* from, size_t len, size_t piece) {
  const struct layer before = *l;
  const long sends = device_sends(l);
  char* there = malloc(len);
  put_all(l, from, len, piece);
  /* An example may look into the target: data in messages arrives some time after the put. */
  struct iovec here = {there, len}, target = {(void*)(uintptr_t)l->peer_memory, len};
  do {
    progress(l);
    if (process_vm_readv(l->peer, &here, 1, &target, 1, 0) != (ssize_t)len) fail("no look at it");
  } while (memcmp(there, from, len) != 0);
  free(there);
  printf("%-42s %3ld writes, %4ld messages, %5ld KiB copied; by the device %4ld sends\n", what,
         l->writes - before.writes, l->messages - before.messages,
         (l->copied_bytes - before.copied_bytes) / 1024, device_sends(l) - sends);
  return l->messages - before.messages + device_sends(l) - sends;
}

static int initiate(struct layer* l) {
  static const char constant[64 * 1024] = "read-only";
  char* source = malloc(MEMORY);
  if (!source) fail("no memory");
  memset(source, 'a', MEMORY);
  show(l, "first put of 64 KiB (a miss at both ends)", source, 64 * KIB, 64 * KIB);
  memset(source, 'b', 64 * KIB);
  long hits = show(l, "16 puts of 4 KiB inside (hits)", source, 64 * KIB, 4 * KIB);
  show(l, "64 KiB of read-only memory", constant, 64 * KIB, 64 * KIB);
  memset(source, 'd', MEMORY);
  show(l, "16 MiB in puts of 256 KiB (evictions)", source, MEMORY, 256 * KIB);
  memset(source, 'e', MEMORY);
  show(l, "16 MiB in one put (may exceed the budget)", source, MEMORY, MEMORY);
  while (l->free_count != SENDS) progress(l); /* the last messages arrive */
  return hits == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  struct layer l = {.rank = 0};
  const char* device = argc > 1 ? argv[1] : NULL;
  int wires[2], status = 0;
  if (argc > 2 || (device && *device == '-')) {
    fprintf(stderr, "usage: verbs_layer [DEVICE]\n");
    return 2;
  }
  /* Before verbs and firehoses are used: neither works on in a child. */
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, wires) || (l.peer = fork()) < 0) fail("no two processes");
  alarm(120); /* ends a process whose peer is gone; a layer would watch its queue pair */
  if (l.peer == 0) {
    close(wires[0]);
    _exit(serve(device, wires[1]));
  }
  close(wires[1]);
  int result = start(&l, device, wires[0]);
  if (result == 0) result = initiate(&l);
  if (result == 77)
    printf("no verbs device%s%s%s%s\n", device ? " named " : "", device ? device : "",
           l.error ? ": " : "", l.error ? strerror(l.error) : "");
  close(wires[0]);
  if (result != 77) stop(&l);
  waitpid(l.peer, &status, 0);
  return result == 0 && status != 0 ? 1 : result;
}
