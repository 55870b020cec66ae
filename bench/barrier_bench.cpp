// What a barrier costs among the ranks of a node, in ns, beside the raw floor: a line that ranks 0 and 1 hand
// to and fro. Run it as a job:
//
//   hydrant-run -n N barrier_bench [REPETITIONS]      default 9; one JSON object on standard output
//   GASNET_PSHM_NODES=N barrier_bench [REPETITIONS]
//
// Every repetition runs the floor and each row in turn; figures are medians over the repetitions, ratios are
// medians of the ratios within each. Not included: what a rank computes between notify and wait.
#define GASNET_SEQ 1
#include <gasnetex.h>

#include "bench/support/bench_main.hpp"
#include "firehose/base/thread.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <sched.h>
#include <unistd.h>
#include <vector>

namespace {

using hydrant::now_ns;
using hydrant::bench::median;

gex_TM_t team;

void unnamed() { gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED); }
void anonymous() { gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS); }
void named() {
  static int id = 0;
  gasnet_barrier(++id, 0);
}
void split() {
  gasnet_barrier_notify(0, GASNET_BARRIERFLAG_UNNAMED);
  gasnet_barrier_wait(0, GASNET_BARRIERFLAG_UNNAMED);
}
void team_blocking() { gex_Coll_BarrierBlocking(team, 0); }
void team_nb() { gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); }

struct Row {
  const char* name;
  void (*run)();
};
constexpr Row kRows[] = {
    {"unnamed", unnamed},   {"anonymous", anonymous},        {"named", named},
    {"notify_wait", split}, {"gex_blocking", team_blocking}, {"gex_nb", team_nb}};

struct alignas(128) Line {
  std::atomic<uint64_t> value{0};
};
struct Shared {
  Line ping, pong;
};

// ns per round trip of two lines between ranks 0 and 1; the others sleep in a barrier meanwhile.
double floor_ns(Shared& shared, uint64_t* base, uint64_t rounds) {
  const gex_Rank_t rank = gex_System_QueryJobRank();
  const uint64_t begin = now_ns();
  uint32_t looks = 0;
  // More ranks than processors: somebody may need this one.
  const auto await = [&](const std::atomic<uint64_t>& word, uint64_t value) {
    while (word.load(std::memory_order_acquire) != value) {
      if (++looks % 1024 == 0) sched_yield();
    }
  };
  for (uint64_t i = *base + 1; i <= *base + rounds && rank < 2; ++i) {
    if (rank == 0) {
      shared.ping.value.store(i, std::memory_order_release);
      await(shared.pong.value, i);
    } else {
      await(shared.ping.value, i);
      shared.pong.value.store(i, std::memory_order_release);
    }
  }
  *base += rounds;
  const double ns = static_cast<double>(now_ns() - begin) / static_cast<double>(rounds);
  gex_Coll_BarrierBlocking(team, 0);
  return ns;
}

double row_ns(const Row& row, uint64_t barriers) {
  gex_Coll_BarrierBlocking(team, 0);
  const uint64_t begin = now_ns();
  for (uint64_t i = 0; i < barriers; ++i) row.run();
  return static_cast<double>(now_ns() - begin) / static_cast<double>(barriers);
}

void report(const std::vector<double>& floors, const std::vector<std::vector<double>>& rows) {
  std::printf("{\"ranks\": %u, \"repetitions\": %zu, \"floor_round_trip_ns\": %.1f, \"rows\": [\n",
              gex_System_QueryJobSize(), floors.size(), median(floors));
  for (size_t i = 0; i < std::size(kRows); ++i) {
    std::vector<double> ratios;
    for (size_t r = 0; r < floors.size(); ++r)
      ratios.push_back(floors[r] > 0 ? rows[i][r] / floors[r] : 0);
    std::printf(
        "  {\"name\": \"%s\", \"ns\": %.1f, \"best_ns\": %.1f, \"worst_ns\": %.1f, "
        "\"times_floor\": %.2f}%s\n",
        kRows[i].name, median(rows[i]), *std::min_element(rows[i].begin(), rows[i].end()),
        *std::max_element(rows[i].begin(), rows[i].end()), median(ratios),
        i + 1 < std::size(kRows) ? "," : "");
  }
  std::printf("]}\n");
}

}  // namespace

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_Segment_t segment;
  if (gex_Client_Init(&client, &endpoint, &team, "barrier_bench", &argc, &argv, 0) != GASNET_OK ||
      gex_Segment_Attach(&segment, team, GASNET_PAGESIZE) != GASNET_OK) {
    return 1;
  }
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  const gex_Rank_t ranks = gex_System_QueryJobSize();
  void* mapped = nullptr;
  gex_Segment_QueryBound(team, 0, nullptr, &mapped, nullptr);
  if (mapped == nullptr) {
    std::fprintf(stderr, "the segment of rank 0 is not mapped here\n");
    return 1;
  }
  // Zeroed by the system, which is what the lines begin with.
  auto& shared = *static_cast<Shared*>(mapped);
  uint64_t base = 0;
  const bool crowded = static_cast<long>(ranks) > sysconf(_SC_NPROCESSORS_ONLN);
  const uint64_t barriers = crowded ? 1000 : 20000;
  std::vector<double> floors;
  std::vector<std::vector<double>> rows(std::size(kRows));
  for (int r = -1; r < repetitions; ++r) {  // the first one warms up
    const double floor = ranks > 1 ? floor_ns(shared, &base, 20000) : 0;
    if (r >= 0) floors.push_back(floor);
    for (size_t i = 0; i < std::size(kRows); ++i) {
      const double ns = row_ns(kRows[i], barriers);
      if (r >= 0) rows[i].push_back(ns);
    }
  }
  if (gex_System_QueryJobRank() == 0) report(floors, rows);
  gex_Coll_BarrierBlocking(team, 0);
  gasnet_exit(0);
}
