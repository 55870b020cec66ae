// Starts and ends the extended API. am/job/job.cpp and am/job/exit.cpp call these functions.
#include "am/job/job.hpp"
#include "am/job/start_extended.hpp"
#include "extended/barrier/barriers.hpp"
#include "extended/collective/collectives.hpp"
#include "extended/collective/mailbox/mailbox_team.hpp"
#include "extended/job_statistics.hpp"
#include "extended/rma/rma.hpp"
#include "extended/team/live_teams.hpp"
#include "extended/team/team.hpp"

namespace hydrant {

Status start_extended() noexcept {
  if (job().debug) job().is_live_team = [](gex_TM_t tm) noexcept { return live_teams().has(tm); };
  Status status = start_barriers();
  if (status == Status::kOk) status = start_collectives();
  return status == Status::kOk ? start_rma() : status;
}

Status verify_extended_settings() noexcept {
  Status status = verify_barrier_settings();
  if (status == Status::kOk) status = find_nodes_of_world();
  return status == Status::kOk ? connect_mailboxes() : status;
}

void end_extended() noexcept { write_job_statistics(); }

}  // namespace hydrant
