// Atomic operations on this rank's memory and, by messages, on that of rank 1, which is this process, too:
// results, completion, GEX_FLAG_IMMEDIATE, and texts for wrong calls.
#include "extended/atomics/atomic_counts.hpp"
#include "extended/atomics/atomic_domain.hpp"
#include "extended/atomics/atomic_messages.hpp"
#include "extended/atomics/atomic_ops.hpp"
#include "tests/integration/atomics/typed_calls.hpp"
#include "tests/unit/extended/rma_fixture.hpp"

#include <cstring>
#include <random>

namespace hydrant::test {
namespace {

class AtomicCalls : public RmaFixture {
 protected:
  void SetUp() override {
    RmaFixture::SetUp();
    add_atomic_handlers();
    job().segment = {.client = &job().client,
                     .flags = 0,
                     .addr = words_,
                     .size = sizeof words_,
                     .cdata = nullptr};
    job().endpoint.segment = &job().segment;
  }
  void TearDown() override {
    job().debug = false;
    RmaFixture::TearDown();
  }
  // `all_mapped`: calls for this rank need no library.
  gex_AD_t make(gex_DT_t type, gex_OP_t ops, bool all_mapped = false) {
    std::unique_ptr<AtomicDomain> domain = AtomicDomain::make(&hydrant_world, type, ops, 0);
    EXPECT_NE(domain, nullptr);
    EXPECT_FALSE(domain->maps_all_members());
    domain->decide({.all_mapped = all_mapped, .may_use_adapter = false, .with_processors = false});
    return live_domains().add(std::move(domain));
  }
  static uint64_t count(AtomicPath path) { return atomic_counts()[static_cast<size_t>(path)]; }

  // Each operation of the type, NB and NBI, compared with the model.
  template <typename T>
  void run_all(gex_Rank_t rank, bool all_mapped) {
    const gex_AD_t ad = make(kTypeOf<T>, operations_of<T>(), all_mapped);
    std::mt19937_64 random(rank + 1);
    auto* target = reinterpret_cast<T*>(words_) + 5;
    for (int i = 0; i < 2000; ++i) {
      const gex_OP_t op = kAllOperations[random() % kAllOperations.size()];
      if ((operations_of<T>() & op) == 0) continue;
      const auto old = random_value<T>(random);
      const T operand1 = random() % 4 == 0 ? old : random_value<T>(random);
      const auto operand2 = random_value<T>(random);
      *target = old;
      T result{9};
      run_call<T>(random() % 2 == 0, ad, &result, rank, target, op, operand1, operand2, 0);
      EXPECT_TRUE(are_same(*target, model_of(op, old, operand1, operand2))) << atomic_op_name(op);
      EXPECT_TRUE(are_same_bits(result, is_fetching(op) ? old : T{9})) << atomic_op_name(op);
    }
    gex_AD_Destroy(ad);
  }
  void run_all_types(gex_Rank_t rank, bool all_mapped) {
    run_all<int32_t>(rank, all_mapped);
    run_all<uint32_t>(rank, all_mapped);
    run_all<int64_t>(rank, all_mapped);
    run_all<uint64_t>(rank, all_mapped);
    run_all<float>(rank, all_mapped);
    run_all<double>(rank, all_mapped);
  }

  alignas(4096) uint64_t words_[512] = {};
};

TEST_F(AtomicCalls, AllOperationsOnThisRanksMemory) {
  const uint64_t before = count(AtomicPath::kSelf);
  run_all_types(0, false);
  EXPECT_GT(count(AtomicPath::kSelf), before + 6000);
  const uint64_t counted = count(AtomicPath::kSelf);
  run_all_types(0, true);
  EXPECT_EQ(count(AtomicPath::kSelf), counted) << "inlined calls are not counted";
}

TEST_F(AtomicCalls, AllOperationsByMessages) {
  const uint64_t before = count(AtomicPath::kMessages);
  run_all_types(kPeer, false);
  EXPECT_GT(count(AtomicPath::kMessages), before + 6000);
}

// As with HYDRANT_PATH=am: also this rank's memory is reached by messages, in the call.
TEST_F(AtomicCalls, MessagesToThisRankItself) {
  choose({{"HYDRANT_PATH", "am"}});
  const uint64_t before = count(AtomicPath::kMessages);
  run_all_types(0, false);
  EXPECT_GT(count(AtomicPath::kMessages), before + 6000);
}

TEST_F(AtomicCalls, ImplicitOperationsCountByCategory) {
  const gex_AD_t ad = make(GEX_DT_U64, operations_of<uint64_t>());
  uint64_t old = 0;
  const struct {
    gex_OP_t op;
    gex_EC_t category;
  } rows[] = {{GEX_OP_SET, GEX_EC_PUT}, {GEX_OP_GET, GEX_EC_GET}, {GEX_OP_FADD, GEX_EC_RMW},
              {GEX_OP_ADD, GEX_EC_RMW}, {GEX_OP_CAS, GEX_EC_RMW}, {GEX_OP_SWAP, GEX_EC_RMW}};
  for (const auto& row : rows) {
    EXPECT_EQ(gex_AD_OpNBI_U64(ad, &old, kPeer, words_, row.op, 1, 2, 0), GASNET_OK);
    for (const gex_EC_t category : {GEX_EC_PUT, GEX_EC_GET, GEX_EC_RMW, GEX_EC_ALL}) {
      const bool is_pending = (category & row.category) != 0;
      EXPECT_EQ(gex_NBI_Test(category, 0), is_pending ? GASNET_ERR_NOT_READY : GASNET_OK);
    }
    gex_NBI_Wait(row.category, 0);
    EXPECT_EQ(gex_NBI_Test(GEX_EC_ALL, 0), GASNET_OK);
  }
  gex_AD_Destroy(ad);
}

TEST_F(AtomicCalls, AnAccessRegionHasOneEvent) {
  const gex_AD_t ad = make(GEX_DT_U64, GEX_OP_FADD | GEX_OP_SET);
  uint64_t old[2] = {9, 9};
  *words_ = 0;
  gex_NBI_BeginAccessRegion(0);
  EXPECT_EQ(gex_AD_OpNBI_U64(ad, nullptr, kPeer, words_, GEX_OP_SET, 5, 0, 0), 0);
  EXPECT_EQ(gex_AD_OpNBI_U64(ad, &old[0], kPeer, words_, GEX_OP_FADD, 1, 0, 0), 0);
  EXPECT_EQ(gex_AD_OpNBI_U64(ad, &old[1], kPeer, words_, GEX_OP_FADD, 1, 0, 0), 0);
  const gex_Event_t event = gex_NBI_EndAccessRegion(0);
  EXPECT_EQ(gex_Event_Test(event), GASNET_ERR_NOT_READY);
  gex_Event_Wait(event);
  EXPECT_EQ(*words_, 7u);
  EXPECT_EQ(old[0] + old[1], 11u);
  gex_AD_Destroy(ad);
}

TEST_F(AtomicCalls, ImmediateCallsDoNotWait) {
  const gex_AD_t ad = make(GEX_DT_U64, GEX_OP_FADD | GEX_OP_INC);
  uint64_t old = 9;
  *words_ = 4;
  network->refusal = Status::kNotReady;
  network->refused_call = 1;
  network->refused_calls = 2;
  constexpr gex_Flags_t kImmediate = GEX_FLAG_IMMEDIATE;
  EXPECT_EQ(gex_AD_OpNB_U64(ad, &old, kPeer, words_, GEX_OP_FADD, 1, 0, kImmediate),
            GEX_EVENT_NO_OP);
  EXPECT_NE(gex_AD_OpNBI_U64(ad, &old, kPeer, words_, GEX_OP_FADD, 1, 0, kImmediate), 0);
  EXPECT_EQ(*words_, 4u);
  EXPECT_EQ(old, 9u);
  EXPECT_EQ(gex_AD_OpNBI_U64(ad, &old, kPeer, words_, GEX_OP_FADD, 1, 0, kImmediate), 0);
  gex_NBI_Wait(GEX_EC_RMW, 0);
  EXPECT_EQ(old, 4u);
  EXPECT_EQ(gex_AD_OpNB_U64(ad, nullptr, 0, words_, GEX_OP_INC, 0, 0, kImmediate),
            GEX_EVENT_INVALID);
  EXPECT_EQ(*words_, 6u);
  gex_AD_Destroy(ad);
}

TEST_F(AtomicCalls, MoreThanTheDepthWaitForRoom) {
  choose({{"GASNET_NETWORKDEPTH", "2"}});
  in_new_thread([&] {
    const gex_AD_t ad = make(GEX_DT_I32, GEX_OP_FINC);
    int32_t old[50];
    auto* word = reinterpret_cast<int32_t*>(words_);
    *word = 0;
    for (int32_t& each : old)
      ASSERT_EQ(gex_AD_OpNBI_I32(ad, &each, kPeer, word, GEX_OP_FINC, 0, 0, 0), 0);
    EXPECT_EQ(gex_AD_OpNBI_I32(ad, old, kPeer, word, GEX_OP_FINC, 0, 0, GEX_FLAG_IMMEDIATE),
              GASNET_ERR_NOT_READY);
    gex_NBI_Wait(GEX_EC_RMW, 0);
    for (int i = 0; i < 50; ++i) EXPECT_EQ(old[i], i);
    gex_AD_Destroy(ad);
  });
}

using AtomicCallsDeathTest = AtomicCalls;

TEST_F(AtomicCallsDeathTest, WrongCallsEndTheJobWithAText) {
  const gex_AD_t ad = make(GEX_DT_U64, GEX_OP_FADD | GEX_OP_ADD);
  uint64_t old = 0;
  auto* const at = reinterpret_cast<std::byte*>(words_);
  const auto call = [&](gex_Rank_t rank, void* target, gex_OP_t op, gex_Flags_t flags = 0) {
    gex_Event_Wait(gex_AD_OpNB_U64(ad, &old, rank, target, op, 1, 0, flags));
  };
  EXPECT_DEATH(call(0, at, GEX_OP_INC), "gex_AD_OpNB_U64: GEX_OP_INC is not among");
  EXPECT_DEATH(call(0, at, GEX_OP_ADD | GEX_OP_FADD), "opcode is 0x8008: pass one GEX_OP_");
  EXPECT_DEATH(call(0, at, 0), "opcode is 0: pass one GEX_OP_");
  EXPECT_DEATH(call(3, at, GEX_OP_ADD), "rank 3 is not in the domain's team of 3 ranks");
  EXPECT_DEATH(call(0, at + 4, GEX_OP_ADD), "is not aligned: it has to be a multiple of 8");
  EXPECT_DEATH(call(0, at, GEX_OP_ADD, GEX_FLAG_AD_MY_RANK | GEX_FLAG_AD_MY_NBRHD), "flags are");
  EXPECT_DEATH(call(0, at, GEX_OP_ADD, GEX_FLAG_PEER_SEG_OFFSET), "flags are");
  for (const gex_Rank_t rank : {0u, kPeer}) {
    EXPECT_DEATH(call(rank, at + sizeof words_, GEX_OP_ADD),
                 "gex_AD_Op(NB|[*])_U64: the target 0x[0-9a-f]+ is in no segment of rank [01]");
  }
  EXPECT_DEATH(gex_Event_Wait(gex_AD_OpNB_U64(ad, nullptr, 0, at, GEX_OP_FADD, 1, 0, 0)),
               "result_p is NULL, and GEX_OP_FADD returns the old value");
  EXPECT_DEATH(gex_AD_OpNBI_DBL(ad, nullptr, 0, at, GEX_OP_ADD, 1, 0, 0),
               "gex_AD_OpNBI_DBL: the domain is of GEX_DT_U64: call gex_AD_Op._U64");
  EXPECT_DEATH(hydrant_atomic_nbi(GEX_AD_INVALID, GEX_DT_U64, nullptr, 0, at, GEX_OP_ADD, 1, 0, 0),
               "gex_AD_OpNBI_U64: the domain is GEX_AD_INVALID");
  handler_depth = 1;
  EXPECT_DEATH(call(0, at, GEX_OP_ADD), "gex_AD_OpNB_U64 in a handler");
  EXPECT_DEATH(gex_AD_Destroy(ad), "gex_AD_Destroy in a handler");
  handler_depth = 0;
  job().debug = true;
  EXPECT_DEATH(call(kPeer, at, GEX_OP_ADD, GEX_FLAG_AD_MY_RANK), "the target is rank 1 of the job");
  EXPECT_DEATH(call(kPeer, at, GEX_OP_ADD, GEX_FLAG_AD_MY_NBRHD), "neighbourhood");
  gex_AD_Destroy(ad);
  // As from a debug client: calls in others are inlined, and read the domain.
  EXPECT_DEATH(hydrant_atomic_nb(ad, GEX_DT_U64, nullptr, 0, at, GEX_OP_ADD, 1, 0, 0),
               "is not an atomic domain, or was destroyed");
  EXPECT_DEATH(gex_AD_Destroy(ad), "is not an atomic domain, or was destroyed before");
}

TEST_F(AtomicCallsDeathTest, WrongDomainsEndTheJobWithAText) {
  gex_AD_t ad = GEX_AD_INVALID;
  const auto create = [&](gex_DT_t type, gex_OP_t ops, gex_Flags_t flags = 0) {
    gex_AD_Create(&ad, &hydrant_world, type, ops, flags);
  };
  EXPECT_DEATH(create(GEX_DT_USER, GEX_OP_ADD), "gex_AD_Create: dt is 0x40: pass one of");
  EXPECT_DEATH(create(GEX_DT_I32 | GEX_DT_U32, GEX_OP_ADD), "dt is 0x3: pass one of");
  EXPECT_DEATH(create(GEX_DT_I32, 0), "ops is 0");
  EXPECT_DEATH(create(GEX_DT_FLT, GEX_OP_ADD | GEX_OP_XOR), "ops contains GEX_OP_XOR");
  EXPECT_DEATH(create(GEX_DT_DBL, GEX_OP_FAND), "no atomic operation of GEX_DT_DBL");
  EXPECT_DEATH(create(GEX_DT_I64, GEX_OP_USER), "ops contains");
  EXPECT_DEATH(create(GEX_DT_I64, GEX_OP_ADD, GEX_FLAG_AD_FAVOR_MY_RANK | GEX_FLAG_AD_FAVOR_REMOTE),
               "flags are 0x5: pass 0, or one of GEX_FLAG_AD_FAVOR");
  EXPECT_DEATH(create(GEX_DT_I64, GEX_OP_ADD, GEX_FLAG_SELF_SEG_OFFSET),
               "flags are 0x10: pass 0, or one of");
  EXPECT_DEATH(gex_AD_Create(nullptr, &hydrant_world, GEX_DT_I64, GEX_OP_ADD, 0), "ad_p is NULL");
  EXPECT_DEATH(gex_AD_Create(&ad, GEX_TM_INVALID, GEX_DT_I64, GEX_OP_ADD, 0), "GEX_TM_INVALID");
  const gex_TM_t pair = gex_TM_Pair(&job().endpoint, 0);
  EXPECT_DEATH(gex_AD_Create(&ad, pair, GEX_DT_I64, GEX_OP_ADD, 0), "a pair of endpoints");
}

}  // namespace
}  // namespace hydrant::test
