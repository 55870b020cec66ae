// Rank 0 repeats each call with GEX_FLAG_IMMEDIATE until it is refused, while rank 1 sleeps without a poll:
// a call that waits for that rank never returns. Then rank 1 is woken by a signal, all that was accepted
// completes, and what was refused has not been done. The argument is the number of the call that is made
// first: it uses up what the others need, too. With the argument "retry" rank 1 polls, and rank 0 repeats
// each call until it is accepted. With a second argument, "heap", what need not lie in segments does not;
// with "unaided" the kernel also refuses to copy. Run by progress_jobs_test.py.
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
#include <sys/syscall.h>
#include <unistd.h>

#include "../../support/forbid_calls.h"

namespace {

constexpr size_t kSlot = size_t{3} << 19;  // of each call, in the segments
constexpr size_t kMany = size_t{9}
                         << 17;   // bytes of a call that needs more messages than there is room for
constexpr uint64_t kMost = 2000;  // calls, where none is refused; of large ones:
constexpr uint64_t kMostLarge = 40;
gex_TM_t team;
gex_AD_t domain;
char* there;
char* here;
std::array<char, kSlot> source;
std::array<char, kSlot> changing;

// The source of calls that leave it free: it is overwritten behind each call.
char* fresh_source() {
  std::memcpy(changing.data(), source.data(), kMany);
  return changing.data();
}
int overwritten(int code) {
  std::memset(changing.data(), 0x77, kMany);
  return code;
}

bool is_refused(gex_Event_t event) {
  if (event == GEX_EVENT_NO_OP) return true;
  gex_Event_Wait(event);
  return false;
}

// Each returns nonzero if it was refused, and is always called with the same place. Lists of pieces stay as
// they are until the operation is complete.
int put(char* to) {
  return gex_RMA_PutNBI(team, 1, to, source.data(), 100, GEX_EVENT_DEFER, GEX_FLAG_IMMEDIATE);
}
int long_put(char* to) {
  return gex_RMA_PutNBI(team, 1, to, source.data(), 60000, GEX_EVENT_DEFER, GEX_FLAG_IMMEDIATE);
}
int get(char* from) { return gex_RMA_GetNBI(team, here, 1, from, 3000, GEX_FLAG_IMMEDIATE); }
int indexed_put(char* to) {
  static void* const pieces[] = {to, to + 64, to + 128};
  static void* const whole[] = {source.data()};
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
  static const gex_Memvec_t pieces[] = {{to, 8}, {to + 64, 16}};
  static const gex_Memvec_t whole[] = {{source.data(), 24}};
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

// ---- of several messages; byte i of the source goes to byte i of the slot ----

int put_of_many(char* to) {
  return gex_RMA_PutNBI(team, 1, to, source.data(), kMany, GEX_EVENT_DEFER, GEX_FLAG_IMMEDIATE);
}
int changing_put(char* to) {
  return overwritten(
      gex_RMA_PutNBI(team, 1, to, fresh_source(), kMany, GEX_EVENT_NOW, GEX_FLAG_IMMEDIATE));
}
int get_of_many(char* from) {
  return gex_RMA_GetNBI(team, here + (from - there), 1, from, kMany, GEX_FLAG_IMMEDIATE);
}
constexpr size_t kEvery = 16;
std::array<void*, kMany / kEvery> far_pieces;
std::array<void*, kMany / kEvery> near_pieces;
int packets(char* to) {
  for (size_t i = 0; i < far_pieces.size(); ++i) {
    far_pieces[i] = to + i * kEvery;
    near_pieces[i] = source.data() + i * kEvery;
  }
  return gex_VIS_IndexedPutNBI(team, 1, far_pieces.size(), far_pieces.data(), kEvery / 2,
                               near_pieces.size(), near_pieces.data(), kEvery / 2,
                               GEX_FLAG_IMMEDIATE);
}
int changing_packets(char* to) {
  const ptrdiff_t strides[] = {kEvery};
  const size_t count[] = {kMany / kEvery};
  return overwritten(gex_VIS_StridedPutNBI(team, 1, to, strides, fresh_source(), strides,
                                           kEvery / 2, count, 1,
                                           GEX_FLAG_IMMEDIATE | GEX_FLAG_ENABLE_LEAF_LC));
}
int packets_got(char* from) {
  const ptrdiff_t strides[] = {kEvery};
  const size_t count[] = {kMany / kEvery};
  return gex_VIS_StridedGetNBI(team, here + (from - there), strides, 1, from, strides, kEvery / 2,
                               count, 1, GEX_FLAG_IMMEDIATE);
}
// Pieces that are too long for packets.
constexpr size_t kPieces = 32;
constexpr size_t kPieceStride = kMany / kPieces;
std::array<gex_Memvec_t, kPieces> far_list;
std::array<gex_Memvec_t, kPieces> near_list;
int pieces_put(char* to) {
  for (size_t i = 0; i < kPieces; ++i) {
    far_list[i] = {to + i * kPieceStride, kPieceStride / 2};
    near_list[i] = {source.data() + i * kPieceStride, kPieceStride / 2};
  }
  return gex_VIS_VectorPutNBI(team, 1, kPieces, far_list.data(), kPieces, near_list.data(),
                              GEX_FLAG_IMMEDIATE);
}
int long_of_many(char* to) {
  return overwritten(gex_AM_RequestLong0(team, 1, 202, fresh_source(), kMany, to, GEX_EVENT_NOW,
                                         GEX_FLAG_IMMEDIATE));
}

uint64_t messages = 0;
void on_message(gex_Token_t) { messages += 1; }
void on_medium(gex_Token_t, void*, size_t) { messages += 1; }

// The memory of a slot after such a call: the first `bytes` of every `stride` bytes are the source's.
bool is_right(const char* slot, size_t bytes, size_t stride, bool was_accepted) {
  for (size_t i = 0; i < kMany; ++i)
    if (slot[i] != (was_accepted && i % stride < bytes ? source[i] : 0)) return false;
  return true;
}
bool long_is_wrong = false;
void on_long(gex_Token_t, void* data, size_t bytes) {
  messages += 1;
  long_is_wrong |= bytes != kMany || !is_right(static_cast<const char*>(data), kMany, kMany, true);
}

struct Call {
  const char* name;
  int (*make)(char* place);
  bool is_message = false;
  bool is_get = false;
  size_t bytes = 0;  // of every `stride` bytes, which is_right() examines; 0: none
  size_t stride = kMany;
  bool needs_segment = false;
};
constexpr Call kCalls[] = {{"put", put},
                           {"long put", long_put},
                           {"get", get},
                           {"indexed put", indexed_put},
                           {"strided get", strided_get},
                           {"vector put", vector_put},
                           {"atomic", add, false, false, 0, kMany, true},
                           {"message", message, true},
                           {"medium", medium, true},
                           {"put of many", put_of_many, false, false, kMany},
                           {"changing put", changing_put, false, false, kMany},
                           {"get of many", get_of_many, false, true, kMany},
                           {"packets", packets, false, false, kEvery / 2, kEvery},
                           {"changing packets", changing_packets, false, false, kEvery / 2, kEvery},
                           {"packets got", packets_got, false, true, kEvery / 2, kEvery},
                           {"pieces", pieces_put, false, false, kPieceStride / 2, kPieceStride},
                           {"long", long_of_many, true, false, kMany, kMany, true}};
constexpr size_t kCount = std::size(kCalls);
std::array<uint64_t, kCount> accepted;  // by rank 0

// A rank's memory: its segment, and the same or memory of the heap for calls that do not need it.
struct Memory {
  char* segment;
  char* other;
  char* slot(const Call& call) const {
    return (call.needs_segment ? segment : other) + kSlot * static_cast<size_t>(&call - kCalls);
  }
};
std::array<Memory, 2> memories;

const Memory& own_memory() { return memories[gex_TM_QueryRank(team)]; }

// Examines what the accepted calls have moved to this rank.
bool are_slots_right(bool of_gets) {
  bool all = true;
  for (size_t i = 0; i < kCount; ++i) {
    const Call& call = kCalls[i];
    if (call.bytes == 0 || call.is_get != of_gets ||
        is_right(own_memory().slot(call), call.bytes, call.stride, accepted[i] != 0))
      continue;
    std::printf("WRONG: the data of \"%s\"\n", call.name);
    all = false;
  }
  return all;
}

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
                                GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_MEDIUM, 0, nullptr, "medium"},
                               {202, reinterpret_cast<gex_AM_Fn_t>(on_long),
                                GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_LONG, 0, nullptr, "long"}};
  if (gex_EP_RegisterHandlers(endpoint, handlers, std::size(handlers)) != GASNET_OK) return 2;
  if (gex_Segment_Attach(&segment, team, kCount * kSlot) != GASNET_OK) return 2;
  const gex_Rank_t me = gex_TM_QueryRank(team);
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, 1, nullptr, nullptr, nullptr, 0));
  Memory memory{static_cast<char*>(gex_Segment_QueryAddr(segment)), nullptr};
  const bool is_unaided = argc > 2 && std::strcmp(argv[2], "unaided") == 0;
  const bool is_on_heap = is_unaided || (argc > 2 && std::strcmp(argv[2], "heap") == 0);
  memory.other = is_on_heap ? static_cast<char*>(std::calloc(kCount, kSlot)) : memory.segment;
  gex_Event_Wait(hydrant_gather_all_nb(team, memories.data(), &memory, sizeof memory));
  there = memories[1].other;
  here = memory.other;
  pid_t own = getpid();
  std::array<pid_t, 2> processes{};
  gex_Event_Wait(hydrant_gather_all_nb(team, processes.data(), &own, sizeof own));
  gex_AD_Create(&domain, team, GEX_DT_U64, GEX_OP_ADD, 0);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<char>(1 + i % 113);
  for (const Call& call : kCalls)
    if (me == 1 && call.is_get) std::memcpy(memory.slot(call), source.data(), kMany);
  sigset_t wake;
  sigemptyset(&wake);
  sigaddset(&wake, SIGUSR1);
  sigprocmask(SIG_BLOCK, &wake, nullptr);
  gex_Coll_BarrierBlocking(team, 0);
  if (is_unaided) forbid_calls(SYS_process_vm_readv, SYS_process_vm_writev);
  const bool retries = argc > 1 && std::strcmp(argv[1], "retry") == 0;
  const size_t first = argc > 1 ? static_cast<size_t>(std::atoi(argv[1])) : 0;
  if (me == 0) {
    for (size_t i = 0; i < kCount; ++i) {
      const size_t number = (first + i) % kCount;
      const Call& call = kCalls[number];
      char* const place = memories[1].slot(call);
      if (retries) {
        for (; accepted[number] < 3; ++accepted[number])
          while (call.make(place) != 0) gasnet_AMPoll();
        continue;
      }
      const uint64_t most = call.bytes != 0 ? kMostLarge : kMost;
      while (accepted[number] < most && call.make(place) == 0) ++accepted[number];
      std::printf("%s: %s\n", call.name, accepted[number] < most ? "refused" : "accepted");
    }
    if (!retries) (void)kill(processes[1], SIGUSR1);
    gex_NBI_Wait(GEX_EC_ALL, 0);
  } else if (!retries) {
    int number = 0;
    (void)sigwait(&wake, &number);
  }
  gex_Event_Wait(
      gex_Coll_BroadcastNB(team, 0, accepted.data(), accepted.data(), sizeof accepted, 0));
  gex_Coll_BarrierBlocking(team, 0);
  bool is_good = true;
  if (me == 1) {
    uint64_t sent = 0;
    for (size_t i = 0; i < kCount; ++i) sent += kCalls[i].is_message ? accepted[i] : 0;
    GASNET_BLOCKUNTIL(messages >= sent);
    uint64_t sum = 0;
    std::memcpy(&sum, memory.slot(kCalls[6]), sizeof sum);
    is_good = sum == accepted[6] && messages == sent && !long_is_wrong;
    if (!is_good)
      std::printf("WRONG: %lu of %lu, %lu of %lu messages\n", sum, accepted[6], messages, sent);
  }
  is_good &= are_slots_right(me == 0);
  gex_Coll_BarrierBlocking(team, 0);
  gasnet_exit(is_good ? 0 : 1);
}
