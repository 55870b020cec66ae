// Lists the knobs of libfirehose, one row each. config.cpp reads the rows.
#include "firehose/base/config/knobs.hpp"

#include "firehose/base/memory_range.hpp"

#include <array>

namespace hydrant {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kHourNs = 3'600'000'000'000;
// Larger than any address space: sums of a few sizes cannot wrap.
constexpr uint64_t kMaxSize = uint64_t{1} << 57;

constexpr uint32_t at(Knob knob) { return static_cast<uint32_t>(knob); }

// docs/env_vars.md repeats these rows word for word; a unit test compares them.
constexpr std::array<KnobInfo, at(Knob::kEnd)> kRows = {{
    {.index = at(Knob::kRegistrar),
     .name = "FIREHOSE_REGISTRAR",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect =
         "Registrar of a domain that names none: io_uring registered buffers, mlock, (auto) the "
         "first of the two that works here, or libfirehose_ibv's over the first verbs device.",
     .choices = "auto|uring|mlock|ibv"},
    {.index = at(Knob::kBudget),
     .name = "FIREHOSE_BUDGET",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "0",
     .effect = "Most bytes that a domain keeps charged at once; 0 derives it from the machine's "
               "limits.",
     .max = kMaxSize},
    {.index = at(Knob::kMaxRegions),
     .name = "FIREHOSE_MAX_REGIONS",
     .type = KnobType::kCount,
     .unit = "regions",
     .default_text = "65536",
     .effect = "Most regions that a domain keeps pinned at once; the registrar may allow fewer.",
     .min = 1,
     .max = uint64_t{1} << 22},
    {.index = at(Knob::kMaxRegionSize),
     .name = "FIREHOSE_MAX_REGION_SIZE",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "0",
     .effect = "Largest single region; 0 means the registrar's limit.",
     .max = kMaxSize},
    {.index = at(Knob::kMode),
     .name = "FIREHOSE_MODE",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "region",
     .effect =
         "How a domain divides memory if the program does not choose and the registrar has no "
         "keys: region (intervals that merge and grow) or page (fixed buckets).",
     .choices = "region|page"},
    {.index = at(Knob::kBucket),
     .name = "FIREHOSE_BUCKET",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "0",
     .effect = "Size of a bucket in page mode, a power of two; 0 means one page.",
     .max = kGiB,
     .power_of_two = true},
    {.index = at(Knob::kMerge),
     .name = "FIREHOSE_MERGE",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "16M",
     .effect =
         "Region mode: adjacent and overlapping regions merge up to this size; 1 disables "
         "merging. Unless it is set, also up to 256 MiB or half of the budget where the budget "
         "is full and all memory in use fits into it.",
     .min = 1,
     .max = kMaxSize},
    {.index = at(Knob::kStream),
     .name = "FIREHOSE_STREAM",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "4M",
     .effect = "Region mode: sequential requests enlarge the next registration, up to this size; 1 "
               "disables this, for huge pages too. Unused where the client watches: "
               "options.stream_bytes. Over mlock only if it is set.",
     .min = 1,
     .max = kMaxSize},
    {.index = at(Knob::kAdmission),
     .name = "FIREHOSE_ADMISSION",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "every",
     .effect = "What a miss registers while the budget is full: every keeps all, at the price of "
               "evictions; reuse keeps what is likely to be used again soon, and uses the rest "
               "once.",
     .choices = "every|reuse"},
    {.index = at(Knob::kEagerAccess),
     .name = "FIREHOSE_EAGER_ACCESS",
     .type = KnobType::kSet,
     .unit = "",
     .default_text = "none",
     .effect =
         "Rights that are requested in addition to those a pin needs, so that later pins need "
         "no new registration; dropped if refused.",
     .choices = "local_write|remote_read|remote_write|remote_atomic"},
    {.index = at(Knob::kThreadTable),
     .name = "FIREHOSE_THREAD_TABLE",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "1M",
     .effect =
         "Largest translation table of one thread and domain, rounded down to a power of two. "
         "A smaller one saves memory; a larger one finds more regions without the shared "
         "table.",
     .min = 8192,
     .max = kGiB},
    {.index = at(Knob::kWaitWarn),
     .name = "FIREHOSE_WAIT_WARN",
     .type = KnobType::kDuration,
     .unit = "seconds",
     .default_text = "10s",
     .effect =
         "A wait that is blocked this long logs what it waits for and goes on; 0 means never.",
     .max = 24 * kHourNs,
     .zero_is_never = true},
    {.index = at(Knob::kMembarrier),
     .name = "FIREHOSE_MEMBARRIER",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "y",
     .effect =
         "Whether evictions may use membarrier(2), which saves every hit a memory fence; n is "
         "for measurements and for sandboxes that mishandle the call."},
    {.index = at(Knob::kWatch),
     .name = "FIREHOSE_WATCH",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect =
         "Source of memory-release events if the program does not choose: auto is the kernel, "
         "hooks and arenas; none caches only arenas and vouched memory. Only the program can "
         "promise to report releases itself: options.watch.",
     .choices = "auto|none"},
    {.index = at(Knob::kHits),
     .name = "FIREHOSE_HITS",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect =
         "Whether a hit on memory that the kernel watches queries the kernel for pending "
         "events. auto: not with the hooks library, until the process releases memory by a "
         "system call that the hooks do not see. checked: always, for programs that make such "
         "calls.",
     .choices = "auto|checked"},
    {.index = at(Knob::kLog),
     .name = "HYDRANT_LOG",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "warning",
     .effect = "Most verbose level of messages on standard error.",
     .choices = "error|warning|info|debug"},
    {.index = at(Knob::kAllocBackend),
     .name = "HYDRANT_ALLOC_BACKEND",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect = "Allocator behind the functions of libhydrant_alloc: auto is jemalloc if available, "
               "else its own; extents is always its own.",
     .choices = "auto|extents"},
    {.index = at(Knob::kRemoteBudget),
     .name = "FIREHOSE_REMOTE_BUDGET",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "0",
     .effect = "Remote pins: most bytes that all peers together may keep pinned here; 0 is half of "
               "the domain's budget.",
     .max = kMaxSize},
    {.index = at(Knob::kRemoteFirehoses),
     .name = "FIREHOSE_REMOTE_MAX",
     .type = KnobType::kCount,
     .unit = "firehoses",
     .default_text = "0",
     .effect = "Remote pins: most firehoses that peers may have here at once; 0 is the domain's "
               "limit on regions.",
     .max = uint64_t{1} << 22},
    {.index = at(Knob::kRemoteBase),
     .name = "FIREHOSE_REMOTE_BASE",
     .type = KnobType::kCount,
     .unit = "percent",
     .default_text = "50",
     .effect =
         "Remote pins: this part of the budget is divided evenly among the peers, the rest is "
         "lent to peers that use it; 100 is a fixed division.",
     .min = 1,
     .max = 100},
    {.index = at(Knob::kRemoteZombies),
     .name = "FIREHOSE_REMOTE_ZOMBIES",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "0",
     .effect =
         "Remote pins: most memory that this process has released but peers still hold; beyond "
         "it nothing more is exported. 0 is a quarter of FIREHOSE_REMOTE_BUDGET.",
     .max = kMaxSize},
    {.index = at(Knob::kRemotePeerRegions),
     .name = "FIREHOSE_REMOTE_PEER_REGIONS",
     .type = KnobType::kCount,
     .unit = "firehoses",
     .default_text = "4096",
     .effect = "Remote pins: most firehoses that this process holds at one peer.",
     .min = 1,
     .max = uint64_t{1} << 20},
    {.index = at(Knob::kRemoteMerge),
     .name = "FIREHOSE_REMOTE_MERGE",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "1M",
     .effect = "Remote pins: adjacent and overlapping firehoses of a peer merge up to this size; 1 "
               "disables merging.",
     .min = 1,
     .max = kMaxSize},
    {.index = at(Knob::kRemoteStream),
     .name = "FIREHOSE_REMOTE_STREAM",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "1M",
     .effect =
         "Remote pins: sequential misses in a peer's memory request more at a time, up to this "
         "size; 1 disables this.",
     .min = 1,
     .max = kMaxSize},
    {.index = at(Knob::kGasnetM),
     .name = "GASNET_FIREHOSE_M",
     .type = KnobType::kSize,
     .unit = "MiB",
     .default_text = "0",
     .effect =
         "firehose.h: memory that a process is willing to pin for its peers; 0 derives it from "
         "the arguments of firehose_init. In a job: a segment up to this size is pinned whole "
         "at its first use and stays pinned; a larger one is pinned in parts.",
     .max = kMaxSize,
     .plain_scale = kMiB},
    {.index = at(Knob::kGasnetMaxVictimM),
     .name = "GASNET_FIREHOSE_MAXVICTIM_M",
     .type = KnobType::kSize,
     .unit = "MiB",
     .default_text = "0",
     .effect = "firehose.h: memory that may stay pinned beyond GASNET_FIREHOSE_M for local use or "
               "while idle; 0 derives it.",
     .max = kMaxSize,
     .plain_scale = kMiB},
    {.index = at(Knob::kGasnetR),
     .name = "GASNET_FIREHOSE_R",
     .type = KnobType::kCount,
     .unit = "regions",
     .default_text = "0",
     .effect = "firehose.h: as GASNET_FIREHOSE_M, counted in regions; 0 derives it."},
    {.index = at(Knob::kGasnetMaxVictimR),
     .name = "GASNET_FIREHOSE_MAXVICTIM_R",
     .type = KnobType::kCount,
     .unit = "regions",
     .default_text = "0",
     .effect = "firehose.h: as GASNET_FIREHOSE_MAXVICTIM_M, counted in regions; 0 derives it."},
    {.index = at(Knob::kGasnetMaxRegionSize),
     .name = "GASNET_FIREHOSE_MAXREGION_SIZE",
     .type = KnobType::kSize,
     .unit = "MiB",
     .default_text = "0",
     .effect =
         "firehose.h: largest single region; 0 means the limits of the client and the library.",
     .max = kMaxSize,
     .plain_scale = kMiB},
    {.index = at(Knob::kGasnetVerbose),
     .name = "GASNET_FIREHOSE_VERBOSE",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "n",
     .effect = "firehose.h: logs the limits at init and the cache's statistics at fini."},
    {.index = at(Knob::kGasnetTableScale),
     .name = "GASNET_FIREHOSE_TABLE_SCALE",
     .type = KnobType::kCount,
     .unit = "",
     .default_text = "1",
     .effect = "Accepted without effect: tables grow as needed, so there is no hash table size to "
               "scale."},
}};

constexpr bool rows_are_in_order() {
  for (uint32_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].index != i) return false;
  }
  return true;
}
static_assert(rows_are_in_order(), "a knob is the index of its row");
static_assert(bits(Access::kLocalWrite) == 1 && bits(Access::kRemoteRead) == 2 &&
                  bits(Access::kRemoteWrite) == 4 && bits(Access::kRemoteAtomic) == 8,
              "FIREHOSE_EAGER_ACCESS lists the rights in the order of their bits");

constexpr std::string_view kFirehosePrefixes[] = {"FIREHOSE_", "GASNET_FIREHOSE_"};
constinit std::atomic<bool> g_warned[kRows.size()];
constinit KnobTable g_table(kRows, kFirehosePrefixes, g_warned);
[[gnu::constructor(101)]] void add_table() noexcept { add_knob_table(g_table); }

}  // namespace

const KnobInfo& knob_info(Knob knob) noexcept { return kRows[at(knob)]; }

}  // namespace hydrant
