#include "am/start_extended.hpp"
#include "extended/barriers.hpp"
#include "extended/rma.hpp"
#include "extended/rma_statistics.hpp"

namespace hydrant {

Status start_extended() noexcept {
  const Status status = start_barriers();
  return status == Status::kOk ? start_rma() : status;
}

void end_extended() noexcept { write_rma_statistics(); }

}  // namespace hydrant
