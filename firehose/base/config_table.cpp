// The rows, and nothing else.
#include "firehose/base/config.hpp"
#include "firehose/base/memory_range.hpp"

#include <array>

namespace hydrant {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kHourNs = 3'600'000'000'000;
// Larger than any address space: sums of a few sizes cannot wrap.
constexpr uint64_t kMaxSize = uint64_t{1} << 57;

// docs/env_vars.md repeats these rows word for word; the unit test of this file compares them.
constexpr std::array<KnobInfo, kKnobCount> kTable = {{
    {.knob = Knob::kRegistrar,
     .name = "FIREHOSE_REGISTRAR",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect =
         "What pins memory when a domain names no registrar: io_uring registered buffers, mlock, "
         "or the first of the two that works here.",
     .choices = "auto|uring|mlock"},
    {.knob = Knob::kBudget,
     .name = "FIREHOSE_BUDGET",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "0",
     .effect = "Most bytes a domain keeps charged at once; 0 takes it from the machine's limits.",
     .max = kMaxSize},
    {.knob = Knob::kMaxRegions,
     .name = "FIREHOSE_MAX_REGIONS",
     .type = KnobType::kCount,
     .unit = "regions",
     .default_text = "65536",
     .effect = "Most regions a domain keeps pinned at once; the registrar may allow fewer.",
     .min = 1,
     .max = uint64_t{1} << 22},
    {.knob = Knob::kMaxRegionSize,
     .name = "FIREHOSE_MAX_REGION_SIZE",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "0",
     .effect = "Largest single region; 0 leaves it to the registrar.",
     .max = kMaxSize},
    {.knob = Knob::kMode,
     .name = "FIREHOSE_MODE",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "region",
     .effect = "How a domain divides memory where the program leaves it open and the registrar has "
               "no keys: "
               "intervals that merge and grow, or fixed buckets.",
     .choices = "region|page"},
    {.knob = Knob::kBucket,
     .name = "FIREHOSE_BUCKET",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "0",
     .effect = "Size of a bucket in page mode, a power of two; 0 means one page.",
     .max = kGiB,
     .power_of_two = true},
    {.knob = Knob::kMerge,
     .name = "FIREHOSE_MERGE",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "16M",
     .effect =
         "Region mode: adjacent and overlapping regions merge up to this size; 1 means never.",
     .min = 1,
     .max = kMaxSize},
    {.knob = Knob::kStream,
     .name = "FIREHOSE_STREAM",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "4M",
     .effect = "Region mode: requests that follow each other in memory make the next registration "
               "longer, up to this size; 1 means never, huge pages included. Without effect where "
               "the client watches: options.stream_bytes.",
     .min = 1,
     .max = kMaxSize},
    {.knob = Knob::kEagerAccess,
     .name = "FIREHOSE_EAGER_ACCESS",
     .type = KnobType::kSet,
     .unit = "",
     .default_text = "none",
     .effect =
         "Rights asked for beside those a pin needs, to save registering again later; dropped "
         "where they are refused.",
     .choices = "local_write|remote_read|remote_write|remote_atomic"},
    {.knob = Knob::kThreadTable,
     .name = "FIREHOSE_THREAD_TABLE",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "1M",
     .effect = "Largest translation table of one thread and domain, rounded down to a power of "
               "two; smaller saves memory, larger makes "
               "more regions a hit without a look in the shared table.",
     .min = 8192,
     .max = kGiB},
    {.knob = Knob::kWaitWarn,
     .name = "FIREHOSE_WAIT_WARN",
     .type = KnobType::kDuration,
     .unit = "seconds",
     .default_text = "10s",
     .effect =
         "After this long, a wait that is still blocked says what it is waiting for, and goes on; "
         "0 means never.",
     .max = 24 * kHourNs},
    {.knob = Knob::kMembarrier,
     .name = "FIREHOSE_MEMBARRIER",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "y",
     .effect =
         "Whether evictions may use membarrier(2), which frees every hit from a memory fence; n is "
         "for measuring and for sandboxes that mistreat the call."},
    {.knob = Knob::kWatch,
     .name = "FIREHOSE_WATCH",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect =
         "Who says that memory goes away, where the program leaves it open: the kernel, hooks "
         "and arenas; or nobody, so that only arenas and vouched memory are cached. That the "
         "program says it, only the program can promise: options.watch.",
     .choices = "auto|none"},
    {.knob = Knob::kLog,
     .name = "HYDRANT_LOG",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "warning",
     .effect = "The most talkative level of messages written to standard error.",
     .choices = "error|warning|info|debug"},
    {.knob = Knob::kAllocBackend,
     .name = "HYDRANT_ALLOC_BACKEND",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect =
         "Read by libhydrant_alloc: which allocator stands behind its functions, jemalloc where it "
         "can be had, or its own in any case.",
     .choices = "auto|extents"},
    {.knob = Knob::kRemoteBudget,
     .name = "FIREHOSE_REMOTE_BUDGET",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "0",
     .effect =
         "Remote pins: most bytes that peers may keep pinned here at once, all of them; 0 is half "
         "of the domain's budget.",
     .max = kMaxSize},
    {.knob = Knob::kRemoteFirehoses,
     .name = "FIREHOSE_REMOTE_MAX",
     .type = KnobType::kCount,
     .unit = "firehoses",
     .default_text = "0",
     .effect =
         "Remote pins: most firehoses that peers may have here at once; 0 is as many as the domain "
         "may have regions.",
     .max = uint64_t{1} << 22},
    {.knob = Knob::kRemoteBase,
     .name = "FIREHOSE_REMOTE_BASE",
     .type = KnobType::kCount,
     .unit = "percent",
     .default_text = "50",
     .effect =
         "Remote pins: this part of the budget is split evenly between the peers, the rest is lent "
         "to those that use it; 100 is a fixed split.",
     .min = 1,
     .max = 100},
    {.knob = Knob::kRemoteZombies,
     .name = "FIREHOSE_REMOTE_ZOMBIES",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "0",
     .effect =
         "Remote pins: most memory that has gone away and that peers have not given back; beyond "
         "it nothing more is exported. 0 is a quarter of FIREHOSE_REMOTE_BUDGET.",
     .max = kMaxSize},
    {.knob = Knob::kRemotePeerRegions,
     .name = "FIREHOSE_REMOTE_PEER_REGIONS",
     .type = KnobType::kCount,
     .unit = "firehoses",
     .default_text = "4096",
     .effect = "Remote pins: most firehoses that this process has of one peer.",
     .min = 1,
     .max = uint64_t{1} << 20},
    {.knob = Knob::kRemoteMerge,
     .name = "FIREHOSE_REMOTE_MERGE",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "1M",
     .effect =
         "Remote pins: adjacent and overlapping firehoses of a peer become one up to this size; 1 "
         "means never.",
     .min = 1,
     .max = kMaxSize},
    {.knob = Knob::kRemoteStream,
     .name = "FIREHOSE_REMOTE_STREAM",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "1M",
     .effect =
         "Remote pins: misses that follow each other in a peer's memory ask for more at a time, up "
         "to this size; 1 means never.",
     .min = 1,
     .max = kMaxSize},
    {.knob = Knob::kGasnetM,
     .name = "GASNET_FIREHOSE_M",
     .type = KnobType::kSize,
     .unit = "MiB",
     .default_text = "0",
     .effect =
         "firehose.h: memory a process is willing to pin for its peers; 0 derives it from what "
         "the client passes to firehose_init. In a job: a segment of at most this size is pinned "
         "whole when it is first used, and stays so; a larger one where it is used.",
     .max = kMaxSize,
     .plain_scale = kMiB},
    {.knob = Knob::kGasnetMaxVictimM,
     .name = "GASNET_FIREHOSE_MAXVICTIM_M",
     .type = KnobType::kSize,
     .unit = "MiB",
     .default_text = "0",
     .effect = "firehose.h: memory that may stay pinned beyond GASNET_FIREHOSE_M for local use or "
               "while idle; 0 derives it.",
     .max = kMaxSize,
     .plain_scale = kMiB},
    {.knob = Knob::kGasnetR,
     .name = "GASNET_FIREHOSE_R",
     .type = KnobType::kCount,
     .unit = "regions",
     .default_text = "0",
     .effect = "firehose.h: as GASNET_FIREHOSE_M, counted in regions; 0 derives it."},
    {.knob = Knob::kGasnetMaxVictimR,
     .name = "GASNET_FIREHOSE_MAXVICTIM_R",
     .type = KnobType::kCount,
     .unit = "regions",
     .default_text = "0",
     .effect = "firehose.h: as GASNET_FIREHOSE_MAXVICTIM_M, counted in regions; 0 derives it."},
    {.knob = Knob::kGasnetMaxRegionSize,
     .name = "GASNET_FIREHOSE_MAXREGION_SIZE",
     .type = KnobType::kSize,
     .unit = "MiB",
     .default_text = "0",
     .effect = "firehose.h: largest single region; 0 leaves it to the client and the library.",
     .max = kMaxSize,
     .plain_scale = kMiB},
    {.knob = Knob::kGasnetVerbose,
     .name = "GASNET_FIREHOSE_VERBOSE",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "n",
     .effect =
         "firehose.h: says at init and fini which limits are in force and what the cache did."},
    {.knob = Knob::kGasnetTableScale,
     .name = "GASNET_FIREHOSE_TABLE_SCALE",
     .type = KnobType::kCount,
     .unit = "",
     .default_text = "1",
     .effect =
         "Accepted without effect: the tables here grow with what they hold, so there is no hash "
         "table size to scale."},
    {.knob = Knob::kPollMax,
     .name = "HYDRANT_POLL_MAX",
     .type = KnobType::kCount,
     .unit = "messages",
     .default_text = "64",
     .effect = "Most Active Messages that one poll runs; what is left waits for the next.",
     .min = 1,
     .max = uint64_t{1} << 20},
    {.knob = Knob::kProgressThread,
     .name = "HYDRANT_PROGRESS_THREAD",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "n",
     .effect = "A thread of the library polls while the client's compute, and runs handlers beside "
               "them: clients compiled with GASNET_PAR only."},
    {.knob = Knob::kSupernodeMaxsize,
     .name = "GASNET_SUPERNODE_MAXSIZE",
     .type = KnobType::kCount,
     .unit = "ranks",
     .default_text = "0",
     .effect = "Most ranks of a host in one neighbourhood, which tells clients whose segments are "
               "mapped; 0 "
               "is no limit.",
     .max = uint64_t{1} << 20},
    {.knob = Knob::kBootstrap,
     .name = "HYDRANT_BOOTSTRAP",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect =
         "How the processes of a job find each other: by whatever launcher the environment shows, "
         "or by one of these in any case; alone makes a job of one process.",
     .choices = "auto|alone|hydrant_run|fork|pmix|pmi2"},
    {.knob = Knob::kStopWarn,
     .name = "HYDRANT_STOP_WARN",
     .type = KnobType::kDuration,
     .unit = "seconds",
     .default_text = "10s",
     .effect = "hydrant-run and GASNET_PSHM_NODES: after this long, one warning names a process "
               "that is stopped (SIGSTOP); 0 means never. It is not taken for dead.",
     .max = 24 * kHourNs},
    {.knob = Knob::kGasnetPshmNodes,
     .name = "GASNET_PSHM_NODES",
     .type = KnobType::kCount,
     .unit = "processes",
     .default_text = "0",
     .effect = "A program that no launcher has started becomes this many processes when it "
               "initialises; 0 and 1 leave it one.",
     .max = 4096},
    {.knob = Knob::kGasnetExitTimeout,
     .name = "GASNET_EXITTIMEOUT",
     .type = KnobType::kDuration,
     .unit = "seconds",
     .default_text = "0",
     .effect = "Once the job is to end, processes that still run after this long are killed; 0 "
               "computes it: GASNET_EXITTIMEOUT_MIN and GASNET_EXITTIMEOUT_FACTOR per process, at "
               "most GASNET_EXITTIMEOUT_MAX.",
     .max = kHourNs},
    {.knob = Knob::kGasnetExitTimeoutMax,
     .name = "GASNET_EXITTIMEOUT_MAX",
     .type = KnobType::kDuration,
     .unit = "seconds",
     .default_text = "20s",
     .effect = "Largest computed GASNET_EXITTIMEOUT.",
     .max = kHourNs},
    {.knob = Knob::kGasnetExitTimeoutMin,
     .name = "GASNET_EXITTIMEOUT_MIN",
     .type = KnobType::kDuration,
     .unit = "seconds",
     .default_text = "2s",
     .effect = "What the computed GASNET_EXITTIMEOUT begins with.",
     .max = kHourNs},
    {.knob = Knob::kGasnetExitTimeoutFactor,
     .name = "GASNET_EXITTIMEOUT_FACTOR",
     .type = KnobType::kDuration,
     .unit = "seconds",
     .default_text = "50ms",
     .effect = "What each process adds to the computed GASNET_EXITTIMEOUT.",
     .max = kHourNs},
    {.knob = Knob::kBarrier,
     .name = "GASNET_BARRIER",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect = "How barriers are done, the same on all ranks: through shared memory, by Active "
               "Messages in rounds (DISSEM means the same) or through rank 0, or by RDMA between "
               "nodes; auto is what the library was built with (HYDRANT_BARRIER_DEFAULT), normally "
               "SHM, and between nodes RDMADISSEM where it can be.",
     .choices = "auto|SHM|AMDISSEM|AMCENTRAL|DISSEM|RDMADISSEM"},
    {.knob = Knob::kBarrierStrict,
     .name = "HYDRANT_BARRIER_STRICT",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "y",
     .effect = "n promises that all ranks agree on whether a barrier has a name: then anonymous "
               "ones carry nothing, and only a mismatch is told."},
    {.knob = Knob::kBarrierRadix,
     .name = "HYDRANT_BARRIER_RADIX",
     .type = KnobType::kCount,
     .unit = "ranks",
     .default_text = "0",
     .effect = "SHM barriers: how many ranks meet in each round, the same on all ranks; as many as "
               "there are is one round, and 0 chooses.",
     .max = 1024},
    {.knob = Knob::kJobWaitWarn,
     .name = "HYDRANT_WAIT_WARN",
     .type = KnobType::kDuration,
     .unit = "seconds",
     .default_text = "10s",
     .effect = "After this long, a barrier that is still waited for says which ranks have not "
               "come, a put or get which rank it needs, and both go on; 0 means never.",
     .max = 24 * kHourNs},
    {.knob = Knob::kPath,
     .name = "HYDRANT_PATH",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect = "Puts and gets take this path wherever it can carry them, and the next one that can "
               "where it cannot, in the order of put_get.md's table, which says what each value "
               "does; for experiments and tests.",
     .choices = "auto|mapped|cma|firehose|nic|direct|bounce|am|am_medium|am_long"},
    {.knob = Knob::kPutInMoveMax,
     .name = "HYDRANT_PUT_IN_MOVE_MAX",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "4096",
     .effect = "Between pinned memory: puts and gets up to this size whose remote memory is no "
               "firehose yet "
               "travel with the request for one, or with its answer.",
     .max = 65536},
    {.knob = Knob::kBounceMax,
     .name = "HYDRANT_BOUNCE_MAX",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "65536",
     .effect = "Largest piece that goes through a buffer of the library where the source has to be "
               "free at once and the network is slower than a copy.",
     .min = 64,
     .max = uint64_t{16} << 20},
    {.knob = Knob::kBouncePool,
     .name = "HYDRANT_BOUNCE_POOL",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "4M",
     .effect = "Memory of all those buffers; made when first needed. By default no more than "
               "a sixteenth of what memlock leaves to puts and gets. When they are all in use, "
               "puts and gets wait or take the next path.",
     .min = 4096,
     .max = uint64_t{64} << 30},
    {.knob = Knob::kAmLongPrealloc,
     .name = "HYDRANT_AMLONG_PREALLOC",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "y",
     .effect =
         "Where a network moves data between pinned memory only, the buffers are made when the job "
         "starts, in place of when a put or a Long first needs one."},
    {.knob = Knob::kMediumLongThreshold,
     .name = "HYDRANT_MEDIUM_LONG_THRESHOLD",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "4096",
     .effect = "Puts and gets by Active Messages of up to this size are Mediums, larger ones Longs "
               "if those are allowed; at most the largest Medium.",
     .min = 0},
    {.knob = Knob::kUseLongGets,
     .name = "HYDRANT_USE_LONG_GETS",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "y",
     .effect = "Whether gets by Active Messages may be answered by Longs."},
    {.knob = Knob::kUseLongPuts,
     .name = "HYDRANT_USE_LONG_PUTS",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "y",
     .effect = "Whether puts by Active Messages may be Longs."},
    {.knob = Knob::kCma,
     .name = "HYDRANT_CMA",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "y",
     .effect = "Whether the kernel may be asked to copy between the processes of a node "
               "(process_vm_readv, process_vm_writev), as far as it allows that."},
    {.knob = Knob::kNetworkDepth,
     .name = "GASNET_NETWORKDEPTH",
     .type = KnobType::kCount,
     .unit = "operations",
     .default_text = "256",
     .effect =
         "Most pieces of puts and gets that one thread has under way; more of them poll until "
         "there is room. At most what the transport bears.",
     .min = 1,
     .max = uint64_t{1} << 20},
    {.knob = Knob::kNbiThrottle,
     .name = "GASNET_NBI_THROTTLE",
     .type = KnobType::kCount,
     .unit = "operations",
     .default_text = "0",
     .effect = "The same for those without an event of their own; 0 means GASNET_NETWORKDEPTH.",
     .max = uint64_t{1} << 20},
    {.knob = Knob::kOnFault,
     .name = "HYDRANT_ON_FAULT",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect =
         "What a put or get does that cannot be done (no such rank, memory that is not there "
         "or not writable): ends the job with a line that names it, or returns an error; auto "
         "is abort for GASNet's calls and return for those of hydrant/rma.h.",
     .choices = "auto|abort|return"},
    {.knob = Knob::kStats,
     .name = "HYDRANT_STATS",
     .type = KnobType::kText,
     .unit = "",
     .default_text = "",
     .effect =
         "Each process writes, when it ends, what it has put and got, by path and peer, to "
         "this file; %r in its name is the rank, %% a percent sign. Without %r only rank 0 writes.",
     .choices = "json:FILE"},
    {.knob = Knob::kTransport,
     .name = "HYDRANT_TRANSPORT",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect = "What ranks talk by, the same on all: auto is shared memory within a node and verbs "
               "between nodes; shm is shared memory alone; ibv is verbs alone, within a node as "
               "well.",
     .choices = "auto|shm|ibv"},
    {.knob = Knob::kIbvPorts,
     .name = "HYDRANT_IBV_PORTS",
     .type = KnobType::kText,
     .unit = "",
     .default_text = "",
     .effect =
         "The verbs devices, ports and addresses (GID indices) that a process talks by: all that "
         "can be used, four at most; * is any device. Messages go by the first, long puts and gets "
         "by all. An item of another form is an error of init. Without it: of the ports on the "
         "same network as the first that is up the nearest "
         "to the process.",
     .choices = "DEVICE[:PORT[:GID]],..."},
    {.knob = Knob::kIbvStripeMin,
     .name = "HYDRANT_IBV_STRIPE_MIN",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "1M",
     .effect = "Puts and gets from this length on go by all verbs ports of a process, in equal "
               "shares; messages to that peer wait until such a put is over.",
     .min = 65536,
     .max = kMaxSize},
    {.knob = Knob::kIbvTimeout,
     .name = "HYDRANT_IBV_TIMEOUT",
     .type = KnobType::kCount,
     .unit = "",
     .default_text = "14",
     .effect = "How long a verbs adapter waits for an answer before it repeats a packet: 4.096 us "
               "times 2 to the power of this, 67 ms for 14. After seven such times the peer is "
               "lost.",
     .min = 8,
     .max = 22},
    {.knob = Knob::kIbvCredits,
     .name = "HYDRANT_IBV_CREDITS",
     .type = KnobType::kCount,
     .unit = "messages",
     .default_text = "32",
     .effect =
         "Messages of each lane, requests and replies, that may be under way to one peer over "
         "verbs, the same on all ranks. Each costs a receive buffer per lane and peer.",
     .min = 4,
     .max = 4096},
    {.knob = Knob::kIbvOdp,
     .name = "HYDRANT_IBV_ODP",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "fallback",
     .effect =
         "What becomes of the local memory of a put or get that cannot be pinned now, memlock "
         "being used up for instance: paged by the verbs adapter where all adapters in use "
         "can, or always copied through buffers.",
     .choices = "fallback|off"},
    {.knob = Knob::kAmEager,
     .name = "HYDRANT_AM_EAGER",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "1000",
     .effect = "The longest message over verbs, arguments and payload together, that is one send, "
               "the same on all ranks; the payload of a longer one is written into a buffer of the "
               "peer first. Rounded up to a multiple of 8.",
     .min = 128,
     .max = 65528},
    {.knob = Knob::kInject,
     .name = "HYDRANT_INJECT",
     .type = KnobType::kText,
     .unit = "",
     .default_text = "",
     .effect =
         "For measuring and tests, the same on all ranks: what stands between this job and its "
         "transport, messages alone or a network with delay, bandwidth, credits or pinned memory; "
         "another text is an error of init.",
     .choices = "send_only|ITEM=VALUE,..."},
}};

constexpr bool rows_are_in_order() {
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (kTable[i].knob != knob_at(i)) return false;
  }
  return true;
}
static_assert(rows_are_in_order(), "a knob is the index of its row");
static_assert(bits(Access::kLocalWrite) == 1 && bits(Access::kRemoteRead) == 2 &&
                  bits(Access::kRemoteWrite) == 4 && bits(Access::kRemoteAtomic) == 8,
              "FIREHOSE_EAGER_ACCESS lists the rights in the order of their bits");

}  // namespace

const KnobInfo& knob_info(Knob knob) noexcept { return kTable[static_cast<size_t>(knob)]; }

}  // namespace hydrant
