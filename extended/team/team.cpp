// Implements teams and the translation of their ranks. team_calls.cpp makes and destroys them.
#include "extended/team/team.hpp"

#include "am/job/job.hpp"
#include "extended/team/live_teams.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace hydrant {
namespace {

constinit std::atomic<uint32_t> world_collectives{0};

}  // namespace

uint32_t JobrankTable::slot_of(Rank jobrank) const noexcept {
  constexpr uint32_t kOdd = 0x9e3779b1;
  uint32_t hash = jobrank * kOdd;
  hash ^= hash >> 15;
  return hash & mask_;
}

bool JobrankTable::make(const Rank* jobranks, Rank size) noexcept {
  // Between a third and two thirds of the slots are taken.
  const uint64_t slots = std::bit_ceil(uint64_t{size} + size / 2 + 1);
  slots_.reset(new (std::nothrow) Rank[slots]);
  if (slots_ == nullptr) return false;
  std::fill_n(slots_.get(), slots, GEX_RANK_INVALID);
  mask_ = static_cast<uint32_t>(slots - 1);
  jobranks_ = jobranks;
  for (Rank rank = 0; rank < size; ++rank) {
    uint32_t slot = slot_of(jobranks[rank]);
    while (slots_[slot] != GEX_RANK_INVALID) slot = (slot + 1) & mask_;
    slots_[slot] = rank;
  }
  return true;
}

Rank JobrankTable::find(Rank jobrank) const noexcept {
  for (uint32_t slot = slot_of(jobrank);; slot = (slot + 1) & mask_) {
    const Rank rank = slots_[slot];
    if (rank == GEX_RANK_INVALID || jobranks_[rank] == jobrank) return rank;
  }
}

std::unique_ptr<Team> Team::make(uint64_t id, gex_EP_t ep, Rank my_rank,
                                 std::unique_ptr<Rank[]> jobranks, Rank size) noexcept {
  std::unique_ptr<Team> team(new (std::nothrow) Team);
  if (team == nullptr || !team->table_.make(jobranks.get(), size)) return nullptr;
  team->ep = ep;
  team->rank = my_rank;
  team->size = size;
  team->jobranks = jobranks.get();
  team->id_ = id;
  team->storage_ = std::move(jobranks);
  return team;
}

void check_team(gex_TM_t tm, const char* call) noexcept {
  if (tm == GEX_TM_INVALID) fatal("%s: the team is GEX_TM_INVALID", call);
  if (is_pair(tm))
    fatal("%s: a pair of endpoints (gex_TM_Pair()) is not a team, which this call needs", call);
  if (job().debug && tm != &hydrant_world && !live_teams().has(tm))
    fatal("%s: %p is not a team of this job, or was destroyed", call, static_cast<void*>(tm));
}

TeamMembers members_of(gex_TM_t tm) noexcept {
  if (tm == &hydrant_world) return {.rank = tm->rank, .size = tm->size};
  return static_cast<const Team*>(tm)->members();
}

NodeTeam* node_team_of(gex_TM_t tm) noexcept {
  return tm == &hydrant_world ? NodeTeam::of_world() : static_cast<const Team*>(tm)->node.get();
}

MailboxTeam* mailbox_team_of(gex_TM_t tm) noexcept {
  return tm == &hydrant_world ? MailboxTeam::of_world()
                              : static_cast<const Team*>(tm)->mailboxes.get();
}

uint32_t next_collective(gex_TM_t tm) noexcept {
  std::atomic<uint32_t>& count =
      tm == &hydrant_world ? world_collectives : static_cast<Team*>(tm)->collectives_;
  return count.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace hydrant
