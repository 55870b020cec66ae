/* A rank of a job whose program closes what it does not know: descriptor_client WHEN OTHERS END VERDICT.
 * Rank 0 closes all descriptors from 3 on, "before" or "after" attach, opens its own under the numbers, and
 * goes on with puts, gets, Active Messages and barriers. Then it ends as END says, the others as OTHERS says:
 * "exit0", "gasnet_exit7", "kill" (of SIGKILL, while rank 0 does END), "wait" or "spin" (for ever), "pause".
 * A process that outlives rank 0 shares its files, and writes to the file VERDICT what has become of them. */
#include <gasnet.h>
#include <gasnetex.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kRounds = 200, kPiece = 8192, kFirst = 3, kMaxFiles = 96, kHandler = 200, kCount = 7 };
static const char kText[] = "the program's own";

static gex_TM_t team;
static gasnet_seginfo_t* segments;
static volatile int arrived;

static void on_request(gex_Token_t token, void* data, size_t bytes) {
  (void)token, (void)data, (void)bytes;
  ++arrived;
}

static void meet(void) { gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); }

static void require(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "FAILED: %s (%s)\n", what, strerror(errno));
  _exit(90);
}

/* ---- the program's own files ---- */

typedef struct {
  int fd, status_flags, own_flags, kind;
  struct stat facts;
} file_t;
static file_t files[kMaxFiles];
static int file_count;

enum { kKinds = 5 };
static int peers[kMaxFiles]; /* the other ends, which rank 0 keeps above */

static void open_one(int kind) {
  file_t* const file = &files[file_count];
  int ends[2] = {-1, -1};
  switch (kind) {
    case 0: file->fd = eventfd(kCount, EFD_SEMAPHORE); break;
    case 1:
      file->fd = memfd_create("the program's", MFD_ALLOW_SEALING);
      require(write(file->fd, kText, sizeof kText) == sizeof kText, "write");
      require(fcntl(file->fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0, "seal");
      break;
    case 2:
      require(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "socketpair");
      require(send(ends[1], kText, sizeof kText, 0) == sizeof kText, "send");
      break;
    case 3:
      require(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0, "socketpair");
      require(send(ends[1], kText, sizeof kText, 0) == sizeof kText, "send");
      break;
    default:
      require(pipe(ends) == 0, "pipe");
      require(write(ends[1], kText, sizeof kText) == sizeof kText, "write");
      break;
  }
  if (kind >= 2) {
    file->fd = ends[0];
    peers[file_count] = fcntl(ends[1], F_DUPFD, 512);
    close(ends[1]);
  }
  require(file->fd >= 0 && peers[file_count] >= 0, "open");
  file->kind = kind;
  file->status_flags = fcntl(file->fd, F_GETFL);
  file->own_flags = fcntl(file->fd, F_GETFD);
  require(fstat(file->fd, &file->facts) == 0, "fstat");
  ++file_count;
}

/* The file must not have been read, written or changed. `fd` may be another number of the same open file. */
static const char* look(const file_t* file) {
  struct stat now;
  char text[64];
  if (fstat(file->fd, &now) != 0) return "is closed";
  if (now.st_ino != file->facts.st_ino || now.st_dev != file->facts.st_dev) return "is another";
  if (fcntl(file->fd, F_GETFL) != file->status_flags) return "has other flags";
  if (fcntl(file->fd, F_GETFD) != file->own_flags) return "has other flags of its own";
  if (fcntl(file->fd, F_GETSIG) != 0) return "has another signal";
  switch (file->kind) {
    case 0: return NULL; /* count_left() */
    case 1:
      if (lseek(file->fd, 0, SEEK_CUR) != sizeof kText) return "was read or written";
      if (now.st_size != sizeof kText || now.st_blocks != file->facts.st_blocks) return "has grown";
      if (fcntl(file->fd, F_GET_SEALS) != F_SEAL_SHRINK) return "has other seals";
      return NULL;
    case 4: return NULL; /* in the end, by reading */
    default:
      if (recv(file->fd, text, sizeof text, MSG_PEEK | MSG_DONTWAIT) != sizeof kText)
        return "was read";
      return memcmp(text, kText, sizeof kText) ? "has other bytes" : NULL;
  }
}

/* Checks the contents that only a read, which consumes them, reveals. */
static const char* empty(const file_t* file, int peer) {
  char text[64];
  struct pollfd more = {file->fd, POLLIN, 0};
  if (file->kind == 1) return NULL;
  if (file->kind == 0) {
    uint64_t one = 0;
    for (int i = 0; i < kCount; ++i) {
      if (poll(&more, 1, 0) != 1 || read(file->fd, &one, sizeof one) != sizeof one)
        return "was read";
    }
    return poll(&more, 1, 0) ? "was written" : NULL;
  }
  if (poll(&more, 1, 0) != 1 || read(file->fd, text, sizeof text) != sizeof kText)
    return "was read";
  if (memcmp(text, kText, sizeof kText)) return "has other bytes";
  if (file->kind == 4) return NULL;
  if (recv(peer, text, sizeof text, MSG_DONTWAIT) >= 0) return "was written";
  return NULL;
}

static int report(const char* where, int out, int is_last) {
  int wrong = 0;
  for (int i = 0; i < file_count; ++i) {
    const char* what = look(&files[i]);
    if (what == NULL && is_last) what = empty(&files[i], peers[i]);
    if (what == NULL) continue;
    wrong = 1;
    dprintf(out, "%s: descriptor %d (kind %d) %s\n", where, files[i].fd, files[i].kind, what);
  }
  return wrong;
}

/* Outlives rank 0, whose end it sees by a pipe. */
static void leave_a_witness(const char* verdict) {
  int ends[2];
  require(pipe(ends) == 0, "pipe");
  const int out = open(verdict, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  require(out >= 0, "open of the verdict");
  const pid_t child = fork();
  require(child >= 0, "fork");
  if (child != 0) {
    close(ends[0]);
    close(out);
    return;
  }
  char nothing;
  close(ends[1]);
  struct pollfd end = {ends[0], POLLIN, 0};
  require(poll(&end, 1, 100 * 1000) == 1 && read(ends[0], &nothing, 1) == 0, "wait for rank 0");
  if (!report("after the end", out, 1)) dprintf(out, "intact\n");
  _exit(0);
}

static void take_the_numbers(const char* verdict) {
  unsigned char known[kMaxFiles] = {0};
  for (int fd = kFirst; fd < kMaxFiles; ++fd) known[fd] = fcntl(fd, F_GETFD) >= 0;
  require(syscall(SYS_close_range, kFirst, ~0u, 0) == 0, "close_range");
  int last = kFirst + 24;
  for (int fd = kFirst; fd < kMaxFiles - 8; ++fd) {
    if (known[fd] && fd > last) last = fd;
  }
  for (int kind = 0; file_count == 0 || files[file_count - 1].fd < last; ++kind)
    open_one(kind % kKinds);
  leave_a_witness(verdict);
}

/* ---- what ranks do ---- */

static void talk(gex_Rank_t me, gex_Rank_t ranks) {
  const gex_Rank_t peer = (me + 1) % ranks;
  char* const own = (char*)segments[me].addr;
  char* const theirs = (char*)segments[peer].addr;
  for (int round = 0; round < kRounds; ++round) {
    memset(own, round, kPiece);
    gex_RMA_PutBlocking(team, peer, theirs + kPiece, own, kPiece, 0);
    gex_RMA_GetBlocking(team, own + 2 * kPiece, peer, theirs + kPiece, kPiece, 0);
    require(memcmp(own, own + 2 * kPiece, kPiece) == 0, "what was put comes back");
    /* All sizes: rings and cells are allocated at their first use. */
    const size_t most = gex_AM_MaxRequestMedium(team, peer, NULL, 0, 0);
    size_t bytes = (size_t)round * 1021;
    if (bytes > most) bytes = most;
    gex_AM_RequestMedium0(team, peer, kHandler, own, bytes, GEX_EVENT_NOW, 0);
    GASNET_BLOCKUNTIL(arrived > round);
    if (round % 20 == 0) meet();
  }
  meet();
}

static int end_as(const char* way) {
  if (!strcmp(way, "exit0")) exit(0);
  if (!strcmp(way, "gasnet_exit0")) gasnet_exit(0);
  if (!strcmp(way, "gasnet_exit7")) gasnet_exit(7);
  if (!strcmp(way, "kill")) kill(getpid(), SIGKILL);
  if (!strcmp(way, "wait")) meet();
  for (volatile int forever = 1; forever;) {
    if (!strcmp(way, "pause")) pause();
  }
  return 98;
}

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_Segment_t segment;
  gex_AM_Entry_t entry = {
      kHandler,    (gex_AM_Fn_t)on_request, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 0, NULL,
      "on_request"};
  if (argc < 5) return 97;
  if (gex_Client_Init(&client, &endpoint, &team, "descriptor_client", &argc, &argv,
                      GEX_FLAG_USES_GASNET1))
    return 96;
  const gex_Rank_t me = gex_TM_QueryRank(team), ranks = gex_TM_QuerySize(team);
  if (me == 0 && !strcmp(argv[1], "before")) take_the_numbers(argv[4]);
  if (gex_Segment_Attach(&segment, team, 1 << 20)) {
    report("attach", STDERR_FILENO, 0);
    return 95;
  }
  segments = (gasnet_seginfo_t*)calloc(ranks, sizeof *segments);
  if (gasnet_getSegmentInfo(segments, (int)ranks)) return 94;
  if (gex_EP_RegisterHandlers(endpoint, &entry, 1)) return 92;
  meet();
  if (me == 0 && !strcmp(argv[1], "after")) take_the_numbers(argv[4]);
  talk(me, ranks);
  if (me == 0 && report("before the end", STDERR_FILENO, 0)) return 91;
  if (me == 0) printf("rank 0 has talked\n");
  fflush(stdout);
  /* Rank 0 is in what it does when the others end. */
  if (me != 0) usleep(100 * 1000);
  return end_as(argv[me == 0 ? 3 : 2]);
}
