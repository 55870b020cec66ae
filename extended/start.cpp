#include "am/start_extended.hpp"
#include "extended/barriers.hpp"
#include "extended/broadcast.hpp"
#include "extended/rma.hpp"
#include "extended/rma_statistics.hpp"

namespace hydrant {

Status start_extended() noexcept {
  const Status status = start_barriers();
  start_broadcasts();
  return status == Status::kOk ? start_rma() : status;
}

Status agree_on_extended() noexcept { return agree_on_barriers(); }

void end_extended() noexcept { write_rma_statistics(); }

}  // namespace hydrant
