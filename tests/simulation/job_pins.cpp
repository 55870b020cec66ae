// Makes the real ends of remote pins, carries their messages, and checks what they grant.
#include "tests/simulation/job_pins.hpp"

#include "extended/binding/registrar_adapter.hpp"

#include <algorithm>
#include <memory>
#include <string>

namespace hydrant::simulation {

namespace {

// A rank tries again so often, and gives its action up then. Programs would use messages.
constexpr uint32_t kMostDeclined = 4;
constexpr uint64_t kPauseNs = VirtualTime::kMillisecond;

}  // namespace

// ---- start and end ----

void JobPins::open() {
  const JobPlan& plan = world_.plan;
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    if (!plan.kept[i] || !plan.actions[i].is_pinned) continue;
    for (Rank rank = 0; rank < plan.ranks; ++rank) {
      if (!open(rank)) world_.recorder.fail(std::string("no remote pins: ") + hydrant_error_text());
    }
    return;
  }
}

bool JobPins::open(Rank rank) {
  const JobPlan& plan = world_.plan;
  End& end = ends_[rank];
  end.owner = this;
  end.rank = rank;
  end.has_lost.resize(plan.ranks);
  // The rank's memory owns the registrar.
  hydrant_registrar_t registrar =
      registrar_functions(std::unique_ptr<Registrar>(world_.ranks[rank].memory->registrar.get()));
  registrar.destroy = nullptr;
  hydrant_domain_options_t domain;
  hydrant_domain_options_init(&domain);
  domain.registrar = &registrar;
  domain.watch = HYDRANT_WATCH_CLIENT;
  domain.budget_bytes = plan.pins.budget_bytes;
  domain.max_regions = 256;
  hydrant_messenger_t messenger = {};
  messenger.size = sizeof messenger;
  messenger.user = &end;
  messenger.max_message_bytes = HYDRANT_REMOTE_MIN_MESSAGE_BYTES;
  messenger.send = send;
  hydrant_remote_options_t options;
  hydrant_remote_options_init(&options);
  options.rank = rank;
  options.ranks = plan.ranks;
  options.messenger = &messenger;
  options.flags = plan.pins.flags;
  options.budget_bytes = plan.pins.budget_bytes;
  options.base_percent = plan.pins.base_percent;
  options.merge_bytes = plan.pins.merge_bytes;
  options.max_peer_regions = 16;
  options.stream_bytes = 1;
  if (hydrant_domain_create(&domain, &end.domain) != GASNET_OK) return false;
  options.domain = end.domain;
  return hydrant_remote_create(&options, &end.remote) == GASNET_OK;
}

hydrant_remote_stats_t JobPins::stats_of(const End& end) const {
  hydrant_remote_stats_t stats = {};
  stats.size = sizeof stats;
  (void)hydrant_remote_get_stats(end.remote, &stats);
  return stats;
}

void JobPins::close(Rank rank) {
  const auto found = ends_.find(rank);
  if (found == ends_.end()) return;
  const hydrant_remote_stats_t stats = stats_of(found->second);
  Recorder& recorder = world_.recorder;
  recorder.count("recalls", stats.recalls);
  recorder.count("reclaims", stats.reclaims);
  recorder.count("evicted pins", stats.evictions);
  (void)hydrant_remote_destroy(found->second.remote);
  (void)hydrant_domain_destroy(found->second.domain, HYDRANT_FINI_UNPIN);
  ends_.erase(found);
  std::erase_if(waits_,
                [&](const auto& one) { return world_.plan.actions[one.first].rank == rank; });
}

// ---- messages ----

int JobPins::send(void* user, uint32_t peer, uint32_t lane, void* /*reply_to*/, const void* message,
                  size_t bytes) {
  const End& end = *static_cast<End*>(user);
  JobPins& all = *end.owner;
  const auto* const data = static_cast<const std::byte*>(message);
  const Lane by = lane == HYDRANT_LANE_REPLY ? Lane::kReply : Lane::kRequest;
  const bool is_sent =
      all.send_(end.rank, peer, by,
                [&all, from = end.rank, peer, by, sent = std::vector(data, data + bytes)] {
                  all.deliver(from, peer, by, sent);
                });
  if (is_sent) return GASNET_OK;
  return all.world_.pairs.is_lost(end.rank, peer) ? HYDRANT_ERR_BROKEN : GASNET_ERR_NOT_READY;
}

void JobPins::deliver(Rank from, Rank to, Lane lane, const std::vector<std::byte>& message) {
  End& end = ends_.at(to);
  void* const reply_to = lane == Lane::kRequest ? &end : nullptr;  // any pointer will do
  if (hydrant_remote_deliver(end.remote, from, message.data(), message.size(), reply_to) !=
      GASNET_OK)
    world_.recorder.fail(std::string("a message of remote pins is wrong: ") + hydrant_error_text());
}

void JobPins::advance(Rank rank) {
  const auto found = ends_.find(rank);
  if (found == ends_.end()) return;
  End& end = found->second;
  for (Rank peer = 0; peer < world_.plan.ranks; ++peer) {
    if (world_.pairs.is_lost(rank, peer)) lose_peer(end, peer);
  }
  (void)hydrant_remote_poll(end.remote);
  if (end.is_recalling) check_quiet(end);
}

void JobPins::lose_peer(End& end, Rank peer) {
  if (!end.has_lost[peer]) (void)hydrant_remote_peer_gone(end.remote, peer);
  end.has_lost[peer] = true;
}

// ---- pins ----

Status JobPins::take(size_t index, MemoryRange range, hydrant_pin_t* pin) {
  Wait& wait = waits_[index];
  wait.owner = this;
  wait.index = index;
  if (wait.state == Wait::State::kNew && VirtualTime::elapsed_ns() >= wait.at_ns) ask(wait, range);
  *pin = wait.pin;
  switch (wait.state) {
    case Wait::State::kHeld: return Status::kOk;
    case Wait::State::kRefused: waits_.erase(index); return Status::kRefused;
    default: return Status::kNotReady;
  }
}

void JobPins::ask(Wait& wait, MemoryRange range) {
  const Action& action = world_.plan.actions[wait.index];
  hydrant_remote_call_t call = {};
  call.done = hear;
  call.context = &wait;
  wait.state = Wait::State::kAsked;
  wait.at_ns = VirtualTime::elapsed_ns();
  hydrant_pin_t pin = {};
  const int status = hydrant_remote_pin(
      ends_.at(action.rank).remote, action.peer, range.addr, range.len,
      action.kind == Kind::kGet ? HYDRANT_REMOTE_READ : HYDRANT_REMOTE_WRITE, &call, &pin);
  if (status == GASNET_OK && pin.region == nullptr) return;  // `hear` has the answer
  if (status == GASNET_OK) world_.recorder.count("remote hits");
  note_answer(wait, status, pin);
}

void JobPins::hear(void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t* outcome) {
  Wait& wait = *static_cast<Wait*>(context);
  wait.owner->note_answer(wait, outcome->status, pin);
}

void JobPins::note_answer(Wait& wait, int status, hydrant_pin_t pin) {
  const Action& action = world_.plan.actions[wait.index];
  Recorder& recorder = world_.recorder;
  recorder.note("pin answered", wait.index, static_cast<uint64_t>(status));
  wait.state = Wait::State::kRefused;
  if (status == GASNET_OK) {
    recorder.count("remote pins");
    wait.state = Wait::State::kHeld;
    wait.pin = pin;
  } else if (status == GASNET_ERR_NOT_READY) {
    recorder.count("declined pins");
    wait.at_ns = VirtualTime::elapsed_ns() + kPauseNs;
    if (++wait.declined < kMostDeclined) wait.state = Wait::State::kNew;
  } else if (status != GASNET_ERR_NOT_INIT && !world_.pairs.is_lost(action.rank, action.peer) &&
             !world_.pairs.is_lost(action.peer, action.rank)) {
    recorder.fail(std::string("a remote pin has failed: ") + hydrant_error_text());
  }
}

void JobPins::release(size_t index) {
  const auto found = waits_.find(index);
  if (found == waits_.end()) return;
  (void)hydrant_remote_release(found->second.pin);
  waits_.erase(found);
}

void JobPins::forget(Rank rank, MemoryRange range) {
  End& end = ends_.at(rank);
  for (auto& [index, wait] : waits_) {
    if (wait.state != Wait::State::kHeld || world_.plan.actions[index].peer != rank) continue;
    wait.is_recalled |= range.overlaps({wait.pin.region->addr, wait.pin.region->len});
  }
  end.is_recalling = true;
  if (hydrant_invalidate(end.domain, reinterpret_cast<const void*>(range.addr), range.len) !=
      GASNET_OK)
    world_.recorder.fail(std::string("memory is not forgotten: ") + hydrant_error_text());
}

void JobPins::check_quiet(End& end) {
  if (hydrant_remote_quiet(end.remote) != GASNET_OK) return;
  end.is_recalling = false;
  for (const auto& [index, wait] : waits_) {
    const Action& action = world_.plan.actions[index];
    if (wait.is_recalled && action.peer == end.rank && !end.has_lost[action.rank])
      world_.recorder.fail("memory is quiet, and a peer holds a pin of it");
  }
}

// ---- the end ----

void JobPins::give_back() {
  world_.recorder.note("give back");
  gives_back_ = true;
  for (const auto& [rank, end] : ends_) {
    for (Rank peer = 0; peer < world_.plan.ranks; ++peer) {
      if (peer != rank && hydrant_remote_evict(end.remote, peer, 0, SIZE_MAX) != GASNET_OK)
        world_.recorder.fail(std::string("pins are not given back: ") + hydrant_error_text());
    }
  }
}

bool JobPins::is_waiting(Rank rank) const {
  const auto found = ends_.find(rank);
  if (found == ends_.end()) return false;
  const End& end = found->second;
  return end.is_recalling || (gives_back_ && stats_of(end).exports != 0);
}

}  // namespace hydrant::simulation
