// Finds the rank in the variables of known launchers. Messages that one rank writes for the job use it.
#include "firehose/base/config/job_rank.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace hydrant {
namespace {

enum class JobRank : uint8_t { kUnknown, kFirst, kOther };
std::atomic<JobRank> g_job_rank{JobRank::kUnknown};

}  // namespace

void note_rank_of_job(uint32_t rank) noexcept {
  g_job_rank.store(rank == 0 ? JobRank::kFirst : JobRank::kOther, std::memory_order_relaxed);
}

bool is_first_of_job() noexcept {
  const JobRank known = g_job_rank.load(std::memory_order_relaxed);
  if (known != JobRank::kUnknown) return known == JobRank::kFirst;
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
