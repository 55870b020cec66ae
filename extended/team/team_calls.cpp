// Implements gex_TM_*: makes teams from others, destroys them, and translates ranks. Members exchange what
// they need to know by a collective operation of the parent team (operations.cpp).
#include <hydrant/gasnet/objects.h>

#include "am/call/in_call.hpp"
#include "am/job/job.hpp"
#include "extended/collective/operation/operations.hpp"
#include "extended/collective/steps/hypercube.hpp"
#include "extended/collective/steps/schedules.hpp"
#include "extended/team/check_collective.hpp"
#include "extended/team/live_teams.hpp"
#include "extended/team/team.hpp"
#include "firehose/base/log.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

using namespace hydrant;

namespace {

constexpr gex_Flags_t kSizeQueries =
    GEX_FLAG_TM_SCRATCH_SIZE_MIN | GEX_FLAG_TM_SCRATCH_SIZE_RECOMMENDED;
// The library needs no scratch memory of the client; a granted size must not be 0.
constexpr size_t kScratchBytes = 64;

// Counts the calls that make teams. A team's id is the rank of its first member and that member's count.
constinit std::atomic<uint32_t> calls_made{0};

uint64_t team_id(Rank first_member, uint32_t count) noexcept {
  return (uint64_t{first_member} + 1) << 32 | count;
}

// Answers a query of the size of scratch memory.
size_t scratch_size(gex_Flags_t flags, bool joins, const char* call) noexcept {
  if ((flags & kSizeQueries) == kSizeQueries)
    fatal("%s: GEX_FLAG_TM_SCRATCH_SIZE_MIN and _RECOMMENDED exclude each other", call);
  if ((flags & GEX_FLAG_TM_SCRATCH_SIZE_MIN) != 0) {
    static constinit std::atomic<bool> is_told{false};
    if (!is_told.exchange(true, std::memory_order_relaxed))
      log_warning(
          "%s: GEX_FLAG_TM_SCRATCH_SIZE_MIN is deprecated: pass "
          "GEX_FLAG_TM_SCRATCH_SIZE_RECOMMENDED",
          call);
  }
  return joins ? kScratchBytes : 0;
}

// All members' values of `mine`, in the order of their ranks. Ends the job if there is no memory.
template <typename Value>
std::unique_ptr<Value[]> gather_values(gex_TM_t parent, CollectiveKind kind, const Value& mine,
                                       const char* call) noexcept {
  const TeamMembers members = members_of(parent);
  std::unique_ptr<Value[]> all(new (std::nothrow) Value[members.size]);
  if (all == nullptr) fatal("%s: no memory for a team of %u ranks", call, members.size);
  run_operation(members, next_collective(parent),
                {.signature = signature_of(kind), .source = &mine, .dest = all.get()},
                gather_all_rounds({members.rank, members.size}, sizeof(Value)));
  return all;
}

std::unique_ptr<Rank[]> new_ranks(Rank size, const char* call) noexcept {
  std::unique_ptr<Rank[]> ranks(new (std::nothrow) Rank[size]);
  if (ranks == nullptr) fatal("%s: no memory for a team of %u ranks", call, size);
  return ranks;
}

// A member's contribution to the making of a team: memory that is free.
struct TeamOffer {
  NodeTeamOffer lines;
  uint32_t mailboxes = 0;
  Rank host = 0;  // the first rank of the member's host

  static TeamOffer make() noexcept {
    return {.lines = NodeTeam::offer(),
            .mailboxes = MailboxTeam::offer(),
            .host = job().topology().node_ranks.front()};
  }
  TeamOffer with(const TeamOffer& other) const noexcept {
    return {.lines = lines.with(other.lines), .mailboxes = mailboxes & other.mailboxes};
  }
  void withdraw() const noexcept {
    NodeTeam::withdraw(lines);
    MailboxTeam::withdraw(mailboxes);
  }
};

// A new team as its members have agreed on it.
struct NewTeam {
  uint64_t id = 0;
  Rank my_rank = 0;
  Rank size = 0;
  uint32_t node_bits = 0;            // as Member::node_bits
  gex_Flags_t flags = 0;             // of this member's call
  std::unique_ptr<Rank[]> jobranks;  // of the members
  TeamOffer offers;                  // of all
};

Team* make_team(gex_TM_t parent, NewTeam made, const TeamOffer& mine, const gex_Memvec_t& scratch,
                const char* call) noexcept {
  const Rank size = made.size;
  const TeamOffer& all = made.offers;
  std::unique_ptr<Team> team =
      Team::make(made.id, parent->ep, made.my_rank, std::move(made.jobranks), size);
  if (team == nullptr) fatal("%s: no memory for a team of %u ranks", call, size);
  team->set_node_bits(made.node_bits);
  team->flags = made.flags;
  team->scratch = scratch;
  team->node = NodeTeam::make(team->members(), mine.lines, all.lines);
  if (team->node == nullptr && all.mailboxes != 0 && size > 1)
    team->mailboxes = MailboxTeam::make(team->members(), next_collective(team.get()),
                                        mine.mailboxes, all.mailboxes);
  else
    MailboxTeam::withdraw(mine.mailboxes);
  return live_teams().add(std::move(team), call);
}

// ---- split ----

struct SplitVote {
  int32_t color = 0;
  int32_t key = 0;
  uint32_t joins = 0;
  uint32_t count = 0;  // calls_made
  TeamOffer offer;
};

Team* make_split_team(gex_TM_t parent, const SplitVote* votes, const SplitVote& mine,
                      const gex_Memvec_t& scratch, gex_Flags_t flags, const char* call) noexcept {
  const TeamMembers members = members_of(parent);
  const auto is_member = [&](Rank rank) {
    return votes[rank].joins != 0 && votes[rank].color == mine.color;
  };
  Rank size = 0;
  for (Rank rank = 0; rank < members.size; ++rank) size += is_member(rank) ? 1 : 0;
  std::unique_ptr<Rank[]> ranks = new_ranks(size, call);
  Rank next = 0;
  TeamOffer offers = mine.offer;
  for (Rank rank = 0; rank < members.size; ++rank) {
    if (!is_member(rank)) continue;
    ranks[next++] = rank;
    offers = offers.with(votes[rank].offer);
  }
  // Without std::stable_sort, which allocates.
  std::sort(ranks.get(), ranks.get() + size, [&](Rank a, Rank b) {
    return votes[a].key != votes[b].key ? votes[a].key < votes[b].key : a < b;
  });
  const Rank first = ranks[0];
  const auto my_rank =
      static_cast<Rank>(std::find(ranks.get(), ranks.get() + size, members.rank) - ranks.get());
  const uint32_t node_bits =
      node_bits_of(Hypercube(size), [&](Rank rank) { return votes[ranks[rank]].offer.host; });
  for (Rank rank = 0; rank < size; ++rank) ranks[rank] = members.jobrank(ranks[rank]);
  return make_team(parent,
                   {.id = team_id(ranks[0], votes[first].count),
                    .my_rank = my_rank,
                    .size = size,
                    .node_bits = node_bits,
                    .flags = flags,
                    .jobranks = std::move(ranks),
                    .offers = offers},
                   mine.offer, scratch, call);
}

// ---- create ----

struct CreateVote {
  uint64_t members = 0;  // hash of the list of members; 0: the caller makes no team
  uint32_t count = 0;    // calls_made
  uint32_t scratch_kind = 0;
  TeamOffer offer;
};

constexpr gex_Flags_t kScratchKinds = GEX_FLAG_TM_SYMMETRIC_SCRATCH | GEX_FLAG_TM_LOCAL_SCRATCH |
                                      GEX_FLAG_TM_GLOBAL_SCRATCH | GEX_FLAG_TM_NO_SCRATCH;

uint64_t hash_of(const Rank* ranks, size_t count) noexcept {
  uint64_t hash = count;
  for (size_t i = 0; i < count; ++i) {
    constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
    hash = (hash ^ ranks[i]) * kOdd;
    hash ^= hash >> 29;
  }
  return hash | 1;
}

// The arguments of gex_TM_Create() that describe the new team.
struct CreateArguments {
  const gex_EP_Location_t* locations;
  size_t count;
  const gex_Addr_t* scratch_addrs;
  size_t scratch_size;
  gex_Flags_t flags;
};

std::unique_ptr<Rank[]> jobranks_of(gex_TM_t parent, const CreateArguments& arguments,
                                    const char* call) noexcept {
  std::unique_ptr<Rank[]> ranks = new_ranks(static_cast<Rank>(arguments.count), call);
  for (size_t i = 0; i < arguments.count; ++i) {
    const gex_EP_Location_t& each = arguments.locations[i];
    const bool is_jobrank = (arguments.flags & GEX_FLAG_RANK_IS_JOBRANK) != 0;
    const Rank limit = is_jobrank ? job().size() : parent->size;
    if (each.gex_rank >= limit)
      fatal("%s: args[%zu] names rank %u, and there are %u", call, i, each.gex_rank, limit);
    if (each.gex_ep_index != 0)
      fatal(
          "%s: args[%zu] names endpoint %u: only teams of primordial endpoints (index 0) can be "
          "made",
          call, i, static_cast<unsigned>(each.gex_ep_index));
    ranks[i] = is_jobrank ? each.gex_rank : members_of(parent).jobrank(each.gex_rank);
  }
  return ranks;
}

gex_Memvec_t scratch_of(gex_TM_t parent, const CreateArguments& arguments, size_t my_rank,
                        const char* call) noexcept {
  if ((arguments.flags & GEX_FLAG_TM_NO_SCRATCH) != 0) return {};
  if (arguments.scratch_addrs == nullptr || arguments.scratch_size == 0)
    fatal(
        "%s: scratch_addrs is NULL, or scratch_size is 0: pass scratch memory, or "
        "GEX_FLAG_TM_NO_SCRATCH",
        call);
  const bool is_global = (arguments.flags & GEX_FLAG_TM_GLOBAL_SCRATCH) != 0;
  gex_Addr_t addr = arguments.scratch_addrs[is_global ? my_rank : 0];
  if ((arguments.flags & GEX_FLAG_SCRATCH_SEG_OFFSET) != 0) {
    if (parent->ep->segment == GEX_SEGMENT_INVALID)
      fatal("%s: GEX_FLAG_SCRATCH_SEG_OFFSET, but the endpoint has no segment", call);
    addr = static_cast<std::byte*>(parent->ep->segment->addr) + reinterpret_cast<uintptr_t>(addr);
  }
  return {.gex_addr = addr, .gex_len = arguments.scratch_size};
}

}  // namespace

extern "C" {

size_t gex_TM_Split(gex_TM_t* new_tm_p, gex_TM_t parent, int color, int key, void* scratch_addr,
                    size_t scratch_bytes, gex_Flags_t flags) {
  constexpr const char* kCall = "gex_TM_Split";
  const InCall in_call(kCall);
  check_team_call_slowly(parent, kCall);
  if ((flags & kSizeQueries) != 0) return scratch_size(flags, new_tm_p != nullptr, kCall);
  if (new_tm_p != nullptr && color < 0)
    fatal("%s: the color %d is negative: colors are 0 and above", kCall, color);
  const bool grants = new_tm_p != nullptr && (flags & GEX_FLAG_TM_NO_SCRATCH) == 0;
  if (grants && scratch_bytes == 0)
    fatal("%s: scratch_size is 0: pass scratch memory, or GEX_FLAG_TM_NO_SCRATCH", kCall);
  const SplitVote mine = {.color = color,
                          .key = key,
                          .joins = new_tm_p != nullptr ? 1u : 0u,
                          .count = calls_made.fetch_add(1, std::memory_order_relaxed),
                          .offer = TeamOffer::make()};
  const std::unique_ptr<SplitVote[]> votes =
      gather_values(parent, CollectiveKind::kSplit, mine, kCall);
  if (new_tm_p == nullptr) {
    mine.offer.withdraw();
    return 0;
  }
  gex_Memvec_t scratch = {};
  if (grants) scratch = {.gex_addr = scratch_addr, .gex_len = scratch_bytes};
  *new_tm_p = make_split_team(parent, votes.get(), mine, scratch, flags, kCall);
  return 0;
}

size_t gex_TM_Create(gex_TM_t* new_tms, size_t num_new_tms, gex_TM_t parent,
                     gex_EP_Location_t* args, size_t numargs, gex_Addr_t* scratch_addrs,
                     size_t scratch_bytes, gex_Flags_t flags) {
  constexpr const char* kCall = "gex_TM_Create";
  const InCall in_call(kCall);
  check_team_call_slowly(parent, kCall);
  if ((flags & kSizeQueries) != 0) return scratch_size(flags, numargs != 0, kCall);
  const gex_Flags_t kind = flags & kScratchKinds;
  if (numargs != 0 && (kind == 0 || (kind & (kind - 1)) != 0))
    fatal(
        "%s: pass exactly one of GEX_FLAG_TM_SYMMETRIC_SCRATCH, _LOCAL_, _GLOBAL_ and _NO_SCRATCH",
        kCall);
  if (numargs != 0 && args == nullptr)
    fatal("%s: args is NULL, and numargs is %zu", kCall, numargs);
  const CreateArguments arguments = {args, numargs, scratch_addrs, scratch_bytes, flags};
  std::unique_ptr<Rank[]> ranks;
  CreateVote mine = {.count = calls_made.fetch_add(1, std::memory_order_relaxed),
                     .scratch_kind = kind,
                     .offer = TeamOffer::make()};
  if (numargs != 0) {
    ranks = jobranks_of(parent, arguments, kCall);
    mine.members = hash_of(ranks.get(), numargs);
  }
  const std::unique_ptr<CreateVote[]> votes =
      gather_values(parent, CollectiveKind::kCreate, mine, kCall);
  if (numargs == 0) {
    mine.offer.withdraw();
    return 0;
  }
  const auto size = static_cast<Rank>(numargs);
  const Rank* found = std::find(ranks.get(), ranks.get() + size, job().rank());
  const auto my_rank = static_cast<Rank>(found - ranks.get());
  const bool is_member = my_rank != size;
  if (is_member && num_new_tms == 1 && new_tms == nullptr)
    fatal("%s: new_tms is NULL, and args names an endpoint of this rank", kCall);
  if (num_new_tms != (is_member ? 1u : 0u))
    fatal("%s: num_new_tms is %zu, and args names %u endpoints of this rank", kCall, num_new_tms,
          is_member ? 1u : 0u);
  if (!is_member) {
    mine.offer.withdraw();
    return 0;
  }
  TeamOffer offers = mine.offer;
  for (Rank rank = 0; rank < size; ++rank) {
    const Rank in_parent = gex_TM_TranslateJobrankToRank(parent, ranks[rank]);
    if (in_parent == GEX_RANK_INVALID)
      fatal("%s: args names rank %u of the job, which is not in the parent team", kCall,
            ranks[rank]);
    const CreateVote& vote = votes[in_parent];
    offers = offers.with(vote.offer);
    if (vote.members != mine.members || vote.scratch_kind != mine.scratch_kind)
      fatal(
          "%s: rank %u of the job passes other args or another kind of scratch memory than rank "
          "%u: all members "
          "of a new team have to pass the same",
          kCall, ranks[rank], job().rank());
  }
  const auto vote_of = [&](Rank rank) -> const CreateVote& {
    return votes[gex_TM_TranslateJobrankToRank(parent, ranks[rank])];
  };
  NewTeam agreed = {.id = team_id(ranks[0], vote_of(0).count),
                    .my_rank = my_rank,
                    .size = size,
                    .node_bits = node_bits_of(Hypercube(size),
                                              [&](Rank rank) { return vote_of(rank).offer.host; }),
                    .flags = flags,
                    .jobranks = nullptr,
                    .offers = offers};
  agreed.jobranks = std::move(ranks);
  const gex_Memvec_t scratch = scratch_of(parent, arguments, my_rank, kCall);
  Team* made = make_team(parent, std::move(agreed), mine.offer, scratch, kCall);
  for (Rank rank = 0; rank < size; ++rank) {
    if (made->find(made->members().jobrank(rank)) != rank)
      fatal("%s: args names the endpoint of rank %u of the job a second time", kCall,
            made->members().jobrank(rank));
  }
  new_tms[0] = made;
  if ((flags & GEX_FLAG_TM_LOCAL_SCRATCH) != 0) gex_Coll_BarrierBlocking(made, 0);
  return 0;
}

int gex_TM_Destroy(gex_TM_t tm, gex_Memvec_t* scratch_p, gex_Flags_t) {
  constexpr const char* kCall = "gex_TM_Destroy";
  const InCall in_call(kCall);
  check_team_call_slowly(tm, kCall);
  if (tm == &hydrant_world) fatal("%s: the primordial team cannot be destroyed", kCall);
  // This rank has sent and received all messages of its complete operations, so the other members do not
  // need it.
  const std::unique_ptr<Team> team = live_teams().take(tm, kCall);
  if (team->has_outstanding())
    fatal("%s: collective operations of the team are outstanding: sync their events first", kCall);
  const gex_Memvec_t scratch = team->scratch;
  if (scratch_p == nullptr || scratch.gex_len == 0) return 0;
  *scratch_p = scratch;
  return 1;
}

gex_Rank_t gex_TM_TranslateRankToJobrank(gex_TM_t tm, gex_Rank_t rank) {
  const InCall in_call("gex_TM_TranslateRankToJobrank");
  check_team(tm, "gex_TM_TranslateRankToJobrank");
  if (rank >= tm->size) return GEX_RANK_INVALID;
  return members_of(tm).jobrank(rank);
}

gex_Rank_t gex_TM_TranslateJobrankToRank(gex_TM_t tm, gex_Rank_t jobrank) {
  const InCall in_call("gex_TM_TranslateJobrankToRank");
  check_team(tm, "gex_TM_TranslateJobrankToRank");
  if (tm == &hydrant_world) return jobrank < tm->size ? jobrank : GEX_RANK_INVALID;
  return static_cast<const Team*>(tm)->find(jobrank);
}

gex_EP_Location_t gex_TM_TranslateRankToEP(gex_TM_t tm, gex_Rank_t rank, gex_Flags_t) {
  const InCall in_call("gex_TM_TranslateRankToEP");
  return {.gex_rank = gex_TM_TranslateRankToJobrank(tm, rank), .gex_ep_index = 0};
}

}  // extern "C"
