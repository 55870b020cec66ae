// Carries out the faults over the stand-in for libibverbs.
#include "tests/simulation/job_faults.hpp"

#include <algorithm>
#include <cerrno>

namespace hydrant::simulation {

namespace {

using fake_verbs::Call;

constexpr uint64_t kMostLeavingNs = 5 * VirtualTime::kSecond;
constexpr uint64_t kEndOfJobNs = 5 * VirtualTime::kSecond;  // longer than any rank computes

}  // namespace

void JobFaults::after(uint64_t ns, std::function<void()> then) {
  later_.push_back({VirtualTime::elapsed_ns() + ns, std::move(then)});
}

void JobFaults::run() {
  const uint64_t now = VirtualTime::elapsed_ns();
  for (size_t i = 0; i < todo_.size();) {
    const Action& action = world_.plan.actions[todo_[i]];
    if (now < action.at_ns || !begin(action)) {
      ++i;
      continue;
    }
    world_.recorder.note(name_of(action.kind), todo_[i], action.rank);
    world_.recorder.count(name_of(action.kind));
    todo_.erase(todo_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (size_t i = 0; i < later_.size();) {
    if (now < later_[i].at_ns) {
      ++i;
      continue;
    }
    const std::function<void()> then = std::move(later_[i].then);
    later_.erase(later_.begin() + static_cast<std::ptrdiff_t>(i));
    then();
  }
  for (Rank rank = 0; rank < world_.plan.ranks; ++rank) end_leaving(rank);
  if (world_.may_stay_half_open) tell_of_losses();
}

const char* JobFaults::device_of(const Action& action) const {
  const uint32_t rail = action.choice % world_.plan.rails;
  return world_.devices[action.rank * world_.plan.rails + rail].c_str();
}

bool JobFaults::begin(const Action& action) {
  switch (action.kind) {
    case Kind::kLoseDatagrams:
      fake_verbs::lose_datagrams(static_cast<uint32_t>(action.amount));
      return true;
    case Kind::kStall: return hold(action, action.amount);
    case Kind::kLoseAcknowledgement: return lose_acknowledgement(action);
    case Kind::kRefuseResource:
      world_.may_lack_resources = true;
      refuse(action, {Call::kRegMr, Call::kCreateQp, Call::kCreateAh, Call::kPostSrqRecv,
                      Call::kPostRecv, Call::kResizeCq, Call::kQueryPort});
      return true;
    case Kind::kJump:
      if (hold_ != Hold::kNone) return false;
      hold_ = Hold::kOn;
      VirtualTime::elapse(action.amount);
      for (SimulatedRank& rank : world_.ranks) {
        if (rank.is_leaving()) rank.leaves_since_ns += action.amount;
      }
      end_hold_after(0);
      return true;
    case Kind::kRefuse:
      world_.may_lack_resources = true;
      world_.pairs.disturb_all();
      // Refused posts and state changes keep a connection from ending.
      world_.may_stay_half_open |= action.choice % 3 != 2;
      refuse(action, {Call::kPostSend, Call::kModifyQp, Call::kPollCq});
      return true;
    case Kind::kFailWork:
      world_.pairs.disturb_all();
      fake_verbs::fail_work(action.choice % 2 == 0 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_REM_OP_ERR,
                            action.amount, action.choice % 4 < 2);
      return true;
    case Kind::kBreakPair: break_pair(action); return true;
    case Kind::kCut:
      if (hold_ != Hold::kNone) return false;
      world_.pairs.disturb(action.rank);
      return hold(action, action.amount);
    case Kind::kRemove:
      if (world_.ranks[action.rank].is_alive()) remove_adapter(action);
      return true;
    default: die(action.rank, action.amount); return true;
  }
}

// Holds do not overlap, and the next one begins after a poll, in which the adapters send what waited: no
// request waits for longer than one of them lasts.
void JobFaults::end_hold_after(uint64_t ns) {
  after(ns, [this] { hold_ = Hold::kEnding; });
}

bool JobFaults::hold(const Action& action, uint64_t ns) {
  if (hold_ != Hold::kNone) return false;
  hold_ = Hold::kOn;
  const char* const device = device_of(action);
  fake_verbs::hold_device(device, true);
  after(ns, [device] { fake_verbs::hold_device(device, false); });
  end_hold_after(ns);
  return true;
}

bool JobFaults::lose_acknowledgement(const Action& action) {
  if (hold_ != Hold::kNone) return false;
  const std::vector<ibv_qp*> pairs = fake_verbs::connected_pairs();
  if (pairs.empty()) return true;
  hold_ = Hold::kOn;
  ibv_qp* const pair = pairs[action.choice % pairs.size()];
  fake_verbs::lose_acknowledgement(pair);
  after(action.amount, [pair] {
    const std::vector<ibv_qp*> now = fake_verbs::connected_pairs();
    if (std::find(now.begin(), now.end(), pair) != now.end()) fake_verbs::resend(pair);
  });
  end_hold_after(action.amount);
  return true;
}

void JobFaults::refuse(const Action& action, std::vector<Call> calls) {
  const Call call = calls[action.choice % calls.size()];
  if (action.kind == Kind::kRefuseResource && action.choice / 8 % 2 == 0) {
    fake_verbs::fail_always(call, ENOMEM);
    after(action.amount * VirtualTime::kMillisecond, [call] { fake_verbs::fail_always(call, 0); });
    return;
  }
  const bool is_frequent = call == Call::kPostSend || call == Call::kPollCq;
  fake_verbs::fail_call(call, ENOMEM, action.amount * (is_frequent ? 10 : 1));
}

void JobFaults::break_pair(const Action& action) {
  const std::vector<ibv_qp*> pairs = fake_verbs::connected_pairs();
  if (pairs.empty()) return;
  world_.pairs.disturb_all();
  fake_verbs::break_pair(pairs[action.choice % pairs.size()]->qp_num);
}

// The program of that rank notices by the errors of what is under way, starts nothing more, and ends.
void JobFaults::remove_adapter(const Action& action) {
  SimulatedRank& rank = world_.ranks[action.rank];
  world_.pairs.disturb(action.rank);
  const char* const device = device_of(action);
  fake_verbs::kill_device(device, action.choice / 4 % 2 == 0 ? EIO : 0);
  rank.is_told_of_its_adapter = action.choice / 8 % 2 == 0;
  if (rank.is_told_of_its_adapter)
    fake_verbs::raise_event(fake_verbs::context_of(device), IBV_EVENT_DEVICE_FATAL, 1, nullptr);
  rank.todo.clear();
  rank.replies.clear();
  rank.leaves_since_ns = std::max<uint64_t>(VirtualTime::elapsed_ns(), 1);
}

void JobFaults::end_leaving(Rank number) {
  SimulatedRank& rank = world_.ranks[number];
  if (!rank.is_alive() || !rank.is_leaving()) return;
  rank.replies.clear();
  // A rank without a connection does not learn of a death that the driver does not report.
  const bool may_wait = operations_.collectives().is_waiting(number) && rank.is_told_of_its_adapter;
  if (rank.waits == 0 && rank.requests.empty() && !may_wait) {
    die(number, VirtualTime::kMillisecond);
  } else if (VirtualTime::elapsed_ns() - rank.leaves_since_ns > kMostLeavingNs) {
    world_.recorder.fail("rank " + std::to_string(number) +
                         " waits for ever at a dead adapter:" + operations_.describe_waits());
  }
}

// A peer learns that a rank has lost it, because the rank ends their connection. If the adapter has refused
// that, the end of the job tells it.
void JobFaults::tell_of_losses() {
  if (VirtualTime::elapsed_ns() - world_.recorder.last_ns() < kEndOfJobNs) return;
  for (Rank rank = 0; rank < world_.plan.ranks; ++rank) {
    for (Rank peer = 0; peer < world_.plan.ranks; ++peer) {
      if (!world_.pairs.is_lost(rank, peer) || world_.pairs.is_lost(peer, rank) ||
          !world_.ranks[peer].is_alive())
        continue;
      world_.ranks[peer].transport().disconnect(rank);
      operations_.lose_peer(peer, rank, ("rank " + std::to_string(rank) + " has ended").c_str());
    }
  }
}

// `notice_ns` later the launcher tells the other ranks.
void JobFaults::die(Rank number, uint64_t notice_ns) {
  SimulatedRank& rank = world_.ranks[number];
  if (!rank.is_alive()) return;
  world_.pairs.disturb(number);
  world_.recorder.note("dead", number);
  operations_.collectives().close(number);
  operations_.pins().close(number);
  rank.memory.reset();
  rank.ibv.reset();
  after(notice_ns, [this, number] {
    for (Rank other = 0; other < world_.plan.ranks; ++other) {
      if (other == number || !world_.ranks[other].is_alive()) continue;
      world_.ranks[other].transport().disconnect(number);
      operations_.lose_peer(other, number, ("rank " + std::to_string(number) + " is dead").c_str());
    }
  });
}

}  // namespace hydrant::simulation
