#include "rdma/bootstrap/bootstrap_hints.hpp"

#include "rdma/bootstrap/job_environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

namespace hydrant {
namespace {

using ::testing::HasSubstr;

// The variables of launchers are exactly those that the test sets.
class LauncherHints : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) unsetenv(name);
  }
  void TearDown() override { SetUp(); }
  static void set(const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  static constexpr const char* kNames[] = {"OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_RANK",
                                           "PMIX_NAMESPACE",
                                           "PMIX_RANK",
                                           "PMI_FD",
                                           "PMI_RANK",
                                           "PMI_SIZE",
                                           "SLURM_PROCID",
                                           "SLURM_NTASKS",
                                           "SLURM_STEP_NUM_TASKS",
                                           "SLURM_NPROCS",
                                           "PALS_RANKID",
                                           "PALS_SIZE",
                                           "FLUX_TASK_RANK",
                                           "FLUX_JOB_SIZE",
                                           "HYDRANT_JOB_WIRE"};
};

TEST_F(LauncherHints, NoneIsNoError) {
  EXPECT_EQ(check_launcher_hint(find_launcher_hint(), 1, ""), Status::kOk);
}

TEST_F(LauncherHints, LauncherOfSeveralRanksIsAnErrorWithTheCommand) {
  const struct {
    std::map<std::string, std::string> variables;
    const char* command;
  } cases[] = {
      {{{"OMPI_COMM_WORLD_SIZE", "4"}}, "type: mpirun -n 4 "},
      {{{"PMIX_NAMESPACE", "x"}, {"PMIX_RANK", "3"}}, "type: mpirun -n 4 "},
      {{{"PMI_FD", "9"}, {"PMI_SIZE", "4"}}, "type: mpiexec.hydra -n 4 "},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}, "type: mpiexec.hydra -n 4 "},
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}, "type: srun --mpi=pmix -n 4 "},
      {{{"PALS_RANKID", "3"}}, "type: mpiexec --pmi=pmix -n 4 "},
      {{{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "4"}}, "type: flux run -o pmi=pmix -n 4 "},
  };
  for (const auto& one : cases) {
    SetUp();
    set(one.variables);
    const LauncherHint hint = find_launcher_hint();
    EXPECT_EQ(check_launcher_hint(hint, 1, ""), Status::kBroken) << one.command;
    EXPECT_THAT(last_error_text(), HasSubstr(one.command));
    EXPECT_THAT(last_error_text(), HasSubstr("HYDRANT_BOOTSTRAP=alone"));
    EXPECT_EQ(check_launcher_hint(hint, 4, ""), Status::kOk) << one.command;
  }
}

TEST_F(LauncherHints, OneRankAndEmptyVariablesAreAccepted) {
  set({{"SLURM_PROCID", "0"},
       {"SLURM_NTASKS", "1"},
       {"FLUX_TASK_RANK", ""},
       {"FLUX_JOB_SIZE", "8"}});
  EXPECT_EQ(check_launcher_hint(find_launcher_hint(), 1, ""), Status::kOk);
}

TEST_F(LauncherHints, LauncherWithoutItsLibraryIsAnError) {
  set({{"PMIX_NAMESPACE", "x"}, {"PMIX_RANK", "0"}});
  const LauncherHint hint = find_launcher_hint();
  EXPECT_EQ(check_launcher_hint(hint, 1, ""), Status::kOk);
  EXPECT_EQ(check_launcher_hint(hint, 1, "no library"), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("no library"));
}

TEST_F(LauncherHints, NumberBeyondTheRanksIsRejected) {
  const struct {
    std::string name;
    std::string value;
    std::map<std::string, std::string> others;
  } cases[] = {
      {"PMI_RANK", "4294967295", {}},
      {"PMI_RANK", "0xffffffff", {}},
      {"PMI_RANK", "4294967296", {}},
      {"PMI_RANK", "99999999999999999999", {}},
      {"SLURM_NTASKS", "4294967296", {{"SLURM_PROCID", "1"}}},
      {"FLUX_JOB_SIZE", "18446744073709551616", {{"FLUX_TASK_RANK", "0"}}},
      {"OMPI_COMM_WORLD_SIZE", "4294967300", {}},
      {"PALS_RANKID", "4294967295", {}},
      {"PMIX_RANK", "4294967295", {{"PMIX_NAMESPACE", "x"}}},
  };
  for (const auto& one : cases) {
    SetUp();
    set(one.others);
    set({{one.name, one.value}});
    EXPECT_EQ(check_hint_numbers(find_launcher_hint()), Status::kBadArg) << one.name;
    EXPECT_THAT(last_error_text(), HasSubstr(one.name + ","));
    EXPECT_THAT(last_error_text(), HasSubstr("'" + one.value + "'"));
  }
  SetUp();
  set({{"PMI_RANK", "4294967294"}});
  EXPECT_EQ(check_hint_numbers(find_launcher_hint()), Status::kOk);
  EXPECT_EQ(find_launcher_hint().size, UINT32_MAX);
  SetUp();
  set({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "all"}});
  EXPECT_EQ(check_hint_numbers(find_launcher_hint()), Status::kOk);
}

TEST_F(LauncherHints, BatchScriptIsNoStep) {
  set({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}});
  EXPECT_FALSE(find_launcher_hint().whole_step);
  set({{"SLURM_STEP_NUM_TASKS", "4"}});
  EXPECT_TRUE(find_launcher_hint().whole_step);
}

TEST_F(LauncherHints, WireOfAnotherProcessOrVersionIsRejected) {
  launch::JobWire wire;
  EXPECT_EQ(launch::read_job_environment(&wire), Status::kNotReady);
  for (const char* text :
       {"2:5:4:1:3:4:1:1", "1:0:4:3:4:1:1", "2:0:4:1:3:4:1:1x", "x", "2:0:99999999:1:3:4:1:1",
        "2:0:4:5:3:4:1:1", "2:0:4:0:3:4:1:1",
        // Accepted by scanf(), and never written by hydrant-run.
        "2: 0:4:1:3:4:1:1", "2:+0:4:1:3:4:1:1", "2:-4294967296:4:1:3:4:1:1",
        "2:4294967296:4:1:3:4:1:1", "2:00:4:1:3:4:1:1", "2:0:4:1:-3:4:1:1",
        "2:0:4:1:4294967299:4:1:1", "2:0:4:1:3:4:1:18446744073709551617", "2:0:4:1:3:4:-1:1",
        "2:0:4:1:3:4:1:1 ", "2:0:4:1:3:4:1:", "2:0:4:1:3:4:1", "2:0:4097:1:3:4:1:1",
        "2:0:4:1:3:4:1:1:1", " 2:0:4:1:3:4:1:1"}) {
    set({{"HYDRANT_JOB_WIRE", text}});
    EXPECT_EQ(launch::read_job_environment(&wire), Status::kBadArg) << text;
  }
  set({{"HYDRANT_JOB_WIRE", "2:2:4:1:0:1:1:1"}});
  EXPECT_EQ(launch::read_job_environment(&wire), Status::kBroken);
  EXPECT_EQ(wire.size, 4u);
}

}  // namespace
}  // namespace hydrant
