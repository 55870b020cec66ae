// Detects launchers by their environment variables, and refuses a job that would have fewer ranks than its
// launcher started. open_bootstrap.cpp calls it while it chooses a bootstrap; am/job/job_environment.cpp
// queries whether there is a launcher.
#include "rdma/bootstrap/bootstrap_hints.hpp"

#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/machine/small_file.hpp"

#include <cstdint>
#include <cstdlib>
#include <fcntl.h>

namespace hydrant {
namespace {

// The launcher is present if `shows` is set; the first of `sizes` that is set is the number of ranks.
struct Row {
  const char* shows;
  const char* sizes[3];
  const char* rank;  // more than 0 means more than one rank, if no size is known
  const char* launcher;
  const char* command;
};

constexpr Row kRows[] = {
    {"OMPI_COMM_WORLD_SIZE",
     {"OMPI_COMM_WORLD_SIZE"},
     "OMPI_COMM_WORLD_RANK",
     "Open MPI",
     "mpirun -n"},
    {"PMIX_NAMESPACE", {}, "PMIX_RANK", "PMIx", "mpirun -n"},
    {"PMI_FD", {"PMI_SIZE"}, "PMI_RANK", "MPICH", "mpiexec.hydra -n"},
    {"PMI_RANK", {"PMI_SIZE"}, "PMI_RANK", "MPICH", "mpiexec.hydra -n"},
    {"SLURM_PROCID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
     "SLURM_PROCID",
     "Slurm",
     "srun --mpi=pmix -n"},
    {"PALS_RANKID", {"PALS_SIZE", "PMI_SIZE"}, "PALS_RANKID", "PALS", "mpiexec --pmi=pmix -n"},
    {"FLUX_TASK_RANK", {"FLUX_JOB_SIZE"}, "FLUX_TASK_RANK", "Flux", "flux run -o pmi=pmix -n"},
};

// Rank kMaxRank + 1 would be kNoRank.
constexpr Rank kMaxRank = UINT32_MAX - 1;

// False if the variable has no number. A number above `most` is invalid, and the hint names its variable.
bool read_number(const char* name, Rank most, Rank* number, LauncherHint* hint) noexcept {
  const char* text = name != nullptr ? std::getenv(name) : nullptr;
  if (text == nullptr) return false;
  uint64_t value = 0;
  const bool is_count = parse_count(text, &value);
  if (is_count && value <= most) {
    *number = static_cast<Rank>(value);
    return true;
  }
  // A number too large for 64 bits is invalid as well.
  const bool is_number = is_count || (*text >= '0' && *text <= '9');
  if (is_number && *hint->wrong == '\0') hint->wrong = name;
  return false;
}

LauncherHint read_row(const Row& row) noexcept {
  const char* shown = std::getenv(row.shows);
  if (shown == nullptr || *shown == '\0') return {};
  LauncherHint hint{.variable = row.shows, .launcher = row.launcher, .command = row.command};
  for (const char* name : row.sizes) {
    if (!read_number(name, UINT32_MAX, &hint.size, &hint)) continue;
    // Slurm sets SLURM_PROCID in a batch script, too, beside the size of the allocation.
    hint.whole_step = row.shows != std::string_view("SLURM_PROCID") || name == row.sizes[0];
    return hint;
  }
  Rank rank = 0;
  if (read_number(row.rank, kMaxRank, &rank, &hint) && rank > 0) hint.size = rank + 1;
  return hint;
}

}  // namespace

LauncherHint find_launcher_hint() noexcept {
  LauncherHint best;
  const char* wrong = "";
  for (const Row& row : kRows) {
    const LauncherHint hint = read_row(row);
    if (*wrong == '\0') wrong = hint.wrong;
    if (*hint.variable != '\0' && (*best.variable == '\0' || hint.size > best.size)) best = hint;
  }
  best.wrong = wrong;
  return best;
}

Status check_hint_numbers(const LauncherHint& hint) noexcept {
  if (*hint.wrong == '\0') return Status::kOk;
  const char* text = std::getenv(hint.wrong);
  return fail(Status::kBadArg,
              "%s, which says how many ranks a launcher has started or which one this is, is "
              "'%.40s': ranks are numbered from 0 to %u; correct or unset it, or set "
              "HYDRANT_BOOTSTRAP=alone to run alone",
              hint.wrong, text != nullptr ? text : "", kMaxRank);
}

std::string own_command_line() {
  constexpr size_t kShown = 100;
  char text[kShown + 1];
  const size_t got = read_small_file("/proc/self/cmdline", text, sizeof text);
  if (got == 0) return "PROGRAM";
  std::string line(text, got);
  const bool cut = line.back() != '\0';
  if (!cut) line.pop_back();
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return cut ? line + "..." : line;
}

Status check_launcher_hint(const LauncherHint& hint, Rank size, const std::string& why) noexcept {
  if (*hint.variable == '\0' || hint.size == 1) return Status::kOk;
  if (hint.size == 0 && why.empty()) return Status::kOk;
  if (hint.size != 0 && hint.size <= size) return Status::kOk;
  const Rank ranks = hint.size != 0 ? hint.size : 2;
  const std::string count = hint.size != 0 ? std::to_string(hint.size) + " ranks" : "several ranks";
  return fail(Status::kBroken,
              "%s (%s) started %s, and wire-up finds %u%s%s; type: %s %u %s (on one machine: "
              "hydrant-run -n %u "
              "in place of %s %u; to run alone all the same: HYDRANT_BOOTSTRAP=alone)",
              hint.launcher, hint.variable, count.c_str(), size, why.empty() ? "" : ": ",
              why.substr(0, 160).c_str(), hint.command, ranks, own_command_line().c_str(), ranks,
              hint.command, ranks);
}

}  // namespace hydrant
