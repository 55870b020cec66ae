// Implements the list of live teams. team_calls.cpp adds and removes; check_team() queries it for debug
// clients.
#include "extended/team/live_teams.hpp"

#include "am/job/job.hpp"

#include <new>
#include <utility>

namespace hydrant {

LiveTeams& live_teams() noexcept {
  // Lives as long as the process, because threads may be using it at process exit.
  alignas(LiveTeams) static std::byte place[sizeof(LiveTeams)];
  static LiveTeams* const all = new (place) LiveTeams;
  return *all;
}

void LiveTeams::check_scratch_locked(const Team& team, const char* call) const noexcept {
  const auto first = reinterpret_cast<uintptr_t>(team.scratch.gex_addr);
  const size_t bytes = team.scratch.gex_len;
  const hydrant_segment* segment = team.ep->segment;
  const uintptr_t base = segment != nullptr ? reinterpret_cast<uintptr_t>(segment->addr) : 0;
  const size_t size = segment != nullptr ? segment->size : 0;
  if (job().segment_mode != kSegmentEverything &&
      (first - base >= size || bytes > size - (first - base)))
    fatal("%s: the scratch memory of %zu bytes at %#zx is not in the endpoint's segment", call,
          bytes, static_cast<size_t>(first));
  for (const Team* each = first_.get(); each != nullptr; each = each->next.get()) {
    const auto other = reinterpret_cast<uintptr_t>(each->scratch.gex_addr);
    if (each->scratch.gex_len != 0 &&
        (first - other < each->scratch.gex_len || other - first < bytes))
      fatal(
          "%s: the scratch memory of %zu bytes at %#zx overlaps that of another team: grant each "
          "team its own",
          call, bytes, static_cast<size_t>(first));
  }
}

Team* LiveTeams::add(std::unique_ptr<Team> team, const char* call) noexcept {
  const MutexLock lock(mu_);
  if (job().debug && team->scratch.gex_len != 0) check_scratch_locked(*team, call);
  Team* added = team.get();
  team->next = std::move(first_);
  first_ = std::move(team);
  return added;
}

std::unique_ptr<Team> LiveTeams::take(gex_TM_t tm, const char* call) noexcept {
  const MutexLock lock(mu_);
  std::unique_ptr<Team>* link = &first_;
  while (*link != nullptr && link->get() != tm) link = &(*link)->next;
  if (*link == nullptr)
    fatal("%s: %p is not a team, or was destroyed before", call, static_cast<void*>(tm));
  std::unique_ptr<Team> taken = std::move(*link);
  *link = std::move(taken->next);
  return taken;
}

bool LiveTeams::has(gex_TM_t tm) noexcept {
  const MutexLock lock(mu_);
  const Team* each = first_.get();
  while (each != nullptr && each != tm) each = each->next.get();
  return each != nullptr;
}

}  // namespace hydrant
