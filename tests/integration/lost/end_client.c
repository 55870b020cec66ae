/* A rank of a job with every kind of end: end_client WAY OTHERS MEGABYTES. All ranks attach a segment
 * of that many MB and write to all of it. Then rank 1 ends as WAY tells, and the others repeat OTHERS
 * for ever. OTHERS "attach", "init": rank 1 ends before the others get there; "late": the others reach the
 * init after its end (both only under hydrant-run, where ranks are known before the init). WAY "storm": every
 * rank puts, runs barriers and exits, while the test kills one of them. OTHERS "child": a child that rank 1
 * forks ends as WAY tells, and the job ends with 0.
 * Run by end_jobs_test.py and kill_storm_test.py. */
#include <gasnet.h>
#include <gasnetex.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kStormRounds = 40, kRankOfTheWay = 1 };

static gex_TM_t team;
static gasnet_seginfo_t* segments;

static void meet(void) { gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); }

__attribute__((noinline)) static void touch_what_is_not_there(void) {
  volatile int* volatile nowhere = NULL;
  *nowhere = 1;
}

static void touch_past_the_segment(void) {
  const gasnet_seginfo_t* mine = &segments[gex_TM_QueryRank(team)];
  ((volatile char*)mine->addr)[mine->size] = 1;
}

static int end_as(const char* way) {
  if (!strcmp(way, "exit0")) exit(0);
  if (!strcmp(way, "return4")) return 4;
  if (!strcmp(way, "exit5")) exit(5);
  if (!strcmp(way, "gasnet_exit7")) gasnet_exit(7);
  if (!strcmp(way, "quick3")) _exit(3);
  if (!strcmp(way, "segv")) touch_what_is_not_there();
  if (!strcmp(way, "abort")) abort();
  if (!strcmp(way, "kill")) kill(getpid(), SIGKILL);
  if (!strcmp(way, "quit")) raise(SIGQUIT);
  if (!strcmp(way, "term")) raise(SIGTERM);
  if (!strcmp(way, "overrun")) touch_past_the_segment();
  return 98;
}

static int end_soon_as(const char* way) {
  usleep(50 * 1000);
  return end_as(way);
}

static void go_on(const char* others) {
  if (!strcmp(others, "wait")) meet();
  for (volatile int forever = 1; forever;) {
    if (!strcmp(others, "poll")) gasnet_AMPoll();
    if (!strcmp(others, "sleep")) pause();
  }
}

/* The first text is in the buffer of stdout at the fork. */
static void fork_a_child_that_ends_as(const char* way) {
  printf("before the fork; ");
  const pid_t child = fork();
  if (child == 0) _exit(end_as(way));
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) exit(92);
  if (WIFSIGNALED(status)) printf("the child died of signal %d\n", WTERMSIG(status));
  if (WIFEXITED(status)) printf("the child exited with code %d\n", WEXITSTATUS(status));
}

static void storm(gex_Rank_t me, gex_Rank_t ranks, size_t bytes) {
  const gex_Rank_t peer = (me + 1) % ranks;
  const size_t piece = 65536;
  for (int round = 0; round < kStormRounds && bytes >= 2 * piece; ++round) {
    const size_t at = (size_t)round * piece % (bytes - piece);
    gex_RMA_PutBlocking(team, peer, (char*)segments[peer].addr + at,
                        (char*)segments[me].addr + bytes - piece, piece, 0);
    meet();
    usleep(1000);
  }
  meet();
}

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_Segment_t segment;
  if (argc < 4) return 97;
  if (!strcmp(argv[2], "init") || !strcmp(argv[2], "late")) {
    const char* rank = getenv("HYDRANT_JOB_RANK");
    if (rank != NULL && atoi(rank) == kRankOfTheWay) return end_soon_as(argv[1]);
    if (!strcmp(argv[2], "late")) usleep(300 * 1000);
  }
  if (gex_Client_Init(&client, &endpoint, &team, "end_client", &argc, &argv, GEX_FLAG_USES_GASNET1))
    return 96;
  const gex_Rank_t me = gex_TM_QueryRank(team), ranks = gex_TM_QuerySize(team);
  size_t bytes = (size_t)strtoull(argv[3], NULL, 10) << 20;
  if (bytes > gasnet_getMaxLocalSegmentSize()) bytes = gasnet_getMaxLocalSegmentSize();
  if (bytes == 0) bytes = GASNET_PAGESIZE;
  printf("rank %u is up\n", (unsigned)me);
  fflush(stdout);
  if (!strcmp(argv[2], "attach")) {
    gex_System_SetVerboseErrors(1);
    if (me == kRankOfTheWay % ranks) return end_soon_as(argv[1]);
  }
  if (gex_Segment_Attach(&segment, team, bytes)) return 95;
  segments = (gasnet_seginfo_t*)calloc(ranks, sizeof *segments);
  if (gasnet_getSegmentInfo(segments, (int)ranks)) return 94;
  for (size_t at = 0; at < bytes; at += 4096) ((char*)segments[me].addr)[at] = 1;
  meet();
  if (!strcmp(argv[1], "storm")) {
    storm(me, ranks, bytes);
    gasnet_exit(0);
  }
  if (!strcmp(argv[2], "child")) {
    if (me == kRankOfTheWay % ranks) fork_a_child_that_ends_as(argv[1]);
    meet();
    return 0;
  }
  if (me == kRankOfTheWay % ranks) {
    return strcmp(argv[2], "wait") ? end_as(argv[1]) : end_soon_as(argv[1]);
  }
  go_on(argv[2]);
  return 93;
}
