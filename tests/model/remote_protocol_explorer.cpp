// Runs executions of a remote-pin history, checks each state, and chooses the next interleaving.
#include "tests/model/remote_protocol_explorer.hpp"

#include "firehose/base/thread.hpp"
#include "firehose/remote/channel/remote_wire.hpp"
#include "firehose/watch/rule_clock.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hydrant::model {

using testing::kPage;
using testing::RemoteMessage;
using testing::RemotePinCluster;

namespace {

constexpr int kMaxRounds = 200;

RemotePinCluster::Settings settings_of(const RemoteScenario& scenario, size_t pages) {
  RemotePinCluster::Settings settings;
  settings.ranks = scenario.ranks;
  settings.pages = pages;
  settings.options.merge_bytes = 1;
  settings.options.stream_bytes = 1;
  settings.options.max_peer_regions = 16;
  settings.options.max_firehoses = 64;
  settings.options.budget_bytes = scenario.budget_pages * kPage;
  settings.domain_bytes = scenario.domain_pages * kPage;
  settings.options.base_percent = scenario.base_percent;
  settings.options.flags = scenario.flags;
  settings.options.remote = [](void*, uint32_t, const hydrant_region_t*, hydrant_range_t,
                               const void*, size_t, void*, size_t) -> size_t { return 0; };
  return settings;
}

bool contains(const auto& list, const auto& what) {
  return std::find(list.begin(), list.end(), what) != list.end();
}

}  // namespace

RemoteExplorer::RemoteExplorer(const RemoteScenario& scenario) : scenario_(scenario) {
  RemotePinCluster::Settings settings = settings_of(scenario, kPages);
  settings.options.user = this;
  settings.room = [](void* user, uint32_t end, uint32_t peer) {
    static_cast<RemoteExplorer*>(user)->hear_of_room(end, peer);
  };
#if HYDRANT_MUTANTS
  set_rule_time(now_ns());  // it stands still from here on
#endif
  world_ = std::make_unique<RemotePinCluster>(settings);
}

RemoteExplorer::~RemoteExplorer() {
  world_.reset();
#if HYDRANT_MUTANTS
  set_rule_time(0);
#endif
}

void RemoteExplorer::wrong(const std::string& what) {
  if (!findings_.violation.empty()) return;
  findings_.violation = what + ", after:";
  for (const Action& action : trail_) findings_.violation += " " + text(action);
}

std::string RemoteExplorer::text(const Action& action) {
  static const char* const kNames[] = {"deliver", "pin",       "release", "lose",   "poll",
                                       "refuse",  "duplicate", "evict",   "starve", "free"};
  std::string out = kNames[static_cast<size_t>(action.kind)];
  out += "@" + std::to_string(action.end);
  if (action.kind == Kind::kDeliver || action.kind == Kind::kDuplicate) {
    out += "(" + std::to_string(action.arg >> 16 & 0x7fff) + "#" +
           std::to_string(action.arg & 0xffff) + ((action.arg & kCopy) != 0 ? "'" : "") + ")";
  } else if (action.kind != Kind::kPoll && action.kind != Kind::kRefuse) {
    out += "(" + std::to_string(action.arg) + ")";
  }
  return out;
}

// ---- one execution --------------------------------------------------------------------------------------

void RemoteExplorer::begin() {
  if (scenario_.fresh_ends && findings_.executions + findings_.pruned != 0) world_->rebuild();
  const uint32_t ranks = scenario_.ranks;
  running_.clear();
  running_.resize(scenario_.requests.size());
  names_.clear();
  sent_.assign(size_t{ranks} * ranks, 0);
  dirty_.assign(ranks, false);
  recalled_at_.assign(ranks, 0);
  next_loss_.assign(ranks, 0);
  oldest_.assign(ranks, std::vector<uint64_t>(kPages, 0));
  floor_ = oldest_;
  live_ids_.assign(ranks, 0);
  refusals_ = duplicates_ = evictions_ = shortages_ = 0;
  begun_at_ = rule_now_ns();
  if (scenario_.own_pages != 0) {
    auto& rank = (*world_)[ranks - 1];
    own_ = hydrant_pin(rank.domain, rank.arena.page(kPages - scenario_.own_pages),
                       scenario_.own_pages * kPage, 0);
    if (own_.region == nullptr) wrong("the last rank cannot pin its own memory");
  }
  twice_ = 0;
  trail_.clear();
}

std::vector<RemoteExplorer::Action> RemoteExplorer::enabled() const {
  std::vector<Action> out;
  for (size_t i = 0; i < names_.size(); ++i) {
    const RemoteMessage& message = world_->message(i);
    out.push_back({Kind::kDeliver, message.to, names_[i]});
    if (duplicates_ < scenario_.duplicates &&
        message.type() == static_cast<uint8_t>(remote_wire::Type::kRelease)) {
      out.push_back({Kind::kDuplicate, message.to, names_[i]});
    }
  }
  std::vector<bool> asks(scenario_.ranks, true);
  for (uint32_t i = 0; i < running_.size(); ++i) {
    const uint32_t from = scenario_.requests[i].from;
    if (!running_[i].asked && asks[from]) {
      out.push_back({Kind::kPin, from, i});
      asks[from] = false;
    }
    if (running_[i].result.held() && !running_[i].released)
      out.push_back({Kind::kRelease, from, i});
  }
  for (uint32_t end = 0; end < scenario_.ranks; ++end) {
    size_t n = 0;
    for (uint32_t i = 0; i < scenario_.losses.size(); ++i) {
      if (scenario_.losses[i].rank == end && n++ == next_loss_[end])
        out.push_back({Kind::kLose, end, i});
    }
    if (dirty_[end]) out.push_back({Kind::kPoll, end, 0});
    if (refusals_ < scenario_.refusals && dirty_[end]) out.push_back({Kind::kRefuse, end, 0});
  }
  if (evictions_ < scenario_.evictions) out.push_back({Kind::kEvict, 0, 0});
  if (own_.region != nullptr) out.push_back({Kind::kFree, scenario_.ranks - 1, 0});
  if (shortages_ < scenario_.shortages) out.push_back({Kind::kStarve, scenario_.ranks - 1, 0});
  return out;
}

// ---- invariants of every state ---------------------------------------------------------------------

void RemoteExplorer::check() {
  for (uint32_t i = 0; i < running_.size(); ++i) {
    const Running& running = running_[i];
    if (running.answers > 1) wrong("request " + std::to_string(i) + " was answered twice");
    if (!running.result.held() || running.released) continue;
    const auto& of = scenario_.requests[i];
    auto& rank = (*world_)[of.to];
    const hydrant_region_t region = *running.result.pin.region;
    const uint64_t serial = rank.registrar.serial_of(region.key);
    const uintptr_t addr = rank.arena.addr(of.page);
    if (region.addr > addr || region.addr + region.len < addr + of.pages * kPage)
      wrong("pin " + std::to_string(i) + " does not cover the request");
    // The registration behind a firehose may be longer than the firehose, whose range is in the reply.
    if (!rank.registrar.is_live_around(serial, region.addr, region.len, HYDRANT_REMOTE_WRITE))
      wrong("pin " + std::to_string(i) + " is held, but its memory is not registered any more");
    for (size_t page = of.page; page < of.page + of.pages; ++page) {
      if (serial < floor_[of.to][page])
        wrong("pin " + std::to_string(i) + " reaches memory that was reported as out of reach");
    }
  }
  for (uint32_t end = 0; end < scenario_.ranks; ++end) {
    const hydrant_remote_stats_t stats = world_->stats(end);
    // Excludes cases with unsent replies, whose grants are not visible here.
    const bool untold = scenario_.refusals != 0 || scenario_.requests[0].flags != 0;
    if (scenario_.books && !untold && stats.exports != live_ids_[end]) {
      wrong("rank " + std::to_string(end) + " has " + std::to_string(stats.exports) +
            " exports, but peers have " + std::to_string(live_ids_[end]));
    }
    if (scenario_.budget_pages != 0 && stats.exported_bytes > scenario_.budget_pages * kPage)
      wrong("rank " + std::to_string(end) + " exports more than its budget");
    if (stats.zombies > stats.exports) wrong("more zombies than exports");
  }
  if (scenario_.shortages != 0) check_reclaims();
}

void RemoteExplorer::run_to_rest() {
  if (own_.region != nullptr) free_own();
  bool busy = true;
  for (int round = 0; busy; ++round) {
    if (round >= kMaxRounds) return wrong("the execution does not come to rest");
    busy = false;
    while (!names_.empty() && round < kMaxRounds) {
      busy = true;
      ++round;
      deliver(0);
      look_at_new_messages();
    }
    for (uint32_t i = 0; i < running_.size(); ++i) {
      if (running_[i].result.held() && !running_[i].released) release(i);
      if (scenario_.own_pages != 0 && !running_[i].asked) ask(i), busy = true;
    }
    for (uint32_t end = 0; end < scenario_.ranks; ++end) {
      wait_for_drain(end);
      busy = hydrant_remote_poll((*world_)[end].end) > 0 || busy;
      await_room(end);
    }
    look_at_new_messages();
    busy = busy || !names_.empty();
  }
  // No hold remains that a recall would wait for.
  recalled_at_.assign(scenario_.ranks, 0);
}

void RemoteExplorer::check_rest() {
  for (uint32_t i = 0; i < running_.size(); ++i) {
    if (scenario_.own_pages != 0 && running_[i].waits)
      wrong("request " + std::to_string(i) + " waits although there is room");
    if (running_[i].asked && running_[i].answers != 1) {
      wrong("request " + std::to_string(i) + " was answered " +
            std::to_string(running_[i].answers) + " times");
    }
  }
  for (uint32_t end = 0; end < scenario_.ranks; ++end) {
    if (hydrant_remote_quiet((*world_)[end].end) != GASNET_OK)
      wrong("rank " + std::to_string(end) + " waits for ever for recalled memory");
  }
  for (uint32_t end = 0; end < scenario_.ranks; ++end) {
    for (uint32_t peer = 0; peer < scenario_.ranks; ++peer)
      hydrant_remote_evict((*world_)[end].end, peer, 0, SIZE_MAX);
    const hydrant_remote_stats_t stats = world_->stats(end);
    if (stats.firehoses != 0) wrong("idle firehoses outlive their eviction");
    // Firehoses that longer ones have replaced end at the next check.
    if (stats.firehose_bytes != 0) recalled_at_[end] = rule_now_ns();
  }
  run_to_rest();
  for (uint32_t end = 0; end < scenario_.ranks; ++end) {
    const hydrant_remote_stats_t stats = world_->stats(end);
    if (stats.exports != 0 || stats.exported_bytes != 0 || stats.zombies != 0 ||
        stats.zombie_bytes != 0 || stats.firehose_bytes != 0) {
      wrong("rank " + std::to_string(end) + " keeps " + std::to_string(stats.exports) +
            " exports of " + std::to_string(stats.exported_bytes) +
            " bytes, and has firehoses of " + std::to_string(stats.firehose_bytes));
    }
    auto& rank = (*world_)[end];
    hydrant_flush(rank.domain);
    if (rank.registrar.live() != 0) wrong("memory is pinned without a user");
    if (const std::string problems = rank.registrar.take_problems(); !problems.empty())
      wrong(problems);
  }
  if (world_->pending() != 0) wrong("messages are left");
}

void RemoteExplorer::finish() {
  if (!findings_.violation.empty()) return;
  for (uint32_t end = 0; end < scenario_.ranks; ++end) world_->refuse(end, 0);
  run_to_rest();
  check_rest();
  for (const Running& running : running_) findings_.answers += running.answers;
}

// ---- all executions ---------------------------------------------------------------------------------------

bool RemoteExplorer::choose(Node* node) const {
  for (const Action& action : node->enabled) {
    if (contains(node->sleep, action)) continue;
    node->chosen = action;
    return true;
  }
  return false;
}

RemoteFindings RemoteExplorer::explore(uint64_t max_executions) {
  findings_ = {};
  std::vector<Node> path;
  for (bool more = true; more && findings_.executions < max_executions;) {
    begin();
    for (const Node& node : path) {
      if (!step(node.chosen)) wrong("a step of the last execution is not enabled again");
    }
    if (!path.empty()) check();
    bool pruned = false;
    while (findings_.violation.empty() && path.size() < scenario_.depth) {
      Node node;
      node.enabled = enabled();
      if (node.enabled.empty()) break;
      if (!path.empty()) {
        const Action& last = path.back().chosen;
        for (const Action& action : path.back().sleep) {
          if (action.end != last.end) node.sleep.push_back(action);
        }
      }
      if (!choose(&node)) {
        pruned = true;
        break;
      }
      path.push_back(node);
      step(node.chosen);
      check();
    }
    finish();
    ++(pruned ? findings_.pruned : findings_.executions);
    if (!findings_.violation.empty()) return findings_;
    for (more = false; !more && !path.empty();) {
      Node& node = path.back();
      node.sleep.push_back(node.chosen);
      more = choose(&node);
      if (!more) path.pop_back();
    }
    findings_.complete = !more;
  }
  return findings_;
}

RemoteFindings RemoteExplorer::wander(uint64_t executions, uint64_t seed) {
  findings_ = {};
  random_.seed(seed);
  while (findings_.executions < executions && findings_.violation.empty()) {
    begin();
    for (size_t i = 0; i < scenario_.depth && findings_.violation.empty(); ++i) {
      const std::vector<Action> choices = enabled();
      if (choices.empty()) break;
      step(choices[random_() % choices.size()]);
      check();
    }
    finish();
    ++findings_.executions;
  }
  return findings_;
}

}  // namespace hydrant::model
