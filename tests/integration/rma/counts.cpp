// The counts by path and peer equal the executed operations, and objects of completed operations are
// reused.
#include "extended/event/event.hpp"
#include "tests/integration/rma/client.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <malloc.h>
#include <string_view>
#include <thread>
#include <vector>

namespace rma_client {
namespace {

struct Table {
  hydrant_path_counts_t rows[kMaxRanks + 1][HYDRANT_PATH_COUNT];  // the last row: all ranks

  void read() {
    for (gex_Rank_t rank = 0; rank <= size; ++rank) {
      for (uint32_t path = 0; path < HYDRANT_PATH_COUNT; ++path) {
        const gex_Rank_t asked = rank == size ? GEX_RANK_INVALID : rank;
        if (hydrant_query_path(asked, static_cast<hydrant_path_t>(path), &rows[rank][path]) !=
            GASNET_OK)
          wrong("hydrant_query_path(%u, %u)", asked, path);
      }
    }
  }
};

bool names_path(std::string_view list, const char* path) {
  while (!list.empty()) {
    const size_t end = std::min(list.find('+'), list.size());
    if (list.substr(0, end) == path) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

void add(hydrant_path_counts_t& sum, const hydrant_path_counts_t& now,
         const hydrant_path_counts_t& before) {
  sum.put_ops += now.put_ops - before.put_ops;
  sum.put_bytes += now.put_bytes - before.put_bytes;
  sum.get_ops += now.get_ops - before.get_ops;
  sum.get_bytes += now.get_bytes - before.get_bytes;
}

// Checks that `made` is the sum of all operations since `before` with `peer`, on the paths in `expected`.
void check(const char* what, const Table& before, gex_Rank_t peer, const char* expected,
           const hydrant_path_counts_t& made) {
  Table now;
  now.read();
  for (gex_Rank_t rank = 0; rank <= size; ++rank) {
    hydrant_path_counts_t good = {};
    hydrant_path_counts_t bad = {};
    for (uint32_t path = 0; path < HYDRANT_PATH_COUNT; ++path) {
      const bool is_expected =
          (rank == peer || rank == size) &&
          names_path(expected, hydrant_path_name(static_cast<hydrant_path_t>(path)));
      add(is_expected ? good : bad, now.rows[rank][path], before.rows[rank][path]);
    }
    const hydrant_path_counts_t none = {};
    if (std::memcmp(&bad, &none, sizeof bad) != 0)
      wrong("%s: %llu operations with rank %u by other paths than %s", what,
            static_cast<unsigned long long>(bad.put_ops + bad.get_ops), rank, expected);
    const hydrant_path_counts_t& wanted = rank == peer || rank == size ? made : none;
    if (std::memcmp(&good, &wanted, sizeof good) != 0)
      wrong("%s by %s with rank %u: %llu puts (%llu bytes), %llu gets (%llu bytes) are counted",
            what, expected, rank, static_cast<unsigned long long>(good.put_ops),
            static_cast<unsigned long long>(good.put_bytes),
            static_cast<unsigned long long>(good.get_ops),
            static_cast<unsigned long long>(good.get_bytes));
  }
}

// Puts and gets of many sizes in all forms; returns what was executed.
hydrant_path_counts_t some_of_each(gex_Rank_t peer, Area which) {
  hydrant_path_counts_t made = {};
  std::vector<std::byte> local(60000);
  std::byte* const far = area(peer, which) + 1;
  for (size_t bytes : {size_t{1}, size_t{7}, size_t{64}, size_t{1000}, size_t{60000}}) {
    gex_RMA_PutBlocking(team, peer, far, local.data(), bytes, 0);
    gex_Event_Wait(gex_RMA_PutNB(team, peer, far, local.data(), bytes, GEX_EVENT_DEFER, 0));
    gex_RMA_PutNBI(team, peer, far, local.data(), bytes, GEX_EVENT_NOW, 0);
    made.put_ops += 3;
    made.put_bytes += 3 * bytes;
    gex_RMA_GetBlocking(team, local.data(), peer, far, bytes, 0);
    gex_Event_Wait(gex_RMA_GetNB(team, local.data(), peer, far, bytes, 0));
    gex_RMA_GetNBI(team, local.data(), peer, far, bytes, 0);
    made.get_ops += 3;
    made.get_bytes += 3 * bytes;
    gex_NBI_Wait(GEX_EC_ALL, 0);
  }
  // An operation of 0 bytes has no bytes to count.
  const hydrant_rma_op_t ops[] = {{peer, far, local.data(), 100},
                                  {peer, far + 200, local.data(), 50}};
  if (hydrant_put_many(team, ops, 2, 150, nullptr) != GASNET_OK) wrong("put_many");
  if (hydrant_get_many(team, ops, 2, 150, nullptr) != GASNET_OK) wrong("get_many");
  made.put_ops += 2;
  made.put_bytes += 150;
  made.get_ops += 2;
  made.get_bytes += 150;
  return made;
}

hydrant_path_counts_t constants(gex_Rank_t peer) {
  struct Odd {
    char bytes[24];
  } odd = {};
  struct Large {
    char bytes[64];
  } large = {};
  uint32_t word = 0;
  std::byte* const far = area(peer, kSegment);
  for (int i = 0; i < 10; ++i) {
    gex_RMA_PutBlocking(team, peer, far, &word, sizeof word, 0);
    gex_RMA_PutNB(team, peer, far, &odd, sizeof odd, GEX_EVENT_NOW, 0);
    gex_RMA_GetBlocking(team, &large, peer, far, sizeof large, 0);
    (void)gasnet_get_val(peer, far, 8);
  }
  gex_NBI_Wait(GEX_EC_ALL, 0);
  return {.put_ops = 20, .put_bytes = 280, .get_ops = 20, .get_bytes = 720};
}

hydrant_path_counts_t large_ones(gex_Rank_t peer) {
  constexpr size_t kBytes = 300000;
  std::byte* const far = area(peer, kSegment);
  gasnet_put(peer, far, own_segment(), kBytes);
  gasnet_get(own_segment(), peer, far, kBytes);
  return {.put_ops = 1, .put_bytes = kBytes, .get_ops = 1, .get_bytes = kBytes};
}

template <typename Make>
void measure(const char* what, gex_Rank_t peer, const char* expected, Make&& make) {
  Table before;
  before.read();
  const hydrant_path_counts_t made = make();
  check(what, before, peer, expected, made);
}

}  // namespace

void counts(const Expected& expected) {
  const gex_Rank_t peer = (me + 1) % size;
  // A thread must know the peer before its calls are inlined.
  char byte = 0;
  gasnet_put(peer, area(peer, kSegment), &byte, 1);
  measure("segment", peer, expected.segment, [&] { return some_of_each(peer, kSegment); });
  measure("heap", peer, expected.heap, [&] { return some_of_each(peer, kHeap); });
  measure("large", peer, expected.large, [&] { return large_ones(peer); });
  measure("constant", peer, expected.constant, [&] { return constants(peer); });
  measure("self", me, expected.self, [&] { return some_of_each(me, kHeap); });
  measure("thread", peer, expected.segment, [&] {
    hydrant_path_counts_t made = {};
    std::thread([&] { made = some_of_each(peer, kSegment); }).join();
    return made;
  });
  measure("nothing", peer, expected.segment, [&] {
    gasnet_put(peer, area(peer, kHeap), &byte, 0);
    gex_Event_Wait(gex_RMA_GetNB(team, &byte, peer, area(peer, kHeap), 0, 0));
    return hydrant_path_counts_t{};
  });
  hydrant_path_counts_t none;
  if (hydrant_query_path(size, HYDRANT_PATH_CMA, &none) != GASNET_ERR_BAD_ARG ||
      hydrant_query_path(0, HYDRANT_PATH_COUNT, &none) != GASNET_ERR_BAD_ARG ||
      hydrant_query_path(0, HYDRANT_PATH_CMA, nullptr) != GASNET_ERR_BAD_ARG ||
      hydrant_path_name(HYDRANT_PATH_COUNT) != nullptr)
    wrong("hydrant_query_path takes what is wrong");
}

// ---- reuse of objects ----

namespace {

void many_events(gex_Rank_t peer, int rounds) {
  std::vector<std::byte> source(4096);
  std::vector<std::byte> targets(size_t{40} * 4096);
  gex_Event_t events[40];
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < std::size(events); ++i) {
      std::byte* const far = area(peer, kHeap) + round % 100;
      std::byte* const target = targets.data() + i * 4096;
      events[i] = round % 2 == 0
                      ? gex_RMA_PutNB(team, peer, far, source.data(), 4096, GEX_EVENT_DEFER, 0)
                      : gex_RMA_GetNB(team, target, peer, far, 4096, 0);
    }
    gasnet_begin_nbi_accessregion();
    gasnet_put_nbi(peer, area(peer, kHeap), source.data(), 100);
    gex_Event_t of_region = gasnet_end_nbi_accessregion();
    if (round % 3 == 0) {
      std::thread([&] { gex_Event_WaitAll(events, std::size(events), 0); }).join();
    } else {
      gex_Event_WaitAll(events, std::size(events), 0);
    }
    gex_Event_Wait(of_region);
    (void)gasnet_wait_syncnb_valget(gasnet_get_nb_val(peer, area(peer, kHeap), 8));
  }
}

}  // namespace

void recycling() {
  const gex_Rank_t peer = (me + 1) % size;
  // Includes threads that start after others have ended.
  const auto all_of_it = [&](int rounds) {
    many_events(peer, rounds);
    std::thread([&] { many_events(peer, rounds / 4); }).join();
  };
  all_of_it(40);
  const uint64_t events = hydrant::event_counts().events;
  const size_t bytes = mallinfo2().uordblks;
  for (int i = 0; i < 10; ++i) all_of_it(40);
  if (hydrant::event_counts().events > events + 64)
    wrong("%llu events exist, and there were %llu",
          static_cast<unsigned long long>(hydrant::event_counts().events),
          static_cast<unsigned long long>(events));
  const size_t more = mallinfo2().uordblks;
  if (more > bytes + (size_t{256} << 10)) wrong("the heap grew from %zu to %zu bytes", bytes, more);
}

}  // namespace rma_client
