// The teams that the client has made and not destroyed: owns them, and finds misuse.
#pragma once

#include "extended/team/team.hpp"
#include "firehose/base/thread.hpp"

#include <memory>

namespace hydrant {

class LiveTeams {
 public:
  // Ends the job of a client with GASNET_DEBUG if the team's scratch memory overlaps that of another team,
  // or lies outside the segment.
  Team* add(std::unique_ptr<Team> team, const char* call) noexcept HYDRANT_EXCLUDES(mu_);
  // The team is no longer live. Ends the job if it was not.
  std::unique_ptr<Team> take(gex_TM_t tm, const char* call) noexcept HYDRANT_EXCLUDES(mu_);
  bool has(gex_TM_t tm) noexcept HYDRANT_EXCLUDES(mu_);

 private:
  void check_scratch_locked(const Team& team, const char* call) const noexcept
      HYDRANT_REQUIRES(mu_);

  Mutex mu_;
  std::unique_ptr<Team> first_ HYDRANT_GUARDED_BY(mu_);
};

LiveTeams& live_teams() noexcept;

}  // namespace hydrant
