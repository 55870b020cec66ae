// Calls that end the job with a text. atomics_jobs_test.py has the texts.
#include "tests/integration/atomics/atomics_job.hpp"

namespace {

gex_AD_t ad;

void call_in_handler(gex_Token_t) {
  static uint64_t word = 0;
  (void)hydrant_atomic_nb(ad, GEX_DT_U64, nullptr, me, &word, GEX_OP_ADD, 1, 0, 0);
}

void send_to_handler() {
  constexpr gex_AM_Index_t kIndex = 200;
  gex_AM_Entry_t entry = {kIndex,
                          reinterpret_cast<gex_AM_Fn_t>(call_in_handler),
                          GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST,
                          0,
                          nullptr,
                          "atomic"};
  if (gex_EP_RegisterHandlers(gex_TM_QueryEP(world), &entry, 1) != GASNET_OK) gasnet_exit(2);
  barrier(world);
  if (me == 0) gex_AM_RequestShort0(world, job_size - 1, kIndex, 0);
  GASNET_BLOCKUNTIL(false);  // until the job ends
}

}  // namespace

void make_wrong_call(const std::string& what) {
  const gex_Rank_t last = job_size - 1;
  const gex_OP_t ops = GEX_OP_ADD | GEX_OP_FADD;
  if (what == "arguments") gex_AD_Create(&ad, world, GEX_DT_I64, me == last ? GEX_OP_ADD : ops, 0);
  if (what == "type") gex_AD_Create(&ad, world, me == 0 ? GEX_DT_I64 : GEX_DT_U64, ops, 0);
  if (what == "bits") gex_AD_Create(&ad, world, GEX_DT_DBL, ops | GEX_OP_XOR, 0);
  gex_AD_Create(&ad, world, GEX_DT_U64, ops, 0);
  auto* const word = word_of<uint64_t>(world, last, 0);
  const auto add = [&](void* target, gex_Rank_t rank, gex_OP_t op) {
    gex_Event_Wait(gex_AD_OpNB_U64(ad, nullptr, rank, target, op, 1, 0, 0));
  };
  if (what == "operation") add(word, last, GEX_OP_INC);
  if (what == "aligned") add(reinterpret_cast<char*>(word) + 2, last, GEX_OP_ADD);
  if (what == "rank") add(word, job_size, GEX_OP_ADD);
  if (what == "segment") add(reinterpret_cast<char*>(word) + kSegment, last, GEX_OP_ADD);
  if (what == "own_segment")
    add(word_of<uint64_t>(world, me, kSegment / sizeof(uint64_t)), me, GEX_OP_ADD);
  if (what == "adapter_segment") {
    gex_AD_Create(&ad, world, GEX_DT_U64, ops, GEX_FLAG_AD_FAVOR_REMOTE);
    add(reinterpret_cast<char*>(word) + kSegment, last, GEX_OP_ADD);
  }
  if (what == "team") {  // debug only
    gex_TM_t team = GEX_TM_INVALID;
    (void)gex_TM_Split(&team, world, 0, static_cast<int>(me), nullptr, 0, GEX_FLAG_TM_NO_SCRATCH);
    gex_AD_Create(&ad, team, GEX_DT_U64, ops, 0);
    gex_TM_Destroy(team, nullptr, 0);
    add(word, last, GEX_OP_ADD);
  }
  if (what == "null") add(word, last, GEX_OP_FADD);
  if (what == "handler") send_to_handler();
  if (what == "lock") {  // debug only
    gex_HSL_t lock;
    gex_HSL_Init(&lock);
    gex_HSL_Lock(&lock);
    add(word, last, GEX_OP_ADD);
  }
  gex_AD_Destroy(ad);
  if (what == "destroyed") add(word, last, GEX_OP_ADD);  // debug only
  if (what == "twice") gex_AD_Destroy(ad);
}
