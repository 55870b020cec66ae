// Question: what does an Active Message cost between the ranks of a node?
//
// Unit: ns. Compared with the raw floor (a cache line that the same two processors pass back and forth) and,
// where UCX is installed, with UCX's Active Messages over shared memory. Run it as a job of an even number of
// ranks; ranks 0 and 1 exchange messages, 2 and 3 and so on, at the same time:
//
//   hydrant-run -n 2 am_bench [--repetitions N] [--json FILE] [--quick]
//   GASNET_PSHM_NODES=4 am_bench
//
// Each repetition runs the floor and all rows in turn. Figures are medians over the repetitions, ratios are
// medians of the ratios within each. round_trip: a request and a reply of that size. flood: one way, per
// message, until the last one has arrived. Each rank is bound to a processor, unless there are more ranks
// than processors.
#define GASNET_SEQ 1
#include <gasnetex.h>

#include "bench/support/job_bench.hpp"
#include "firehose/base/thread.hpp"
#if HYDRANT_HAVE_UCX
#include "bench/support/ucx_am.hpp"
#endif

#include <cstdio>
#include <cstring>
#include <memory>
#include <sched.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

using hydrant::now_ns;
using hydrant::bench::JobRow;
using hydrant::bench::LineFloor;

enum Handler : gex_AM_Index_t {
  kPing = 200,
  kPong,
  kCount,
  kMediumPing,
  kMediumPong,
  kMediumCount,
  kAddress
};

struct Job {
  gex_Client_t client = GEX_CLIENT_INVALID;
  gex_EP_t endpoint = GEX_EP_INVALID;
  gex_TM_t team = GEX_TM_INVALID;
  gex_Segment_t segment = GEX_SEGMENT_INVALID;
  gex_Rank_t rank = 0;
  gex_Rank_t size = 1;
  gex_Rank_t peer = 0;
  bool is_requester = false;  // one rank of each pair sends requests, the other serves
  bool crowded = false;
};
Job job;
uint64_t replies = 0;
uint64_t arrivals = 0;
std::vector<std::byte> peer_address;
std::byte source[65536];

void ping(gex_Token_t token) { gex_AM_ReplyShort0(token, kPong, 0); }
void pong(gex_Token_t) { ++replies; }
void count(gex_Token_t) { ++arrivals; }
void medium_ping(gex_Token_t token, void* data, size_t bytes) {
  gex_AM_ReplyMedium0(token, kMediumPong, data, bytes, GEX_EVENT_NOW, 0);
}
void medium_pong(gex_Token_t, void*, size_t) { ++replies; }
void medium_count(gex_Token_t, void*, size_t) { ++arrivals; }
void take_address(gex_Token_t, void* data, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  peer_address.assign(first, first + bytes);
}

template <typename Function>
gex_AM_Entry_t entry(Handler index, Function* function, gex_Flags_t flags, const char* name) {
  return {static_cast<gex_AM_Index_t>(index),
          reinterpret_cast<gex_AM_Fn_t>(function),
          flags,
          0,
          nullptr,
          name};
}

void barrier() { gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED); }

// ns per round trip, or per message of a flood. 0 bytes means a Short.
double round_trip(size_t bytes, uint64_t rounds) {
  barrier();
  const uint64_t begin = now_ns();
  if (job.is_requester) {
    for (uint64_t i = 0; i < rounds; ++i) {
      const uint64_t wanted = replies + 1;
      if (bytes == 0) {
        gex_AM_RequestShort0(job.team, job.peer, kPing, 0);
      } else {
        gex_AM_RequestMedium0(job.team, job.peer, kMediumPing, source, bytes, GEX_EVENT_NOW, 0);
      }
      GASNET_BLOCKUNTIL(replies == wanted);
    }
  }
  const double ns = static_cast<double>(now_ns() - begin) / static_cast<double>(rounds);
  barrier();
  return ns;
}

double flood(size_t bytes, uint64_t messages) {
  const uint64_t wanted = arrivals + messages;
  barrier();
  const uint64_t begin = now_ns();
  if (job.is_requester) {
    for (uint64_t i = 0; i < messages; ++i) {
      if (bytes == 0) {
        gex_AM_RequestShort0(job.team, job.peer, kCount, 0);
      } else {
        gex_AM_RequestMedium0(job.team, job.peer, kMediumCount, source, bytes, GEX_EVENT_NOW, 0);
      }
    }
  } else {
    GASNET_BLOCKUNTIL(arrivals == wanted);
  }
  barrier();  // the requesting rank stops the clock when all have arrived
  return static_cast<double>(now_ns() - begin) / static_cast<double>(messages);
}

#if HYDRANT_HAVE_UCX
std::unique_ptr<hydrant::bench::UcxAm> ucx;

// Exchanges UCX addresses by Active Messages. False on both sides if either has no UCX.
bool open_ucx() {
  ucx = std::make_unique<hydrant::bench::UcxAm>();
  const std::vector<std::byte> none(1);
  const std::vector<std::byte>& mine = ucx->works() ? ucx->address() : none;
  gex_AM_RequestMedium0(job.team, job.peer, kAddress, mine.data(), mine.size(), GEX_EVENT_NOW, 0);
  GASNET_BLOCKUNTIL(!peer_address.empty());
  const bool both = ucx->works() && peer_address.size() > 1 && ucx->connect(peer_address);
  if (!both) ucx.reset();
  return both;
}

double ucx_round_trip(size_t bytes, uint64_t rounds) {
  const uint64_t wanted = ucx->received() + rounds;
  barrier();
  const uint64_t begin = now_ns();
  if (job.is_requester) {
    for (uint64_t i = 0; i < rounds; ++i) {
      const uint64_t next = ucx->received() + 1;
      ucx->send(source, bytes, true);
      while (ucx->received() < next) ucx->progress();
    }
  } else {
    while (ucx->received() < wanted) ucx->progress();
  }
  const double ns = static_cast<double>(now_ns() - begin) / static_cast<double>(rounds);
  barrier();
  return ns;
}

double ucx_flood(size_t bytes, uint64_t messages) {
  const uint64_t wanted = ucx->received() + messages;
  barrier();
  const uint64_t begin = now_ns();
  if (job.is_requester) {
    for (uint64_t i = 0; i < messages; ++i) ucx->send(source, bytes, false);
  } else {
    while (ucx->received() < wanted) ucx->progress();
  }
  barrier();
  return static_cast<double>(now_ns() - begin) / static_cast<double>(messages);
}
#endif

struct Row {
  size_t bytes;
  bool is_flood;
};

std::vector<Row> make_rows(std::vector<JobRow>* named) {
  std::vector<Row> rows;
  for (const bool is_flood : {false, true}) {
    const char* kind = is_flood ? "flood" : "round_trip";
    rows.push_back({0, is_flood});
    named->push_back({std::string("short_") + kind, {}, {}});
    for (const size_t bytes : {8u, 64u, 128u, 256u, 512u, 1024u, 4096u, 16384u, 65536u}) {
      rows.push_back({bytes, is_flood});
      named->push_back({"medium_" + std::to_string(bytes) + "_" + kind, {}, {}});
    }
  }
  return rows;
}

bool start(int* argc, char*** argv) {
  gex_AM_Entry_t handlers[] = {
      entry(kPing, ping, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, "ping"),
      entry(kPong, pong, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, "pong"),
      entry(kCount, count, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, "count"),
      entry(kMediumPing, medium_ping, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, "medium_ping"),
      entry(kMediumPong, medium_pong, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, "medium_pong"),
      entry(kMediumCount, medium_count, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, "medium_count"),
      entry(kAddress, take_address, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, "take_address"),
  };
  if (gex_Client_Init(&job.client, &job.endpoint, &job.team, "AM_BENCH", argc, argv, 0) !=
          GASNET_OK ||
      gex_EP_RegisterHandlers(job.endpoint, handlers, std::size(handlers)) != GASNET_OK ||
      gex_Segment_Attach(&job.segment, job.team, GASNET_PAGESIZE) != GASNET_OK) {
    return false;
  }
  job.rank = gex_TM_QueryRank(job.team);
  job.size = gex_TM_QuerySize(job.team);
  job.peer = job.rank ^ 1;
  job.is_requester = job.rank % 2 == 0;
  job.crowded = hydrant::bench::is_crowded(job.size);
  if (!job.crowded) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(job.rank, &set);
    sched_setaffinity(0, sizeof set, &set);
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (!start(&argc, &argv)) return 1;
  const hydrant::bench::JobOptions options =
      hydrant::bench::parse_job_options(argc, argv, job.rank == 0);
  if (job.size % 2 != 0) {
    if (job.rank == 0) std::fprintf(stderr, "am_bench: %u ranks: use an even number\n", job.size);
    barrier();
    gasnet_exit(2);
  }
  void* mapped = nullptr;
  gex_Segment_QueryBound(job.team, job.rank & ~1u, nullptr, &mapped, nullptr);
  if (mapped == nullptr) {
    std::fprintf(stderr, "am_bench: the segment of rank %u is not mapped in this process\n",
                 job.rank & ~1u);
    return 1;
  }
  LineFloor floor{.lines = static_cast<LineFloor::Line*>(mapped),
                  .first = job.is_requester,
                  .crowded = job.crowded};
#if HYDRANT_HAVE_UCX
  barrier();
  const bool with_ucx = !job.crowded && open_ucx();
#endif
  const uint64_t scale = (options.quick ? 10 : 1) * (job.crowded ? 10 : 1);
  std::vector<double> floors;
  std::vector<JobRow> results;
  const std::vector<Row> rows = make_rows(&results);
  for (uint32_t r = 0; r <= options.repetitions; ++r) {  // repetition 0 warms up
    barrier();
    const double floor_ns = floor.run(20000 / scale);
    if (r > 0) floors.push_back(floor_ns);
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t bytes = rows[i].bytes;
      const uint64_t rounds = (rows[i].is_flood ? 50000 : 10000) / scale / (1 + bytes / 4096);
      const double ours = rows[i].is_flood ? flood(bytes, rounds) : round_trip(bytes, rounds);
      if (r > 0) results[i].ns.push_back(ours);
#if HYDRANT_HAVE_UCX
      if (!with_ucx) continue;
      const double theirs =
          rows[i].is_flood ? ucx_flood(bytes, rounds) : ucx_round_trip(bytes, rounds);
      if (r > 0) results[i].peer_ns.push_back(theirs);
#endif
    }
  }
  if (job.rank == 0) hydrant::bench::report_job(job.size, results, floors, options.json_file);
  barrier();
  gasnet_exit(0);
}
