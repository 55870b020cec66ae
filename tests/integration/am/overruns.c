/* Operations beyond the ends of a segment, segments whose memory is allocated at the first access, and
 * attaches that fail. */
#include <hydrant/persistent.h>

#include <dirent.h>
#include <gasnet_coll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"

#define RUN_SEGMENT ((size_t)20 << 20)
#define MOST_REACH ((size_t)1 << 30)

static gex_AM_Index_t long_index, ask_index, reply_index, done_index;
static volatile int arrived;

static char* near_memory;

static void on_done(gex_Token_t token) {
  (void)token;
  arrived = 1;
}
static void on_long(gex_Token_t token, void* at, size_t bytes) {
  (void)at;
  (void)bytes;
  CHECK(gex_AM_ReplyShort0(token, done_index, 0) == 0);
}
static void on_answer(gex_Token_t token, void* at, size_t bytes) {
  (void)at;
  (void)bytes;
  on_done(token);
}
static void on_ask(gex_Token_t token, void* words, size_t bytes) {
  uintptr_t asked[2];
  CHECK(bytes == sizeof asked);
  memcpy(asked, words, sizeof asked);
  CHECK(gex_AM_ReplyLong0(token, reply_index, near_memory, asked[1], (void*)asked[0], GEX_EVENT_NOW,
                          0) == 0);
}

static void attach(uintptr_t bytes) {
  gex_Segment_t own;
  gex_AM_Entry_t rows[] = {
      {0, (gex_AM_Fn_t)on_long, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REQUEST, 0, NULL, "long"},
      {0, (gex_AM_Fn_t)on_ask, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 0, NULL, "ask"},
      {0, (gex_AM_Fn_t)on_answer, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REPLY, 0, NULL, "answer"},
      {0, (gex_AM_Fn_t)on_done, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 0, NULL, "done"}};
  CHECK(gex_EP_RegisterHandlers(endpoint, rows, 4) == GASNET_OK);
  long_index = rows[0].gex_index;
  ask_index = rows[1].gex_index;
  reply_index = rows[2].gex_index;
  done_index = rows[3].gex_index;
  if (gex_Segment_Attach(&own, team, bytes) != GASNET_OK) gasnet_exit(42);
#ifdef GASNET_SEGMENT_EVERYTHING
  return; /* the requested size has no meaning there */
#endif
  for (gex_Rank_t rank = 0; rank < size; ++rank) {
    void* address = NULL;
    uintptr_t found = 0;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, rank, &address, NULL, &found, 0));
    CHECK(found == bytes);
    segment[rank] = (char*)address;
  }
}

/* Calls that return an error do not end the job: this rank does. */
static void require(int code) {
  if (code == GASNET_OK) return;
  fprintf(stderr, "rank %u: %s\n", (unsigned)me, hydrant_last_error_text());
  gasnet_exit(43);
}

/* Two operations of one call. */
static void act_many(int is_put, gex_Rank_t peer, char* far, size_t bytes) {
  const size_t half = bytes / 2;
  hydrant_rma_op_t ops[2];
  ops[0].rank = ops[1].rank = peer;
  ops[0].remote = far;
  ops[1].remote = far + half;
  ops[0].local = near_memory;
  ops[1].local = near_memory + half;
  ops[0].bytes = half;
  ops[1].bytes = bytes - half;
  require(is_put ? hydrant_put_many(team, ops, 2, bytes, NULL)
                 : hydrant_get_many(team, ops, 2, bytes, NULL));
}

static void act_again(int is_put, gex_Rank_t peer, char* far, size_t bytes) {
  hydrant_operation_t operation = NULL;
  require(is_put ? hydrant_put_init(team, peer, far, near_memory, bytes, &operation)
                 : hydrant_get_init(team, peer, far, near_memory, bytes, &operation));
  require(hydrant_start(operation));
  require(hydrant_wait(operation));
  require(hydrant_operation_free(&operation));
}

static void act(const char* op, gex_Rank_t peer, char* far, size_t bytes) {
  char* const near = near_memory;
  if (!strcmp(op, "put")) {
    gex_RMA_PutBlocking(team, peer, far, near, bytes, 0);
  } else if (!strcmp(op, "get")) {
    gex_RMA_GetBlocking(team, near, peer, far, bytes, 0);
  } else if (!strcmp(op, "put-nb")) {
    gex_Event_Wait(gex_RMA_PutNB(team, peer, far, near, bytes, GEX_EVENT_DEFER, 0));
  } else if (!strcmp(op, "get-nb")) {
    gex_Event_Wait(gex_RMA_GetNB(team, near, peer, far, bytes, 0));
  } else if (!strcmp(op, "put-nbi")) {
    gex_RMA_PutNBI(team, peer, far, near, bytes, GEX_EVENT_DEFER, 0);
    gex_NBI_Wait(GEX_EC_ALL, 0);
  } else if (!strcmp(op, "get-nbi")) {
    gex_RMA_GetNBI(team, near, peer, far, bytes, 0);
    gex_NBI_Wait(GEX_EC_ALL, 0);
  } else if (!strcmp(op, "put-value")) {
    gex_RMA_PutBlockingVal(team, peer, far, 7, bytes, 0);
  } else if (!strcmp(op, "get-value")) {
    (void)gex_RMA_GetBlockingVal(team, peer, far, bytes, 0);
  } else if (!strcmp(op, "get-value-nb")) {
    (void)gasnet_wait_syncnb_valget(gasnet_get_nb_val(peer, far, bytes));
  } else if (!strcmp(op, "memset")) {
    gasnet_memset(peer, far, 7, bytes);
  } else if (!strcmp(op, "memset-nb")) {
    gasnet_wait_syncnb(gasnet_memset_nb(peer, far, 7, bytes));
  } else if (!strcmp(op, "memset-nbi")) {
    gasnet_memset_nbi(peer, far, 7, bytes);
    gasnet_wait_syncnbi_puts();
  } else if (!strcmp(op, "put-many") || !strcmp(op, "get-many")) {
    act_many(op[0] == 'p', peer, far, bytes);
  } else if (!strcmp(op, "persistent-put") || !strcmp(op, "persistent-get")) {
    act_again(!strcmp(op, "persistent-put"), peer, far, bytes);
  } else if (!strcmp(op, "long")) {
    CHECK(gex_AM_RequestLong0(team, peer, long_index, near, bytes, far, GEX_EVENT_NOW, 0) == 0);
    GASNET_BLOCKUNTIL(arrived);
  } else if (!strcmp(op, "prepared")) {
    gex_AM_SrcDesc_t sd =
        gex_AM_PrepareRequestLong(team, peer, near, bytes, bytes, far, GEX_EVENT_NOW, 0, 0);
    gex_AM_CommitRequestLong0(sd, long_index, bytes, far);
    GASNET_BLOCKUNTIL(arrived);
  } else if (!strcmp(op, "reply")) {
    /* The peer replies with a Long beyond this rank's own segment. */
    uintptr_t asked[2];
    asked[0] = (uintptr_t)segment[me] + (uintptr_t)(far - segment[peer]);
    asked[1] = bytes;
    CHECK(gex_AM_RequestMedium0(team, peer, ask_index, asked, sizeof asked, GEX_EVENT_NOW, 0) == 0);
    GASNET_BLOCKUNTIL(arrived);
  } else {
    CHECK(!"no such operation");
  }
}

/* Rank 0 accesses `reach` bytes beyond an end ("start", "end") of the last rank's segment. The range
 * begins (or ends) `from` bytes inside; with `from` 0 only the farthest 8 bytes, or fewer, are
 * accessed. */
void test_overrun(const char* op, const char* end, size_t reach, size_t from) {
  const gex_Rank_t peer = size - 1;
  size_t bytes = from + reach;
  if (from == 0) bytes = reach < 8 ? reach : 8;
  attach(RUN_SEGMENT);
  near_memory = (char*)mmap(NULL, MOST_REACH + 4096, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(near_memory != MAP_FAILED && from + reach <= MOST_REACH + 4096);
  BARRIER();
  if (me == 0) {
    char* far = segment[peer] - reach;
    if (!strcmp(end, "end")) far = segment[peer] + RUN_SEGMENT + reach - bytes;
    printf("from %p on, segment %p\n", (void*)far, (void*)segment[peer]);
    fflush(stdout);
    act(op, peer, far, bytes);
    printf("it passed\n");
  }
  BARRIER();
}

/* Rank 0 reaches memory of the last rank that has nothing to do with a segment. */
void test_outside(const char* op) {
  const gex_Rank_t peer = size - 1;
  const size_t bytes = 65536;
  uintptr_t far = 0;
  attach(RUN_SEGMENT);
  near_memory = (char*)calloc(1, bytes);
  CHECK(near_memory != NULL);
  if (me == peer) far = (uintptr_t)calloc(1, bytes);
  gex_Event_Wait(gex_Coll_BroadcastNB(team, peer, &far, &far, sizeof far, 0));
  if (me == 0) {
    act(op, peer, (char*)far, bytes);
    printf("it passed\n");
  }
  BARRIER();
}

static void on_fault(int number) {
  static const char text[] = "the client's handler\n";
  (void)number;
  if (write(1, text, sizeof text - 1) < 0) _exit(56);
  _exit(55);
}
static void on_fault_info(int number, siginfo_t* info, void* context) {
  (void)context;
  if (info->si_addr != segment[me] + RUN_SEGMENT) _exit(57);
  on_fault(number);
}

/* A pointer of rank 0 overruns the end of its own segment. */
void test_overrun_caught(const char* when) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_fault;
  if (!strcmp(when, "info")) {
    action.sa_sigaction = on_fault_info;
    action.sa_flags = SA_SIGINFO;
  }
  if (strcmp(when, "after") != 0 && strcmp(when, "none") != 0) sigaction(SIGSEGV, &action, NULL);
  attach(RUN_SEGMENT);
  if (!strcmp(when, "after")) sigaction(SIGSEGV, &action, NULL);
  if (!strcmp(when, "elsewhere") && me == 0) *(volatile char*)16 = 1;
  if (me == 0) *(volatile char*)(segment[0] + RUN_SEGMENT) = 1;
  BARRIER();
}

/* Bytes allocated to the segments' file, by all processes. */
static unsigned long long file_memory(void) {
  DIR* folder = opendir("/proc/self/fd");
  struct dirent* entry;
  CHECK(folder != NULL);
  while ((entry = readdir(folder)) != NULL) {
    char path[300], target[300];
    struct stat status;
    ssize_t bytes;
    snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
    bytes = readlink(path, target, sizeof target - 1);
    if (bytes < 0) continue;
    target[bytes] = '\0';
    if (strstr(target, "hydrant segments") == NULL || stat(path, &status) != 0) continue;
    closedir(folder);
    return 512ull * (unsigned long long)status.st_blocks;
  }
  closedir(folder);
  CHECK(!"the segments have no file");
  return 0;
}

void test_lazy_segment(uintptr_t bytes) {
  const gex_Rank_t peer = (me + 1) % size;
  unsigned char got = 0;
  const unsigned char mine = (unsigned char)(me + 1);
  if (bytes == 0) bytes = gasnet_getMaxGlobalSegmentSize();
  attach(bytes);
  printf("rank %u: %llu bytes of %llu at first\n", (unsigned)me, file_memory(),
         (unsigned long long)bytes * size);
  BARRIER();
  CHECK(segment[me][0] == 0);
  segment[me][0] = (char)(me + 100);
  gasnet_put(peer, segment[peer] + bytes - 1, (void*)&mine, 1);
  BARRIER();
  gasnet_get(&got, peer, segment[peer], 1);
  CHECK(got == peer + 100);
  CHECK((unsigned char)segment[me][bytes - 1] == (me + size - 1) % size + 1);
  gasnet_get(&got, peer, segment[peer] + bytes / 2, 1);
  CHECK(got == 0);
  BARRIER();
  printf("rank %u: %llu bytes at last\n", (unsigned)me, file_memory());
}

/* Puts to the first quarter of rank 1's segment piece by piece, and gets the last quarter, downwards. */
void test_lazy_stream(uintptr_t bytes) {
  const size_t piece = (size_t)16 << 10;
  char* const near = (char*)calloc(1, piece);
  attach(bytes);
  BARRIER();
  if (me == 0) {
    for (size_t at = 0; at < bytes / 4; at += piece)
      gasnet_put_bulk(1, segment[1] + at, near, piece);
    for (size_t at = 0; at < bytes / 4; at += piece)
      gasnet_get_bulk(near, 1, segment[1] + bytes - piece - at, piece);
  }
  BARRIER();
  printf("rank %u: %llu bytes at last\n", (unsigned)me, file_memory());
}

void test_all_touched(uintptr_t bytes) {
  attach(bytes);
  BARRIER();
  if (me == size - 1) memset(segment[me], 1, bytes);
}

/* Attaches, and again after a failure, with 1 MiB. One rank asks for a wrong size, or has no descriptors the
 * first time. */
void test_attach_again(uintptr_t bytes, gex_Rank_t odd, const char* lacks) {
  const uintptr_t less = (uintptr_t)1 << 20;
  const gex_Rank_t peer = (me + 1) % size;
  const unsigned char mine = (unsigned char)(me + 1);
  void* there = NULL;
  gex_Segment_t own;
  struct rlimit limit, none;
  int code;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  none = limit;
  none.rlim_cur = 3; /* the standard streams' */
  if (me == odd && !strcmp(lacks, "descriptors")) CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
  code = gex_Segment_Attach(&own, team, me == odd && !strcmp(lacks, "size") ? bytes + 1 : bytes);
  printf("rank %u: %s at first\n", (unsigned)me, gasnet_ErrorName(code));
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(endpoint != NULL && gex_EP_QuerySegment(endpoint) == GEX_SEGMENT_INVALID);
  code = gex_Segment_Attach(&own, team, less);
  printf("rank %u: %s then\n", (unsigned)me, gasnet_ErrorName(code));
  CHECK(code == GASNET_OK);
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, peer, &there, NULL, NULL, 0));
  gasnet_put(peer, (char*)there + less - 1, (void*)&mine, 1);
  BARRIER();
  CHECK(((unsigned char*)gex_Segment_QueryAddr(own))[less - 1] == (me + size - 1) % size + 1);
  BARRIER();
}
