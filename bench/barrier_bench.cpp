// Question: what does a barrier cost?
//
// Unit: ns. Within one node it is compared with the raw floor: a cache line that ranks 0 and 1 pass back and
// forth. Run it as a job:
//
//   hydrant-run -n N [--nodes M] barrier_bench [--repetitions R] [--json FILE] [--quick]
//   GASNET_PSHM_NODES=N barrier_bench
//
// Each repetition runs the floor and all rows in turn. Figures are medians over the repetitions, ratios are
// medians of the ratios within each. Not included: what a rank computes between notify and wait.
#define GASNET_SEQ 1
#include <gasnetex.h>

#include "bench/support/job_bench.hpp"
#include "firehose/base/thread.hpp"

#include <cstdio>
#include <vector>

namespace {

using hydrant::now_ns;
using hydrant::bench::JobRow;
using hydrant::bench::LineFloor;

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

double row_ns(const Row& row, uint64_t barriers) {
  gex_Coll_BarrierBlocking(team, 0);
  const uint64_t begin = now_ns();
  for (uint64_t i = 0; i < barriers; ++i) row.run();
  return static_cast<double>(now_ns() - begin) / static_cast<double>(barriers);
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
  const gex_Rank_t rank = gex_System_QueryJobRank();
  const gex_Rank_t ranks = gex_System_QueryJobSize();
  const hydrant::bench::JobOptions options =
      hydrant::bench::parse_job_options(argc, argv, rank == 0);
  void* mapped = nullptr;
  bool one_node = true;
  for (gex_Rank_t peer = ranks; peer-- != 0;) {
    gex_Segment_QueryBound(team, peer, nullptr, &mapped, nullptr);
    one_node = one_node && mapped != nullptr;
  }
  const bool crowded = hydrant::bench::is_crowded(ranks);
  LineFloor floor{
      .lines = static_cast<LineFloor::Line*>(mapped), .first = rank == 0, .crowded = crowded};
  const uint64_t barriers = (crowded || !one_node ? 1000u : 20000u) / (options.quick ? 10 : 1);
  std::vector<double> floors;
  std::vector<JobRow> rows;
  for (const Row& row : kRows) rows.push_back({row.name, {}, {}});
  for (uint32_t r = 0; r <= options.repetitions; ++r) {  // repetition 0 warms up
    // Ranks other than the two of the floor meanwhile sleep in a barrier.
    gex_Coll_BarrierBlocking(team, 0);
    const double floor_ns =
        one_node && ranks > 1 && rank < 2 ? floor.run(options.quick ? 2000 : 20000) : 0;
    gex_Coll_BarrierBlocking(team, 0);
    if (r > 0) floors.push_back(floor_ns);
    for (size_t i = 0; i < std::size(kRows); ++i) {
      const double ns = row_ns(kRows[i], barriers);
      if (r > 0) rows[i].ns.push_back(ns);
    }
  }
  if (rank == 0) hydrant::bench::report_job(ranks, rows, floors, options.json_file);
  gex_Coll_BarrierBlocking(team, 0);
  gasnet_exit(0);
}
