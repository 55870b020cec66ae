// Finds the rank in the variables of known launchers. Messages that one rank writes for the job use it.
#include "firehose/base/config/job_rank.hpp"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace hydrant {

bool is_first_of_job() noexcept {
  // Rank variables of launchers; hydrant-run's own comes first.
  for (const char* name : {"HYDRANT_JOB_RANK", "PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK",
                           "SLURM_PROCID", "PALS_RANKID", "FLUX_TASK_RANK"}) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): job_rank.hpp states when it may be called
    const char* rank = std::getenv(name);
    if (rank != nullptr && *rank != '\0') return std::strcmp(rank, "0") == 0;
  }
  return true;
}

}  // namespace hydrant
