// Runs a job in one thread: each rank has a transport over the stand-in for libibverbs; a seeded schedule
// decides which rank acts and polls next, and how far the clock moves.
//
// A job fails if a byte, an order, a count or an error is not what the plan and its faults allow, if a wait
// has not ended at its deadline, or if an object is left behind.
#pragma once

#include "tests/simulation/job_faults.hpp"
#include "tests/simulation/job_operations.hpp"
#include "tests/simulation/job_plan.hpp"
#include "tests/simulation/job_world.hpp"

#include <cstdint>

namespace hydrant::simulation {

// `prints`: a line for each event.
Outcome run_job(const JobPlan& plan, bool prints = false);

class SimulatedJob {
 public:
  SimulatedJob(const JobPlan& plan, bool prints) : world_(plan, prints) {}
  SimulatedJob(const SimulatedJob&) = delete;
  SimulatedJob& operator=(const SimulatedJob&) = delete;
  Outcome run();

 private:
  void open();
  void open_rank(Rank rank);
  void exchange_keys();
  void run_until_done();
  void step();
  uint32_t poll(Rank rank);
  void advance_clock(bool has_progress);
  void settle();
  void close();
  void add_counts(Rank rank);

  JobWorld world_;
  JobOperations operations_{world_};
  JobFaults faults_{world_, operations_};
  uint32_t idle_steps_ = 0;
};

}  // namespace hydrant::simulation
