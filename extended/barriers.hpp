// The barriers of this process's job: made when it is wired up, there until the process ends.
#pragma once

#include "extended/named_barrier.hpp"
#include "extended/team_barrier.hpp"

#include <memory>

namespace hydrant {

struct Barriers {
  NamedBarrier named;
  std::unique_ptr<TeamBarrier> team;
};

// Null before the job is wired up.
extern constinit Barriers* the_barriers;

// Once per process, when rank, size and transport are there.
Status start_barriers() noexcept;
// Behind the job's fence. Errors: kBadArg: this rank was told something else than rank 0.
Status agree_on_barriers() noexcept;

}  // namespace hydrant
