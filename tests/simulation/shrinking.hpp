// Makes a failing job smaller: leaves out actions, and with them ranks, as long as it still fails.
#pragma once

#include "tests/simulation/job_plan.hpp"

#include <cstdint>

namespace hydrant::simulation {

// `runs`: the most jobs that are tried. A job that fails in another way than the first counts as failing.
JobPlan shrink(JobPlan failing, uint32_t runs);

}  // namespace hydrant::simulation
