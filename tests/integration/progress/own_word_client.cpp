// Ranks in pairs wait for each other in loops over one call, without a poll of their own: each sends a
// message whose handler counts, and repeats the call until the count, which the call reads, is that of the
// round. The handler runs in polls alone. With "peer" the call reads memory of the other rank, which that
// rank writes when its own message has been answered.
// Arguments: the call, the number of rounds, the maximum number of seconds. Run by progress_jobs_test.py.
#include <gasnetex.h>
#include <hydrant/coll.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <gasnet_coll.h>
#include <gasnet_ratomic.h>
#include <gasnet_vis.h>
#include <unistd.h>

namespace {

gex_TM_t team;
gex_AD_t domain;
gex_Rank_t me, other;
uint64_t* word;                 // of this rank's segment: messages of the other one
volatile uint64_t answers = 0;  // to this rank's messages
uint64_t written = 0;           // outside the segment: the last round that this rank has begun
std::array<uint64_t*, 256> places{};  // of all ranks' `written`

void on_message(gex_Token_t token) {
  __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
  gex_AM_ReplyShort0(token, 201, 0);
}
void on_answer(gex_Token_t) { answers = answers + 1; }

uint64_t atomic_get() {
  uint64_t value = 0;
  gex_Event_Wait(gex_AD_OpNB_U64(domain, &value, me, word, GEX_OP_GET, 0, 0, 0));
  return value;
}
uint64_t implicit_atomic_get() {
  uint64_t value = 0;
  (void)gex_AD_OpNBI_U64(domain, &value, me, word, GEX_OP_GET, 0, 0, 0);
  return value;  // an operation of this rank's own memory is complete
}
uint64_t get() {
  uint64_t value = 0;
  (void)gex_RMA_GetBlocking(team, &value, me, word, sizeof value, 0);
  return value;
}
uint64_t event_get() {
  uint64_t value = 0;
  gex_Event_Wait(gex_RMA_GetNB(team, &value, me, word, sizeof value, 0));
  return value;
}
uint64_t strided_get() {
  uint64_t value = 0;
  const ptrdiff_t stride = 4;
  const size_t count = 2;
  (void)gex_VIS_StridedGetBlocking(team, &value, &stride, me, word, &stride, 4, &count, 1, 0);
  return value;
}
uint64_t get_of_peer() {
  uint64_t value = 0;
  (void)gex_RMA_GetBlocking(team, &value, other, places[other], sizeof value, 0);
  return value;
}
uint64_t strided_get_of_peer() {
  uint64_t value = 0;
  const ptrdiff_t stride = 4;
  const size_t count = 2;
  (void)gex_VIS_StridedGetBlocking(team, &value, &stride, other, places[other], &stride, 4, &count,
                                   1, 0);
  return value;
}

struct Call {
  const char* name;
  uint64_t (*read)();
  bool is_of_peer = false;
};
constexpr Call kCalls[] = {{"atomic", atomic_get},
                           {"implicit_atomic", implicit_atomic_get},
                           {"get", get},
                           {"event_get", event_get},
                           {"strided_get", strided_get},
                           {"peer", get_of_peer, true},
                           {"strided_peer", strided_get_of_peer, true}};

time_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec;
}

}  // namespace

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_Segment_t segment;
  if (gex_Client_Init(&client, &endpoint, &team, "own_word_client", &argc, &argv, 0) != GASNET_OK)
    return 2;
  const Call* call = nullptr;
  for (const Call& each : kCalls)
    if (argc == 4 && std::strcmp(argv[1], each.name) == 0) call = &each;
  if (call == nullptr) return 2;
  const auto rounds = static_cast<uint64_t>(std::atoi(argv[2]));
  const time_t until = now() + std::atoi(argv[3]);
  gex_AM_Entry_t handlers[] = {{200, reinterpret_cast<gex_AM_Fn_t>(on_message),
                                GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_SHORT, 0, nullptr, "message"},
                               {201, reinterpret_cast<gex_AM_Fn_t>(on_answer),
                                GEX_FLAG_AM_REPLY | GEX_FLAG_AM_SHORT, 0, nullptr, "answer"}};
  if (gex_EP_RegisterHandlers(endpoint, handlers, 2) != GASNET_OK) return 2;
  if (gex_Segment_Attach(&segment, team, 1 << 20) != GASNET_OK) return 2;
  word = static_cast<uint64_t*>(gex_Segment_QueryAddr(segment));
  me = gex_TM_QueryRank(team);
  other = me ^ 1;
  uint64_t* place = &written;
  gex_Event_Wait(hydrant_gather_all_nb(team, places.data(), &place, sizeof place));
  gex_AD_Create(&domain, team, GEX_DT_U64, GEX_OP_GET, 0);
  gex_Coll_BarrierBlocking(team, 0);
  for (uint64_t round = 1; round <= rounds; ++round) {
    // The other rank is in its loop before this one needs its answer.
    if (call->is_of_peer && round % 2 == me % 2) {
      GASNET_BLOCKUNTIL(__atomic_load_n(word, __ATOMIC_SEQ_CST) == round);
      (void)usleep(100);
    }
    gex_AM_RequestShort0(team, other, 200, 0);
    if (call->is_of_peer) {
      GASNET_BLOCKUNTIL(answers == round);
      __atomic_store_n(&written, round, __ATOMIC_SEQ_CST);
    }
    while (call->read() < round) {
      if (now() <= until) continue;
      std::fprintf(stderr, "rank %u waits in round %lu\n", me, static_cast<unsigned long>(round));
      gasnet_exit(1);
    }
  }
  gex_Coll_BarrierBlocking(team, 0);
  if (me == 0) std::puts("all rounds");
  gasnet_exit(0);
}
