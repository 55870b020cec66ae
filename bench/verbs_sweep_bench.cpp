// Question: what do puts cost over verbs into a peer's memory that has to be registered first? The sweep of
// firehose_bench between two processes, over queue pairs and with ibv_reg_mr. Run it as a job of two:
//
//   tests/verbs/run -- build/release/bin/hydrant-run -n 2 build/release/bench/verbs_sweep_bench
//   hydrant-run -n 2 verbs_sweep_bench [--repetitions N] [--budget MIB] [--json FILE] [--quick]
//                                      [--sets PERCENT,...] [--sizes BYTES,...]
//
// Unit: us per put. Random puts of 8 bytes, one at a time, and of 64 KiB, 8 in flight, to a working set of 10
// to 400 percent of what the target may pin (4 MiB), by
//   firehose          the library's puts: a hit is one RDMA write
//   rendezvous_unpin  request, the target registers, write, request to unregister
//   rendezvous_keep   the same, but this library caches the target's registrations
//   bounce            copy: a Medium of 8 bytes; 64 KiB through registered buffers on both sides
//   pin_everything    writes to a segment that was registered at the start: a raw loop without a budget
//
// Requests are Active Messages, like the library's own. All ways but firehose write through the benchmark's
// own queue pair. Waiting is spinning; if both ranks share a processor, the waiting rank yields it.
//
// Goals: firehose within 5 % of pin_everything where the set fits, and not slower than either rendezvous
// anywhere; a cell that misses a goal says NO. A sample is the mean of its puts. Figures are medians of the
// samples, in each of which all ways take turns in random order over the same places; ratios are medians of
// the ratios within each. The caches settle before the first sample. After each sample the target checks that
// the data arrived.
//
// Not included: registering the source. Over an emulated device the figures are those of the emulation: only
// ratios are meaningful, and ratios of times only on an otherwise idle machine. In a guest whose clock counts
// instructions (tests/verbs/run --clock instructions) a put's figure is the number of instructions that both
// ranks, their kernel and the adapter execute for it, independent of other load.
#define GASNET_SEQ 1
#include <hydrant/rma.h>

#include "bench/support/job_bench.hpp"
#include "bench/support/option_error.hpp"
#include "bench/support/verbs_put_ways.hpp"
#include "bench/support/verbs_sweep_report.hpp"

#include <algorithm>
#include <random>

namespace {

using namespace hydrant::bench;
using hydrant::now_ns;

enum Handler : gex_AM_Index_t { kEndpointAddress = kSweepFirstFree, kEnd, kReport };

struct Options {
  uint32_t repetitions = 9;
  uint32_t budget_mib = 4;
  std::string json_file;
  std::vector<unsigned> percents = {10, 25, 50, 75, 90, 100, 125, 150, 200, 300, 400};
  std::vector<size_t> sizes = {8, kMaxSweepPut};
  bool quick = false;
};

// The report of rank 1 after a sample.
struct Report {
  std::array<uint64_t, 3> registrations;
  uint64_t is_good;
};

SweepJob job;
gex_EP_t endpoint = GEX_EP_INVALID;
std::unique_ptr<SweepTarget> target;
SweepWay* current = nullptr;
RawVerbs::EndpointAddress their_endpoint;
uint32_t endpoints_received = 0, ends = 0, reports = 0;
Report report;

// ---- handlers ----

uint32_t number(gex_AM_Arg_t value) { return static_cast<uint32_t>(value); }

void on_ask(gex_Token_t token, gex_AM_Arg_t slot, gex_AM_Arg_t page, gex_AM_Arg_t bytes,
            gex_AM_Arg_t keeps) {
  target->ask(token, number(slot), number(page), number(bytes), keeps != 0);
}
void on_grant(gex_Token_t, gex_AM_Arg_t slot, gex_AM_Arg_t key, gex_AM_Arg_t is_there) {
  current->granted(number(slot), number(key), is_there != 0);
}
void on_finished(gex_Token_t, gex_AM_Arg_t slot, gex_AM_Arg_t keeps) {
  target->finished(number(slot), keeps != 0);
}
void on_short(gex_Token_t token, void* data, size_t bytes, gex_AM_Arg_t slot, gex_AM_Arg_t page) {
  target->copy(token, number(slot), number(page), static_cast<std::byte*>(data), bytes);
}
void on_landed(gex_Token_t token, gex_AM_Arg_t slot, gex_AM_Arg_t page, gex_AM_Arg_t bytes) {
  const std::byte* landing = job.verbs->memory() + SweepRaw::kLanding + number(slot) * kMaxSweepPut;
  target->copy(token, number(slot), number(page), landing, number(bytes));
}
void on_copied(gex_Token_t, gex_AM_Arg_t slot) { current->copied(number(slot)); }
void on_endpoint_address(gex_Token_t, void* data, size_t bytes, gex_AM_Arg_t key) {
  if (bytes == sizeof their_endpoint) std::memcpy(&their_endpoint, data, bytes);
  job.their_key = number(key);
  ++endpoints_received;
}
void on_end(gex_Token_t) { ++ends; }
void on_report(gex_Token_t, void* data, size_t bytes) {
  if (bytes == sizeof report) std::memcpy(&report, data, bytes);
  ++reports;
}

// ---- start ----

void barrier() { gex_Coll_BarrierBlocking(job.team, 0); }

[[noreturn]] void leave(int code) {
  if (!job.why.empty())
    std::fprintf(stderr, "verbs_sweep_bench: rank %u: %s\n", job.rank, job.why.c_str());
  gasnet_exit(code);
}

// Parses before the job starts. Every rank has the same arguments and sets the same variables.
Options parse(int argc, char** argv, int* code) {
  CLI::App app(kAbout);
  Options options;
  app.add_option("--repetitions", options.repetitions, "Repetitions of every cell, interleaved")
      ->check(CLI::Range(1, 1000));
  app.add_option("--budget", options.budget_mib, "MiB that the target may pin")
      ->check(CLI::Range(1, 256));
  app.add_option("--json", options.json_file,
                 "Also write the results, with all samples, to this file");
  app.add_option("--sets", options.percents, "Working sets, percent of the budget")
      ->delimiter(',')
      ->check(CLI::Range(1, 1000));
  app.add_option("--sizes", options.sizes, "Sizes of puts: 8, 65536")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<size_t>{8, kMaxSweepPut}));
  app.add_flag("--quick", options.quick, "A quarter of the puts");
  app.failure_message(option_error);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    constexpr int kUsage = 2;
    app.exit(error);
    *code = error.get_exit_code() == 0 ? 0 : kUsage;
  }
  return options;
}

// Peers may use the whole budget; the library's own buffers are added to it.
void set_limits(const Options& options) {
  constexpr uint32_t kOwnMib = 1;
  setenv("HYDRANT_TRANSPORT", "ibv", 0);
  setenv("HYDRANT_BOUNCE_POOL", "512K", 0);
  setenv("FIREHOSE_REMOTE_BUDGET", (std::to_string(options.budget_mib) + "M").c_str(), 0);
  setenv("FIREHOSE_BUDGET", (std::to_string(options.budget_mib + kOwnMib) + "M").c_str(), 0);
}

bool start(int* argc, char*** argv, const Options& options) {
  const auto entry = [](gex_AM_Index_t index, auto* function, gex_Flags_t flags,
                        unsigned arguments) {
    return gex_AM_Entry_t{
        index, reinterpret_cast<gex_AM_Fn_t>(function), flags, arguments, nullptr, nullptr};
  };
  constexpr gex_Flags_t kAsks = GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST;
  constexpr gex_Flags_t kAnswers = GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY;
  constexpr gex_Flags_t kData = GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST;
  gex_AM_Entry_t handlers[] = {
      entry(kSweepRequest, on_ask, kAsks, 4),
      entry(kSweepGrant, on_grant, kAnswers, 3),
      entry(kSweepFinished, on_finished, kAsks, 2),
      entry(kSweepShort, on_short, kData, 2),
      entry(kSweepLanded, on_landed, kAsks, 3),
      entry(kSweepCopied, on_copied, kAnswers, 1),
      entry(kEndpointAddress, on_endpoint_address, kData, 1),
      entry(kEnd, on_end, kAsks, 0),
      entry(kReport, on_report, kData, 0),
  };
  gex_Client_t client = GEX_CLIENT_INVALID;
  gex_Segment_t segment = GEX_SEGMENT_INVALID;
  const unsigned largest = *std::max_element(options.percents.begin(), options.percents.end());
  const size_t segment_bytes =
      std::max<size_t>(options.budget_mib * kMiB * largest / 100, SweepRaw::kLanding) /
      kMaxSweepPut * kMaxSweepPut;
  if (gex_Client_Init(&client, &endpoint, &job.team, "SWEEP", argc, argv, 0) != GASNET_OK ||
      gex_EP_RegisterHandlers(endpoint, handlers, std::size(handlers)) != GASNET_OK ||
      gex_Segment_Attach(&segment, job.team, segment_bytes) != GASNET_OK)
    return false;
  job.is_crowded = is_crowded(2);
  if (!job.is_crowded) gasnet_set_waitmode(GASNET_WAIT_SPIN);
  job.rank = gex_TM_QueryRank(job.team);
  job.peer = job.rank ^ 1;
  job.budget_bytes = options.budget_mib * kMiB;
  if (gex_TM_QuerySize(job.team) != 2) {
    job.why = "the job has another number of ranks: use two";
    leave(2);
  }
  void* address = nullptr;
  gex_Segment_QueryBound(job.team, job.rank, &address, nullptr, nullptr);
  job.mine = static_cast<std::byte*>(address);
  gex_Segment_QueryBound(job.team, job.peer, &address, nullptr, nullptr);
  job.theirs = static_cast<std::byte*>(address);
  std::memset(job.mine, 1, segment_bytes);
  job.verbs = new RawVerbs(2, SweepRaw::kBuffers);
  if (!job.verbs->works()) {
    job.why = job.verbs->why();
    return false;
  }
  job.registration = ibv_reg_mr(job.verbs->port().device.pd, job.mine, segment_bytes,
                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (job.registration == nullptr) {
    job.fail("registering the segment", std::strerror(errno));
    return false;
  }
  target = std::make_unique<SweepTarget>(job);
  RawVerbs::EndpointAddress own_endpoint = job.verbs->endpoint_address(job.peer);
  barrier();
  gex_AM_RequestMedium1(job.team, job.peer, kEndpointAddress, &own_endpoint, sizeof own_endpoint,
                        GEX_EVENT_NOW, 0, static_cast<gex_AM_Arg_t>(job.registration->rkey));
  GASNET_BLOCKUNTIL(endpoints_received == 1);
  const bool connected = job.verbs->connect(job.peer, their_endpoint);
  if (!connected) job.why = job.verbs->why();
  barrier();
  return connected && !job.has_failed;
}

// ---- cells ----

struct Sweep {
  const Options& options;
  std::array<std::unique_ptr<SweepWay>, kPutWays> ways;
  std::array<uint64_t, 3> registrations_before = {};
  uint64_t stamp = 1;

  // Pages where puts begin, the same on both ranks.
  std::vector<uint32_t> places(const PutCell& cell, size_t puts, std::mt19937_64& random) const {
    const size_t grain = std::max(cell.bytes, page_bytes());
    const size_t count =
        std::max<size_t>(static_cast<size_t>(job.budget_bytes) * cell.percent / 100 / grain, 1);
    std::vector<uint32_t> pages(puts);
    for (uint32_t& page : pages)
      page = static_cast<uint32_t>(random() % count * (grain / page_bytes()));
    return pages;
  }
  void stamp_sources(size_t bytes) {
    ++stamp;
    for (uint32_t slot = 0; slot < kSweepWindow && job.rank == 0; ++slot) {
      std::byte* at = job.mine + slot * kMaxSweepPut;
      std::memcpy(at, &stamp, 8);
      std::memcpy(at + bytes - 8, &stamp, 8);
    }
  }
  bool is_there(const std::vector<uint32_t>& pages, size_t bytes) const {
    return std::all_of(pages.begin(), pages.end(), [&](uint32_t page) {
      const std::byte* at = job.mine + page * page_bytes();
      return std::memcmp(at, &stamp, 8) == 0 && std::memcmp(at + bytes - 8, &stamp, 8) == 0;
    });
  }

  // Rank 0's ns per put; also receives the report of rank 1.
  double sample(size_t way, const PutCell& cell, const std::vector<uint32_t>& pages) {
    stamp_sources(cell.bytes);
    barrier();
    double ns = 0;
    if (job.rank == 0) {
      current = ways[way].get();
      const uint64_t begin = now_ns();
      current->run(pages, cell.bytes, cell.bytes == 8 ? 1 : kSweepWindow);
      ns = static_cast<double>(now_ns() - begin) / static_cast<double>(pages.size());
      const uint32_t wanted = reports + 1;
      gex_AM_RequestShort0(job.team, job.peer, kEnd, 0);
      GASNET_BLOCKUNTIL(reports == wanted);
      if (report.is_good == 0) job.fail(put_way_name(kAllPutWays[way]), "the data has not arrived");
    } else {
      static uint32_t wanted = 0;
      ++wanted;
      GASNET_BLOCKUNTIL(ends == wanted);
      Report mine{target->registrations(),
                  is_there(pages, cell.bytes) && !job.has_failed ? 1u : 0u};
      gex_AM_RequestMedium0(job.team, job.peer, kReport, &mine, sizeof mine, GEX_EVENT_NOW, 0);
    }
    barrier();
    return ns;
  }

  void count(size_t way, size_t puts, uint64_t hits, uint64_t bounced, PutSamples& samples) {
    const double all = static_cast<double>(puts) * options.repetitions;
    samples.hits += static_cast<double>(ways[way]->hits() - hits) / all;
    samples.bounced += static_cast<double>(ways[way]->bounced() - bounced) / all;
    if (way < 3)
      samples.registrations +=
          static_cast<double>(report.registrations[way] - registrations_before[way]) / all;
  }

  void run(PutCell& cell) {
    constexpr size_t kPuts8 = 400, kPutsLong = 32, kWarmUps = 8, kFewWarmUps = 32;
    const size_t puts = (cell.bytes == 8 ? kPuts8 : kPutsLong) / (options.quick ? 4 : 1);
    std::mt19937_64 random(17);
    std::mt19937 shuffling(7);
    const size_t grain = std::max(cell.bytes, page_bytes());
    const size_t fitting =
        std::min<size_t>(job.budget_bytes, job.budget_bytes * cell.percent / 100) / grain;
    if (job.rank == 0) hydrant_evict(job.peer, job.theirs, job.budget_bytes * cell.percent / 100);
    for (size_t way = 0; way < kPutWays; ++way) {
      const size_t warm = asks_a_cache(kAllPutWays[way]) ? kWarmUps * fitting + 1 : kFewWarmUps;
      sample(way, cell, places(cell, warm, random));
    }
    std::array<size_t, kPutWays> order = {0, 1, 2, 3, 4};
    for (uint32_t repetition = 0; repetition < options.repetitions; ++repetition) {
      const std::vector<uint32_t> pages = places(cell, puts, random);
      std::shuffle(order.begin(), order.end(), shuffling);
      for (const size_t way : order) {
        const uint64_t hits = ways[way]->hits(), bounced = ways[way]->bounced();
        registrations_before = report.registrations;
        cell.ways[way].ns.push_back(sample(way, cell, pages));
        count(way, puts, hits, bounced, cell.ways[way]);
        if (job.has_failed) leave(1);
      }
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  int code = -1;
  const Options options = parse(argc, argv, &code);
  if (code >= 0) return code;
  set_limits(options);
  if (!start(&argc, &argv, options)) leave(1);
  Sweep sweep{options, {}, {}, 1};
  sweep.ways = {std::make_unique<SweepFirehose>(job), std::make_unique<SweepRendezvous>(job, false),
                std::make_unique<SweepRendezvous>(job, true), std::make_unique<SweepBounce>(job),
                std::make_unique<SweepPinEverything>(job)};
  std::vector<PutCell> cells;
  for (const size_t bytes : options.sizes) {
    for (const unsigned percent : options.percents) {
      cells.push_back({bytes, percent, 0, false, {}});
      sweep.run(cells.back());
    }
  }
  if (job.rank == 0) {
    std::printf("Puts over %s; budget %u MiB, medians of %u\n", job.verbs->port().name,
                options.budget_mib, options.repetitions);
    const Json lines = report_verbs_sweep(cells);
    if (!options.json_file.empty()) {
      std::ofstream file(options.json_file);
      file << Json{{"port", job.verbs->port().name},
                   {"budget_bytes", job.budget_bytes},
                   {"repetitions", options.repetitions},
                   {"sweep", lines}}
                  .dump(1)
           << std::endl;
      if (!file.good()) job.fail(options.json_file.c_str(), std::strerror(errno));
    }
  }
  barrier();
  leave(job.has_failed ? 1 : 0);
}
