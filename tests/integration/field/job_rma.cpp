// Puts and gets: each is read back, or reads back, in the segment and in other memory of the peer.
#include "tests/integration/field/job.hpp"

namespace field::rma {
namespace {

struct Place {
  char* at;
  size_t bytes;
};
// Few bytes are stored inline, some go into one message, many are split or pinned.
bool each_place(bool (*body)(char* at, size_t bytes)) {
  const Place places[] = {{there(), 8},      {there(), 3000},      {there(), kLarge},
                          {heap_there(), 8}, {heap_there(), 3000}, {heap_there(), kLarge}};
  for (const Place& place : places) {
    if (!body(place.at, place.bytes)) return false;
  }
  return true;
}
bool came_back(char* at, size_t bytes, unsigned seed) {
  std::memset(back, 0, bytes);
  if (const int code = gex_RMA_GetBlocking(world, back, other, at, bytes, 0))
    return refused(code, nullptr);
  return holds(back, bytes, seed) || wrong("what was put");
}
// A row of a put, which takes (destination, source, bytes) and completes.
template <void (*put)(char*, const char*, size_t)>
void check_put() {
  (void)each_place([](char* at, size_t bytes) {
    const unsigned seed = next_seed();
    fill(source, bytes, seed);
    put(at, source, bytes);
    return came_back(at, bytes, seed);
  });
}
template <void (*get)(char*, char*, size_t)>
void check_get() {
  (void)each_place([](char* at, size_t bytes) {
    const unsigned seed = next_seed();
    fill(source, bytes, seed);
    if (const int code = gex_RMA_PutBlocking(world, other, at, source, bytes, 0))
      return refused(code, nullptr);
    std::memset(back, 0, bytes);
    get(back, at, bytes);
    return holds(back, bytes, seed) || wrong("what was got");
  });
}
void expect(int code) {
  if (code != GASNET_OK) (void)refused(code, nullptr);
}

// ---- GASNet-EX ----

void put_blocking(char* at, const char* from, size_t n) {
  expect(gex_RMA_PutBlocking(world, other, at, from, n, 0));
}
void put_nb(char* at, const char* from, size_t n) {
  gex_Event_t leaf = GEX_EVENT_INVALID;
  gex_Event_t root = gex_RMA_PutNB(world, other, at, from, n, &leaf, 0);
  gex_Event_Wait(leaf);
  while (gex_Event_Test(root) != GASNET_OK) gasnet_AMPoll();
}
void put_nb_leaf(char* at, const char* from, size_t n) {
  gex_Event_t root =
      gex_RMA_PutNB(world, other, at, from, n, GEX_EVENT_DEFER, GEX_FLAG_ENABLE_LEAF_LC);
  if (root != GEX_EVENT_INVALID) gex_Event_Wait(gex_Event_QueryLeaf(root, GEX_EC_LC));
  gex_Event_Wait(root);
}
void put_nbi(char* at, const char* from, size_t n) {
  expect(gex_RMA_PutNBI(world, other, at, from, n, GEX_EVENT_DEFER, 0));
  gex_NBI_Wait(GEX_EC_ALL, 0);
}
void put_in_region(char* at, const char* from, size_t n) {
  gex_NBI_BeginAccessRegion(0);
  expect(gex_RMA_PutNBI(world, other, at, from, n, GEX_EVENT_DEFER, 0));
  gex_Event_t event = gex_NBI_EndAccessRegion(0);
  while (gex_Event_TestSome(&event, 1, 0) != GASNET_OK) gasnet_AMPoll();
}
void get_blocking(char* to, char* at, size_t n) {
  expect(gex_RMA_GetBlocking(world, to, other, at, n, 0));
}
void get_nb(char* to, char* at, size_t n) {
  gex_Event_t events[2] = {gex_RMA_GetNB(world, to, other, at, n, 0), GEX_EVENT_INVALID};
  gex_Event_WaitAll(events, 2, 0);
}
void get_nbi(char* to, char* at, size_t n) {
  expect(gex_RMA_GetNBI(world, to, other, at, n, 0));
  while (gex_NBI_Test(GEX_EC_GET, 0) != GASNET_OK) gasnet_AMPoll();
}
void get_in_pairs(char* to, char* at, size_t n) {
  gex_Event_t events[2] = {gex_RMA_GetNB(world, to, other, at, n / 2, 0),
                           gex_RMA_GetNB(world, to + n / 2, other, at + n / 2, n - n / 2, 0)};
  gex_Event_WaitSome(events, 2, 0);
  while (gex_Event_TestAll(events, 2, 0) != GASNET_OK) gasnet_AMPoll();
}

void values() {
  const uint64_t value = next_seed() * 0x0101010101010101ull;
  char* const places[] = {there(64), heap_there(64)};
  for (char* at : places) {
    FIELD_DO(gex_RMA_PutBlockingVal(world, other, at, value, 8, 0));
    FIELD_IS(gex_RMA_GetBlockingVal(world, other, at, 8, 0) == value);
    gex_Event_Wait(gex_RMA_PutNBVal(world, other, at, value + 1, 8, 0));
    FIELD_IS(gex_RMA_GetBlockingVal(world, other, at, 8, 0) == value + 1);
    FIELD_DO(gex_RMA_PutNBIVal(world, other, at, value + 2, 8, 0));
    gex_NBI_Wait(GEX_EC_PUT, 0);
    FIELD_IS(gex_RMA_GetBlockingVal(world, other, at, 8, 0) == value + 2);
  }
}

// ---- GASNet-1 ----

void put1(char* at, const char* from, size_t n) {
  gasnet_put(other, at, const_cast<char*>(from), n);
}
void put1_bulk(char* at, const char* from, size_t n) {
  gasnet_put_bulk(other, at, const_cast<char*>(from), n);
}
void put1_nb(char* at, const char* from, size_t n) {
  gasnet_wait_syncnb(gasnet_put_nb(other, at, const_cast<char*>(from), n));
}
void put1_nb_bulk(char* at, const char* from, size_t n) {
  const gasnet_handle_t event = gasnet_put_nb_bulk(other, at, const_cast<char*>(from), n);
  while (gasnet_try_syncnb(event) != GASNET_OK) continue;
}
void put1_nbi(char* at, const char* from, size_t n) {
  gasnet_put_nbi(other, at, const_cast<char*>(from), n);
  gasnet_wait_syncnbi_puts();
}
void put1_nbi_bulk(char* at, const char* from, size_t n) {
  gasnet_put_nbi_bulk(other, at, const_cast<char*>(from), n);
  while (gasnet_try_syncnbi_puts() != GASNET_OK) continue;
}
void put1_in_region(char* at, const char* from, size_t n) {
  gasnet_begin_nbi_accessregion();
  gasnet_put_nbi_bulk(other, at, const_cast<char*>(from), n);
  gasnet_handle_t events[2] = {gasnet_end_nbi_accessregion(), GASNET_INVALID_HANDLE};
  gasnet_wait_syncnb_some(events, 2);
  gasnet_wait_syncnb_all(events, 2);
}
void get1(char* to, char* at, size_t n) { gasnet_get(to, other, at, n); }
void get1_bulk(char* to, char* at, size_t n) { gasnet_get_bulk(to, other, at, n); }
void get1_nb(char* to, char* at, size_t n) {
  gasnet_handle_t event = gasnet_get_nb(to, other, at, n);
  while (gasnet_try_syncnb_nopoll(event) != GASNET_OK) gasnet_AMPoll();
}
void get1_nb_bulk(char* to, char* at, size_t n) {
  gasnet_handle_t events[2] = {gasnet_get_nb_bulk(to, other, at, n), GASNET_INVALID_HANDLE};
  while (gasnet_try_syncnb_some(events, 2) != GASNET_OK) continue;
  while (gasnet_try_syncnb_all(events, 2) != GASNET_OK) continue;
  while (gasnet_try_syncnb_some_nopoll(events, 2) != GASNET_OK) gasnet_AMPoll();
  while (gasnet_try_syncnb_all_nopoll(events, 2) != GASNET_OK) gasnet_AMPoll();
}
void get1_nbi(char* to, char* at, size_t n) {
  gasnet_get_nbi(to, other, at, n);
  gasnet_wait_syncnbi_gets();
}
void get1_nbi_bulk(char* to, char* at, size_t n) {
  gasnet_get_nbi_bulk(to, other, at, n);
  while (gasnet_try_syncnbi_gets() != GASNET_OK) continue;
  while (gasnet_try_syncnbi_all() != GASNET_OK) continue;
  gasnet_wait_syncnbi_all();
}

void values1() {
  const uint64_t value = next_seed() * 0x0101010101010101ull;
  char* const places[] = {there(64), heap_there(64)};
  for (char* at : places) {
    gasnet_put_val(other, at, value, 8);
    FIELD_IS(gasnet_get_val(other, at, 8) == value);
    gasnet_wait_syncnb(gasnet_put_nb_val(other, at, value + 1, 8));
    FIELD_IS(gasnet_wait_syncnb_valget(gasnet_get_nb_val(other, at, 8)) == value + 1);
    gasnet_put_nbi_val(other, at, value + 2, 8);
    gasnet_wait_syncnbi_puts();
    FIELD_IS(gasnet_get_val(other, at, 8) == value + 2);
  }
}
void memsets() {
  char* const places[] = {there(128), heap_there(128)};
  for (char* at : places) {
    for (int way = 0; way < 3; ++way) {
      const int byte = static_cast<int>(next_seed() & 0x7f) + way;
      if (way == 0) gasnet_memset(other, at, byte, 5000);
      if (way == 1) gasnet_wait_syncnb(gasnet_memset_nb(other, at, byte, 5000));
      if (way == 2) {
        gasnet_memset_nbi(other, at, byte, 5000);
        gasnet_wait_syncnbi_puts();
      }
      gasnet_get(back, other, at, 5000);
      for (size_t i = 0; i < 5000; ++i) FIELD_IS(back[i] == static_cast<char>(byte));
    }
  }
}

// ---- Hydrant's own ----

void put_many(char* at, const char* from, size_t n) {
  const hydrant_rma_op_t ops[2] = {{other, at, const_cast<char*>(from), n / 2},
                                   {other, at + n / 2, const_cast<char*>(from) + n / 2, n - n / 2}};
  gex_Event_t event = GEX_EVENT_INVALID;
  expect(hydrant_put_many(world, ops, 2, n, &event));
  gex_Event_Wait(event);
}
void get_many(char* to, char* at, size_t n) {
  const hydrant_rma_op_t ops[2] = {{other, at, to, n / 2},
                                   {other, at + n / 2, to + n / 2, n - n / 2}};
  expect(hydrant_get_many(world, ops, 2, n, nullptr));
}
void run_once(hydrant_operation_t operation) {
  expect(hydrant_start(operation));
  expect(hydrant_wait(operation));
  expect(hydrant_operation_free(&operation));
}
void put_persistent(char* at, const char* from, size_t n) {
  hydrant_operation_t operation = nullptr;
  if (const int code = hydrant_put_init(world, other, at, from, n, &operation)) return expect(code);
  run_once(operation);
}
void get_persistent(char* to, char* at, size_t n) {
  hydrant_operation_t operation = nullptr;
  if (const int code = hydrant_get_init(world, other, at, to, n, &operation)) return expect(code);
  expect(hydrant_start_all(&operation, 1));
  int code;
  while ((code = hydrant_test(operation)) == GASNET_ERR_NOT_READY) continue;
  expect(code);
  expect(hydrant_operation_free(&operation));
}
const ptrdiff_t kStrides[] = {16};
void put_strided(char* at, const char* from, size_t n) {
  const size_t count[] = {n / 16};
  hydrant_operation_t operation = nullptr;
  if (const int code =
          hydrant_put_strided_init(world, other, at, kStrides, from, kStrides, n < 16 ? n : 16,
                                   n < 16 ? nullptr : count, n < 16 ? 0 : 1, &operation))
    return expect(code);
  run_once(operation);
  if (n % 16 != 0 && n > 16)
    expect(gex_RMA_PutBlocking(world, other, at + n / 16 * 16, from + n / 16 * 16, n % 16, 0));
}
void get_strided(char* to, char* at, size_t n) {
  const size_t count[] = {n / 16};
  hydrant_operation_t operation = nullptr;
  if (const int code =
          hydrant_get_strided_init(world, other, at, kStrides, to, kStrides, n < 16 ? n : 16,
                                   n < 16 ? nullptr : count, n < 16 ? 0 : 1, &operation))
    return expect(code);
  run_once(operation);
  if (n % 16 != 0 && n > 16)
    expect(gex_RMA_GetBlocking(world, to + n / 16 * 16, other, at + n / 16 * 16, n % 16, 0));
}
void paths() {
  hydrant_path_counts_t counts{};
  FIELD_IS(std::strcmp(hydrant_path_name(HYDRANT_PATH_CMA), "cma") == 0);
  FIELD_DO(hydrant_query_path(other, HYDRANT_PATH_MAPPED, &counts));
}
// Hints, which may be refused for memory that is not pinned.
void hints() {
  const int code = hydrant_prefetch(other, heap_there(), kLarge);
  if (code != GASNET_OK && *hydrant_last_error_text() == 0) return (void)refused(code, "");
  FIELD_DO(hydrant_evict(other, heap_there(), kLarge));
}

const Row kTable[] = {
    {"gex_RMA_PutBlocking", check_put<put_blocking>},
    {"gex_RMA_PutNB gex_Event_Test", check_put<put_nb>},
    {"gex_RMA_PutNB gex_Event_QueryLeaf gex_Event_Wait", check_put<put_nb_leaf>},
    {"gex_RMA_PutNBI gex_NBI_Wait", check_put<put_nbi>},
    {"gex_NBI_BeginAccessRegion gex_NBI_EndAccessRegion gex_Event_TestSome",
     check_put<put_in_region>},
    {"gex_RMA_GetBlocking", check_get<get_blocking>},
    {"gex_RMA_GetNB gex_Event_WaitAll", check_get<get_nb>},
    {"gex_RMA_GetNBI gex_NBI_Test", check_get<get_nbi>},
    {"gex_Event_WaitSome gex_Event_TestAll", check_get<get_in_pairs>},
    {"gex_RMA_PutBlockingVal gex_RMA_PutNBVal gex_RMA_PutNBIVal gex_RMA_GetBlockingVal", values},
    {"gasnet_put", check_put<put1>},
    {"gasnet_put_bulk", check_put<put1_bulk>},
    {"gasnet_put_nb gasnet_wait_syncnb", check_put<put1_nb>},
    {"gasnet_put_nb_bulk gasnet_try_syncnb", check_put<put1_nb_bulk>},
    {"gasnet_put_nbi gasnet_wait_syncnbi_puts", check_put<put1_nbi>},
    {"gasnet_put_nbi_bulk gasnet_try_syncnbi_puts", check_put<put1_nbi_bulk>},
    {"gasnet_begin_nbi_accessregion gasnet_end_nbi_accessregion gasnet_wait_syncnb_some "
     "gasnet_wait_syncnb_all",
     check_put<put1_in_region>},
    {"gasnet_get", check_get<get1>},
    {"gasnet_get_bulk", check_get<get1_bulk>},
    {"gasnet_get_nb gasnet_try_syncnb_nopoll", check_get<get1_nb>},
    {"gasnet_get_nb_bulk gasnet_try_syncnb_some gasnet_try_syncnb_all "
     "gasnet_try_syncnb_some_nopoll "
     "gasnet_try_syncnb_all_nopoll",
     check_get<get1_nb_bulk>},
    {"gasnet_get_nbi gasnet_wait_syncnbi_gets", check_get<get1_nbi>},
    {"gasnet_get_nbi_bulk gasnet_try_syncnbi_gets gasnet_try_syncnbi_all gasnet_wait_syncnbi_all",
     check_get<get1_nbi_bulk>},
    {"gasnet_put_val gasnet_put_nb_val gasnet_put_nbi_val gasnet_get_val gasnet_get_nb_val "
     "gasnet_wait_syncnb_valget",
     values1},
    {"gasnet_memset gasnet_memset_nb gasnet_memset_nbi", memsets},
    {"hydrant_put_many", check_put<put_many>},
    {"hydrant_get_many", check_get<get_many>},
    {"hydrant_put_init hydrant_start hydrant_wait hydrant_operation_free",
     check_put<put_persistent>},
    {"hydrant_get_init hydrant_start_all hydrant_test", check_get<get_persistent>},
    {"hydrant_put_strided_init", check_put<put_strided>},
    {"hydrant_get_strided_init", check_get<get_strided>},
    {"hydrant_path_name hydrant_query_path", paths},
    {"hydrant_prefetch hydrant_evict", hints},
};

}  // namespace

Rows rows() { return {kTable, sizeof kTable / sizeof *kTable}; }

}  // namespace field::rma
