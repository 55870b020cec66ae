// Chooses how this process joins its job: by HYDRANT_BOOTSTRAP, or by what the environment shows of
// hydrant-run, GASNET_PSHM_NODES and launchers. am/start_job.cpp calls open_bootstrap().
#include "rdma/open_bootstrap.hpp"

#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/bootstrap/bootstrap_hints.hpp"
#include "rdma/bootstrap/bootstrap_pmi2.hpp"
#include "rdma/bootstrap/bootstrap_pmix.hpp"
#include "rdma/bootstrap/bootstrap_singleton.hpp"
#include "rdma/bootstrap/bootstrap_supervised.hpp"
#include "rdma/bootstrap/job_environment.hpp"
#include "rdma/config/job_knobs.hpp"
#include "rdma/launch/bootstrap_forked.hpp"

#include <cstdlib>

namespace hydrant {
namespace {

constexpr uint64_t kOpenNs = 60'000'000'000;

bool is_set(const char* name) noexcept {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

Status open_wired(const launch::JobWire& wire, std::unique_ptr<Bootstrap>* bootstrap) noexcept {
  return SupervisedBootstrap::open("hydrant-run", make_topology(wire.rank, wire.size, wire.nodes),
                                   wire.ends.calls, wire.ends.events, now_ns() + kOpenNs,
                                   bootstrap);
}

Status read_pshm_nodes(Rank* nodes) noexcept {
  const KnobValue value = read_knob(JobKnob::kGasnetPshmNodes);
  if (value.rejected != nullptr) {
    // An invalid value is an error, not the default: a job of several processes was requested.
    uint64_t unused = 0;
    return parse_knob(JobKnob::kGasnetPshmNodes, value.rejected, &unused);
  }
  *nodes = static_cast<Rank>(value.number);
  return Status::kOk;
}

// Queries the launchers that the environment shows. *bootstrap stays empty if there is none, or if wire-up
// with it fails; *why is then the reason.
void open_foreign(std::unique_ptr<Bootstrap>* bootstrap, std::string* why) noexcept {
  Status status = Status::kNotReady;
  if (is_set("PMIX_NAMESPACE")) {
    status = open_pmix(now_ns() + kOpenNs, bootstrap);
  } else if (is_set("PMI_FD") || is_set("PMI_RANK")) {
    status = open_pmi2(now_ns() + kOpenNs, bootstrap);
  }
  if (status != Status::kOk && status != Status::kNotReady) *why = last_error_text();
}

// Adds the start command to an error: the likeliest cause is that the launcher chosen by HYDRANT_BOOTSTRAP
// did not start this process.
Status add_start_hint(Status status, std::string_view choice, const char* start) noexcept {
  if (status == Status::kOk) return status;
  const std::string why = last_error_text();
  return fail(status, "HYDRANT_BOOTSTRAP=%.*s: %s; type: %s %s", static_cast<int>(choice.size()),
              choice.data(), why.c_str(), start, own_command_line().c_str());
}

Status open_alone(std::unique_ptr<Bootstrap>* bootstrap) noexcept {
  *bootstrap = std::make_unique<SingletonBootstrap>();
  return Status::kOk;
}

Status open_by_environment(std::unique_ptr<Bootstrap>* bootstrap) noexcept {
  launch::JobWire wire;
  const Status wired = launch::read_job_environment(&wire);
  if (wired == Status::kOk) return open_wired(wire, bootstrap);
  if (wired == Status::kBadArg) return wired;
  const std::string stale = wired == Status::kBroken ? last_error_text() : "";

  Rank nodes = 0;
  Status status = read_pshm_nodes(&nodes);
  if (status != Status::kOk) return status;
  const LauncherHint hint = find_launcher_hint();
  status = check_hint_numbers(hint);
  if (status != Status::kOk) return status;
  // No launcher, a launcher of a single process, or a size that may be the allocation's: the program may fork
  // its own ranks.
  const bool may_fork = nodes > 1 && (hint.size == 1 || *hint.variable == '\0' || !hint.whole_step);
  if (may_fork) return open_forked(nodes, bootstrap);

  std::string why;
  open_foreign(bootstrap, &why);
  const Rank found = *bootstrap != nullptr ? (*bootstrap)->topology().size : 1;
  status = check_launcher_hint(hint, found, why);
  if (status != Status::kOk) {
    if (*bootstrap != nullptr) (*bootstrap)->leave(1, ExitReason::kExit, now_ns() + kOpenNs);
    bootstrap->reset();
    return status;
  }
  if (*bootstrap != nullptr) return Status::kOk;
  if (!stale.empty() && wire.size > 1 && nodes == 0)
    return fail(Status::kBroken, "%s", stale.c_str());
  if (!why.empty()) log_warning("%s; this process is a job of its own", why.c_str());
  return open_alone(bootstrap);
}

Status open_chosen(std::unique_ptr<Bootstrap>* bootstrap) noexcept {
  const std::string_view choice = knob_choice(JobKnob::kBootstrap);
  if (choice == "alone") return open_alone(bootstrap);
  if (choice == "pmix") {
    return add_start_hint(open_pmix(now_ns() + kOpenNs, bootstrap), choice, "mpirun -n 2");
  }
  if (choice == "pmi2") {
    return add_start_hint(open_pmi2(now_ns() + kOpenNs, bootstrap), choice, "mpiexec.hydra -n 2");
  }
  if (choice == "hydrant_run") {
    launch::JobWire wire;
    const Status status = launch::read_job_environment(&wire);
    if (status == Status::kOk) return open_wired(wire, bootstrap);
    if (status != Status::kNotReady) return status;
    return fail(Status::kBroken,
                "HYDRANT_BOOTSTRAP=hydrant_run, and hydrant-run has not started this process; "
                "type: hydrant-run -n 2 %s",
                own_command_line().c_str());
  }
  if (choice == "fork") {
    Rank nodes = 0;
    const Status status = read_pshm_nodes(&nodes);
    if (status == Status::kOk && nodes == 0) {
      return fail(
          Status::kBadArg,
          "HYDRANT_BOOTSTRAP=fork, and GASNET_PSHM_NODES does not say into how many processes; "
          "type: GASNET_PSHM_NODES=2 %s",
          own_command_line().c_str());
    }
    return status == Status::kOk ? open_forked(nodes, bootstrap) : status;
  }
  return open_by_environment(bootstrap);
}

}  // namespace

Status open_bootstrap(int*, char***, std::unique_ptr<Bootstrap>* bootstrap) noexcept {
  const Status status = open_chosen(bootstrap);
  // Warns of an invalid value that had no effect, because a launcher or HYDRANT_BOOTSTRAP decides.
  if (status == Status::kOk && (*bootstrap)->topology().rank == 0)
    warn_of_rejected(knob_info(JobKnob::kGasnetPshmNodes));
  return status;
}

}  // namespace hydrant
