// Question: what do puts and gets cost between two ranks of a node?
//
// Unit: ns per operation, by size, form and path. Compared with the bare copy of the same pages (memcpy;
// process_vm_readv and process_vm_writev if the memory is not mapped) and, where UCX is installed, with UCX's
// put and get over shared memory. Run it as a job of two ranks; rank 0 works, rank 1 waits in a barrier and
// serves:
//
//   hydrant-run -n 2 rma_bench [--repetitions N] [--json FILE] [--quick] [--rows TEXT]
//   HYDRANT_PATH=am hydrant-run -n 2 rma_bench
//
// A row is MEMORY_DIRECTION_FORM_BYTES. segment: the other rank's segment, mapped here; heap: memory of its
// heap. constant: blocking, with a size that the compiler knows; blocking: any size; nbiN: N operations
// without events and one wait; nbN: N operations with an array of events; manyN: N operations by
// hydrant_put_many. The path is taken from the library's counters for the row's operations; HYDRANT_PATH
// forces one. Sizes are powers of two up to 512 and odd above, up to 64 MiB.
//
// Each row first checks that it moves the right bytes. Each repetition then runs each row, its floor and its
// peer in turn. Figures are medians over the repetitions, ratios are medians of the ratios within each. Each
// rank is bound to a processor.
#define GASNET_SEQ 1
#include "bench/support/copy_floor.hpp"
#include "bench/support/rma_report.hpp"
#include "bench/support/rma_rows.hpp"
#include "firehose/base/thread.hpp"
#if HYDRANT_HAVE_UCX
#include "bench/support/ucx_rma.hpp"
#endif

#include <cstdio>
#include <cstring>
#include <memory>
#include <sched.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>
#include <vector>

namespace {

using hydrant::now_ns;
using hydrant::bench::Form;
using hydrant::bench::Memory;
using hydrant::bench::RmaPlaces;
using hydrant::bench::RmaResult;
using hydrant::bench::RmaRow;

constexpr gex_AM_Index_t kExchange = 200;

// The data that ranks exchange before the measurement.
struct PeerInfo {
  pid_t pid = 0;
  std::byte* heap = nullptr;
};

struct Job {
  gex_Client_t client = GEX_CLIENT_INVALID;
  gex_EP_t endpoint = GEX_EP_INVALID;
  gex_TM_t team = GEX_TM_INVALID;
  gex_Segment_t segment = GEX_SEGMENT_INVALID;
  gex_Rank_t rank = 0;
  gex_Rank_t size = 1;
  gex_Rank_t peer = 0;
  std::byte* heap = nullptr;
  std::byte* local = nullptr;
  std::byte* peer_segment = nullptr;
  std::byte* mapped_segment = nullptr;  // null: not mapped here
  PeerInfo peer_info;
};
Job job;
std::vector<std::byte> received;
#if HYDRANT_HAVE_UCX
std::unique_ptr<hydrant::bench::UcxRma> ucx;
#endif

void take_card(gex_Token_t, void* data, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  received.assign(first, first + bytes);
}

// Sends `mine` to the peer and returns the peer's data. Both sides call it.
std::vector<std::byte> exchange(const void* mine, size_t bytes) {
  gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED);  // the peer has read the previous message
  gex_AM_RequestMedium0(job.team, job.peer, kExchange, const_cast<void*>(mine), bytes,
                        GEX_EVENT_NOW, 0);
  GASNET_BLOCKUNTIL(!received.empty());
  return std::exchange(received, {});
}

// Yields while it waits: the peer may need this processor, also for UCX.
void barrier() {
  gex_Event_t event = gex_Coll_BarrierNB(job.team, 0);
  for ([[maybe_unused]] uint32_t looks = 0; gex_Event_Test(event) != GASNET_OK; ++looks) {
    gasnet_AMPoll();
#if HYDRANT_HAVE_UCX
    if (ucx != nullptr && looks % 16 == 0) ucx->progress();
#endif
  }
}

std::byte* map_pages(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

bool start(int* argc, char*** argv) {
  if (gex_Client_Init(&job.client, &job.endpoint, &job.team, "RMA_BENCH", argc, argv, 0) !=
      GASNET_OK)
    return false;
  gex_AM_Entry_t handler = {kExchange,
                            reinterpret_cast<gex_AM_Fn_t>(take_card),
                            GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST,
                            0,
                            nullptr,
                            "take_card"};
  if (gex_EP_RegisterHandlers(job.endpoint, &handler, 1) != GASNET_OK) return false;
  job.rank = gex_TM_QueryRank(job.team);
  job.size = gex_TM_QuerySize(job.team);
  job.peer = job.rank ^ 1;
  return true;
}

// Allocates and attaches memory. False, with a message, if there is not enough.
bool make_memory(size_t bytes) {
  job.heap = map_pages(bytes);
  job.local = map_pages(bytes);
  void* mine = nullptr;
  if (job.heap == nullptr || job.local == nullptr ||
      gex_Segment_Attach(&job.segment, job.team, bytes) != GASNET_OK) {
    std::fprintf(stderr, "rma_bench: rank %u cannot allocate three times %zu bytes\n", job.rank,
                 bytes);
    return false;
  }
  gex_Segment_QueryBound(job.team, job.rank, &mine, nullptr, nullptr);
  for (std::byte* memory : {job.heap, job.local, static_cast<std::byte*>(mine)})
    std::memset(memory, 1, bytes);
  void* theirs = nullptr;
  void* mapped = nullptr;
  gex_Segment_QueryBound(job.team, job.peer, &theirs, &mapped, nullptr);
  job.peer_segment = static_cast<std::byte*>(theirs);
  job.mapped_segment = static_cast<std::byte*>(mapped);
  const PeerInfo info{.pid = getpid(), .heap = job.heap};
  const std::vector<std::byte> reply = exchange(&info, sizeof info);
  std::memcpy(&job.peer_info, reply.data(), sizeof job.peer_info);
  return true;
}

// False on both sides if either has no UCX.
bool open_ucx([[maybe_unused]] size_t bytes) {
#if HYDRANT_HAVE_UCX
  ucx = std::make_unique<hydrant::bench::UcxRma>(job.heap, bytes);
  const std::vector<std::byte> mine = ucx->works() ? ucx->blob() : std::vector<std::byte>(1);
  const std::vector<std::byte> theirs = exchange(mine.data(), mine.size());
  bool both = ucx->works() && theirs.size() > 1 && ucx->connect(theirs);
  barrier();
  if (both && job.rank == 0) {
    both = ucx->run(false, true, job.local, 8, 1) && ucx->run(true, true, job.local, 8, 1);
  }
  barrier();
  if (!both && job.rank == 0) std::fprintf(stderr, "rma_bench: no UCX: %s\n", ucx->why().c_str());
  if (!both) ucx.reset();
  return both;
#else
  return false;
#endif
}

// ---- one sample of each: ns per operation; 0 if not possible ----

// Runs once before the clock starts: otherwise the first sample of a row would warm the cache for the others.
template <typename Run>
double timed(const RmaRow& row, uint64_t batches, Run run) {
  constexpr size_t kNoCacheKeeps = size_t{8} << 20;
  if (row.bytes < kNoCacheKeeps && !run(1)) return 0;
  const uint64_t begin = now_ns();
  if (!run(batches)) return 0;
  return static_cast<double>(now_ns() - begin) / static_cast<double>(batches * row.batch);
}

RmaPlaces places_of(const RmaRow& row) {
  return {.team = job.team,
          .peer = job.peer,
          .local = job.local,
          .remote = row.memory == Memory::kHeap ? job.peer_info.heap : job.peer_segment};
}

double sample_ours(const RmaRow& row, uint64_t batches) {
  return timed(row, batches, [&](uint64_t times) {
    hydrant::bench::run_row(places_of(row), row, times);
    return true;
  });
}

// The floor: copies of the row's size, one at a time, at the places of the batch.
double sample_floor(const RmaRow& row, uint64_t batches) {
  if (row.memory == Memory::kHeap) {
    return timed(row, batches, [&](uint64_t times) {
      for (uint64_t i = 0; i < times; ++i) {
        for (size_t k = 0; k < row.batch; ++k) {
          const size_t place = k * row.bytes;
          if (!hydrant::bench::copy_by_cma(job.peer_info.pid, job.local + place,
                                           job.peer_info.heap + place, row.bytes, row.is_put, 1))
            return false;
        }
      }
      return true;
    });
  }
  if (job.mapped_segment == nullptr) return 0;
  std::byte* to = row.is_put ? job.mapped_segment : job.local;
  std::byte* from = row.is_put ? job.local : job.mapped_segment;
  return timed(row, batches, [&](uint64_t times) {
    if (row.form == Form::kConstant) {
      hydrant::bench::MappedFloor::run_constant(to, from, row.bytes, times);
      return true;
    }
    for (uint64_t i = 0; i < times; ++i) {
      for (size_t k = 0; k < row.batch; ++k)
        hydrant::bench::MappedFloor::run(to + k * row.bytes, from + k * row.bytes, row.bytes, 1);
    }
    return true;
  });
}

double sample_ucx([[maybe_unused]] const RmaRow& row, [[maybe_unused]] uint64_t batches) {
#if HYDRANT_HAVE_UCX
  return timed(row, batches, [&](uint64_t times) {
    for (uint64_t i = 0; i < times; ++i) {
      if (!ucx->run(row.memory == Memory::kHeap, row.is_put, job.local, row.bytes, row.batch))
        return false;
    }
    return true;
  });
#else
  return 0;
#endif
}

// ---- the table ----

void measure(std::vector<RmaResult>& results, uint32_t repetitions, bool with_ucx, bool quick) {
  const double sample_ns = quick ? 1e5 : 2.5e5;
  hydrant::bench::PathWatch paths;
  for (uint32_t r = 0; r <= repetitions; ++r) {  // repetition 0 warms up and finds the batch sizes
    for (RmaResult& result : results) {
      barrier();
      if (job.rank == 0) {
        if (r == 0) {
          if (!hydrant::bench::row_moves_data(places_of(result.row), result.row)) {
            std::fprintf(stderr, "rma_bench: %s: wrong data\n", result.row.name().c_str());
            gasnet_exit(1);
          }
          paths.take();
          result.batches = hydrant::bench::batches_for(result.row, sample_ours(result.row, 1), 1e4);
          result.path = paths.take();
        }
        const bool floor_first = r % 2 == 1;
        const double early = floor_first ? sample_floor(result.row, result.batches) : 0;
        const double ours = sample_ours(result.row, result.batches);
        const double floor = floor_first ? early : sample_floor(result.row, result.batches);
        const double theirs = with_ucx ? sample_ucx(result.row, result.batches) : 0;
        if (r == 0) {
          result.batches = hydrant::bench::batches_for(result.row, ours, sample_ns);
        } else {
          result.add(ours, floor, theirs);
        }
      }
      barrier();
    }
  }
}

void bind_to_processor() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(job.rank, &set);
  sched_setaffinity(0, sizeof set, &set);
}

}  // namespace

int main(int argc, char** argv) {
  if (!start(&argc, &argv)) return 1;
  const hydrant::bench::RmaOptions options =
      hydrant::bench::parse_rma_options(argc, argv, job.rank == 0);
  if (job.size != 2) {
    if (job.rank == 0) std::fprintf(stderr, "rma_bench: %u ranks: use two\n", job.size);
    gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED);
    gasnet_exit(2);
  }
  if (!hydrant::bench::is_crowded(job.size)) bind_to_processor();
  const size_t most = options.quick ? size_t{4} << 20 : size_t{64} << 20;
  if (!make_memory(most)) gasnet_exit(1);
  const bool with_ucx = open_ucx(most);
  std::vector<RmaResult> results;
  for (const RmaRow& row : hydrant::bench::rma_rows(most)) {
    if (row.name().find(options.rows) != std::string::npos) results.emplace_back(row);
  }
  if (results.empty()) {
    if (job.rank == 0)
      std::fprintf(stderr, "rma_bench: no row has '%s' in its name\n", options.rows.c_str());
    barrier();
    gasnet_exit(2);
  }
  measure(results, options.repetitions, with_ucx, options.quick);
  if (job.rank == 0) hydrant::bench::report_rma(results, options);
  barrier();
  gasnet_exit(0);
}
