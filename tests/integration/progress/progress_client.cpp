// Rank 1 computes until rank 0 has completed operations that need polls at rank 1: a reply and, over
// pinned networks, puts and gets that miss. The argument is the maximum number of seconds. Run by
// progress_jobs_test.py.
#include <gasnet.h>
#include <gasnetex.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <initializer_list>

namespace {

constexpr size_t kSegment = 1 << 20;
constexpr size_t kBlock = 20000;
int max_seconds = 20;
volatile uint64_t answers = 0;
volatile bool is_told = false;

void ask(gex_Token_t token) { gex_AM_ReplyShort0(token, 201, 0); }
void answer(gex_Token_t) { answers = answers + 1; }
void tell(gex_Token_t) { is_told = true; }

// Computes without GASNet calls until the handler of rank 0's last message has run.
bool compute() {
  timespec begin{};
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (;;) {
    for (volatile int i = 0; i < 100000; i = i + 1) {
    }
    if (is_told) return true;
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec - begin.tv_sec > max_seconds) return false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_TM_t team;
  gex_Segment_t segment;
  if (gex_Client_Init(&client, &endpoint, &team, "progress_client", &argc, &argv, 0) != GASNET_OK)
    return 2;
  if (argc > 1) max_seconds = std::atoi(argv[1]);
  gex_AM_Entry_t handlers[] = {{200, reinterpret_cast<gex_AM_Fn_t>(ask),
                                GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_SHORT, 0, nullptr, "ask"},
                               {201, reinterpret_cast<gex_AM_Fn_t>(answer),
                                GEX_FLAG_AM_REPLY | GEX_FLAG_AM_SHORT, 0, nullptr, "answer"},
                               {202, reinterpret_cast<gex_AM_Fn_t>(tell),
                                GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_SHORT, 0, nullptr, "tell"}};
  if (gex_EP_RegisterHandlers(endpoint, handlers, 3) != GASNET_OK) return 2;
  if (gex_Segment_Attach(&segment, team, kSegment) != GASNET_OK) return 2;
  const gex_Rank_t rank = gex_TM_QueryRank(team);
  void* far = nullptr;
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, 1, &far, nullptr, nullptr, 0));
  auto* mine = static_cast<char*>(gex_Segment_QueryAddr(segment));
  gex_Coll_BarrierBlocking(team, 0);
  bool is_good = true;
  if (rank == 1) {
    is_good = compute();
  } else if (rank == 0) {
    for (uint64_t i = 1; i <= 100; ++i) {
      gex_AM_RequestShort0(team, 1, 200, 0);
      GASNET_BLOCKUNTIL(answers == i);
    }
    for (size_t bytes : {size_t{8}, kBlock}) {
      std::memset(mine, 5, bytes);
      gex_RMA_PutBlocking(team, 1, far, mine, bytes, 0);
      std::memset(mine + kBlock, 0, bytes);
      gex_RMA_GetBlocking(team, mine + kBlock, 1, far, bytes, 0);
      is_good = is_good && std::memcmp(mine, mine + kBlock, bytes) == 0;
    }
    gex_AM_RequestShort0(team, 1, 202, 0);
  }
  if (!is_good) std::fprintf(stderr, "rank %u: not in %d s\n", rank, max_seconds);
  gex_Coll_BarrierBlocking(team, 0);
  if (rank == 0 && is_good) std::puts("answered");
  gasnet_exit(is_good ? 0 : 1);
}
