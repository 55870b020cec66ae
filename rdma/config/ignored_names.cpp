// The table of GASNet's environment variables that have no effect, grouped by reason. lint.gasnet_environment
// compares it with docs/env_vars.md and with the list of all that GASNet documents.
#include "rdma/config/ignored_names.hpp"

namespace hydrant {
namespace {

constexpr const char* kCollectives =
    "it tunes GASNet's own collectives; HYDRANT_COLL_* choose algorithms here";
constexpr const char* kIbv = "it is of GASNet's ibv-conduit; the variables here are HYDRANT_IBV_*";
constexpr const char* kPhysicalMemory = "pinned memory is limited by FIREHOSE_BUDGET";
constexpr const char* kThreads =
    "it is of GASNet's progress threads; HYDRANT_PROGRESS_THREAD starts one here";
constexpr const char* kOtherNetworks = "it is of a network that Hydrant does not have";
constexpr const char* kLaunchers =
    "it is of GASNet's launchers; docs/launching.md has those of Hydrant";
constexpr const char* kHosts =
    "the launcher says which ranks share a host; HYDRANT_BOOTSTRAP chooses one";
constexpr const char* kNode =
    "it tunes GASNet's shared memory; HYDRANT_BARRIER_RADIX is the one of barriers here";
constexpr const char* kVis = "HYDRANT_VIS_PATH and HYDRANT_VIS_PACKET_MAX choose the path here";
constexpr const char* kMalloc = "it is of GASNet's debug allocator; Hydrant uses the program's";
constexpr const char* kNegotiated = "buffers of negotiated payloads are not filled here";
constexpr const char* kNothing = "there is nothing here that it would change";
constexpr const char* kWarnings = "HYDRANT_LOG chooses what is printed";

constexpr IgnoredName kNames[] = {
    {"GASNET_COLL_", kCollectives},
    {"GASNET_AM_CREDITS_PP", kIbv},
    {"GASNET_AM_CREDITS_SLACK", kIbv},
    {"GASNET_AM_CREDITS_TOTAL", kIbv},
    {"GASNET_AM_GATHER_MIN", kIbv},
    {"GASNET_BBUF_COUNT", kIbv},
    {"GASNET_CONNECTFILE_BASE", kIbv},
    {"GASNET_CONNECTFILE_IN", kIbv},
    {"GASNET_CONNECTFILE_OUT", kIbv},
    {"GASNET_CONNECT_DYNAMIC", kIbv},
    {"GASNET_CONNECT_RCVS", kIbv},
    {"GASNET_CONNECT_RETRANS_MAX", kIbv},
    {"GASNET_CONNECT_RETRANS_MIN", kIbv},
    {"GASNET_CONNECT_SNDS", kIbv},
    {"GASNET_CONNECT_STATIC", kIbv},
    {"GASNET_GET_STRIPE_SZ", kIbv},
    {"GASNET_HCA_ID", kIbv},
    {"GASNET_IBV_LIST_PORTS", kIbv},
    {"GASNET_IBV_LIST_PORTS_NODES", kIbv},
    {"GASNET_IBV_PKEY", kIbv},
    {"GASNET_IBV_PORTS", kIbv},
    {"GASNET_IBV_PORTS_", kIbv},
    {"GASNET_INLINESEND_LIMIT", kIbv},
    {"GASNET_MAX_MTU", kIbv},
    {"GASNET_NETWORKDEPTH_PP", kIbv},
    {"GASNET_NETWORKDEPTH_TOTAL", kIbv},
    {"GASNET_NONBULKPUT_BOUNCE_LIMIT", kIbv},
    {"GASNET_NUM_QPS", kIbv},
    {"GASNET_ODP_VERBOSE", kIbv},
    {"GASNET_PACKEDLONG_LIMIT", kIbv},
    {"GASNET_PINNED_REGIONS_MAX", kIbv},
    {"GASNET_PORT_NUM", kIbv},
    {"GASNET_PUTINMOVE_LIMIT", kIbv},
    {"GASNET_PUT_STRIPE_SZ", kIbv},
    {"GASNET_QP_RD_ATOM", kIbv},
    {"GASNET_QP_RETRY_COUNT", kIbv},
    {"GASNET_QP_TIMEOUT", kIbv},
    {"GASNET_RATOMICBUF_COUNT", kIbv},
    {"GASNET_RBUF_COUNT", kIbv},
    {"GASNET_RBUF_SPARES", kIbv},
    {"GASNET_USE_FENCED_PUTS", kIbv},
    {"GASNET_USE_FIREHOSE", kIbv},
    {"GASNET_USE_ODP", kIbv},
    {"GASNET_USE_SRQ", kIbv},
    {"GASNET_USE_XRC", kIbv},
    {"GASNET_PHYSMEM_MAX", kPhysicalMemory},
    {"GASNET_PHYSMEM_PROBE", kPhysicalMemory},
    {"GASNET_PHYSMEM_WARN", kPhysicalMemory},
    {"GASNET_RCV_THREAD", kThreads},
    {"GASNET_RCV_THREAD_IDLE", kThreads},
    {"GASNET_RCV_THREAD_LOAD", kThreads},
    {"GASNET_RCV_THREAD_POLL_MODE", kThreads},
    {"GASNET_RCV_THREAD_RATE", kThreads},
    {"GASNET_SND_THREAD", kThreads},
    {"GASNET_SND_THREAD_IDLE", kThreads},
    {"GASNET_SND_THREAD_POLL_MODE", kThreads},
    {"GASNET_SND_THREAD_RATE", kThreads},
    {"GASNET_THREAD_STACK_MIN", kThreads},
    {"GASNET_THREAD_STACK_PAD", kThreads},
    {"GASNET_LINEBUFFERSZ", kOtherNetworks},
    {"GASNET_OFI_", kOtherNetworks},
    {"GASNET_RECVDEPTH", kOtherNetworks},
    {"GASNET_REQUESTTIMEOUT_BACKOFF", kOtherNetworks},
    {"GASNET_REQUESTTIMEOUT_INITIAL", kOtherNetworks},
    {"GASNET_REQUESTTIMEOUT_MAX", kOtherNetworks},
    {"GASNET_ROUTE_OUTPUT", kOtherNetworks},
    {"GASNET_SENDDEPTH", kOtherNetworks},
    {"GASNET_SOCKETBUFFER_INITIAL", kOtherNetworks},
    {"GASNET_SOCKETBUFFER_MAX", kOtherNetworks},
    {"GASNET_UCX_", kOtherNetworks},
    {"GASNET_CSPAWN_CMD", kLaunchers},
    {"GASNET_ENV_CMD", kLaunchers},
    {"GASNET_IBV_SPAWNER", kLaunchers},
    {"GASNET_MASTERIP", kLaunchers},
    {"GASNET_MPI_FINALIZE", kLaunchers},
    {"GASNET_MPI_THREAD", kLaunchers},
    {"GASNET_NODEFILE", kLaunchers},
    {"GASNET_SMP_SPAWNER", kLaunchers},
    {"GASNET_SPAWNFN", kLaunchers},
    {"GASNET_SPAWN_VERBOSE", kLaunchers},
    {"GASNET_SSH_", kLaunchers},
    {"GASNET_WORKERIP", kLaunchers},
    {"GASNET_WORKER_RANK", kLaunchers},
    {"GASNET_HOST_DETECT", kHosts},
    {"GASNET_NODEMAP_EXACT", kHosts},
    {"GASNET_USE_GETHOSTID", kHosts},
    {"GASNET_PSHM_BARRIER_HIER", kNode},
    {"GASNET_PSHM_BARRIER_RADIX", kNode},
    {"GASNET_PSHM_NETWORK_DEPTH", kNode},
    {"GASNET_USE_HUGEPAGES", kNode},
    {"GASNET_USE_PSHM_SINGLETON", kNode},
    {"GASNET_VIS_", kVis},
    {"GASNET_DISABLE_MUNMAP", kMalloc},
    {"GASNET_MALLOCFILE", kMalloc},
    {"GASNET_MALLOCNODES", kMalloc},
    {"GASNET_MALLOC_", kMalloc},
    {"GASNET_SD_INIT", kNegotiated},
    {"GASNET_SD_INITLEN", kNegotiated},
    {"GASNET_SD_INITVAL", kNegotiated},
    {"GASNET_CATCH_EXIT", kNothing},
    {"GASNET_DISABLE_ARGDECODE", kNothing},
    {"GASNET_DISABLE_ENVDECODE", kNothing},
    {"GASNET_FS_SYNC", kNothing},
    {"GASNET_HWLOC_QUERY", kNothing},
    {"GASNET_MAX_THREADS", kNothing},
    {"GASNET_TMPDIR", kNothing},
    {"GASNET_QUIET", kWarnings},
};

}  // namespace

std::span<const IgnoredName> ignored_gasnet_names() noexcept { return kNames; }

}  // namespace hydrant
