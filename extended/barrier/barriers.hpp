// The barriers of this process's job: created when the job is wired, valid until the process ends.
#pragma once

#include "extended/barrier/named_barrier.hpp"
#include "extended/barrier/team_barrier.hpp"

#include <cstdint>
#include <memory>

namespace hydrant {

struct Barriers {
  NamedBarrier named;
  std::unique_ptr<TeamBarrier> team;
};

// Null before the job is wired.
extern constinit Barriers* the_barriers;

// Called once per process, after rank, size and transport are set. `collective_choices` is a setting of
// collectives (algorithms.hpp), which verify_barrier_settings() compares with the others.
Status start_barriers(uint32_t collective_choices) noexcept;
// After the job's fence. Errors: kBadArg: a setting differs between this rank and rank 0.
Status verify_barrier_settings() noexcept;

}  // namespace hydrant
