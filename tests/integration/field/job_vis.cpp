// Vector, indexed and strided transfers: pieces of the source go to other pieces at the peer, and come back.
#include "tests/integration/field/job.hpp"

namespace field::vis {
namespace {

constexpr size_t kPieces = 40, kPiece = 120, kBytes = kPieces * kPiece;

// The lists of both sides: pieces in order here, apart there.
struct Lists {
  gex_Memvec_t here[kPieces], there[kPieces];
  void *here_at[kPieces], *there_at[kPieces];
};
Lists make(char* local, char* remote) {
  Lists lists;
  for (size_t i = 0; i < kPieces; ++i) {
    lists.here[i] = {local + i * kPiece, kPiece};
    lists.there[i] = {remote + i * 2 * kPiece, kPiece};
    lists.here_at[i] = lists.here[i].gex_addr;
    lists.there_at[i] = lists.there[i].gex_addr;
  }
  return lists;
}
const ptrdiff_t kHere[] = {kPiece}, kThere[] = {2 * kPiece};
const size_t kHere1[] = {kPiece}, kThere1[] = {2 * kPiece};
const size_t kCount[] = {kPieces}, kCount1[] = {kPiece, kPieces};

// Puts or gets by `move`; the other direction, and the check, by single puts and gets.
template <bool is_put, void (*move)(Lists&)>
void check() {
  char* const places[] = {segments[other] + 4096, heaps[other] + 4096};
  for (char* place : places) {
    const unsigned seed = next_seed();
    fill(source, kBytes, seed);
    std::memset(back, 0, kBytes);
    Lists lists = make(is_put ? source : back, place);
    if (is_put) move(lists);
    for (size_t i = 0; i < kPieces; ++i) {
      FIELD_DO(is_put ? gex_RMA_GetBlocking(world, back + i * kPiece, other, lists.there_at[i],
                                            kPiece, 0)
                      : gex_RMA_PutBlocking(world, other, lists.there_at[i], source + i * kPiece,
                                            kPiece, 0));
    }
    if (!is_put) move(lists);
    FIELD_IS(holds(back, kBytes, seed));
  }
}
void expect(int code) {
  if (code != GASNET_OK) (void)refused(code, nullptr);
}

#define LISTS l.there, kPieces, l.here
#define VEC(l) (const gasnet_memvec_t*)l
void v_put(Lists& l) {
  expect(gex_VIS_VectorPutBlocking(world, other, kPieces, l.there, kPieces, l.here, 0));
}
void v_put_nb(Lists& l) {
  gex_Event_Wait(gex_VIS_VectorPutNB(world, other, kPieces, l.there, kPieces, l.here, 0));
}
void v_put_nbi(Lists& l) {
  expect(gex_VIS_VectorPutNBI(world, other, kPieces, l.there, kPieces, l.here, 0));
  gex_NBI_Wait(GEX_EC_PUT, 0);
}
void v_get(Lists& l) {
  expect(gex_VIS_VectorGetBlocking(world, kPieces, l.here, other, kPieces, l.there, 0));
}
void v_get_nb(Lists& l) {
  gex_Event_Wait(gex_VIS_VectorGetNB(world, kPieces, l.here, other, kPieces, l.there, 0));
}
void v_get_nbi(Lists& l) {
  expect(gex_VIS_VectorGetNBI(world, kPieces, l.here, other, kPieces, l.there, 0));
  gex_NBI_Wait(GEX_EC_GET, 0);
}
#define THERE kPieces, l.there_at, kPiece
#define HERE kPieces, l.here_at, kPiece
void i_put(Lists& l) { expect(gex_VIS_IndexedPutBlocking(world, other, THERE, HERE, 0)); }
void i_put_nb(Lists& l) { gex_Event_Wait(gex_VIS_IndexedPutNB(world, other, THERE, HERE, 0)); }
void i_put_nbi(Lists& l) {
  expect(gex_VIS_IndexedPutNBI(world, other, THERE, HERE, 0));
  gex_NBI_Wait(GEX_EC_PUT, 0);
}
void i_get(Lists& l) { expect(gex_VIS_IndexedGetBlocking(world, HERE, other, THERE, 0)); }
void i_get_nb(Lists& l) { gex_Event_Wait(gex_VIS_IndexedGetNB(world, HERE, other, THERE, 0)); }
void i_get_nbi(Lists& l) {
  expect(gex_VIS_IndexedGetNBI(world, HERE, other, THERE, 0));
  gex_NBI_Wait(GEX_EC_GET, 0);
}
#define STHERE l.there_at[0], kThere
#define SHERE l.here_at[0], kHere
#define SHAPE kPiece, kCount, 1
void s_put(Lists& l) { expect(gex_VIS_StridedPutBlocking(world, other, STHERE, SHERE, SHAPE, 0)); }
void s_put_nb(Lists& l) {
  gex_Event_Wait(gex_VIS_StridedPutNB(world, other, STHERE, SHERE, SHAPE, 0));
}
void s_put_nbi(Lists& l) {
  expect(gex_VIS_StridedPutNBI(world, other, STHERE, SHERE, SHAPE, 0));
  gex_NBI_Wait(GEX_EC_PUT, 0);
}
void s_get(Lists& l) { expect(gex_VIS_StridedGetBlocking(world, SHERE, other, STHERE, SHAPE, 0)); }
void s_get_nb(Lists& l) {
  gex_Event_Wait(gex_VIS_StridedGetNB(world, SHERE, other, STHERE, SHAPE, 0));
}
void s_get_nbi(Lists& l) {
  expect(gex_VIS_StridedGetNBI(world, SHERE, other, STHERE, SHAPE, 0));
  gex_NBI_Wait(GEX_EC_GET, 0);
}

// ---- GASNet-1 ----

void v1_put(Lists& l) { gasnet_putv_bulk(other, kPieces, VEC(l.there), kPieces, VEC(l.here)); }
void v1_put_nb(Lists& l) {
  gasnet_wait_syncnb(gasnet_putv_nb_bulk(other, kPieces, VEC(l.there), kPieces, VEC(l.here)));
}
void v1_put_nbi(Lists& l) {
  gasnet_putv_nbi_bulk(other, kPieces, VEC(l.there), kPieces, VEC(l.here));
  gasnet_wait_syncnbi_puts();
}
void v1_get(Lists& l) { gasnet_getv_bulk(kPieces, VEC(l.here), other, kPieces, VEC(l.there)); }
void v1_get_nb(Lists& l) {
  gasnet_wait_syncnb(gasnet_getv_nb_bulk(kPieces, VEC(l.here), other, kPieces, VEC(l.there)));
}
void v1_get_nbi(Lists& l) {
  gasnet_getv_nbi_bulk(kPieces, VEC(l.here), other, kPieces, VEC(l.there));
  gasnet_wait_syncnbi_gets();
}
void i1_put(Lists& l) { gasnet_puti_bulk(other, THERE, HERE); }
void i1_put_nb(Lists& l) { gasnet_wait_syncnb(gasnet_puti_nb_bulk(other, THERE, HERE)); }
void i1_put_nbi(Lists& l) {
  gasnet_puti_nbi_bulk(other, THERE, HERE);
  gasnet_wait_syncnbi_puts();
}
void i1_get(Lists& l) { gasnet_geti_bulk(HERE, other, THERE); }
void i1_get_nb(Lists& l) { gasnet_wait_syncnb(gasnet_geti_nb_bulk(HERE, other, THERE)); }
void i1_get_nbi(Lists& l) {
  gasnet_geti_nbi_bulk(HERE, other, THERE);
  gasnet_wait_syncnbi_gets();
}
#define THERE1 l.there_at[0], kThere1
#define HERE1 l.here_at[0], kHere1
void s1_put(Lists& l) { gasnet_puts_bulk(other, THERE1, HERE1, kCount1, 1); }
void s1_put_nb(Lists& l) {
  gasnet_wait_syncnb(gasnet_puts_nb_bulk(other, THERE1, HERE1, kCount1, 1));
}
void s1_put_nbi(Lists& l) {
  gasnet_puts_nbi_bulk(other, THERE1, HERE1, kCount1, 1);
  gasnet_wait_syncnbi_puts();
}
void s1_get(Lists& l) { gasnet_gets_bulk(HERE1, other, THERE1, kCount1, 1); }
void s1_get_nb(Lists& l) {
  gasnet_wait_syncnb(gasnet_gets_nb_bulk(HERE1, other, THERE1, kCount1, 1));
}
void s1_get_nbi(Lists& l) {
  gasnet_gets_nbi_bulk(HERE1, other, THERE1, kCount1, 1);
  gasnet_wait_syncnbi_gets();
}

const Row kTable[] = {
    {"gex_VIS_VectorPutBlocking", check<true, v_put>},
    {"gex_VIS_VectorPutNB", check<true, v_put_nb>},
    {"gex_VIS_VectorPutNBI", check<true, v_put_nbi>},
    {"gex_VIS_VectorGetBlocking", check<false, v_get>},
    {"gex_VIS_VectorGetNB", check<false, v_get_nb>},
    {"gex_VIS_VectorGetNBI", check<false, v_get_nbi>},
    {"gex_VIS_IndexedPutBlocking", check<true, i_put>},
    {"gex_VIS_IndexedPutNB", check<true, i_put_nb>},
    {"gex_VIS_IndexedPutNBI", check<true, i_put_nbi>},
    {"gex_VIS_IndexedGetBlocking", check<false, i_get>},
    {"gex_VIS_IndexedGetNB", check<false, i_get_nb>},
    {"gex_VIS_IndexedGetNBI", check<false, i_get_nbi>},
    {"gex_VIS_StridedPutBlocking", check<true, s_put>},
    {"gex_VIS_StridedPutNB", check<true, s_put_nb>},
    {"gex_VIS_StridedPutNBI", check<true, s_put_nbi>},
    {"gex_VIS_StridedGetBlocking", check<false, s_get>},
    {"gex_VIS_StridedGetNB", check<false, s_get_nb>},
    {"gex_VIS_StridedGetNBI", check<false, s_get_nbi>},
    {"gasnet_putv_bulk", check<true, v1_put>},
    {"gasnet_putv_nb_bulk", check<true, v1_put_nb>},
    {"gasnet_putv_nbi_bulk", check<true, v1_put_nbi>},
    {"gasnet_getv_bulk", check<false, v1_get>},
    {"gasnet_getv_nb_bulk", check<false, v1_get_nb>},
    {"gasnet_getv_nbi_bulk", check<false, v1_get_nbi>},
    {"gasnet_puti_bulk", check<true, i1_put>},
    {"gasnet_puti_nb_bulk", check<true, i1_put_nb>},
    {"gasnet_puti_nbi_bulk", check<true, i1_put_nbi>},
    {"gasnet_geti_bulk", check<false, i1_get>},
    {"gasnet_geti_nb_bulk", check<false, i1_get_nb>},
    {"gasnet_geti_nbi_bulk", check<false, i1_get_nbi>},
    {"gasnet_puts_bulk", check<true, s1_put>},
    {"gasnet_puts_nb_bulk", check<true, s1_put_nb>},
    {"gasnet_puts_nbi_bulk", check<true, s1_put_nbi>},
    {"gasnet_gets_bulk", check<false, s1_get>},
    {"gasnet_gets_nb_bulk", check<false, s1_get_nb>},
    {"gasnet_gets_nbi_bulk", check<false, s1_get_nbi>},
};

}  // namespace

Rows rows() { return {kTable, sizeof kTable / sizeof *kTable}; }

}  // namespace field::vis
