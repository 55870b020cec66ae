// Forks the ranks of a job (GASNET_PSHM_NODES): the calling process becomes the supervisor, and each child
// returns as a rank. open_bootstrap.cpp calls it; rdma/launch/supervisor.cpp forks.
#include "rdma/launch/bootstrap_forked.hpp"

#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/bootstrap/bootstrap_supervised.hpp"
#include "rdma/bootstrap/job_environment.hpp"
#include "rdma/launch/program_state.hpp"
#include "rdma/launch/supervisor.hpp"

#include <dirent.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr uint64_t kHelloNs = 60'000'000'000;

uint32_t count_threads() noexcept {
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return 1;
  uint32_t count = 0;
  while (const dirent* entry = readdir(tasks)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(tasks);
  return count;
}

}  // namespace

Status open_forked(Rank size, std::unique_ptr<Bootstrap>* bootstrap) noexcept {
  const uint32_t threads = count_threads();
  if (threads > 1) {
    log_warning(
        "GASNET_PSHM_NODES=%u forks a process with %u threads: the ranks have only the one that "
        "initialises; hydrant-run does without",
        size, threads);
  }
  launch::ProgramState program;
  std::unique_ptr<launch::Supervisor> supervisor;
  const Status status = launch::Supervisor::create(
      {.program = "hydrant", .size = size, .has_threads = threads > 1}, &supervisor);
  if (status != Status::kOk) return status;
  uncancelled::fflush(nullptr);
  for (Rank rank = 0; rank < size; ++rank) {
    launch::RankSockets ends;
    switch (supervisor->start(rank, &ends)) {
      case launch::Supervisor::Side::kParent: break;
      case launch::Supervisor::Side::kFailed: supervisor->abandon(); return Status::kResource;
      case launch::Supervisor::Side::kChild:
        supervisor.reset();
        program.give_back();
        launch::remove_job_request();  // while no other thread may read the environment
        return SupervisedBootstrap::open("fork", make_topology(rank, size), ends.calls, ends.events,
                                         now_ns() + kHelloNs, bootstrap);
    }
  }
  program.give_up(supervisor->descriptors(), threads > 1);
  prctl(PR_SET_NAME, "hydrant-super");
  _exit(supervisor->run());
}

}  // namespace hydrant
