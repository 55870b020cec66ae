// A rank of two, which makes each call of the API of jobs: see field.hpp.
#include <hydrant/pin_cache.h>

#include "tests/integration/field/job.hpp"

#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace field {

gex_Client_t client;
gex_EP_t endpoint;
gex_TM_t world;
gex_Segment_t segment;
gex_Rank_t me, other;
char* segments[kRanks];
char* heaps[kRanks];
alignas(16) char source[kLarge], back[kLarge];

unsigned next_seed() {
  static unsigned seed = 0;
  return ++seed & 0x7fff;
}

namespace {

void clients() {
  FIELD_IS(std::strcmp(gex_Client_QueryName(client), "field") == 0 &&
           gex_Client_QueryFlags(client) == 0);
  gex_Client_SetCData(client, source);
  FIELD_IS(gex_Client_QueryCData(client) == source);
  gex_Client_t c = nullptr;
  gex_EP_t e = nullptr;
  gex_TM_t t = nullptr;
  gex_Segment_t s = nullptr;
  gasnet_QueryGexObjects(&c, &e, &t, &s);
  FIELD_IS(c == client && e == endpoint && t == world && s == segment);
}

// Endpoints are never destroyed: there is one, which gets a new segment each time.
void endpoints() {
  static gex_EP_t ep = GEX_EP_INVALID;
  static char own[65536];
  gex_Segment_t of = GEX_SEGMENT_INVALID;
  if (ep == GEX_EP_INVALID) FIELD_DO(gex_EP_Create(&ep, client, GEX_EP_CAPABILITY_RMA, 0));
  FIELD_DO(gex_Segment_Create(&of, client, own, sizeof own, GEX_MK_HOST, 0));
  FIELD_IS(gex_Segment_QuerySize(of) >= sizeof own);
  FIELD_DO(gex_EP_BindSegment(ep, of, 0));
  FIELD_IS(gex_EP_QuerySegment(ep) == of && gex_EP_QueryIndex(ep) == 1 &&
           gex_EP_QueryClient(ep) == client);
  gex_EP_SetCData(ep, source);
  FIELD_IS(gex_EP_QueryCData(ep) == source && (gex_EP_QueryFlags(ep), true));
  FIELD_DO(gex_EP_PublishBoundSegment(world, &ep, 1, 0));
  void* at = nullptr;
  uintptr_t bytes = 0;
  const gex_TM_t pair = gex_TM_Pair(endpoint, gex_EP_QueryIndex(ep));
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(pair, other, &at, nullptr, &bytes, 0));
  FIELD_IS(bytes >= sizeof own);
  const unsigned seed = next_seed();
  fill(source, 3000, seed);
  FIELD_DO(gex_RMA_PutBlocking(pair, other, at, source, 3000, 0));
  std::memset(back, 0, 3000);
  FIELD_DO(gex_RMA_GetBlocking(pair, back, other, at, 3000, 0));
  FIELD_IS(holds(back, 3000, seed));
  gex_Coll_BarrierBlocking(world, 0);
  gex_Segment_Destroy(of, 0);
}
void lone_segment() {
  gex_Segment_t lone = GEX_SEGMENT_INVALID;
  FIELD_DO(gex_Segment_Create(&lone, client, nullptr, 65536, GEX_MK_HOST, 0));
  std::memset(gex_Segment_QueryAddr(lone), 1, 65536);
  gex_Segment_Destroy(lone, 0);
}
void segments_() {
  FIELD_IS(gex_Segment_QueryAddr(segment) == segments[me] &&
           gex_Segment_QuerySize(segment) == kSegment);
  FIELD_IS(gex_Segment_QueryClient(segment) == client && (gex_Segment_QueryFlags(segment), true));
  gex_Segment_SetCData(segment, source);
  FIELD_IS(gex_Segment_QueryCData(segment) == source);
  void* at = nullptr;
  uintptr_t bytes = 0;
  FIELD_DO(gex_Segment_QueryBound(world, other, &at, nullptr, &bytes));
  FIELD_IS(at == segments[other] && bytes == kSegment);
  at = nullptr;
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(world, other, &at, nullptr, &bytes, 0));
  FIELD_IS(at == segments[other] && bytes == kSegment);
  gasnet_seginfo_t infos[kRanks];
  FIELD_DO(gasnet_getSegmentInfo(infos, kRanks));
  FIELD_IS(infos[other].addr == segments[other]);
  gasnet_nodeinfo_t nodes[kRanks];
  FIELD_DO(gasnet_getNodeInfo(nodes, kRanks));
  FIELD_IS(nodes[0].host == nodes[1].host);
  FIELD_IS(gasnet_getMaxLocalSegmentSize() > 0 && gasnet_getMaxGlobalSegmentSize() > 0);
}
void handlers() {
  gex_AM_Entry_t none{};
  FIELD_DO(gex_EP_RegisterHandlers(endpoint, &none, 0));
}
void system_() {
  gex_RankInfo_t* infos = nullptr;
  gex_Rank_t count = 0, mine = 99, a = 0, b = 0, c = 0, d = 0;
  FIELD_IS(gex_System_QueryJobRank() == me && gex_System_QueryJobSize() == kRanks);
  FIELD_IS(gasnet_mynode() == me && gasnet_nodes() == kRanks);
  gex_System_QueryNbrhdInfo(&infos, &count, &mine);
  FIELD_IS(count == kRanks && mine == me && infos[me].gex_jobrank == me);
  gex_System_QueryHostInfo(&infos, &count, &mine);
  FIELD_IS(count == kRanks && mine == me);
  gex_System_QueryMyPosition(&a, &b, &c, &d);
  FIELD_IS(a == 1 && c == 1);
  const int verbose = gex_System_GetVerboseErrors();
  gex_System_SetVerboseErrors(!verbose);
  gex_System_SetVerboseErrors(verbose);
  FIELD_IS(gex_System_QueryMaxThreads() > 1 && gex_System_QueryHiddenAMConcurrencyLevel() == 0);
  unsigned threads = 9;
  const gex_ProgressThreadInfo_t* of = nullptr;
  FIELD_IS(gex_System_QueryProgressThreads(client, &threads, &of, 0) == GASNET_ERR_RESOURCE);
  FIELD_IS(std::strcmp(gasnet_ErrorName(GASNET_ERR_RESOURCE), "GASNET_ERR_RESOURCE") == 0);
  FIELD_IS(*gasnet_ErrorDesc(GASNET_ERR_RESOURCE) != 0);
  const char* const value = gasnet_getenv("FIELD_EXPECTED");
  FIELD_IS(value != nullptr && std::strcmp(value, "value") == 0);
}
void locks() {
  static gex_HSL_t lock;
  gex_HSL_Init(&lock);
  gex_HSL_Lock(&lock);
  FIELD_IS(gex_HSL_Trylock(&lock) == GASNET_ERR_NOT_READY);
  gex_HSL_Unlock(&lock);
  FIELD_DO(gex_HSL_Trylock(&lock));
  gex_HSL_Unlock(&lock);
  gex_HSL_Destroy(&lock);
  static gasnet_hsl_t lock1;
  gasnet_hsl_init(&lock1);
  gasnet_hsl_lock(&lock1);
  FIELD_IS(gasnet_hsl_trylock(&lock1) == GASNET_ERR_NOT_READY);
  gasnet_hsl_unlock(&lock1);
  gasnet_hsl_destroy(&lock1);
}
void kinds() {
  gex_MK_Create_args_t args{};
  args.gex_class = GEX_MK_CLASS_CUDA_UVA;
  gex_MK_t kind = GEX_MK_INVALID;
  FIELD_IS(gex_MK_Create(&kind, client, &args, 0) == GASNET_ERR_BAD_ARG &&
           *hydrant_last_error_text() != 0);
  FIELD_IS(gex_MK_QueryClass(GEX_MK_HOST) == GEX_MK_CLASS_HOST);
}

const Row kTable[] = {
    {"gex_Client_QueryName gex_Client_QueryFlags gex_Client_SetCData gex_Client_QueryCData "
     "gasnet_QueryGexObjects",
     clients},
    {"gex_EP_Create gex_Segment_Create gex_EP_BindSegment gex_EP_PublishBoundSegment gex_TM_Pair "
     "gex_EP_QuerySegment "
     "gex_EP_QueryIndex gex_EP_QueryClient gex_EP_SetCData gex_EP_QueryCData gex_EP_QueryFlags",
     endpoints},
    {"gex_Segment_Create gex_Segment_Destroy", lone_segment},
    {"gex_Segment_QueryAddr gex_Segment_QuerySize gex_Segment_QueryClient gex_Segment_QueryFlags "
     "gex_Segment_SetCData gex_Segment_QueryCData gex_Segment_QueryBound "
     "gex_EP_QueryBoundSegmentNB "
     "gasnet_getSegmentInfo gasnet_getNodeInfo gasnet_getMaxLocalSegmentSize "
     "gasnet_getMaxGlobalSegmentSize",
     segments_},
    {"gex_EP_RegisterHandlers", handlers},
    {"gex_System_QueryJobRank gex_System_QueryJobSize gasnet_mynode gasnet_nodes "
     "gex_System_QueryNbrhdInfo "
     "gex_System_QueryHostInfo gex_System_QueryMyPosition gex_System_GetVerboseErrors "
     "gex_System_SetVerboseErrors "
     "gex_System_QueryMaxThreads gex_System_QueryHiddenAMConcurrencyLevel "
     "gex_System_QueryProgressThreads "
     "gasnet_ErrorName gasnet_ErrorDesc gasnet_getenv",
     system_},
    {"gex_HSL_Init gex_HSL_Lock gex_HSL_Trylock gex_HSL_Unlock gex_HSL_Destroy gasnet_hsl_init "
     "gasnet_hsl_lock "
     "gasnet_hsl_trylock gasnet_hsl_unlock gasnet_hsl_destroy",
     locks},
    {"gex_MK_Create gex_MK_QueryClass hydrant_last_error_text", kinds},
};

}  // namespace

}  // namespace field

int main(int argc, char** argv) {
  using namespace field;
  static Row rows[kRows];
  unsigned count = 0;
  const Rows core = {kTable, sizeof kTable / sizeof *kTable};
  for (const Rows& of : {core, messages::rows(), rma::rows(), vis::rows(), teams::rows()}) {
    for (unsigned i = 0; i < of.count; ++i) rows[count++] = of.first[i];
  }
  if (!begin(argc, argv, rows, count, kRanks, [] { gasnet_AMPoll(); })) return 0;
  static char heap[kHeap];
  before_init();
  if (const int code = gex_Client_Init(&client, &endpoint, &world, "field", &argc, &argv, 0))
    return init_failed(code);
  if (const int code = gex_Segment_Attach(&segment, world, kSegment)) return init_failed(code);
  me = gex_TM_QueryRank(world), other = 1 - me;
  messages::register_handlers();
  char* mine[2] = {static_cast<char*>(gex_Segment_QueryAddr(segment)), heap};
  char* all[kRanks][2];
  gex_Event_Wait(hydrant_gather_all_nb(world, all, mine, sizeof mine));
  for (unsigned rank = 0; rank < kRanks; ++rank)
    segments[rank] = all[rank][0], heaps[rank] = all[rank][1];
  after_init(me);
  run_rows();
  gasnet_exit(0);
}
