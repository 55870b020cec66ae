// Question: what do puts, gets, messages and barriers cost over verbs?
//
// Unit: us. Compared with a raw loop of the same work over the benchmark's own queue pairs, and, where
// installed, with perftest's programs (ib_write_lat and similar) and ucx_perftest over UCX's lower layer
// (uct, rc_verbs). Run it as a job; rank 0 sends requests, rank 1 replies, all ranks take part in barriers:
//
//   tests/verbs/run -- build/release/bin/hydrant-run -n 2 build/release/bench/verbs_compare
//   hydrant-run -n 2 verbs_compare [--repetitions N] [--json FILE] [--quick] [--rows TEXT]
//                                  [--perftest FOLDER]
//
// Ranks use verbs (HYDRANT_TRANSPORT=ibv) unless that variable is set.
//
//   put_8, get_8       blocking, complete when acknowledged; one signalled write or read, and a poll of
//                      its queue
//   fetch_add          FADD of 64 bits in a domain that favours remote targets; a signalled fetch-and-add
//   fetch_add_am       the same by messages, while the other side waits; as above
//   visible_put_8      a put that the peer sees and replies to by a put, halved; the same by writes;
//                      ib_write_lat; put_lat
//   am_round_trip      a Short request and its Short reply, while the other side waits for messages; a send
//                      and a send; twice ib_send_lat, which also reposts receives; twice am_lat
//   put_64k, get_64k   16 in flight; the same raw; ib_write_bw, ib_read_bw; put_bw, get
//   put_rate_8         puts without events and one wait for all; unsignalled writes
//   put_many_8         per put of hydrant_put_many() with 16; a list of 16 writes, one of them signalled
//   am_flood           Short requests, until the last has arrived; sends of 32 bytes, credits by sends
//   barrier            gex_Coll_BarrierBlocking; dissemination by writes
//
// Waiting is spinning on both sides of a comparison.
//
// Each repetition runs each row's columns in turn, with the raw loop first every other time. Figures are
// medians over the repetitions, each of which is the median of single operations, or of batches if many are
// in flight. Ratios are medians of the ratios within each. Over an emulated device (Soft-RoCE in a guest) the
// figures are those of the emulation: only the ratios are meaningful.
#define GASNET_SEQ 1
#include <hydrant/rma.h>

#include "bench/support/job_bench.hpp"
#include "bench/support/perftest.hpp"
#include "bench/support/raw_loops.hpp"
#include "bench/support/rma_rows.hpp"
#include "bench/support/verbs_report.hpp"
#include "firehose/base/thread.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <gasnet_ratomic.h>
#include <memory>
#include <vector>

namespace {

using hydrant::now_ns;
using hydrant::bench::PerftestCall;
using hydrant::bench::PerftestPlace;
using hydrant::bench::RawLoops;
using hydrant::bench::RawVerbs;
using hydrant::bench::UctCall;
using hydrant::bench::VerbsRow;

constexpr uint32_t kBlock = 64 << 10;
constexpr uint32_t kWindow = 16;
constexpr size_t kFlag = 0;
constexpr size_t kSource = 128;
constexpr size_t kBlocks = 4096;
constexpr size_t kSegment = kBlocks + size_t{kBlock} * kWindow + 4096 * 15;

enum Handler : gex_AM_Index_t { kPing = 200, kPong, kCount, kEndpointAddress, kSay };

struct Job {
  gex_Client_t client = GEX_CLIENT_INVALID;
  gex_EP_t endpoint = GEX_EP_INVALID;
  gex_TM_t team = GEX_TM_INVALID;
  gex_Segment_t segment = GEX_SEGMENT_INVALID;
  gex_Rank_t rank = 0, size = 1, peer = 0;
  bool is_requester = false;
  std::byte* mine = nullptr;
  std::byte* theirs = nullptr;
  gex_AD_t by_adapter = GEX_AD_INVALID;
  gex_AD_t by_messages = GEX_AD_INVALID;
};
Job job;
uint64_t pings = 0;
uint64_t replies = 0;
uint64_t arrivals = 0;
std::vector<RawVerbs::EndpointAddress> endpoint_addresses;
uint32_t cards_there = 0;
uint32_t said = 0;
bool all_good = true;

void ping(gex_Token_t token) {
  gex_AM_ReplyShort0(token, kPong, 0);
  ++pings;
}
void pong(gex_Token_t) { ++replies; }
void count(gex_Token_t) { ++arrivals; }
void on_endpoint_address(gex_Token_t token, void* data, size_t bytes) {
  gex_Token_Info_t info;
  gex_Token_Info(token, &info, GEX_TI_SRCRANK);
  if (bytes == sizeof(RawVerbs::EndpointAddress))
    std::memcpy(&endpoint_addresses[info.gex_srcrank], data, bytes);
  ++cards_there;
}
void take_notices(gex_Token_t, gex_AM_Arg_t is_good) {
  all_good = all_good && is_good != 0;
  ++said;
}

void barrier() { gex_Coll_BarrierBlocking(job.team, 0); }

// True if `is_good` on all ranks; a collective call.
bool agree(bool is_good) {
  barrier();
  all_good = true;
  said = 0;
  barrier();
  for (gex_Rank_t rank = 0; rank < job.size; ++rank)
    gex_AM_RequestShort1(job.team, rank, kSay, 0, is_good ? 1 : 0);
  GASNET_BLOCKUNTIL(said == job.size);
  return all_good;
}

// ---- the library's side: like RawLoops, both ranks of the pair call them ----

volatile uint64_t& flag() {
  return *static_cast<volatile uint64_t*>(static_cast<void*>(job.mine + kFlag));
}

void blocking(bool is_put, uint64_t rounds) {
  if (!job.is_requester) return;
  for (uint64_t i = 0; i < rounds; ++i) {
    if (is_put) {
      gex_RMA_PutBlocking(job.team, job.peer, job.theirs + kBlocks, job.mine + kSource, 8, 0);
    } else {
      gex_RMA_GetBlocking(job.team, job.mine + kSource, job.peer, job.theirs + kBlocks, 8, 0);
    }
  }
}

void fetch_adds(gex_AD_t adder, uint64_t rounds) {
  if (!job.is_requester) return;  // it waits in a barrier
  uint64_t old = 0;
  for (uint64_t i = 0; i < rounds; ++i)
    gex_Event_Wait(
        gex_AD_OpNB_U64(adder, &old, job.peer, job.theirs + kBlocks, GEX_OP_FADD, 1, 0, 0));
}

void visible(uint64_t rounds) {
  static uint64_t turns = 0;
  for (uint64_t i = 0; i < rounds; ++i) {
    ++turns;
    if (!job.is_requester) GASNET_BLOCKUNTIL(flag() == turns);
    std::memcpy(job.mine + kSource, &turns, sizeof turns);
    gex_RMA_PutNBI(job.team, job.peer, job.theirs + kFlag, job.mine + kSource, sizeof turns,
                   GEX_EVENT_NOW, 0);
    if (job.is_requester) GASNET_BLOCKUNTIL(flag() == turns);
  }
  gex_NBI_Wait(GEX_EC_ALL, 0);
}

// The replying rank only waits for messages, as perftest's programs do.
void round_trip(uint64_t rounds) {
  static uint64_t asked = 0;
  asked += rounds;
  if (!job.is_requester) {
    GASNET_BLOCKUNTIL(pings >= asked);
    return;
  }
  for (uint64_t i = 0; i < rounds; ++i) {
    const uint64_t wanted = replies + 1;
    gex_AM_RequestShort0(job.team, job.peer, kPing, 0);
    GASNET_BLOCKUNTIL(replies == wanted);
  }
}

void window(bool is_put, uint64_t blocks) {
  if (!job.is_requester) return;
  gex_Event_t events[kWindow] = {};
  for (uint64_t i = 0; i < blocks; ++i) {
    gex_Event_t& event = events[i % kWindow];
    if (i >= kWindow) gex_Event_Wait(event);
    const size_t at = kBlocks + (i % kWindow) * kBlock;
    event = is_put ? gex_RMA_PutNB(job.team, job.peer, job.theirs + at, job.mine + at, kBlock,
                                   GEX_EVENT_DEFER, 0)
                   : gex_RMA_GetNB(job.team, job.mine + at, job.peer, job.theirs + at, kBlock, 0);
  }
  for (uint64_t i = blocks < kWindow ? 0 : blocks - kWindow; i < blocks; ++i)
    gex_Event_Wait(events[i % kWindow]);
}

void put_rate(uint64_t puts) {
  if (!job.is_requester) return;
  for (uint64_t i = 0; i < puts; ++i)
    gex_RMA_PutNBI(job.team, job.peer, job.theirs + kBlocks, job.mine + kSource, 8, GEX_EVENT_DEFER,
                   0);
  gex_NBI_Wait(GEX_EC_ALL, 0);
}

void put_many(uint64_t puts) {
  if (!job.is_requester) return;
  hydrant_rma_op_t ops[kWindow] = {};
  for (hydrant_rma_op_t& op : ops) {
    op.rank = job.peer;
    op.local = job.mine + kSource;
    op.remote = job.theirs + kBlocks;
    op.bytes = 8;
  }
  for (uint64_t i = 0; i < puts; i += kWindow)
    (void)hydrant_put_many(job.team, ops, kWindow, size_t{8} * kWindow, nullptr);
}

void flood(uint64_t messages) {
  static uint64_t wanted = 0;
  wanted += messages;
  if (job.is_requester) {
    const uint64_t expected = replies + 1;
    for (uint64_t i = 0; i < messages; ++i) gex_AM_RequestShort0(job.team, job.peer, kCount, 0);
    gex_AM_RequestShort0(job.team, job.peer, kPing, 0);
    GASNET_BLOCKUNTIL(replies == expected);
  } else {
    GASNET_BLOCKUNTIL(arrivals == wanted);
  }
}

void barriers(uint64_t times) {
  for (uint64_t i = 0; i < times; ++i) barrier();
}

// ---- rows ----

struct Spec {
  const char* name;
  uint64_t rounds;
  uint64_t batches;
  std::function<void(uint64_t)> ours;
  std::function<bool(RawLoops&, uint64_t)> raw;
  const char* goal_of = "raw";
  double goal = 1.05;
  PerftestCall perftest = {};
  UctCall uct = {};
  double perftest_times = 1;  // number of the peer's operations per operation of ours
  double share = 1;           // fraction of a round's time that the figure reports
  bool is_for_all = false;
};

std::vector<Spec> make_specs() {
  const PerftestCall write_lat{"ib_write_lat", 8, 300, true};
  const PerftestCall send_lat{"ib_send_lat", 8, 300, true, 128};
  const UctCall put_lat{"put_lat", 8, 300, "short", 1, true};
  const UctCall am_lat{"am_lat", 8, 300, "short", 1, true};
  const UctCall put_bw{"put_bw", kBlock, 64, "zcopy", kWindow, false};
  const UctCall get_bw{"get", kBlock, 64, "zcopy", kWindow, false};
  const PerftestCall write_bw{"ib_write_bw", kBlock, 64, false, 0, kWindow};
  const PerftestCall read_bw{"ib_read_bw", kBlock, 64, false, 0, kWindow};
  return {
      {"put_8", 400, 400, [](uint64_t n) { blocking(true, n); },
       [](RawLoops& raw, uint64_t n) { return raw.blocking(true, n); }},
      {"get_8", 400, 400, [](uint64_t n) { blocking(false, n); },
       [](RawLoops& raw, uint64_t n) { return raw.blocking(false, n); }},
      {"fetch_add", 400, 400, [](uint64_t n) { fetch_adds(job.by_adapter, n); },
       std::mem_fn(&RawLoops::fetch_adds)},
      {"fetch_add_am", 400, 400, [](uint64_t n) { fetch_adds(job.by_messages, n); },
       std::mem_fn(&RawLoops::fetch_adds), "", 0},
      {"visible_put_8", 400, 400, visible, std::mem_fn(&RawLoops::visible), "perftest", 1.05,
       write_lat, put_lat, 1, 0.5},
      {"am_round_trip", 400, 400, round_trip, std::mem_fn(&RawLoops::round_trip), "perftest", 1.10,
       send_lat, am_lat, 2},
      {"put_64k", 128, 4, [](uint64_t n) { window(true, n); },
       [](RawLoops& raw, uint64_t n) { return raw.window(true, kBlock, kWindow, n); }, "perftest",
       1 / 0.98, write_bw, put_bw},
      {"get_64k", 128, 4, [](uint64_t n) { window(false, n); },
       [](RawLoops& raw, uint64_t n) { return raw.window(false, kBlock, kWindow, n); }, "perftest",
       1 / 0.98, read_bw, get_bw},
      {"put_rate_8", 1024, 16, put_rate, std::mem_fn(&RawLoops::put_rate)},
      {"put_many_8", 1024, 64, put_many,
       [](RawLoops& raw, uint64_t n) { return raw.put_lists(kWindow, n); }},
      {"am_flood", 1024, 16, flood, std::mem_fn(&RawLoops::flood)},
      {"barrier", 200, 200, barriers, std::mem_fn(&RawLoops::barriers), "raw", 1.05, PerftestCall{},
       UctCall{}, 1, 1, true},
  };
}

// ns per operation, the median of batches, measured by rank 0: a rank that loses its processor affects only
// one batch. perftest's "typical" is a median, too. Negative if it has failed.
double sample(const Spec& spec, uint64_t rounds, const std::function<bool(uint64_t)>& run) {
  const bool takes_part = spec.is_for_all || job.rank < 2;
  barrier();
  const uint64_t batches = std::min(spec.batches, rounds);
  const uint64_t batch = rounds / batches;
  bool is_good = !takes_part || run(batch);
  barrier();
  std::vector<double> samples;
  for (uint64_t i = 0; i < batches && takes_part && is_good; ++i) {
    const uint64_t begin = now_ns();
    is_good = run(batch);
    samples.push_back(static_cast<double>(now_ns() - begin) / static_cast<double>(batch));
  }
  barrier();
  return is_good ? hydrant::bench::median(samples) * spec.share : -1;
}

struct Table {
  hydrant::bench::JobOptions options;
  std::string rows_with, perftest_folder;
  std::unique_ptr<RawVerbs> verbs;
  std::unique_ptr<RawLoops> raw;
  std::string no_perftest, no_uct;
  uint32_t perftest_runs = 0;

  // Runs both sides of a peer's program; `run` runs one. Negative if not possible.
  double sample_programs(const std::function<double(const PerftestPlace&)>& run) {
    const hydrant::ibv::Port& port = verbs->port();
    constexpr int kAttempts = 3;  // on a busy machine the two sides may fail to connect
    for (int i = 0; i < kAttempts; ++i) {
      const PerftestPlace place{.folder = perftest_folder,
                                .device = port.name,
                                .port = port.number,
                                .gid_index = port.gid_index,
                                .tcp_port = 18515 + perftest_runs++ % 1000};
      barrier();
      double ns = 0;
      if (job.rank < 2) ns = run(place);
      if (agree(ns >= 0)) return ns;
    }
    return -1;
  }
  double sample_perftest(const Spec& spec) {
    if (spec.perftest.program.empty() || !no_perftest.empty()) return -1;
    const double ns = sample_programs([&](const PerftestPlace& place) {
      return hydrant::bench::run_perftest(spec.perftest, place, job.rank == 1);
    });
    if (ns < 0)
      no_perftest = spec.perftest.program + " cannot be run (Debian: perftest; --perftest FOLDER)";
    return ns * spec.perftest_times;
  }
  double sample_uct(const Spec& spec) {
    if (spec.uct.test.empty() || !no_uct.empty()) return -1;
    const double ns = sample_programs([&](const PerftestPlace& place) {
      return hydrant::bench::run_uct(spec.uct, place, job.rank == 1);
    });
    if (ns < 0)
      no_uct = "ucx_perftest -x rc_verbs -t " + spec.uct.test +
               " cannot be run (Debian: ucx-utils; --perftest FOLDER)";
    return ns * spec.perftest_times;
  }

  // False on all ranks if a queue pair has failed.
  bool repeat(const Spec& spec, VerbsRow& row, bool is_warm, bool raw_first) {
    const uint64_t rounds = options.quick ? spec.rounds / 8 : spec.rounds;
    const auto run_raw = [&](uint64_t n) { return spec.raw(*raw, n); };
    const auto run_ours = [&](uint64_t n) {
      spec.ours(n);
      return true;
    };
    const double early = raw_first ? sample(spec, rounds, run_raw) : 0;
    const double ours = sample(spec, rounds, run_ours);
    const double bare = raw_first ? early : sample(spec, rounds, run_raw);
    if (!agree(bare >= 0)) return false;
    const double theirs = sample_perftest(spec);
    const double ucts = sample_uct(spec);
    if (!is_warm) return true;
    row.ns.push_back(ours);
    row.raw_ns.push_back(bare);
    if (theirs > 0) row.perftest_ns.push_back(theirs);
    if (ucts > 0) row.uct_ns.push_back(ucts);
    return true;
  }

  bool run(std::vector<VerbsRow>* rows) {
    std::vector<Spec> specs;
    for (Spec& spec : make_specs()) {
      if (std::string(spec.name).find(rows_with) == std::string::npos) continue;
      const std::string times = spec.perftest_times == 2 ? "2 x " : "";
      VerbsRow& row = rows->emplace_back();
      row.name = spec.name;
      row.goal_of = spec.goal_of;
      row.goal = spec.goal;
      row.perftest = times + spec.perftest.program;
      row.uct = times + spec.uct.test;
      specs.push_back(std::move(spec));
    }
    hydrant::bench::PathWatch paths;
    for (uint32_t r = 0; r <= options.repetitions; ++r) {  // repetition 0 warms up
      for (size_t i = 0; i < specs.size(); ++i) {
        paths.take();
        if (!repeat(specs[i], rows->at(i), r != 0, r % 2 == 1)) return false;
        if (r == 1) rows->at(i).path = paths.take();
      }
    }
    return true;
  }
};

// ---- start ----

bool start(int* argc, char*** argv) {
  const auto entry = [](Handler index, auto* function, gex_Flags_t flags, unsigned arguments) {
    return gex_AM_Entry_t{static_cast<gex_AM_Index_t>(index),
                          reinterpret_cast<gex_AM_Fn_t>(function),
                          flags,
                          arguments,
                          nullptr,
                          nullptr};
  };
  gex_AM_Entry_t handlers[] = {
      entry(kPing, ping, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0),
      entry(kPong, pong, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 0),
      entry(kCount, count, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0),
      entry(kEndpointAddress, on_endpoint_address, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 0),
      entry(kSay, take_notices, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 1),
  };
  if (gex_Client_Init(&job.client, &job.endpoint, &job.team, "VERBS", argc, argv, 0) != GASNET_OK ||
      gex_EP_RegisterHandlers(job.endpoint, handlers, std::size(handlers)) != GASNET_OK ||
      gex_Segment_Attach(&job.segment, job.team, kSegment / 4096 * 4096) != GASNET_OK)
    return false;
  gasnet_set_waitmode(GASNET_WAIT_SPIN);
  job.rank = gex_TM_QueryRank(job.team);
  job.size = gex_TM_QuerySize(job.team);
  job.peer = job.rank ^ 1;
  job.is_requester = job.rank == 0;
  endpoint_addresses.resize(job.size);
  return true;
}

void find_segments() {
  void* address = nullptr;
  gex_Segment_QueryBound(job.team, job.rank, &address, nullptr, nullptr);
  job.mine = static_cast<std::byte*>(address);
  gex_Segment_QueryBound(job.team, job.rank < 2 ? job.peer : 0, &address, nullptr, nullptr);
  job.theirs = static_cast<std::byte*>(address);
  gex_AD_Create(&job.by_adapter, job.team, GEX_DT_U64, GEX_OP_FADD, GEX_FLAG_AD_FAVOR_REMOTE);
  gex_AD_Create(&job.by_messages, job.team, GEX_DT_U64, GEX_OP_FADD, 0);
}

// Opens the benchmark's own queue pairs between all ranks; succeeds on all ranks or none.
bool open_raw(Table& table) {
  table.verbs = std::make_unique<RawVerbs>(job.size, RawLoops::bytes_for(kBlock, kWindow));
  RawVerbs& verbs = *table.verbs;
  bool is_good = agree(verbs.works());
  if (is_good) {
    for (gex_Rank_t rank = 0; rank < job.size; ++rank) {
      RawVerbs::EndpointAddress address = verbs.endpoint_address(rank);
      gex_AM_RequestMedium0(job.team, rank, kEndpointAddress, &address, sizeof address,
                            GEX_EVENT_NOW, 0);
    }
    GASNET_BLOCKUNTIL(cards_there == job.size);
    for (gex_Rank_t rank = 0; rank < job.size && is_good; ++rank)
      is_good = verbs.connect(rank, endpoint_addresses[rank]);
    is_good = agree(is_good);
  }
  if (!verbs.works())
    std::fprintf(stderr, "verbs_compare: rank %u: %s\n", job.rank, verbs.why().c_str());
  table.raw = std::make_unique<RawLoops>(verbs, job.rank, job.size);
  return is_good;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kUsage = 2;
  setenv("HYDRANT_TRANSPORT", "ibv", 0);
  if (!start(&argc, &argv)) return 1;
  Table table;
  table.options = hydrant::bench::parse_job_options(argc, argv, job.rank == 0, [&](CLI::App& app) {
    app.add_option("--rows", table.rows_with, "Only rows whose names contain this");
    app.add_option(
        "--perftest", table.perftest_folder,
        "Folder of ib_write_lat and similar programs, and of ucx_perftest; default: PATH");
  });
  if (job.size < 2) {
    std::fprintf(stderr, "verbs_compare: one rank: use two or more\n");
    gasnet_exit(kUsage);
  }
  find_segments();
  std::vector<VerbsRow> rows;
  if (!open_raw(table)) gasnet_exit(1);
  if (!table.run(&rows)) {
    std::fprintf(stderr, "verbs_compare: rank %u: the raw loop has failed: %s\n", job.rank,
                 table.verbs->why().c_str());
    gasnet_exit(1);
  }
  if (rows.empty()) {
    if (job.rank == 0)
      std::fprintf(stderr, "verbs_compare: no row has '%s' in its name\n", table.rows_with.c_str());
    barrier();
    gasnet_exit(kUsage);
  }
  bool is_written = true;
  if (job.rank == 0) {
    is_written =
        hydrant::bench::report_verbs(job.size, table.verbs->port().name, rows, table.no_perftest,
                                     table.no_uct, table.options.json_file);
  }
  barrier();
  gasnet_exit(is_written ? 0 : 1);
}
