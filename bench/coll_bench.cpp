// Question: what do collectives cost?
//
// Unit: ns per operation, initiation and wait, one behind the other. Within one node it is compared with the
// raw floor: a cache line that ranks 0 and 1 pass back and forth. "bound" is the least work of a reduction to
// all of a MiB: each rank adds its share of two vectors in its own memory, and writes it once per rank. Data
// are in the segment, which the ranks of a node map; rows "heap" have them elsewhere. Run it as a job:
//
//   hydrant-run -n N [--nodes M] coll_bench [--repetitions R] [--json FILE] [--quick]
//   GASNET_PSHM_NODES=N coll_bench
//
// Each repetition runs the floor and all rows in turn. Figures are medians over the repetitions, ratios are
// medians of the ratios within each. Not included: page faults. GASNet's and MPI's collectives beside ours:
// bench/gasnet/compare.py.
#define GASNET_SEQ 1
#include <gasnetex.h>
#include <hydrant/coll.h>

#include "bench/support/job_bench.hpp"
#include "firehose/base/thread.hpp"

#include <cstdio>
#include <cstring>
#include <gasnet_coll.h>
#include <vector>

namespace {

using hydrant::now_ns;
using hydrant::bench::JobRow;
using hydrant::bench::LineFloor;

constexpr size_t kMost = size_t{1} << 20;

gex_TM_t team;

struct Memory {
  std::byte* source;
  std::byte* dest;
};
Memory in_segment;
Memory on_heap;

void barrier(const Memory&, size_t) { gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); }
void reduce_all(const Memory& at, size_t bytes) {
  gex_Event_Wait(gex_Coll_ReduceToAllNB(team, at.dest, at.source, GEX_DT_I64, 8, bytes / 8,
                                        GEX_OP_ADD, nullptr, nullptr, 0));
}
void reduce_one(const Memory& at, size_t bytes) {
  gex_Event_Wait(gex_Coll_ReduceToOneNB(team, 0, at.dest, at.source, GEX_DT_I64, 8, bytes / 8,
                                        GEX_OP_ADD, nullptr, nullptr, 0));
}
void broadcast(const Memory& at, size_t bytes) {
  gex_Event_Wait(gex_Coll_BroadcastNB(team, 0, at.dest, at.source, bytes, 0));
}
void gather_all(const Memory& at, size_t bytes) {
  gex_Event_Wait(hydrant_gather_all_nb(team, at.dest, at.source, bytes));
}
void exchange(const Memory& at, size_t bytes) {
  gex_Event_Wait(hydrant_exchange_nb(team, at.dest, at.source, bytes));
}
void bound(const Memory& at, size_t bytes) {
  const gex_Rank_t ranks = gex_TM_QuerySize(team);
  const size_t count = bytes / sizeof(uint64_t) / ranks;
  const auto* const source = static_cast<const uint64_t*>(static_cast<const void*>(at.source));
  auto* const sum = static_cast<uint64_t*>(static_cast<void*>(at.dest));
  for (gex_Rank_t rank = 1; rank < ranks; ++rank) {
    for (size_t i = 0; i < count; ++i) sum[i] = source[i] + source[rank * count + i];
  }
  for (gex_Rank_t rank = 1; rank < ranks; ++rank)
    std::memcpy(sum + rank * count, sum, count * sizeof(uint64_t));
  __asm__ volatile("" ::: "memory");
}
void split(const Memory&, size_t) {
  gex_TM_t made = GEX_TM_INVALID;
  (void)gex_TM_Split(&made, team, 0, static_cast<int>(gex_TM_QueryRank(team)), nullptr, 0,
                     GEX_FLAG_TM_NO_SCRATCH);
  gex_TM_Destroy(made, nullptr, 0);
}

struct Row {
  const char* name;
  void (*run)(const Memory& memory, size_t bytes);
  const Memory* memory;
  size_t bytes;
  uint64_t operations;
};
constexpr Row kRows[] = {{"barrier", barrier, &in_segment, 0, 10000},
                         {"reduce_all_8", reduce_all, &in_segment, 8, 10000},
                         {"reduce_all_4096", reduce_all, &in_segment, 4096, 2000},
                         {"reduce_all_1048576", reduce_all, &in_segment, kMost, 20},
                         {"bound_1048576", bound, &in_segment, kMost, 20},
                         {"reduce_all_4096_heap", reduce_all, &on_heap, 4096, 2000},
                         {"reduce_all_1048576_heap", reduce_all, &on_heap, kMost, 20},
                         {"reduce_one_8", reduce_one, &in_segment, 8, 10000},
                         {"reduce_one_4096", reduce_one, &in_segment, 4096, 2000},
                         {"broadcast_8", broadcast, &in_segment, 8, 10000},
                         {"broadcast_4096", broadcast, &in_segment, 4096, 2000},
                         {"broadcast_1048576", broadcast, &in_segment, kMost, 20},
                         {"broadcast_1048576_heap", broadcast, &on_heap, kMost, 20},
                         {"gather_all_8", gather_all, &in_segment, 8, 2000},
                         {"exchange_8", exchange, &in_segment, 8, 2000},
                         {"split_and_destroy", split, &in_segment, 0, 200}};

double row_ns(const Row& row, uint64_t operations) {
  gex_Coll_BarrierBlocking(team, 0);
  const uint64_t begin = now_ns();
  for (uint64_t i = 0; i < operations; ++i) row.run(*row.memory, row.bytes);
  return static_cast<double>(now_ns() - begin) / static_cast<double>(operations);
}

// The lines of the floor are behind the data of the last rank.
constexpr size_t kSegment = 2 * kMost + GASNET_PAGESIZE;

}  // namespace

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_Segment_t segment;
  if (gex_Client_Init(&client, &endpoint, &team, "coll_bench", &argc, &argv, 0) != GASNET_OK ||
      gex_Segment_Attach(&segment, team, kSegment) != GASNET_OK) {
    return 1;
  }
  const gex_Rank_t rank = gex_System_QueryJobRank();
  const gex_Rank_t ranks = gex_System_QueryJobSize();
  const hydrant::bench::JobOptions options =
      hydrant::bench::parse_job_options(argc, argv, rank == 0);
  auto* const mine = static_cast<std::byte*>(gex_Segment_QueryAddr(segment));
  in_segment = {mine, mine + kMost};
  std::vector<std::byte> heap(2 * kMost, std::byte{1});
  on_heap = {heap.data(), heap.data() + kMost};
  std::memset(mine, 1, 2 * kMost);
  void* mapped = nullptr;
  bool one_node = true;
  for (gex_Rank_t peer = ranks; peer-- != 0;) {
    gex_Segment_QueryBound(team, peer, nullptr, &mapped, nullptr);
    one_node = one_node && mapped != nullptr;
  }
  const bool crowded = hydrant::bench::is_crowded(ranks);
  auto* const behind = static_cast<std::byte*>(mapped) + (one_node ? 2 * kMost : 0);
  LineFloor floor{.lines = static_cast<LineFloor::Line*>(static_cast<void*>(behind)),
                  .first = rank == 0,
                  .crowded = crowded};
  const uint64_t share = (crowded || !one_node ? 10u : 1u) * (options.quick ? 10 : 1);
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
      const double ns = row_ns(kRows[i], kRows[i].operations / share + 1);
      if (r > 0) rows[i].ns.push_back(ns);
    }
  }
  if (rank == 0) hydrant::bench::report_job(ranks, rows, floors, options.json_file);
  gex_Coll_BarrierBlocking(team, 0);
  gasnet_exit(0);
}
