// Queries of the job and its environment, and the wait mode: C functions of system.h. Called by
// clients; the data come from job.hpp, neighbourhood.cpp and shared_environment.cpp.
#include <hydrant/gasnet/am.h>
#include <hydrant/gasnet/system.h>

#include "am/job/job.hpp"
#include "am/job/shared_environment.hpp"
#include "am/progress/waiting.hpp"
#include "am/segment/neighbourhood.hpp"
#include "firehose/base/status.hpp"
#include "rdma/bootstrap/job_environment.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>

using namespace hydrant;

namespace {

std::atomic<int> verbose_errors{1};

}  // namespace

extern "C" {

hydrant_team hydrant_world = {};
hydrant_job hydrant_job_info = {HYDRANT_GASNET_LAYOUT, 0, 1};

void gex_System_QueryNbrhdInfo(gex_RankInfo_t** info_p, gex_Rank_t* info_count_p,
                               gex_Rank_t* my_info_index_p) {
  const Neighbourhood& here = neighbourhood();
  if (info_p != nullptr) *info_p = here.neighbours.data();
  if (info_count_p != nullptr) *info_count_p = static_cast<gex_Rank_t>(here.neighbours.size());
  if (my_info_index_p != nullptr) *my_info_index_p = here.my_index;
}

void gex_System_QueryHostInfo(gex_RankInfo_t** info_p, gex_Rank_t* info_count_p,
                              gex_Rank_t* my_info_index_p) {
  const Neighbourhood& here = neighbourhood();
  if (info_p != nullptr) *info_p = here.host.data();
  if (info_count_p != nullptr) *info_count_p = static_cast<gex_Rank_t>(here.host.size());
  if (my_info_index_p != nullptr) *my_info_index_p = is_wired() ? job().topology().node_rank : 0;
}

void gex_System_QueryMyPosition(gex_Rank_t* nbrhd_set_size_p, gex_Rank_t* nbrhd_set_rank_p,
                                gex_Rank_t* host_set_size_p, gex_Rank_t* host_set_rank_p) {
  const Neighbourhood& here = neighbourhood();
  if (nbrhd_set_size_p != nullptr) *nbrhd_set_size_p = here.set_size;
  if (nbrhd_set_rank_p != nullptr) *nbrhd_set_rank_p = here.set_rank;
  if (host_set_size_p != nullptr) *host_set_size_p = is_wired() ? job().topology().node_count : 1;
  if (host_set_rank_p != nullptr) *host_set_rank_p = is_wired() ? job().topology().node : 0;
}

int gex_System_GetVerboseErrors(void) { return verbose_errors.load(std::memory_order_relaxed); }
void gex_System_SetVerboseErrors(int enable) {
  verbose_errors.store(enable, std::memory_order_relaxed);
}

// The library counts no threads, so the limit is only nominal.
uint64_t hydrant_max_threads(int thread_mode) { return thread_mode == 0 ? 1 : 65536; }

int gex_System_QueryProgressThreads(gex_Client_t client, unsigned* count_p,
                                    const gex_ProgressThreadInfo_t** info_p, gex_Flags_t flags) {
  constexpr const char* kCall = "gex_System_QueryProgressThreads";
  if (!is_wired() || client != &job().client)
    return report(fail(Status::kNotInit, "the client handle is invalid"), kCall);
  if (count_p == nullptr || info_p == nullptr || flags != 0)
    return report(fail(Status::kBadArg, "an output is NULL, or flags is not 0"), kCall);
  if ((job().client.flags & GEX_FLAG_DEFER_THREADS) == 0) {
    return report(
        fail(Status::kResource, "gex_Client_Init() was called without GEX_FLAG_DEFER_THREADS"),
        kCall);
  }
  *count_p = 0;
  *info_p = nullptr;
  return GASNET_OK;
}

// Every rank inherits the launcher's environment, which is the fallback.
char* gasnet_getenv(const char* name) {
  if (name == nullptr) return nullptr;
  if (char* const shared = shared_environment().find(name)) return shared;
  char* const own = std::getenv(name);
  return own == nullptr && std::strcmp(name, launch::kForkVariable) == 0
             ? launch::removed_job_request()
             : own;
}

const char* gasnet_ErrorName(int errval) { return status_name(static_cast<Status>(errval)); }
const char* gasnet_ErrorDesc(int errval) { return status_description(static_cast<Status>(errval)); }

int gasnet_set_waitmode(int wait_mode) {
  switch (wait_mode) {
    case GASNET_WAIT_SPIN: set_wait_mode(WaitMode::kSpin); return GASNET_OK;
    case GASNET_WAIT_BLOCK: set_wait_mode(WaitMode::kBlock); return GASNET_OK;
    case GASNET_WAIT_SPINBLOCK: set_wait_mode(WaitMode::kSpinBlock); return GASNET_OK;
    default:
      return report(fail(Status::kBadArg,
                         "invalid wait mode %d; valid are GASNET_WAIT_SPIN, _BLOCK and _SPINBLOCK",
                         wait_mode),
                    "gasnet_set_waitmode");
  }
}

}  // extern "C"
