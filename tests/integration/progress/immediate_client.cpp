// Rank 0 repeats each call with GEX_FLAG_IMMEDIATE until it is refused, while rank 1 sleeps without a poll:
// a call that waits for that rank never returns. Then rank 1 is woken by a signal, all that was accepted
// completes, and what was refused has not been done. The argument is the number of the call that is made
// first: it uses up what the others need, too. Run by progress_jobs_test.py.
#include <gasnetex.h>
#include <hydrant/coll.h>

#include <array>
#include <csignal>
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

constexpr size_t kSlot = 1 << 16;  // of each call, in rank 1's segment
constexpr int kMost = 2000;        // calls, where none is refused
gex_TM_t team;
gex_AD_t domain;
char* there;
char* here;
std::array<char, kSlot> source;

bool is_refused(gex_Event_t event) {
  if (event == GEX_EVENT_NO_OP) return true;
  gex_Event_Wait(event);
  return false;
}

// Each returns nonzero if it was refused.
int put(char* to) {
  return gex_RMA_PutNBI(team, 1, to, source.data(), 100, GEX_EVENT_DEFER, GEX_FLAG_IMMEDIATE);
}
int long_put(char* to) {
  return gex_RMA_PutNBI(team, 1, to, source.data(), 60000, GEX_EVENT_DEFER, GEX_FLAG_IMMEDIATE);
}
int get(char* from) { return gex_RMA_GetNBI(team, here, 1, from, 3000, GEX_FLAG_IMMEDIATE); }
int indexed_put(char* to) {
  void* const pieces[] = {to, to + 64, to + 128};
  void* const whole[] = {source.data()};
  return gex_VIS_IndexedPutNBI(team, 1, 3, pieces, 8, 1, whole, 24, GEX_FLAG_IMMEDIATE);
}
int strided_get(char* from) {
  const ptrdiff_t strides[] = {64};
  const ptrdiff_t dense[] = {8};
  const size_t count[] = {3};
  return gex_VIS_StridedGetNBI(team, here, dense, 1, from, strides, 8, count, 1,
                               GEX_FLAG_IMMEDIATE);
}
int vector_put(char* to) {
  const gex_Memvec_t pieces[] = {{to, 8}, {to + 64, 16}};
  const gex_Memvec_t whole[] = {{source.data(), 24}};
  return gex_VIS_VectorPutNBI(team, 1, 2, pieces, 1, whole, GEX_FLAG_IMMEDIATE);
}
int add(char* to) {
  return gex_AD_OpNBI_U64(domain, nullptr, 1, to, GEX_OP_ADD, 1, 0, GEX_FLAG_IMMEDIATE);
}
int message(char*) { return gex_AM_RequestShort0(team, 1, 200, GEX_FLAG_IMMEDIATE); }
int medium(char*) {
  return gex_AM_RequestMedium0(team, 1, 201, source.data(), 5000, GEX_EVENT_NOW,
                               GEX_FLAG_IMMEDIATE);
}

uint64_t messages = 0;
void on_message(gex_Token_t) { messages += 1; }
void on_medium(gex_Token_t, void*, size_t) { messages += 1; }

struct Call {
  const char* name;
  int (*make)(char* place);
};
constexpr Call kCalls[] = {{"put", put},
                           {"long put", long_put},
                           {"get", get},
                           {"indexed put", indexed_put},
                           {"strided get", strided_get},
                           {"vector put", vector_put},
                           {"atomic", add},
                           {"message", message},
                           {"medium", medium}};

}  // namespace

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_Segment_t segment;
  if (gex_Client_Init(&client, &endpoint, &team, "immediate_client", &argc, &argv, 0) != GASNET_OK)
    return 2;
  gex_AM_Entry_t handlers[] = {{200, reinterpret_cast<gex_AM_Fn_t>(on_message),
                                GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_SHORT, 0, nullptr, "message"},
                               {201, reinterpret_cast<gex_AM_Fn_t>(on_medium),
                                GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_MEDIUM, 0, nullptr, "medium"}};
  if (gex_EP_RegisterHandlers(endpoint, handlers, 2) != GASNET_OK) return 2;
  if (gex_Segment_Attach(&segment, team, 1 << 20) != GASNET_OK) return 2;
  const gex_Rank_t me = gex_TM_QueryRank(team);
  void* far = nullptr;
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, 1, &far, nullptr, nullptr, 0));
  there = static_cast<char*>(far);
  here = static_cast<char*>(gex_Segment_QueryAddr(segment));
  pid_t own = getpid();
  std::array<pid_t, 2> processes{};
  gex_Event_Wait(hydrant_gather_all_nb(team, processes.data(), &own, sizeof own));
  gex_AD_Create(&domain, team, GEX_DT_U64, GEX_OP_ADD, 0);
  source.fill(5);
  sigset_t wake;
  sigemptyset(&wake);
  sigaddset(&wake, SIGUSR1);
  sigprocmask(SIG_BLOCK, &wake, nullptr);
  gex_Coll_BarrierBlocking(team, 0);
  const size_t first = argc > 1 ? static_cast<size_t>(std::atoi(argv[1])) : 0;
  uint64_t added = 0;
  uint64_t sent = 0;
  if (me == 0) {
    for (size_t i = 0; i < std::size(kCalls); ++i) {
      const Call& call = kCalls[(first + i) % std::size(kCalls)];
      char* const place = there + kSlot * static_cast<size_t>(&call - kCalls);
      int accepted = 0;
      while (accepted < kMost && call.make(place) == 0) ++accepted;
      std::printf("%s: %s\n", call.name, accepted < kMost ? "refused" : "accepted");
      if (call.make == add) added = static_cast<uint64_t>(accepted);
      if (call.make == message || call.make == medium) sent += static_cast<uint64_t>(accepted);
    }
    (void)kill(processes[1], SIGUSR1);
    gex_NBI_Wait(GEX_EC_ALL, 0);
  } else {
    int number = 0;
    (void)sigwait(&wake, &number);
  }
  gex_Event_Wait(gex_Coll_BroadcastNB(team, 0, &added, &added, sizeof added, 0));
  gex_Event_Wait(gex_Coll_BroadcastNB(team, 0, &sent, &sent, sizeof sent, 0));
  gex_Coll_BarrierBlocking(team, 0);
  bool is_good = true;
  if (me == 1) {
    GASNET_BLOCKUNTIL(messages >= sent);
    uint64_t sum = 0;
    std::memcpy(&sum, here + 6 * kSlot, sizeof sum);
    is_good = sum == added && messages == sent;
    if (!is_good)
      std::printf("WRONG: %lu of %lu, %lu of %lu messages\n", sum, added, messages, sent);
  }
  gex_Coll_BarrierBlocking(team, 0);
  gasnet_exit(is_good ? 0 : 1);
}
