// Makes the real barriers and mailboxes of each rank, and checks what they do.
#include "tests/simulation/job_collectives.hpp"

#include "extended/barrier/barrier_rdma.hpp"

#include <algorithm>
#include <cstring>
#include <span>

namespace hydrant::simulation {

namespace {

// How long it takes until all ranks know that the job ends.
constexpr uint64_t kNoticeNs = 20 * VirtualTime::kMillisecond;

void add(const void* left, const void* right, void* out, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i)
    static_cast<uint64_t*>(out)[i] =
        static_cast<const uint64_t*>(left)[i] + static_cast<const uint64_t*>(right)[i];
}

uint64_t contribution(Rank rank, uint32_t number, uint32_t word) {
  return Random(uint64_t{rank} << 40 ^ uint64_t{number} << 8 ^ word).next();
}

}  // namespace

// ---- start ----

bool JobCollectives::has(Kind kind) const {
  const JobPlan& plan = world_.plan;
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    if (plan.kept[i] && plan.actions[i].kind == kind) return true;
  }
  return false;
}

bool JobCollectives::check(Rank rank, const char* what, Status status) {
  if (status != Status::kOk)
    world_.recorder.fail("rank " + std::to_string(rank) + " has no " + what + ": " +
                         last_error_text());
  return status == Status::kOk;
}

void JobCollectives::open(Transport::PeerFailedFn peer_failed) {
  const bool has_barriers = has(Kind::kBarrier);
  const bool has_reductions = has(Kind::kReduce);
  if (!has_barriers && !has_reductions) return;
  bool has_words = true;
  for (Rank rank = 0; rank < world_.plan.ranks; ++rank) {
    testing::IbvRank& ibv = *world_.ranks[rank].ibv;
    has_words &= BarrierRdmaMemory::obstacle(ibv.bootstrap, ibv.transport.get()).empty();
    Member& member = members_.try_emplace(rank, *this, rank, peer_failed).first->second;
    if (has_reductions) member.lines.start(ibv.bootstrap.topology(), *ibv.transport);
  }
  for (auto& [rank, member] : members_) {
    if (has_barriers && !open_barrier(member, has_words, peer_failed)) return;
    if (has_reductions) open_reductions(member);
  }
  for (auto& [rank, member] : members_) {
    if (member.words != nullptr && !check(rank, "way to others' words", member.words->connect()))
      return;
  }
}

bool JobCollectives::open_barrier(Member& member, bool has_words,
                                  Transport::PeerFailedFn peer_failed) {
  testing::IbvRank& ibv = *world_.ranks[member.rank].ibv;
  if (!has_words) {
    auto made = std::make_unique<DisseminationBarrier>(member.rank, world_.plan.ranks, member);
    member.by_messages = made.get();
    member.barrier = std::move(made);
    return true;
  }
  member.words = std::make_unique<BarrierRdmaMemory>(ibv.bootstrap, *ibv.transport, peer_failed);
  if (!check(member.rank, "words of barriers", member.words->make())) return false;
  member.barrier = std::make_unique<RdmaBarrier>(member.words->config(0));
  return true;
}

void JobCollectives::open_reductions(Member& member) {
  const Rank size = world_.plan.ranks;
  uint64_t edges = 0;
  for (uint32_t edge = 0; edge < TeamMailboxes::edges_of(size); ++edge) {
    const Rank peer = member.peer_at(edge);
    if (peer == kNoRank) continue;
    const MailboxAddress& theirs = members_.at(peer).lines.mine();
    if (!check(member.rank, "mailboxes", member.lines.find_peer(peer, theirs, &member.peers[edge])))
      return;
    edges |= uint64_t{member.peers[edge] != nullptr} << edge;
  }
  member.has_lines = edges != 0;
  member.operations =
      std::make_unique<MailboxOperations>(TeamMailboxes::Config{.rank = member.rank,
                                                                .size = size,
                                                                .lines = member.lines.block(0),
                                                                .edges = edges,
                                                                .node_bits = 0,
                                                                .writer = &member},
                                          &member);
}

// ---- what the real parts ask for ----

Rank JobCollectives::Member::peer_at(uint32_t edge) const {
  return TeamMailboxes::peer_at(rank, owner.world_.plan.ranks, edge);
}

bool JobCollectives::Member::send(Rank peer, const BarrierMessage& message) noexcept {
  return owner.send_(rank, peer, [&all = owner, from = rank, peer, message] {
    const auto there = all.members_.find(peer);
    if (there != all.members_.end() && !there->second.by_messages->receive(from, message))
      all.world_.recorder.fail("a barrier has got a message that is not expected");
  });
}

Status JobCollectives::Member::post(uint32_t edge, uint32_t line, const uint64_t* line_words,
                                    uint32_t count) noexcept {
  const Status status =
      lines.write(*peers[edge], 0, TeamMailboxes::offset_of(edge, line), line_words, count);
  if (status == Status::kOk)
    failures.note_success();
  else
    failures.note(peers[edge]->rank, status, now_ns());
  return status;
}

bool JobCollectives::Member::send(uint32_t edge, uint32_t operation, uint32_t /*signature*/,
                                  const std::byte* data, size_t bytes) noexcept {
  const Rank peer = peer_at(edge);
  return owner.send_(rank, peer,
                     [&all = owner, peer, edge, operation, sent = std::vector(data, data + bytes)] {
                       const auto there = all.members_.find(peer);
                       if (there != all.members_.end() &&
                           !there->second.arrived.try_emplace({edge, operation}, sent).second)
                         all.world_.recorder.fail("a reduction has got a message twice");
                     });
}

bool JobCollectives::Member::receive(uint32_t edge, uint32_t operation, uint32_t signature,
                                     std::byte* data, size_t bytes) noexcept {
  const auto found = arrived.find({edge, operation});
  if (found == arrived.end()) return false;
  if (found->second.size() != bytes) refuse(edge, signature, 0);
  std::copy_n(found->second.begin(), std::min(bytes, found->second.size()), data);
  arrived.erase(found);
  return true;
}

bool JobCollectives::Member::has(uint32_t edge, uint32_t operation, uint32_t) noexcept {
  return arrived.contains({edge, operation});
}

void JobCollectives::Member::refuse(uint32_t edge, uint32_t, uint32_t) noexcept {
  owner.world_.recorder.fail("rank " + std::to_string(rank) +
                             " has found another reduction's data from rank " +
                             std::to_string(peer_at(edge)));
}

// ---- what a rank does ----

Status JobCollectives::start(Rank rank, const Action& action) {
  if (has_job_ended()) return Status::kOk;
  Member& member = members_.at(rank);
  return action.kind == Kind::kBarrier ? enter(member, action) : reduce(member, action);
}

Status JobCollectives::enter(Member& member, const Action& action) {
  if (member.entered != member.left) return Status::kNotReady;
  // Half of the barriers wait for the rank's own operations.
  if (action.choice % 2 == 0 && world_.ranks[member.rank].waits != 0) return Status::kNotReady;
  const uint32_t number = member.entered++;
  if (barriers_.size() <= number) barriers_.resize(number + 1);
  Barrier& barrier = barriers_[number];
  ++barrier.entered;
  BarrierName name;
  if ((action.choice >> member.rank % 16 & 2) != 0) name = {NameState::kNamed, number};
  barrier.name = join(barrier.name, name);
  world_.memory.enter_barrier(number, member.rank);
  member.barrier->start(name, false);
  return Status::kOk;
}

Status JobCollectives::reduce(Member& member, const Action& action) {
  Reduction& made = member.reductions.emplace_back();
  made.number = member.reduced++;
  made.words = action.bytes;
  Values mine = {};
  for (uint32_t word = 0; word < made.words; ++word)
    mine[word] = contribution(member.rank, made.number, word);
  const bool has_memory =
      member.operations->start({.source = reinterpret_cast<const std::byte*>(mine.data()),
                                .dest = reinterpret_cast<std::byte*>(made.result.data()),
                                .bytes = made.words * sizeof(uint64_t),
                                .reduction = {.function = add, .unit = sizeof(uint64_t)},
                                .signature = made.words,
                                .operation = made.number},
                               &made.pending);
  if (!has_memory) world_.recorder.fail("no memory for a reduction");
  if (made.pending != nullptr) return Status::kOk;
  finish(member, made);
  member.reductions.pop_back();
  return Status::kOk;
}

void JobCollectives::advance(Rank rank) {
  const auto found = members_.find(rank);
  if (found == members_.end()) return;
  Member& member = found->second;
  if (has_job_ended() && !member.is_over) {
    if (is_waiting(rank)) world_.recorder.count("ended waits");
    member.is_over = true;
  }
  if (member.is_over) return;
  BarrierName all;
  if (member.entered != member.left && member.barrier->finish(&all)) leave(member, all);
  if (member.operations == nullptr || !member.operations->has_pending()) return;
  (void)member.operations->advance();
  std::erase_if(member.reductions, [&](Reduction& each) {
    if (!each.pending->is_done) return false;
    finish(member, each);
    member.operations->release(each.pending);
    return true;
  });
}

void JobCollectives::leave(Member& member, BarrierName all) {
  const uint32_t number = member.left++;
  const Barrier& barrier = barriers_[number];
  world_.recorder.note("left barrier", number, member.rank);
  world_.recorder.count(member.words != nullptr ? "barriers by words" : "barriers by messages");
  if (barrier.entered != world_.plan.ranks)
    world_.recorder.fail("a rank has left a barrier that others have not entered");
  if (all != barrier.name) world_.recorder.fail("a barrier has another name");
  world_.memory.leave_barrier(number, member.rank);
  for (Rank origin = 0; origin < world_.plan.ranks; ++origin) {
    if (!world_.memory.allows_all(origin, member.rank,
                                  world_.ranks[member.rank].memory->data.get()))
      world_.recorder.fail("a barrier is over before the data of an earlier put is there");
  }
}

void JobCollectives::finish(Member& member, const Reduction& reduction) {
  world_.recorder.note("reduced", reduction.number, member.rank);
  world_.recorder.count(member.has_lines ? "reductions by lines" : "reductions by messages");
  for (uint32_t word = 0; word < reduction.words; ++word) {
    uint64_t sum = 0;
    for (Rank rank = 0; rank < world_.plan.ranks; ++rank)
      sum += contribution(rank, reduction.number, word);
    if (sum != reduction.result[word]) world_.recorder.fail("a reduction has another result");
  }
}

// ---- the end ----

bool JobCollectives::is_waiting(Rank rank) const {
  const auto found = members_.find(rank);
  return found != members_.end() && !found->second.is_over &&
         (found->second.entered != found->second.left || !found->second.reductions.empty());
}

void JobCollectives::end_job() {
  if (ends_at_ns_ == 0) ends_at_ns_ = VirtualTime::elapsed_ns() + kNoticeNs;
}

void JobCollectives::check_lines() {
  const size_t lines = TeamMailboxes::bytes_of(world_.plan.ranks) / sizeof(MailboxLine);
  for (const auto& [rank, member] : members_) {
    if (member.is_over || !member.has_lines) continue;
    for (const MailboxLine& line : std::span(member.lines.block(0), lines)) {
      for (const std::atomic<uint64_t>& word : line.words) {
        if (word != 0) world_.recorder.fail("a line of a mailbox was written after it was read");
      }
    }
  }
}

bool JobCollectives::has_job_ended() const {
  return ends_at_ns_ != 0 && VirtualTime::elapsed_ns() >= ends_at_ns_;
}

}  // namespace hydrant::simulation
