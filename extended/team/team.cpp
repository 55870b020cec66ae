// Implements teams and the translation of their ranks. team_calls.cpp makes and destroys them.
#include "extended/team/team.hpp"

#include <hydrant/gasnet/rma.h>

#include "am/job/job.hpp"
#include "am/segment/neighbourhood.hpp"
#include "extended/collective/operation/operations.hpp"
#include "extended/collective/steps/hypercube.hpp"
#include "extended/team/live_teams.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>
#include <vector>

namespace hydrant {
namespace {

constinit std::atomic<uint32_t> world_collectives{0};
constinit uint32_t world_node_bits = 0;

// The distance between consecutive members, if it is always the same; else 0.
Rank stride_of(const Rank* jobranks, Rank size) noexcept {
  if (size == 1) return 1;
  const Rank stride = jobranks[1] - jobranks[0];
  for (Rank i = 2; i < size; ++i) {
    if (jobranks[i] - jobranks[i - 1] != stride) return 0;
  }
  return stride;
}

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
  std::unique_ptr<Team> alike;
  if (hydrant_segment_key(team.get(), 0) == hydrant_segment_key(&hydrant_world, 0)) {
    alike = std::move(team);  // inlined calls would take it for the job's own team
    team.reset(new (std::nothrow) Team);
  }
  if (team == nullptr) return nullptr;
  team->ep = ep;
  team->rank = my_rank;
  team->size = size;
  team->first = jobranks[0];
  team->stride = stride_of(jobranks.get(), size);
  team->id_ = id;
  if (team->stride != 0) return team;
  if (!team->table_.make(jobranks.get(), size)) return nullptr;
  team->jobranks = jobranks.get();
  team->storage_ = std::move(jobranks);
  return team;
}

Rank Team::find(Rank jobrank) const noexcept {
  if (jobranks != nullptr) return table_.find(jobrank);
  const int64_t distance = int64_t{jobrank} - int64_t{first};
  const auto step = int64_t{static_cast<int32_t>(stride)};
  const int64_t member = distance / step;
  return distance % step == 0 && member >= 0 && member < int64_t{size} ? static_cast<Rank>(member)
                                                                       : GEX_RANK_INVALID;
}

bool Team::has_outstanding() const noexcept {
  return (node != nullptr && node->has_outstanding()) ||
         (mailboxes != nullptr && mailboxes->has_outstanding()) || has_outstanding_operations(id_);
}

void check_team(gex_TM_t tm, const char* call) noexcept {
  if (tm == GEX_TM_INVALID) fatal("%s: the team is GEX_TM_INVALID", call);
  if (is_pair(tm))
    fatal("%s: a pair of endpoints (gex_TM_Pair()) is not a team, which this call needs", call);
  if (job().debug && tm != &hydrant_world && !live_teams().has(tm))
    fatal("%s: %p is not a team of this job, or was destroyed", call, static_cast<void*>(tm));
}

TeamMembers members_of_world() noexcept {
  return {.rank = job().rank(), .size = job().size(), .node_bits = world_node_bits};
}

TeamMembers members_of(gex_TM_t tm) noexcept {
  if (tm == &hydrant_world) return members_of_world();
  return static_cast<const Team*>(tm)->members();
}

Status find_nodes_of_world() noexcept {
  std::vector<Rank> first_ranks;
  const Status status = find_consecutive_hosts(&first_ranks);
  if (status != Status::kOk || first_ranks.empty()) return status;
  world_node_bits = node_bits_of(Hypercube(job().size()), [&](Rank rank) {
    return std::upper_bound(first_ranks.begin(), first_ranks.end(), rank) - first_ranks.begin();
  });
  return Status::kOk;
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
