// Finds the rank in the variables of known launchers. Messages that one rank writes for the job use it.
#include "firehose/base/config/job_rank.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace hydrant {
namespace {

enum class Told : uint8_t { kNothing, kFirst, kOther };
std::atomic<Told> g_told{Told::kNothing};

}  // namespace

void note_rank_of_job(uint32_t rank) noexcept {
  g_told.store(rank == 0 ? Told::kFirst : Told::kOther, std::memory_order_relaxed);
}

bool is_first_of_job() noexcept {
  const Told told = g_told.load(std::memory_order_relaxed);
  if (told != Told::kNothing) return told == Told::kFirst;
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
