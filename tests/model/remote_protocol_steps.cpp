// The steps of an execution: calls of the ends, deliveries, and the messages that follow.
#include "firehose/base/thread.hpp"
#include "firehose/remote/channel/remote_wire.hpp"
#include "firehose/watch/rule_clock.hpp"
#include "tests/model/remote_protocol_explorer.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace hydrant::model {

using testing::kPage;
using testing::RemoteMessage;

namespace {

// Interval of polls that check for ended holds, as in firehose/remote/initiator/peer_polls.cpp.
constexpr uint64_t kDrainNs = 21'000;

uint32_t name_of(uint32_t from, uint32_t n) { return from << 16 | n; }

uint64_t count_of(const RemoteMessage& message) {
  remote_wire::Header header{};
  std::memcpy(&header, message.bytes.data(), sizeof header);
  return header.count;
}

// Whether a release's last id says that a reclaim is complete.
bool ends_reclaim(const RemoteMessage& message) {
  uint64_t last = 0;
  if (message.type() != static_cast<uint8_t>(remote_wire::Type::kRelease)) return false;
  std::memcpy(&last, message.bytes.data() + message.bytes.size() - sizeof last, sizeof last);
  return last == remote_wire::kReclaimed;
}

}  // namespace

void RemoteExplorer::look_at_new_messages() {
  while (names_.size() < world_->pending()) {
    const RemoteMessage& message = world_->message(names_.size());
    names_.push_back(name_of(message.from, sent_[message.from * scenario_.ranks + message.to]++));
    if (message.type() != static_cast<uint8_t>(remote_wire::Type::kReply)) continue;
    remote_wire::Reply reply{};
    std::memcpy(&reply, message.bytes.data() + sizeof(remote_wire::Header), sizeof reply);
    if (reply.status == GASNET_OK) ++live_ids_[message.from];
  }
}

void RemoteExplorer::ask(uint32_t request) {
  const auto& of = scenario_.requests[request];
  Running& running = running_[request];
  running.asked = true;
  hydrant_remote_call_t call{};
  call.done = [](void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t* outcome) {
    auto& to = *static_cast<Running*>(context);
    ++to.answers;
    to.result.pin = pin;
    to.result.status = outcome->status;
    to.result.done = true;
    to.waits = outcome->status == GASNET_ERR_NOT_READY;
  };
  call.context = &running;
  call.flags = of.flags;
  hydrant_pin_t pin{};
  running.result.code =
      hydrant_remote_pin((*world_)[of.from].end, of.to, (*world_)[of.to].arena.addr(of.page),
                         of.pages * kPage, HYDRANT_REMOTE_WRITE, &call, &pin);
  if (running.result.code != GASNET_OK) {
    ++running.answers;
    running.result.done = true;
    if (running.result.code != GASNET_ERR_NOT_READY) wrong("a pin failed permanently");
    running.waits = true;
    ++findings_.not_now;
  } else if (pin.region != nullptr) {
    ++running.answers;
    ++findings_.hits;
    running.result.pin = pin;
    running.result.done = true;
  }
}

void RemoteExplorer::release(uint32_t request) {
  running_[request].released = true;
  if (hydrant_remote_release(running_[request].result.pin) != GASNET_OK) wrong("a release failed");
}

void RemoteExplorer::lose(uint32_t loss) {
  const auto& of = scenario_.losses[loss];
  auto& rank = (*world_)[of.rank];
  ++next_loss_[of.rank];
  for (size_t page = of.page; page < of.page + of.pages; ++page)
    oldest_[of.rank][page] = rank.registrar.next_serial();
  hydrant_invalidate(rank.domain, rank.arena.page(of.page), of.pages * kPage);
}

// The last rank pins its own memory, whether there is room or not.
void RemoteExplorer::starve() {
  auto& rank = (*world_)[scenario_.ranks - 1];
  ++shortages_;
  const hydrant_pin_t pin = hydrant_pin(rank.domain, rank.arena.page(kPages - 1), kPage, 0);
  if (pin.region != nullptr) (void)hydrant_release(pin);
}

void RemoteExplorer::free_own() {
  if (hydrant_release(own_) != GASNET_OK) wrong("a release failed");
  own_ = {};
}

// Waits for room, as a client does in each poll.
void RemoteExplorer::await_room(uint32_t end) {
  if (scenario_.own_pages == 0) return;
  for (uint32_t i = 0; i < running_.size(); ++i) {
    const auto& of = scenario_.requests[i];
    if (of.from != end || !running_[i].waits) continue;
    const int code = hydrant_remote_await_room(
        (*world_)[end].end, of.to, (*world_)[of.to].arena.addr(of.page), of.pages * kPage,
        HYDRANT_REMOTE_WRITE, scenario_.answers_at_once ? HYDRANT_REMOTE_REPLY_AT_ONCE : 0);
    if (code != GASNET_OK) wrong("cannot wait for room");
  }
}

// Repeats a waiting request as a new one.
void RemoteExplorer::hear_of_room(uint32_t end, uint32_t peer) {
  for (uint32_t i = 0; i < running_.size(); ++i) {
    const auto& of = scenario_.requests[i];
    if (of.from != end || of.to != peer || !running_[i].waits) continue;
    running_[i] = {};
    ++findings_.told_of_room;
  }
}

bool RemoteExplorer::awaits() const {
  return scenario_.own_pages != 0 &&
         std::any_of(running_.begin(), running_.end(), [](const Running& r) { return r.waits; });
}

// The last check may have been at the end of the previous execution.
void RemoteExplorer::note_recall(uint32_t end) {
  if (recalled_at_[end] == 0) recalled_at_[end] = begun_at_;
}

// So that the effect of a poll depends on the choices alone: moves the clock, or waits if it cannot be moved.
void RemoteExplorer::wait_for_drain(uint32_t end) {
#if HYDRANT_MUTANTS
  set_rule_time(rule_now_ns() + kDrainNs);
  (void)end;
#else
  if (recalled_at_[end] == 0) {
    // The target checks for room at this interval.
    const uint64_t begun = now_ns();
    while (awaits() && now_ns() - begun < kDrainNs) {
    }
    return;
  }
  while (now_ns() - recalled_at_[end] < kDrainNs) {
  }
  recalled_at_[end] = now_ns();
#endif
}

void RemoteExplorer::poll(uint32_t end) {
  wait_for_drain(end);
  hydrant_remote_poll((*world_)[end].end);
  await_room(end);
  dirty_[end] = false;
  // Memory lost before this point must not be used from now on.
  if (hydrant_remote_quiet((*world_)[end].end) == GASNET_OK) floor_[end] = oldest_[end];
}

void RemoteExplorer::deliver(size_t i) {
  const RemoteMessage& message = world_->message(i);
  const auto type = static_cast<remote_wire::Type>(message.type());
  const uint32_t once = names_[i] & ~kCopy;
  if (type == remote_wire::Type::kMove || (type == remote_wire::Type::kRelease && twice_ != once)) {
    const uint64_t ids = count_of(message) - (ends_reclaim(message) ? 1 : 0);
    if (ids > live_ids_[message.to] && scenario_.books) wrong("a firehose was released twice");
    live_ids_[message.to] -= std::min(ids, live_ids_[message.to]);
    if (std::find(names_.begin(), names_.end(), once | kCopy) != names_.end())
      twice_ = once;  // the other copy does not count
  }
  if (type == remote_wire::Type::kReclaim) ++findings_.reclaims;
  if (type == remote_wire::Type::kRecall) {
    ++findings_.recalls;
    note_recall(message.to);
  }
  names_.erase(names_.begin() + static_cast<std::ptrdiff_t>(i));
  world_->deliver(i);
}

// False if the action is not enabled: then the state depends on more than the choices.
bool RemoteExplorer::step(const Action& action) {
  trail_.push_back(action);
  ++findings_.steps;
  dirty_[action.end] = true;
  switch (action.kind) {
    case Kind::kDeliver:
    case Kind::kDuplicate: {
      const auto at = std::find(names_.begin(), names_.end(), action.arg);
      if (at == names_.end()) return false;
      if (action.kind == Kind::kDeliver) {
        deliver(static_cast<size_t>(at - names_.begin()));
        break;
      }
      ++duplicates_;
      world_->inject(world_->message(static_cast<size_t>(at - names_.begin())));
      names_.push_back(action.arg | kCopy);
      break;
    }
    case Kind::kPin: ask(action.arg); break;
    case Kind::kRelease: release(action.arg); break;
    case Kind::kLose: lose(action.arg); break;
    case Kind::kPoll: poll(action.end); break;
    case Kind::kRefuse:
      ++refusals_;
      world_->refuse(action.end, 1);
      break;
    case Kind::kStarve: starve(); break;
    case Kind::kFree: free_own(); break;
    case Kind::kEvict:
      ++evictions_;
      note_recall(0);
      for (uint32_t peer = 1; peer < scenario_.ranks; ++peer)
        hydrant_remote_evict((*world_)[0].end, peer, 0, SIZE_MAX);
      break;
  }
  look_at_new_messages();
  return true;
}

// A peer gets no second reclaim before it has reported that the first is complete.
void RemoteExplorer::check_reclaims() {
  std::vector<uint32_t> wanted(size_t{scenario_.ranks} * scenario_.ranks, 0);
  for (size_t i = 0; i < world_->pending(); ++i) {
    const RemoteMessage& message = world_->message(i);
    const bool asks = message.type() == static_cast<uint8_t>(remote_wire::Type::kReclaim);
    if (!asks && !ends_reclaim(message)) continue;
    const uint32_t target = asks ? message.from : message.to;
    const uint32_t peer = asks ? message.to : message.from;
    if (++wanted[target * scenario_.ranks + peer] > 1)
      wrong("rank " + std::to_string(peer) + " gets a second reclaim for the same room");
  }
}

}  // namespace hydrant::model
