// Lists the knobs of libhydrant, one row each. firehose/base/config/config.cpp reads the rows.
#include "rdma/config/job_knobs.hpp"

#include "rdma/config/ignored_names.hpp"
#include "rdma/config/network_knobs.hpp"

#include <algorithm>
#include <array>

namespace hydrant {
namespace {

constexpr uint64_t kHourNs = 3'600'000'000'000;
constexpr uint64_t kMaxSliceNs = 100'000'000;  // the kernel's, for a fair thread
// Larger than any address space: sums of a few sizes cannot wrap.
constexpr uint64_t kMaxSize = uint64_t{1} << 57;

constexpr uint32_t at(JobKnob knob) { return static_cast<uint32_t>(knob); }

// docs/env_vars.md repeats the rows word for word; a unit test compares them.
constexpr std::array<KnobInfo, at(JobKnob::kIbvOdp)> kFirstRows = {{
    {.index = at(JobKnob::kPollMax),
     .name = "HYDRANT_POLL_MAX",
     .type = KnobType::kCount,
     .unit = "messages",
     .default_text = "64",
     .effect = "Most Active Messages that one poll runs; the rest waits for the next poll.",
     .min = 1,
     .max = uint64_t{1} << 20},
    {.index = at(JobKnob::kProgressThread),
     .name = "HYDRANT_PROGRESS_THREAD",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "n",
     .effect = "y starts a library thread that polls and runs handlers while the client's threads "
               "compute; only for clients compiled with GASNET_PAR."},
    {.index = at(JobKnob::kTimeSlice),
     .name = "HYDRANT_TIME_SLICE",
     .type = KnobType::kDuration,
     .unit = "seconds",
     .default_text = "100us",
     .effect =
         "Longest time slice of a thread that waits for other ranks, beside threads that compute: "
         "it runs sooner when what it waits for has come; from Linux 6.12 on. Less than 100us "
         "counts as 100us. Threads and processes that such a thread starts inherit it. 0 leaves "
         "the kernel's.",
     .max = kMaxSliceNs},
    {.index = at(JobKnob::kSupernodeMaxsize),
     .name = "GASNET_SUPERNODE_MAXSIZE",
     .type = KnobType::kCount,
     .unit = "ranks",
     .default_text = "0",
     .effect =
         "Most ranks of a host in one neighbourhood, in which ranks map each other's segments; "
         "0 is no limit.",
     .max = uint64_t{1} << 20},
    {.index = at(JobKnob::kSegmentCommit),
     .name = "HYDRANT_SEGMENT_COMMIT",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "n",
     .effect = "y allocates all memory of an attached segment when it is created; n allocates each "
               "page at its first use."},
    {.index = at(JobKnob::kSegmentCheck),
     .name = "HYDRANT_SEGMENT_CHECK",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "y",
     .effect =
         "Whether the target of every put, get and Long must be in its rank's segment; only in "
         "programs compiled with GASNET_DEBUG, and not with GASNET_SEGMENT_EVERYTHING."},
    {.index = at(JobKnob::kBootstrap),
     .name = "HYDRANT_BOOTSTRAP",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect = "How the processes of a job find each other: auto detects the launcher from the "
               "environment; the other values choose one; alone is a job of one process.",
     .choices = "auto|alone|hydrant_run|fork|pmix|pmi2"},
    {.index = at(JobKnob::kStopWarn),
     .name = "HYDRANT_STOP_WARN",
     .type = KnobType::kDuration,
     .unit = "seconds",
     .default_text = "10s",
     .effect =
         "hydrant-run and GASNET_PSHM_NODES: a process that is stopped (SIGSTOP) for this long "
         "causes one warning and is not treated as dead; 0 means never.",
     .max = 24 * kHourNs,
     .zero_is_never = true},
    {.index = at(JobKnob::kGasnetPshmNodes),
     .name = "GASNET_PSHM_NODES",
     .type = KnobType::kCount,
     .unit = "processes",
     .default_text = "0",
     .effect = "A program without a launcher forks into this many processes at init; 0 and 1 mean "
               "one process. Ranks do not pass it on to programs that they start.",
     .max = 4096,
     .refused = true},
    {.index = at(JobKnob::kGasnetExitTimeout),
     .name = "GASNET_EXITTIMEOUT",
     .type = KnobType::kDuration,
     .unit = "seconds",
     .default_text = "0",
     .effect = "When a job exits, processes that still run after this time are killed. 0 computes "
               "it: GASNET_EXITTIMEOUT_MIN plus GASNET_EXITTIMEOUT_FACTOR per process, at most "
               "GASNET_EXITTIMEOUT_MAX.",
     .max = kHourNs},
    {.index = at(JobKnob::kGasnetExitTimeoutMax),
     .name = "GASNET_EXITTIMEOUT_MAX",
     .type = KnobType::kDuration,
     .unit = "seconds",
     .default_text = "20s",
     .effect = "Upper limit of the computed GASNET_EXITTIMEOUT.",
     .max = kHourNs},
    {.index = at(JobKnob::kGasnetExitTimeoutMin),
     .name = "GASNET_EXITTIMEOUT_MIN",
     .type = KnobType::kDuration,
     .unit = "seconds",
     .default_text = "2s",
     .effect = "Constant part of the computed GASNET_EXITTIMEOUT.",
     .max = kHourNs},
    {.index = at(JobKnob::kGasnetExitTimeoutFactor),
     .name = "GASNET_EXITTIMEOUT_FACTOR",
     .type = KnobType::kDuration,
     .unit = "seconds",
     .default_text = "50ms",
     .effect = "Addition per process to the computed GASNET_EXITTIMEOUT.",
     .max = kHourNs},
    {.index = at(JobKnob::kBarrier),
     .name = "GASNET_BARRIER",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect = "Barrier algorithm, the same on all ranks: SHM (shared memory), AMDISSEM or DISSEM "
               "(rounds of Active Messages), AMCENTRAL (Active Messages to rank 0), RDMADISSEM "
               "(rounds of RDMA between nodes). auto is the build's HYDRANT_BARRIER_DEFAULT, "
               "normally SHM, and RDMADISSEM between nodes where possible.",
     .choices = "auto|SHM|AMDISSEM|AMCENTRAL|DISSEM|RDMADISSEM"},
    {.index = at(JobKnob::kBarrierStrict),
     .name = "HYDRANT_BARRIER_STRICT",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "y",
     .effect = "n promises that all ranks agree on whether a barrier is named: anonymous barriers "
               "then send no identifier, and only mismatching identifiers are reported."},
    {.index = at(JobKnob::kBarrierRadix),
     .name = "HYDRANT_BARRIER_RADIX",
     .type = KnobType::kCount,
     .unit = "ranks",
     .default_text = "0",
     .effect = "SHM barriers: ranks that meet in each round, the same on all ranks; the number of "
               "ranks gives one round, 0 chooses.",
     .max = 1024},
    {.index = at(JobKnob::kCollNode),
     .name = "HYDRANT_COLL_NODE",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "lines",
     .effect =
         "Collectives of a team on one node: lines and mapped vectors, which all members read; or "
         "messages, as between nodes. The same on all ranks.",
     .choices = "lines|messages"},
    {.index = at(JobKnob::kCollNet),
     .name = "HYDRANT_COLL_NET",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "mailboxes",
     .effect =
         "Small reductions to all of a team on several nodes: mailboxes, which adapters write; or "
         "messages. The same on all ranks.",
     .choices = "mailboxes|messages"},
    {.index = at(JobKnob::kCollBroadcast),
     .name = "HYDRANT_COLL_BROADCAST",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect =
         "Broadcasts by messages: tree, flat (all members get the data from the root), or parts "
         "(each member gets a part, then those of the others). auto chooses by length and nodes. "
         "The same on all ranks.",
     .choices = "auto|tree|flat|parts"},
    {.index = at(JobKnob::kCollReduceAll),
     .name = "HYDRANT_COLL_REDUCE_ALL",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect =
         "Reductions to all by messages: doubling, halving where each member gets an element, or "
         "two_levels (within nodes, then between them). auto chooses by length and nodes. The same "
         "on all ranks.",
     .choices = "auto|doubling|halving|two_levels"},
    {.index = at(JobKnob::kCollGatherAll),
     .name = "HYDRANT_COLL_GATHER_ALL",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect = "Gathers to all: rounds (Bruck), or flat (each member gets from all others). auto "
               "chooses by length. The same on all ranks.",
     .choices = "auto|rounds|flat"},
    {.index = at(JobKnob::kJobWaitWarn),
     .name = "HYDRANT_WAIT_WARN",
     .type = KnobType::kDuration,
     .unit = "seconds",
     .default_text = "10s",
     .effect =
         "A barrier or collective that is blocked this long logs which ranks are missing; a put or "
         "get logs which rank it waits for. All go on; 0 means never.",
     .max = 24 * kHourNs,
     .zero_is_never = true},
    {.index = at(JobKnob::kPath),
     .name = "HYDRANT_PATH",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect = "Path of puts and gets, for experiments and tests; put_get.md lists the values. "
               "Transfers that this path cannot carry use the next one in the order of that table.",
     .choices = "auto|mapped|cma|firehose|nic|direct|bounce|am|am_medium|am_long"},
    {.index = at(JobKnob::kPutInMoveMax),
     .name = "HYDRANT_PUT_IN_MOVE_MAX",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "4096",
     .effect = "Between pinned memory: puts and gets up to this size without a remote firehose "
               "travel in the request for the firehose or in its reply.",
     .max = 65536},
    {.index = at(JobKnob::kBounceMax),
     .name = "HYDRANT_BOUNCE_MAX",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "65536",
     .effect = "Largest piece that is copied through a library buffer when the source must be "
               "reusable at once and the network is slower than a copy.",
     .min = 64,
     .max = uint64_t{16} << 20},
    {.index = at(JobKnob::kBouncePool),
     .name = "HYDRANT_BOUNCE_POOL",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "4M",
     .effect = "Memory of all these buffers, allocated at first use; the default is at most a "
               "sixteenth of the memlock that remains for puts and gets. When all are in use, puts "
               "and gets wait or take the next path.",
     .min = 4096,
     .max = uint64_t{64} << 30},
    {.index = at(JobKnob::kAmLongPrealloc),
     .name = "HYDRANT_AMLONG_PREALLOC",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "y",
     .effect =
         "For networks that transfer only pinned memory: y allocates the buffers when the job "
         "starts, n when a put or Long first needs one."},
    {.index = at(JobKnob::kMediumLongThreshold),
     .name = "HYDRANT_MEDIUM_LONG_THRESHOLD",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "4096",
     .effect = "Puts and gets by Active Messages up to this size use Mediums, larger ones Longs if "
               "allowed; at most the largest Medium.",
     .min = 0},
    {.index = at(JobKnob::kUseLongGets),
     .name = "HYDRANT_USE_LONG_GETS",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "y",
     .effect = "Whether replies to gets by Active Messages may be Longs."},
    {.index = at(JobKnob::kUseLongPuts),
     .name = "HYDRANT_USE_LONG_PUTS",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "y",
     .effect = "Whether puts by Active Messages may be Longs."},
    {.index = at(JobKnob::kCma),
     .name = "HYDRANT_CMA",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "y",
     .effect = "Whether the kernel may copy between processes of a node (process_vm_readv, "
               "process_vm_writev), as far as it permits that."},
    {.index = at(JobKnob::kVisPath),
     .name = "HYDRANT_VIS_PATH",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect = "Vector, indexed and strided puts and gets: pieces makes each piece a put or get of "
               "its own, packets puts many pieces into one message; auto copies mapped memory and "
               "chooses by the length of the pieces otherwise.",
     .choices = "auto|pieces|packets"},
    {.index = at(JobKnob::kVisPacketMax),
     .name = "HYDRANT_VIS_PACKET_MAX",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "1536",
     .effect =
         "Vector, indexed and strided puts and gets whose pieces have at most this many bytes "
         "on average go in packets where memory is not mapped.",
     .max = uint64_t{1} << 30},
    {.index = at(JobKnob::kNetworkDepth),
     .name = "GASNET_NETWORKDEPTH",
     .type = KnobType::kCount,
     .unit = "operations",
     .default_text = "256",
     .effect =
         "Most pieces of puts and gets that one thread has in flight; further ones poll until "
         "one completes. At most the transport's limit.",
     .min = 1,
     .max = uint64_t{1} << 20},
    {.index = at(JobKnob::kNbiThrottle),
     .name = "GASNET_NBI_THROTTLE",
     .type = KnobType::kCount,
     .unit = "operations",
     .default_text = "0",
     .effect = "As GASNET_NETWORKDEPTH, for operations without an event of their own; 0 means "
               "GASNET_NETWORKDEPTH.",
     .max = uint64_t{1} << 20},
    {.index = at(JobKnob::kOnFault),
     .name = "HYDRANT_ON_FAULT",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect =
         "Effect of an invalid put or get (no such rank, unmapped or read-only memory): abort "
         "ends the job with a message, return returns an error; auto is abort for GASNet's "
         "calls and return for those of hydrant/rma.h.",
     .choices = "auto|abort|return"},
    {.index = at(JobKnob::kStats),
     .name = "HYDRANT_STATS",
     .type = KnobType::kText,
     .unit = "",
     .default_text = "",
     .effect =
         "At exit each process writes its puts and gets, by path and peer, and counts of other "
         "operations to this file, as JSON or as a table to read; %r in the name is the rank, %% a "
         "percent sign, and - as the name standard error. A file without %r is written by rank 0 "
         "only. Puts, gets and remote atomics are not inlined then.",
     .choices = "json:FILE, table:FILE"},
    {.index = at(JobKnob::kTraceFile),
     .name = "GASNET_TRACEFILE",
     .type = KnobType::kText,
     .unit = "",
     .default_text = "",
     .effect =
         "Writes each call, message, put and get of a rank to this file (tracing.md); % in the "
         "name is the rank. stdout and stderr (also -) are those. Calls are slower then.",
     .choices = "FILE"},
    {.index = at(JobKnob::kTraceMask),
     .name = "GASNET_TRACEMASK",
     .type = KnobType::kText,
     .unit = "",
     .default_text = "",
     .effect = "Kinds of events in GASNET_TRACEFILE, a letter each; after ^ all others. Default: "
               "all. tracing.md lists the letters.",
     .choices = "LETTERS, ^LETTERS"},
    {.index = at(JobKnob::kTraceNodes),
     .name = "GASNET_TRACENODES",
     .type = KnobType::kText,
     .unit = "",
     .default_text = "",
     .effect = "Ranks that write GASNET_TRACEFILE. Default: all.",
     .choices = "*, RANK, RANK-RANK, with commas between"},
    {.index = at(JobKnob::kTraceFlush),
     .name = "GASNET_TRACEFLUSH",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "n",
     .effect = "y writes each event to the trace before the call returns, so that a crash loses "
               "none; otherwise it loses up to 50 ms."},
    {.index = at(JobKnob::kTraceLocal),
     .name = "GASNET_TRACELOCAL",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "y",
     .effect = "Whether puts and gets of a rank's own memory are in the trace."},
    {.index = at(JobKnob::kStatsFile),
     .name = "GASNET_STATSFILE",
     .type = KnobType::kText,
     .unit = "",
     .default_text = "",
     .effect =
         "At exit each rank writes the number, sizes and times of its calls, messages, puts and "
         "gets to this file, and what it has counted; names as in GASNET_TRACEFILE.",
     .choices = "FILE"},
    {.index = at(JobKnob::kStatsMask),
     .name = "GASNET_STATSMASK",
     .type = KnobType::kText,
     .unit = "",
     .default_text = "",
     .effect = "Kinds of events in GASNET_STATSFILE, as in GASNET_TRACEMASK.",
     .choices = "LETTERS, ^LETTERS"},
    {.index = at(JobKnob::kStatsNodes),
     .name = "GASNET_STATSNODES",
     .type = KnobType::kText,
     .unit = "",
     .default_text = "",
     .effect = "Ranks that write GASNET_STATSFILE, as in GASNET_TRACENODES.",
     .choices = "*, RANK, RANK-RANK, with commas between"},
    {.index = at(JobKnob::kTransport),
     .name = "HYDRANT_TRANSPORT",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect = "Transport, the same on all ranks: auto is shared memory within a node and verbs "
               "between nodes; shm is shared memory only; ibv is verbs only, also within a node.",
     .choices = "auto|shm|ibv"},
    {.index = at(JobKnob::kIbvPorts),
     .name = "HYDRANT_IBV_PORTS",
     .type = KnobType::kText,
     .unit = "",
     .default_text = "",
     .effect =
         "Verbs devices, ports and addresses (GID indices) that a process uses, at most four; "
         "* is any device. Messages use the first, long puts and gets all of them. A malformed "
         "item makes init fail where verbs are used, as does a list of which no port can be used. "
         "Default: one port on a network that all nodes have, InfiniBand before RoCE, then the "
         "fastest, then one on the lower network, then the nearest to the process.",
     .choices = "DEVICE[:PORT[:GID]],..."},
    {.index = at(JobKnob::kIbvStripeMin),
     .name = "HYDRANT_IBV_STRIPE_MIN",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "1M",
     .effect = "Puts and gets from this length are divided evenly among all verbs ports of a "
               "process; messages to that peer wait until such a put has completed.",
     .min = 65536,
     .max = kMaxSize},
    {.index = at(JobKnob::kIbvPatience),
     .name = "HYDRANT_IBV_PATIENCE",
     .type = KnobType::kDuration,
     .unit = "seconds",
     .default_text = "8s",
     .effect =
         "How long a verbs adapter repeats a packet that is not acknowledged before the peer is "
         "treated as lost: about this time, because adapters know powers of two only, and with "
         "some adapters up to four times as long.",
     .min = 10'000'000,
     .max = kHourNs},
    {.index = at(JobKnob::kIbvCredits),
     .name = "HYDRANT_IBV_CREDITS",
     .type = KnobType::kCount,
     .unit = "messages",
     .default_text = "32",
     .effect = "Most requests, and most replies, in flight to one peer over verbs, the same on all "
               "ranks. Each costs one receive buffer per peer.",
     .min = 4,
     .max = 4096},
}};

constexpr std::array<KnobInfo, at(JobKnob::kEnd)> join_rows() {
  std::array<KnobInfo, at(JobKnob::kEnd)> all{};
  const auto next = std::copy(kFirstRows.begin(), kFirstRows.end(), all.begin());
  std::copy(kNetworkRows.begin(), kNetworkRows.end(), next);
  return all;
}
constexpr auto kRows = join_rows();

constexpr bool rows_are_in_order() {
  for (uint32_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].index != i) return false;
  }
  return true;
}
static_assert(rows_are_in_order(), "a knob is the index of its row");

constexpr std::string_view kPrefixes[] = {"HYDRANT_"};
constinit std::atomic<bool> g_warned[kRows.size()];
constinit KnobTable g_table(kRows, kPrefixes, g_warned);
[[gnu::constructor(101)]] void add_table() noexcept {
  g_table.set_ignored(ignored_gasnet_names());
  add_knob_table(g_table);
}

}  // namespace

const KnobInfo& knob_info(JobKnob knob) noexcept { return kRows[at(knob)]; }

}  // namespace hydrant
