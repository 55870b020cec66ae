// Gives MailboxOperations its memory, events and progress. collective_calls.cpp starts small reductions here;
// team_calls.cpp makes the mailboxes of teams with the teams.
#include "extended/team/mailbox_team.hpp"

#include "am/job/job.hpp"
#include "extended/collective/mailbox/mailbox_choice.hpp"
#include "extended/collective/operation/algorithms.hpp"
#include "extended/collective/operation/collective_messages.hpp"
#include "extended/collective/operation/operations.hpp"
#include "extended/collective/steps/nested_calls.hpp"
#include "extended/event/event.hpp"
#include "extended/team/team.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <span>
#include <utility>

namespace hydrant {

namespace {

constexpr uint64_t kWaitNs = 60'000'000'000;
constexpr const char* kKey = "mailboxes";

struct MailboxTeams {
  ActiveTeams<MailboxTeam> active;
  std::atomic<uint64_t> operations{0};
};
MailboxTeams& mailbox_teams() noexcept {
  // Lives as long as the process, because threads may be using it at process exit.
  alignas(MailboxTeams) static std::byte place[sizeof(MailboxTeams)];
  static MailboxTeams* const all = new (place) MailboxTeams;
  return *all;
}

MailboxTeam& mailboxes_of(const hydrant_event& event) noexcept {
  return *static_cast<MailboxTeam*>(event.object);
}
MailboxOperations::Pending& pending_in_mailboxes(const hydrant_event& event) noexcept {
  return *reinterpret_cast<MailboxOperations::Pending*>(event.number);
}

[[noreturn]] void refuse_without_memory(uint32_t signature) noexcept {
  fatal("%s: no memory for a reduction or barrier: free memory, or raise ulimit -v",
        collective_name(signature));
}

uint64_t edges_with(const MailboxPeer* const* peers, Rank size) noexcept {
  uint64_t edges = 0;
  for (uint32_t edge = 0; edge < TeamMailboxes::edges_of(size); ++edge)
    edges |= uint64_t{peers[edge] != nullptr} << edge;
  return edges;
}

// A member sends its address along each edge that may have mailboxes, and then receives those of its peers.
Schedule make_exchange_of_addresses(const TeamMembers& members) noexcept {
  Schedule schedule;
  for (const bool sends : {true, false}) {
    for (uint32_t edge = 0; edge < TeamMailboxes::edges_of(members.size); ++edge) {
      const Rank peer = TeamMailboxes::peer_at(members.rank, members.size, edge);
      if (peer == kNoRank || !can_write_mailboxes_of(members.jobrank(peer))) continue;
      constexpr size_t kBytes = sizeof(MailboxAddress);
      if (sends)
        schedule.send(peer, edge, {Area::kSource, 0}, kBytes);
      else
        schedule.receive(peer, edge, {Area::kDest, edge * kBytes}, kBytes);
    }
  }
  return schedule;
}

}  // namespace

Status start_mailboxes() noexcept {
  if (!wants_mailboxes()) return Status::kOk;
  mailbox_memory().start(job().topology(), *job().transport);
  return job().bootstrap->put(kKey, std::as_bytes(std::span(&mailbox_memory().mine(), 1)));
}

Status connect_mailboxes() noexcept {
  if (!wants_mailboxes()) return Status::kOk;
  const TeamMembers all = members_of_world();
  const MailboxPeer* peers[TeamMailboxes::kMaxEdges] = {};
  for (uint32_t edge = 0; edge < TeamMailboxes::edges_of(all.size); ++edge) {
    const Rank peer = TeamMailboxes::peer_at(all.rank, all.size, edge);
    if (peer == kNoRank || !can_write_mailboxes_of(peer)) continue;
    MailboxAddress address;
    size_t bytes = 0;
    Status status = job().bootstrap->get(peer, kKey, std::as_writable_bytes(std::span(&address, 1)),
                                         &bytes, now_ns() + kWaitNs);
    if (status == Status::kOk &&
        (bytes != sizeof address || address.blob_bytes > sizeof address.blob))
      status = fail(Status::kBroken, "the entry has an unexpected size of %zu bytes", bytes);
    if (status == Status::kOk) status = mailbox_memory().find_peer(peer, address, &peers[edge]);
    if (status != Status::kOk)
      return add_context(status, "mailboxes of rank %u for collectives; %s", peer,
                         MailboxMemory::kInstead);
  }
  MailboxTeam::world_ = new (std::nothrow) MailboxTeam(all, 0, peers);
  return MailboxTeam::world_ != nullptr ? Status::kOk
                                        : fail(Status::kResource, "no memory for mailboxes");
}

uint64_t MailboxTeam::operations_of_all() noexcept {
  return mailbox_teams().operations.load(std::memory_order_relaxed);
}
uint32_t MailboxTeam::offer() noexcept { return mailbox_memory().offer(); }
void MailboxTeam::withdraw(uint32_t blocks) noexcept { mailbox_memory().withdraw(blocks); }

MailboxTeam::MailboxTeam(const TeamMembers& members, uint32_t block,
                         const MailboxPeer* const* peers) noexcept
    : members_(members),
      block_(block),
      threaded_(!job().single_threaded),
      operations_({.rank = members.rank,
                   .size = members.size,
                   .lines = mailbox_memory().block(block),
                   .edges = edges_with(peers, members.size),
                   .node_bits = mailbox_node_bits(members.member()),
                   .writer = this},
                  this) {
  std::copy_n(peers, TeamMailboxes::edges_of(members.size), peers_);
}

std::unique_ptr<MailboxTeam> MailboxTeam::make(const TeamMembers& members, uint32_t operation,
                                               uint32_t mine, uint32_t all) noexcept {
  const auto block = static_cast<uint32_t>(std::countr_zero(all));
  withdraw(mine & ~(uint32_t{1} << block));
  const uint32_t edges = TeamMailboxes::edges_of(members.size);
  std::unique_ptr<MailboxAddress[]> theirs(new (std::nothrow) MailboxAddress[edges]);
  if (theirs == nullptr) fatal("no memory for the collectives of a team of %u ranks", members.size);
  run_operation(members, operation,
                {.signature = signature_of(CollectiveKind::kCreate, 1),
                 .source = &mailbox_memory().mine(),
                 .dest = theirs.get()},
                make_exchange_of_addresses(members));
  const MailboxPeer* peers[TeamMailboxes::kMaxEdges] = {};
  for (uint32_t edge = 0; edge < edges; ++edge) {
    const Rank peer = TeamMailboxes::peer_at(members.rank, members.size, edge);
    if (peer == kNoRank) continue;
    const Rank jobrank = members.jobrank(peer);
    if (mailbox_memory().find_peer(jobrank, theirs[edge], &peers[edge]) != Status::kOk)
      fatal("mailboxes of rank %u for a team's collectives: %s; %s", jobrank, last_error_text(),
            MailboxMemory::kInstead);
  }
  std::unique_ptr<MailboxTeam> made(new (std::nothrow) MailboxTeam(members, block, peers));
  if (made == nullptr) fatal("no memory for the collectives of a team of %u ranks", members.size);
  return made;
}

MailboxTeam::~MailboxTeam() {
  mailbox_teams().active.remove(*this);
  withdraw(uint32_t{1} << block_);
}

// ---- along an edge ----

Status MailboxTeam::post(uint32_t edge, uint32_t line, const uint64_t* words,
                         uint32_t count) noexcept {
  const MailboxPeer& peer = *peers_[edge];
  const Status status =
      mailbox_memory().write(peer, block_, TeamMailboxes::offset_of(edge, line), words, count);
  if (status == Status::kOk) [[likely]]
    failures_.note_success();
  else
    failures_.note(peer.rank, status, now_ns());
  return status;
}

bool MailboxTeam::send(uint32_t edge, uint32_t operation, uint32_t signature, const std::byte* data,
                       size_t bytes) noexcept {
  return send_data(key_of(edge, operation), signature, jobrank_at(edge), 0, data, bytes);
}

bool MailboxTeam::receive(uint32_t edge, uint32_t operation, uint32_t signature, std::byte* data,
                          size_t bytes) noexcept {
  const std::unique_ptr<Arrival> arrival =
      inboxes().take(key_of(edge, operation), jobrank_at(edge), false);
  if (arrival == nullptr) return false;
  if (arrival->signature != signature || arrival->bytes != bytes) [[unlikely]]
    refuse(edge, signature, arrival->signature);
  if (bytes != 0) std::memcpy(data, arrival->payload.get(), bytes);
  return true;
}

bool MailboxTeam::has(uint32_t edge, uint32_t operation, uint32_t signature) noexcept {
  uint32_t theirs = 0;
  if (!inboxes().find_signature(members_.id, operation, jobrank_at(edge), &theirs)) return false;
  if (theirs != signature) refuse(edge, signature, theirs);
  return true;
}

void MailboxTeam::refuse(uint32_t edge, uint32_t mine, uint32_t theirs) noexcept {
  refuse_disagreement(mine, theirs, jobrank_at(edge));
}

// ---- operations ----

MailboxOperations::Pending* MailboxTeam::begin(const MailboxOperations::Call& call) noexcept {
  mailbox_teams().operations.fetch_add(1, std::memory_order_relaxed);
  MailboxOperations::Pending* pending = nullptr;
  const TeamGuard guard(*this);
  if (!operations_.start(call, &pending)) refuse_without_memory(call.signature);
  if (pending != nullptr) ++outstanding_;
  return pending;
}

bool MailboxTeam::has_outstanding() noexcept {
  const TeamGuard guard(*this);
  return outstanding_ != 0;
}

gex_Event_t MailboxTeam::start(const MailboxOperations::Call& call) noexcept {
  MailboxOperations::Pending* const pending = begin(call);
  if (pending == nullptr) return GEX_EVENT_INVALID;
  hydrant_event* event = take_event();
  if (event == nullptr) refuse_without_memory(call.signature);
  event->object = this;
  event->number = reinterpret_cast<uintptr_t>(pending);
  event->wait_target = event_wait_target;
  event->log_pending = log_pending_event;
  event->is_ready = event_is_ready;
  event->is_done = event_is_done;
  // Adapters write the mailboxes.
  if (!is_active_.load(std::memory_order_relaxed)) mailbox_teams().active.add(*this, true);
  return event;
}

bool MailboxTeam::event_is_done(hydrant_event& event) noexcept {
  check_outside_user_function();
  MailboxTeam& team = mailboxes_of(event);
  MailboxOperations::Pending& pending = pending_in_mailboxes(event);
  const TeamGuard guard(team);
  if (!pending.is_done) (void)team.operations_.advance();
  if (!pending.is_done) return false;
  team.operations_.release(&pending);
  --team.outstanding_;
  return true;
}

// A message wakes this rank, an adapter's write does not.
WaitTarget MailboxTeam::event_wait_target(const hydrant_event& event) noexcept {
  MailboxTeam& team = mailboxes_of(event);
  const TeamGuard guard(team);
  return team.operations_.awaits_message(pending_in_mailboxes(event)) ? WaitTarget::kUnknown
                                                                      : WaitTarget::kAdapter;
}

bool MailboxTeam::event_is_ready(const hydrant_event& event) noexcept {
  MailboxTeam& team = mailboxes_of(event);
  const TeamGuard guard(team);
  return team.operations_.is_ready(pending_in_mailboxes(event));
}

void MailboxTeam::log_pending_event(const hydrant_event& event) {
  MailboxTeam& team = mailboxes_of(event);
  const TeamGuard guard(team);
  const MailboxOperations::Pending& pending = pending_in_mailboxes(event);
  const char* call = collective_name(pending.call.signature);
  if (team.operations_.is_ready(pending)) return;
  const uint32_t edge = team.operations_.awaited_edge(pending);
  if (edge == TeamMailboxes::kNoEdge)
    log_warning("rank %u still waits in %s until earlier ones of the team are complete",
                job().rank(), call);
  else
    log_warning("rank %u still waits in %s for rank %u: it has not called it, or does not poll",
                job().rank(), call, team.jobrank_at(edge));
}

}  // namespace hydrant
