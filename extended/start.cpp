// Starts and ends the extended API. am/start_job.cpp and am/exit/exit.cpp call these functions.
#include "am/job/start_extended.hpp"
#include "extended/atomics/atomic_messages.hpp"
#include "extended/barrier/barriers.hpp"
#include "extended/collective/collectives.hpp"
#include "extended/collective/operation/algorithms.hpp"
#include "extended/job_statistics.hpp"
#include "extended/rma/rma.hpp"
#include "extended/vis/packets.hpp"

namespace hydrant {

Status start_extended() noexcept {
  Status status = start_barriers(collective_choices());
  if (status == Status::kOk) status = start_collectives();
  if (status == Status::kOk) status = start_rma();
  if (status == Status::kOk) start_vis_paths();
  if (status == Status::kOk) add_vis_handlers();
  add_atomic_handlers();
  return status;
}

Status verify_extended_settings() noexcept {
  const Status status = verify_barrier_settings();
  return status == Status::kOk ? connect_collectives() : status;
}

void end_extended() noexcept { write_job_statistics(); }

}  // namespace hydrant
