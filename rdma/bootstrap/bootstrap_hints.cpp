#include "rdma/bootstrap/bootstrap_hints.hpp"

#include "firehose/base/config/config_grammar.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>

namespace hydrant {
namespace {

// A launcher is there if `shows` is set; the first of `sizes` that is set says how many ranks.
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

bool read_number(const char* name, Rank* number) noexcept {
  const char* text = name != nullptr ? std::getenv(name) : nullptr;
  uint64_t value = 0;
  if (text == nullptr || !parse_count(text, &value) || value > UINT32_MAX) return false;
  *number = static_cast<Rank>(value);
  return true;
}

LauncherHint read_row(const Row& row) noexcept {
  const char* shown = std::getenv(row.shows);
  if (shown == nullptr || *shown == '\0') return {};
  LauncherHint hint{.variable = row.shows, .launcher = row.launcher, .command = row.command};
  for (const char* name : row.sizes) {
    if (!read_number(name, &hint.size)) continue;
    // Slurm sets SLURM_PROCID in a batch script, too, beside the size of the allocation.
    hint.whole_step = row.shows != std::string_view("SLURM_PROCID") || name == row.sizes[0];
    return hint;
  }
  Rank rank = 0;
  if (read_number(row.rank, &rank) && rank > 0) hint.size = rank + 1;
  return hint;
}

}  // namespace

LauncherHint find_launcher_hint() noexcept {
  LauncherHint best;
  for (const Row& row : kRows) {
    const LauncherHint hint = read_row(row);
    if (*hint.variable != '\0' && (*best.variable == '\0' || hint.size > best.size)) best = hint;
  }
  return best;
}

std::string own_command_line() {
  constexpr size_t kShown = 100;
  char text[kShown];
  const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  const ssize_t got = fd >= 0 ? read(fd, text, sizeof text) : -1;
  if (fd >= 0) close(fd);
  if (got <= 0) return "PROGRAM";
  std::string line(text, static_cast<size_t>(got));
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
