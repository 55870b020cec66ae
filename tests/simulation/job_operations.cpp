// Starts operations and checks their results.
#include "tests/simulation/job_operations.hpp"

#include <algorithm>
#include <cstring>

namespace hydrant::simulation {

namespace {

constexpr uint32_t kChoices = 3;  // next actions of a rank that may come first
constexpr uint32_t kHeadBytes = 8;

std::string text_of(const std::byte* data, size_t bytes) {
  return {reinterpret_cast<const char*>(data), bytes};
}

}  // namespace

JobOperations::JobOperations(JobWorld& world)
    : world_(world),
      layout_(world.memory.layout()),
      sent_(size_t{world.plan.ranks} * world.plan.ranks * kLaneCount),
      is_busy_(size_t{world.plan.ranks} * world.plan.ranks * kSlots * 2),
      sums_(world.plan.ranks),
      collectives_(world,
                   [this](Rank from, Rank to, std::function<void()> then) {
                     return carry(from, to, Lane::kRequest, std::move(then));
                   }),
      pins_(world, [this](Rank from, Rank to, Lane lane, std::function<void()> then) {
        return carry(from, to, lane, std::move(then));
      }) {}

void JobOperations::act(Rank rank) {
  send_replies(rank);
  collectives_.advance(rank);
  pins_.advance(rank);
  std::deque<size_t>& todo = world_.ranks[rank].todo;
  if (todo.empty()) return;
  const auto is_collective = [&](size_t i) { return is_of_all(world_.plan.actions[i].kind); };
  auto at = todo.begin() + world_.random.below(std::min<size_t>(todo.size(), kChoices));
  // All ranks begin those in the same order.
  if (is_collective(*at)) at = std::find_if(todo.begin(), at, is_collective);
  const Action& action = world_.plan.actions[*at];
  if (action.at_ns > VirtualTime::elapsed_ns()) return;
  const Status status = is_collective(*at) ? collectives_.start(rank, action) : start(action, *at);
  // Programs use messages if there is no remote pin.
  const bool is_declined = action.is_pinned && status == Status::kRefused;
  if (!is_declined && !is_over(rank, action.peer, status)) return;
  world_.recorder.note(name_of(action.kind), *at, static_cast<uint64_t>(status));
  todo.erase(at);
}

Status JobOperations::start(const Action& action, size_t index) {
  switch (action.kind) {
    case Kind::kMessage: return send_message(action);
    case Kind::kPut: return start_put(action, index);
    case Kind::kGet: return start_get(action, index);
    case Kind::kAtomic: return start_atomic(action, index);
    case Kind::kForget:
      pins_.forget(action.rank, {world_.ranks[action.rank].memory->address() +
                                     layout_.slot(action.peer, action.slot),
                                 layout_.bytes_of(action.slot)});
      return Status::kOk;
    default:
      world_.ranks[action.rank].computes_until_ns = VirtualTime::elapsed_ns() + action.amount;
      return Status::kOk;
  }
}

bool JobOperations::is_over(Rank rank, Rank peer, Status status) {
  switch (status) {
    case Status::kOk: return true;
    case Status::kNotReady: return false;
    case Status::kResource:
      if (world_.may_lack_resources) return false;  // it is tried again
      break;
    case Status::kBroken: lose_peer(rank, peer, last_error_text()); return true;
    default: break;
  }
  world_.recorder.fail(std::string("rank ") + std::to_string(rank) + " cannot do something with " +
                       std::to_string(peer) + ": " + status_name(status) + ": " +
                       last_error_text());
  return true;
}

void JobOperations::lose_peer(Rank rank, Rank peer, const char* why) {
  if (!world_.pairs.may_fail(rank, peer))
    world_.recorder.fail("rank " + std::to_string(rank) + " has lost rank " + std::to_string(peer) +
                         ", and no fault explains it: " + why);
  if (std::strstr(why, ("rank " + std::to_string(peer)).c_str()) == nullptr)
    world_.recorder.fail(std::string("an error does not name its rank: ") + why);
  collectives_.end_job();
  if (world_.pairs.is_lost(rank, peer)) return;
  world_.pairs.lose(rank, peer);
  std::erase_if(world_.ranks[rank].requests, [&](const auto& one) { return one.second == peer; });
  world_.recorder.note("lost", rank, peer);
  world_.recorder.count("lost peers");
}

// ---- messages ----

Status JobOperations::send_message(const Action& action) {
  Sent message;
  message.bytes = action.bytes;
  message.payload = action.payload;
  message.has_cell = action.has_cell;
  message.has_reply = action.has_reply;
  return send(action.rank, action.peer, action.lane, message);
}

Status JobOperations::send(Rank from, Rank to, Lane lane, Sent message) {
  message.number = ++messages_;
  message.versions = world_.memory.begun(from, to);
  const bool has_reply = message.has_reply;
  const std::string head = text_of(data_for(message.number), message.bytes);
  const auto tag = static_cast<uint32_t>(message.number);
  testing::IbvRank& rank = *world_.ranks[from].ibv;
  Status status = Status::kOk;
  if (message.has_cell) {
    const std::string payload = text_of(data_for(~message.number), message.payload);
    status = rank.try_send_cell(to, lane, tag, head, payload);
  } else if (message.number % 2 == 0) {
    status = rank.transport->messages(to).post(to, lane, tag, head.data(), message.bytes);
  } else {
    status = rank.try_send(to, lane, tag, head);
  }
  if (status != Status::kOk) return status;
  sent(from, to, lane).push_back(std::move(message));
  // A transport that hears of a death accepts messages until its next poll, and drops them.
  if (has_reply && !world_.pairs.is_lost(from, to)) world_.ranks[from].requests[messages_] = to;
  return Status::kOk;
}

bool JobOperations::carry(Rank from, Rank to, Lane lane, std::function<void()> then) {
  Sent message;
  message.bytes = kHeadBytes;
  message.then = std::move(then);
  const Status status = send(from, to, lane, std::move(message));
  (void)is_over(from, to, status);
  return status == Status::kOk;
}

void JobOperations::deliver(Rank to, const Incoming& message) {
  const Rank from = message.from;
  std::deque<Sent>& expected = sent(from, to, message.lane);
  if (expected.empty()) {
    world_.recorder.fail("a message that was not sent, or a second time");
    return;
  }
  const Sent sent = std::move(expected.front());
  expected.pop_front();
  check_message(from, to, sent, message);
  world_.recorder.note("delivered", sent.number, to);
  world_.recorder.count("messages");
  world_.memory.show(from, to, sent.versions);
  if (!world_.memory.allows_all(from, to, world_.ranks[to].memory->data.get()))
    world_.recorder.fail("message " + std::to_string(sent.number) +
                         " has come before the data of an earlier put");
  if (sent.then) sent.then();
  if (sent.answers != 0 && !world_.pairs.is_lost(to, from) &&
      world_.ranks[to].requests.erase(sent.answers) != 1)
    world_.recorder.fail("a reply to no request");
  if (!sent.has_reply) return;
  world_.ranks[to].replies.push_back({from, sent.number});
  send_replies(to);
}

void JobOperations::check_message(Rank from, Rank to, const Sent& sent, const Incoming& message) {
  const bool is_right =
      message.tag == (sent.number & 0xff'ffff) && message.head_room == sent.bytes &&
      std::memcmp(message.head, data_for(sent.number), sent.bytes) == 0 &&
      (message.payload != nullptr) == sent.has_cell &&
      (!sent.has_cell || (message.payload_room == sent.payload &&
                          std::memcmp(message.payload, data_for(~sent.number), sent.payload) == 0));
  if (is_right) return;
  world_.recorder.fail("message " + std::to_string(sent.number) + " from rank " +
                       std::to_string(from) + " to rank " + std::to_string(to) +
                       " has another tag, length or content, or is out of order");
}

void JobOperations::send_replies(Rank rank) {
  std::deque<SimulatedRank::Reply>& replies = world_.ranks[rank].replies;
  while (!replies.empty()) {
    const SimulatedRank::Reply reply = replies.front();
    Sent message;
    message.bytes = kHeadBytes;
    message.answers = reply.request;
    const Status status = send(rank, reply.to, Lane::kReply, message);
    if (!is_over(rank, reply.to, status)) return;
    replies.pop_front();
  }
}

// ---- memory ----

JobOperations::Operation& JobOperations::add(const Action& action, size_t index) {
  Operation& made = operations_.emplace_back();
  made.done = complete;
  made.owner = this;
  made.action = &action;
  made.index = index;
  return made;
}

Status JobOperations::note_start(Operation& operation, Status status) {
  if (status != Status::kOk) {
    if (status == Status::kBroken) pins_.release(operation.index);
    operations_.pop_back();
    return status;
  }
  ++world_.ranks[operation.action->rank].waits;
  if (operation.action->kind != Kind::kAtomic) is_busy(*operation.action) = true;
  return status;
}

Status JobOperations::pin_remote(const Action& action, size_t index, PinnedOperations::Pinned* at) {
  hydrant_pin_t pin = {};
  if (!action.is_pinned) return Status::kOk;
  const Status status = pins_.take(index, {at->addr, layout_.bytes_of(action.slot)}, &pin);
  if (status == Status::kOk) at->key = static_cast<const std::byte*>(pin.region->key);
  return status;
}

Status JobOperations::start_put(const Action& action, size_t index) {
  if (is_busy(action)) return Status::kNotReady;
  SimulatedRank& rank = world_.ranks[action.rank];
  PinnedOperations::Pinned to = rank.memory_of(action.peer, layout_.slot(action.rank, action.slot));
  if (const Status pinned = pin_remote(action, index, &to); pinned != Status::kOk) return pinned;
  const MemoryOracle::Place place{action.rank, action.peer, action.slot};
  // Relaxed adapters may write two puts in any order unless a message comes between them.
  if (world_.plan.is_relaxed({action.rank, action.peer}) && !world_.memory.is_shown(place)) {
    pins_.release(index);
    return Status::kOk;
  }
  const size_t from = layout_.data(action.peer, action.slot);
  const size_t bytes = layout_.bytes_of(action.slot);
  const uint32_t version = world_.memory.begun(action.rank, action.peer)[action.slot] + 1;
  std::memcpy(rank.memory->data.get() + from, world_.memory.data_of(place, version), bytes);
  Operation& operation = add(action, index);
  operation.version = version;
  const Status status =
      rank.transport().pinned()->put(action.peer, to, rank.memory->local(from), bytes, &operation);
  // The stand-in carries out work in the next poll, so the put may count as begun only now.
  if (note_start(operation, status) == Status::kOk) (void)world_.memory.begin_put(place);
  return status;
}

Status JobOperations::start_get(const Action& action, size_t index) {
  if (is_busy(action)) return Status::kNotReady;
  SimulatedRank& rank = world_.ranks[action.rank];
  const MemoryOracle::Place place{action.origin, action.peer, action.slot};
  PinnedOperations::Pinned from =
      rank.memory_of(action.peer, layout_.slot(action.origin, action.slot));
  if (const Status pinned = pin_remote(action, index, &from); pinned != Status::kOk) return pinned;
  const size_t to = layout_.result(action.peer, action.slot);
  Operation& operation = add(action, index);
  operation.version = world_.memory.least_for(
      action.rank, place, world_.plan.is_relaxed({action.rank, action.origin, action.peer}));
  const Status status = rank.transport().pinned()->get(action.peer, from, rank.memory->local(to),
                                                       layout_.bytes_of(action.slot), &operation);
  return note_start(operation, status);
}

Status JobOperations::start_atomic(const Action& action, size_t index) {
  SimulatedRank& rank = world_.ranks[action.rank];
  if ((rank.transport().capabilities() & Transport::kAtomics) == 0) return Status::kOk;
  const size_t result = layout_.word_of_result();
  Operation& operation = add(action, index);
  return note_start(operation,
                    rank.transport().pinned()->start_atomic(
                        action.peer, rank.memory_of(action.peer, layout_.word()),
                        rank.memory->local(result), {.operand = action.amount}, &operation));
}

void JobOperations::complete(Completion& completion, Status status) noexcept {
  auto& operation = static_cast<Operation&>(completion);
  operation.owner->check_result(operation, status);
}

void JobOperations::check_result(Operation& operation, Status status) {
  const Action& action = *operation.action;
  SimulatedRank& rank = world_.ranks[action.rank];
  world_.recorder.note("completed", operation.index, static_cast<uint64_t>(status));
  if (std::exchange(operation.is_done, true)) {
    world_.recorder.fail("an operation has completed twice");
    return;
  }
  --rank.waits;
  pins_.release(operation.index);
  if (action.kind != Kind::kAtomic) is_busy(action) = false;
  if (status != Status::kOk) {
    if (!world_.pairs.may_fail(action.rank, action.peer))
      world_.recorder.fail(std::string("no fault explains that an operation has failed: ") +
                           status_name(status));
    if (action.kind == Kind::kAtomic) sums_[action.peer].is_known = false;
    world_.recorder.count("failed operations");
    return;
  }
  world_.recorder.count(name_of(action.kind));
  if (action.kind == Kind::kPut) {
    world_.memory.complete_put({action.rank, action.peer, action.slot}, operation.version);
  } else if (action.kind == Kind::kGet) {
    const std::byte* const found =
        rank.memory->data.get() + layout_.result(action.peer, action.slot);
    if (!world_.memory.allows({action.origin, action.peer, action.slot}, operation.version, found))
      world_.recorder.fail("a get has read data that is not there, or too old");
  } else {
    sums_[action.peer].done += action.amount;
  }
}

void JobOperations::check_sums() {
  for (Rank rank = 0; rank < world_.plan.ranks; ++rank) {
    if (!world_.ranks[rank].is_alive() || !sums_[rank].is_known) continue;
    uint64_t word = 0;
    std::memcpy(&word, world_.ranks[rank].memory->data.get() + layout_.word(), sizeof word);
    if (word != sums_[rank].done) world_.recorder.fail("a word is not the sum of its atomics");
  }
}

// ---- the end ----

bool JobOperations::has_undelivered(Rank from, Rank to) const {
  if (!world_.ranks[from].is_alive() || !world_.ranks[to].is_alive()) return false;
  if (world_.pairs.is_lost(from, to) || world_.pairs.is_lost(to, from)) return false;
  const size_t first = (size_t{from} * world_.plan.ranks + to) * kLaneCount;
  return !sent_[first].empty() || !sent_[first + 1].empty();
}

bool JobOperations::is_done() const {
  for (Rank rank = 0; rank < world_.plan.ranks; ++rank) {
    const SimulatedRank& one = world_.ranks[rank];
    if (!one.is_alive()) continue;
    if (!one.todo.empty() || !one.replies.empty() || !one.requests.empty() || one.waits != 0 ||
        collectives_.is_waiting(rank) || pins_.is_waiting(rank))
      return false;
    for (Rank to = 0; to < world_.plan.ranks; ++to) {
      if (has_undelivered(rank, to)) return false;
    }
  }
  return true;
}

std::string JobOperations::describe_waits() const {
  std::string made;
  const auto add = [&](Rank rank, size_t count, const char* what) {
    if (count != 0)
      made += " rank " + std::to_string(rank) + ": " + std::to_string(count) + " " + what + ";";
  };
  for (Rank rank = 0; rank < world_.plan.ranks; ++rank) {
    const SimulatedRank& one = world_.ranks[rank];
    if (!one.is_alive()) continue;
    add(rank, one.todo.size(), "actions not started");
    add(rank, one.replies.size(), "replies not sent");
    add(rank, one.requests.size(), "requests without a reply");
    add(rank, one.waits, "operations under way");
    add(rank, collectives_.is_waiting(rank), "wait for all ranks");
    add(rank, pins_.is_waiting(rank), "wait for pins that peers have");
    for (Rank to = 0; to < world_.plan.ranks; ++to) {
      if (has_undelivered(rank, to)) add(rank, 1, "peer that has not got all messages");
    }
  }
  return made;
}

}  // namespace hydrant::simulation
