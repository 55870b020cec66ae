// Gives LineOperations its memory, events and progress. collective_calls.cpp starts small collectives here;
// team_calls.cpp makes node teams with the teams.
#include "extended/team/node_team.hpp"

#include "am/job/job.hpp"
#include "extended/barrier/barrier_shm.hpp"
#include "extended/collective/operation/algorithms.hpp"
#include "extended/collective/operation/operations.hpp"
#include "extended/collective/steps/nested_calls.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/team/team.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/config/job_knobs.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <sched.h>
#include <unistd.h>
#include <utility>

namespace hydrant {

static_assert(sizeof(TeamLines) == MemoryAccess::kCollectiveBytes);

namespace {

bool is_crowded(Rank size) noexcept {
  // Read once: the C library opens a file for it.
  static const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  return processors > 0 && static_cast<long>(size) > processors;
}
// A member reads the lines of all others, 0.06 us each. Among 16 that takes a fifth of the time of the
// messages of a tree; further sizes are estimates.
bool is_flat(Rank size) noexcept {
  constexpr Rank kMaxFlat = 64;
  return size <= kMaxFlat || is_crowded(size);
}

// The memory of this rank that all ranks of the node have mapped since the segments were attached.
bool is_shared(const void* memory, size_t bytes) noexcept {
  const Job& the_job = job();
  if (!paths().mapped || the_job.state.load(std::memory_order_relaxed) != JobState::kAttached)
    return false;
  const auto first = reinterpret_cast<uintptr_t>(the_job.segment.addr);
  const uintptr_t offset = reinterpret_cast<uintptr_t>(memory) - first;
  return first != 0 && offset < the_job.segment.size && bytes <= the_job.segment.size - offset;
}
bool is_shared(const LineOperations::Call& call, Rank rank) noexcept {
  using Kind = LineOperations::Kind;
  const bool is_root = call.root == rank;
  const bool source = call.kind != Kind::kBroadcast || is_root;
  const bool dest = call.kind == Kind::kReduceToAll || (call.kind == Kind::kReduceToOne && is_root);
  return (!source || is_shared(call.source, call.bytes)) &&
         (!dest || is_shared(call.dest, call.bytes));
}

// The same operation with messages.
Schedule make_schedule(const LineOperations::Call& call, Member me) noexcept {
  using Kind = LineOperations::Kind;
  if (call.kind == Kind::kBroadcast) return make_broadcast(me, call.root, call.bytes);
  const size_t unit = call.reduction.unit;
  return call.kind == Kind::kReduceToOne ? make_reduce(me, call.root, unit, call.bytes / unit)
                                         : make_reduce_all(me, unit, call.bytes / unit);
}

bool uses_lines() noexcept { return knob_choice(JobKnob::kCollNode) == "lines"; }

}  // namespace

NodeTeamOffer NodeTeamOffer::with(const NodeTeamOffer& other) const noexcept {
  return {.blocks = blocks & other.blocks, .base = std::max(base, other.base)};
}

// The blocks of this rank, and its teams.
class NodeTeams {
 public:
  ActiveTeams<NodeTeam> active;

  NodeTeamOffer offer() noexcept HYDRANT_EXCLUDES(mu_) {
    const MutexLock lock(mu_);
    reap_locked();
    if (job().transport == nullptr || !uses_lines()) return {};
    // A few more than one: members may have different blocks in use.
    constexpr int kOffered = 4;
    NodeTeamOffer offered{.blocks = 0, .base = last_number_};
    while (std::popcount(offered.blocks) < kOffered && ~used_ != 0) {
      // Reserved ones first.
      const uint64_t free = (~used_ & reserved_) != 0 ? ~used_ & reserved_ : ~used_;
      const auto block = static_cast<uint32_t>(std::countr_zero(free));
      const uint64_t bit = uint64_t{1} << block;
      if ((reserved_ & bit) == 0 && job().memory->reserve_collective_block(block) != Status::kOk)
        break;
      reserved_ |= bit;
      used_ |= bit;
      offered.blocks |= bit;
    }
    return offered;
  }
  void withdraw(uint64_t blocks) noexcept HYDRANT_EXCLUDES(mu_) {
    const MutexLock lock(mu_);
    used_ &= ~blocks;
  }
  // Frees the block once all members have completed the operations.
  void give_back(uint32_t block, std::unique_ptr<LineOperations> operations) noexcept
      HYDRANT_EXCLUDES(mu_) {
    const MutexLock lock(mu_);
    last_number_ = std::max(last_number_, operations->last_number());
    retired_[block] = std::move(operations);
    reap_locked();
  }

  void note_made(NodeTeam& team) noexcept HYDRANT_EXCLUDES(mu_) {
    const MutexLock lock(mu_);
    team.next_of_all_ = std::exchange(all_, &team);
  }
  void note_ended(NodeTeam& team) noexcept HYDRANT_EXCLUDES(mu_) {
    const MutexLock lock(mu_);
    NodeTeam** link = &all_;
    while (*link != &team) link = &(*link)->next_of_all_;
    *link = team.next_of_all_;
    ended_.add(team.operations_->counts());
  }
  // The job may end in a signal handler, below a call that has the mutex.
  bool add_counts(LineOperations::Counts* sum) noexcept {
    constexpr int kTries = 1000;
    for (int i = 0; i < kTries; ++i) {
      if (mu_.try_lock()) {
        sum->add(ended_);
        for (const NodeTeam* team = all_; team != nullptr; team = team->next_of_all_)
          sum->add(team->operations_->counts());
        mu_.unlock();
        return true;
      }
      sched_yield();
    }
    return false;
  }

  // Constructed at the first use, after the job is wired.
  NodeTeam* world() noexcept {
    if (!world_is_known_.load(std::memory_order_acquire)) make_world();
    return world_.get();
  }

 private:
  void reap_locked() noexcept HYDRANT_REQUIRES(mu_) {
    for (uint32_t block = 0; block < MemoryAccess::kCollectiveBlocks; ++block) {
      if (retired_[block] == nullptr || !retired_[block]->all_done()) continue;
      retired_[block].reset();
      used_ &= ~(uint64_t{1} << block);
    }
  }
  void make_world() noexcept HYDRANT_EXCLUDES(making_mu_) {
    const MutexLock lock(making_mu_);
    if (world_is_known_.load(std::memory_order_relaxed)) return;
    if (job().transport != nullptr && uses_lines()) {
      // Block 0 is set aside from the start.
      constexpr NodeTeamOffer kFirst{.blocks = 1, .base = 0};
      world_ = NodeTeam::make(members_of_world(), kFirst, kFirst);
    }
    world_is_known_.store(true, std::memory_order_release);
  }

  Mutex mu_;
  uint64_t used_ HYDRANT_GUARDED_BY(mu_) = 1;  // block 0 is the primordial team's
  uint64_t reserved_ HYDRANT_GUARDED_BY(mu_) = 1;
  uint64_t last_number_ HYDRANT_GUARDED_BY(mu_) = 0;
  std::unique_ptr<LineOperations> retired_[MemoryAccess::kCollectiveBlocks] HYDRANT_GUARDED_BY(mu_);
  NodeTeam* all_ HYDRANT_GUARDED_BY(mu_) = nullptr;
  LineOperations::Counts ended_ HYDRANT_GUARDED_BY(mu_);  // of destroyed teams

  Mutex making_mu_;
  std::atomic<bool> world_is_known_{false};
  std::unique_ptr<NodeTeam> world_;
};

namespace {

NodeTeams& node_teams() noexcept {
  // Lives as long as the process, because threads may be using it at process exit.
  alignas(NodeTeams) static std::byte place[sizeof(NodeTeams)];
  static NodeTeams* const all = new (place) NodeTeams;
  return *all;
}

NodeTeam& lines_of(const hydrant_event& event) noexcept {
  return *static_cast<NodeTeam*>(event.object);
}
LineOperations::Pending& pending_in_lines(const hydrant_event& event) noexcept {
  return *reinterpret_cast<LineOperations::Pending*>(event.number);
}
// The operation that does it with messages; null: none, or it is complete.
CollectiveOperation* other_of(const LineOperations::Pending& pending) noexcept {
  return static_cast<CollectiveOperation*>(pending.context);
}

}  // namespace

Status start_node_teams() noexcept {
  if (job().memory->collective_blocks(job().rank()) == nullptr) return Status::kOk;
  return job().memory->reserve_collective_block(0);
}

bool NodeTeam::add_counts_of_all(LineOperations::Counts* sum) noexcept {
  return node_teams().add_counts(sum);
}
NodeTeamOffer NodeTeam::offer() noexcept { return node_teams().offer(); }
void NodeTeam::withdraw(const NodeTeamOffer& mine) noexcept { node_teams().withdraw(mine.blocks); }
NodeTeam* NodeTeam::find_world() noexcept {
  NodeTeam* const found = node_teams().world();
  world_.store(found, std::memory_order_release);
  return found;
}

NodeTeam::NodeTeam(const TeamMembers& members, uint32_t block, uint64_t base) noexcept
    : members_(members),
      block_(block),
      threaded_(!job().single_threaded),
      is_flat_(hydrant::is_flat(members.size)),
      is_crowded_(is_crowded(members.size)) {
  LineOperations::Config config = {.rank = members.rank,
                                   .members = FixedArray<TeamLines*>(members.size),
                                   .base = base,
                                   .wake = wake,
                                   .jobrank = jobrank,
                                   .map = map,
                                   .context = this};
  for (Rank member = 0; config.members.ok() && member < members.size; ++member) {
    std::byte* blocks = job().memory->collective_blocks(members.jobrank(member));
    config.members[member] =
        static_cast<TeamLines*>(static_cast<void*>(blocks + size_t{block} * sizeof(TeamLines)));
  }
  operations_.reset(new (std::nothrow) LineOperations(std::move(config)));
}

std::unique_ptr<NodeTeam> NodeTeam::make(const TeamMembers& members, const NodeTeamOffer& mine,
                                         const NodeTeamOffer& all) noexcept {
  bool is_shared = all.blocks != 0;
  for (Rank member = 0; is_shared && member < members.size; ++member)
    is_shared = job().memory->collective_blocks(members.jobrank(member)) != nullptr;
  if (!is_shared) {
    withdraw(mine);
    return nullptr;
  }
  const auto block = static_cast<uint32_t>(std::countr_zero(all.blocks));
  node_teams().withdraw(mine.blocks & ~(uint64_t{1} << block));
  std::unique_ptr<NodeTeam> made(new (std::nothrow) NodeTeam(members, block, all.base));
  if (made == nullptr || made->operations_ == nullptr || !made->operations_->ok())
    fatal("no memory for the collectives of a team of %u ranks", members.size);
  node_teams().note_made(*made);
  return made;
}

NodeTeam::~NodeTeam() {
  node_teams().active.remove(*this);
  node_teams().note_ended(*this);
  node_teams().give_back(block_, std::move(operations_));
}

bool NodeTeam::has_outstanding() noexcept {
  const TeamGuard guard(*this);
  return pending_ != 0;
}

void NodeTeam::wake(void* self, Rank member) noexcept {
  const auto& team = *static_cast<const NodeTeam*>(self);
  job().sleeping->wake_peer(team.members_.jobrank(member));
}

Rank NodeTeam::jobrank(void* self, Rank member) noexcept {
  return static_cast<const NodeTeam*>(self)->members_.jobrank(member);
}

std::byte* NodeTeam::map(void* self, Rank member, uintptr_t address, size_t bytes) noexcept {
  const auto& team = *static_cast<const NodeTeam*>(self);
  return static_cast<std::byte*>(
      job().memory->mapped(team.members_.jobrank(member), address, bytes));
}

uint32_t NodeTeam::advance() noexcept {
  const uint32_t completed = operations_->advance();
  start_others();
  return completed;
}

void NodeTeam::start_others() noexcept {
  while (LineOperations::Pending* pending = operations_->take_not_shared()) {
    const LineOperations::Call& call = pending->call;
    pending->context = begin_operation(members_, call.other,
                                       {.signature = call.signature,
                                        .source = call.source,
                                        .dest = call.dest,
                                        .reduction = call.reduction},
                                       make_schedule(call, members_.member()));
  }
}

gex_Event_t NodeTeam::start(LineOperations::Call& call) noexcept {
  if (call.is_vector()) {
    // With a slot the root does not wait until all have read, for which it would give up its processor.
    const bool prefers_slot = is_crowded_ && call.kind == LineOperations::Kind::kBroadcast &&
                              call.bytes <= TeamLines::kSlotBytes;
    call.is_shared = !prefers_slot && hydrant::is_shared(call, members_.rank);
  }
  LineOperations::Pending* pending = nullptr;
  {
    const TeamGuard guard(*this);
    if (!operations_->start(call, &pending))
      fatal("%s: no memory for an operation: free memory, or raise ulimit -v",
            collective_name(call.signature));
    // It may have advanced earlier operations.
    start_others();
    if (pending == nullptr) return GEX_EVENT_INVALID;
    ++pending_;
  }
  hydrant_event* event = take_event();
  if (event == nullptr)
    fatal("%s: no memory for an event: free memory, or raise ulimit -v",
          collective_name(call.signature));
  event->is_done = event_is_done;
  event->is_ready = event_is_ready;
  event->wait_target = event_wait_target;
  event->log_pending = log_pending_event;
  event->object = this;
  event->number = reinterpret_cast<uintptr_t>(pending);
  if (!is_active_.load(std::memory_order_relaxed)) node_teams().active.add(*this, false);
  return event;
}

bool NodeTeam::event_is_done(hydrant_event& event) noexcept {
  check_outside_user_function();
  NodeTeam& team = lines_of(event);
  LineOperations::Pending& pending = pending_in_lines(event);
  const TeamGuard guard(team);
  if (!pending.is_done()) (void)team.advance();
  if (!pending.is_done()) return false;
  if (CollectiveOperation* other = other_of(pending); other != nullptr && !finish_operation(*other))
    return false;
  team.operations_->release(&pending);
  --team.pending_;
  return true;
}

bool NodeTeam::event_is_ready(const hydrant_event& event) noexcept {
  NodeTeam& team = lines_of(event);
  const TeamGuard guard(team);
  LineOperations::Pending& pending = pending_in_lines(event);
  if (CollectiveOperation* other = other_of(pending); other != nullptr)
    return is_operation_ready(*other);
  return team.operations_->is_ready(pending);
}

WaitTarget NodeTeam::event_wait_target(const hydrant_event& event) noexcept {
  NodeTeam& team = lines_of(event);
  const TeamGuard guard(team);
  const LineOperations::Pending& pending = pending_in_lines(event);
  return pending.is_done() ? WaitTarget::kUnknown : team.operations_->wait_target(pending);
}

void NodeTeam::log_pending_event(const hydrant_event& event) {
  NodeTeam& team = lines_of(event);
  const TeamGuard guard(team);
  const LineOperations::Pending& pending = pending_in_lines(event);
  if (const CollectiveOperation* other = other_of(pending); other != nullptr)
    return log_pending_operation(*other);
  const Rank missing = team.operations_->missing_member(pending);
  log_warning(
      "rank %u still waits in %s: rank %u has not called it, or has not completed earlier ones",
      job().rank(), collective_name(pending.call.signature), team.members_.jobrank(missing));
}

}  // namespace hydrant
