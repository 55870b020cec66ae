// Carries out the steps of the machine, breadth first or by chance.
#include "tests/model/placement_machine.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string_view>

namespace hydrant::model::placement {

namespace {

using Do = Instruction::Kind;
using Kind = Request::Kind;

constexpr uint8_t kCount = 3;  // bits of State::executed

bool is_read(const Request& request) {
  return request.kind == Kind::kRead || request.kind == Kind::kAdd;
}

}  // namespace

uint8_t Protocol::pair(uint8_t from, uint8_t to) {
  pairs.push_back({from, to});
  return byte(pairs.size() - 1);
}

uint8_t Protocol::post(size_t rank, Kind kind, uint8_t to, uint8_t cell, uint8_t value) {
  const auto place = std::count_if(requests.begin(), requests.end(),
                                   [to](const Request& each) { return each.pair == to; });
  requests.push_back({kind, to, cell, value, byte(static_cast<size_t>(place))});
  const uint8_t id = byte(requests.size() - 1);
  add(rank, {.kind = Do::kPost, .request = id});
  return id;
}

size_t Explorer::Hash::operator()(const State& state) const noexcept {
  static_assert(sizeof(State) == kRanks + 3 * kPairs + kRequests + 2 * kCells + 1 + kAdapters +
                                     kWaiting * kAdapters);
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(&state), sizeof state});
}

Explorer::Explorer(const Protocol& protocol)
    : protocol_(protocol), by_pair_(protocol.pairs.size()), awaited_(protocol.pairs.size()) {
  if (protocol.programs.size() > kRanks || protocol.adapters.size() > kAdapters ||
      protocol.pairs.size() > kPairs || protocol.requests.size() > kRequests)
    std::abort();
  for (const Request& each : protocol.requests) by_pair_[each.pair].push_back(byte(id_of(each)));
  for (const auto& program : protocol.programs) {
    for (const Instruction& each : program) {
      if (each.kind != Do::kAwait) continue;
      const Request& request = protocol.requests[each.request];
      awaited_[request.pair] = std::max(awaited_[request.pair], byte(request.place + 1u));
    }
  }
}

Class Explorer::class_of(uint8_t pair) const {
  const Protocol::Pair& ends = protocol_.pairs[pair];
  return std::max(protocol_.adapters[ends.from], protocol_.adapters[ends.to]);
}

const Instruction* Explorer::next_of(const State& s, size_t rank) const {
  const std::vector<Instruction>& program = protocol_.programs[rank];
  return s.next[rank] < program.size() ? &program[s.next[rank]] : nullptr;
}

// ---- ranks ----

bool Explorer::can_run(const State& s, const Instruction& next) const {
  const Request& request = protocol_.requests[next.request];
  switch (next.kind) {
    case Do::kAwait: return s.acknowledged[request.pair] > request.place;
    case Do::kTake: return s.accepted[request.pair] > request.place;
    case Do::kSpin: return s.memory[next.cell] >= next.low && s.memory[next.cell] <= next.high;
    default: return true;
  }
}

void Explorer::run(State& s, size_t rank) {
  const Instruction& now = *next_of(s, rank);
  ++s.next[rank];
  const std::string who = "rank " + std::to_string(rank);
  switch (now.kind) {
    case Do::kPost: ++s.posted[protocol_.requests[now.request].pair]; break;
    case Do::kStore: s.memory[now.cell] = now.low; break;
    case Do::kUnpin: s.unpinned[now.cell] = 1; break;
    case Do::kExpect:
    case Do::kExpectRead: {
      const bool is_cell = now.kind == Do::kExpect;
      const unsigned got = is_cell ? s.memory[now.cell] : s.executed[now.request] >> 4;
      if (got < now.low || got > now.high)
        wrong(who + " sees " + std::to_string(got) + " instead of " + std::to_string(now.low));
      break;
    }
    case Do::kStopUnless:
      for (size_t each = 0; each < protocol_.programs.size(); ++each) {
        if (s.executed[now.request] >> 4 != now.low)
          s.next[each] = byte(protocol_.programs[each].size());
      }
      break;
    case Do::kLeave:
      for (size_t other = 0; other < protocol_.programs.size(); ++other) {
        const std::vector<Instruction>& program = protocol_.programs[other];
        const auto enters =
            std::find_if(program.begin(), program.end(), [&now](const Instruction& each) {
              return each.kind == Do::kEnter && each.low == now.low;
            });
        if (enters != program.end() && enters - program.begin() >= s.next[other])
          wrong(who + " leaves a barrier that rank " + std::to_string(other) + " has not entered");
      }
      break;
    default: break;
  }
}

// Lets ranks go on as far as no other step makes a difference: these instructions depend on nothing that goes
// away again, and only permit steps. So does the completion of ordered requests.
void Explorer::settle(State& s) {
  for (bool again = true; again;) {
    again = false;
    for (size_t rank = 0; rank < protocol_.programs.size(); ++rank) {
      for (const Instruction* next = next_of(s, rank); next != nullptr; next = next_of(s, rank)) {
        const bool is_seen = next->kind == Do::kSpin || next->kind == Do::kStore ||
                             next->kind == Do::kExpect || next->kind == Do::kUnpin;
        if (is_seen || !can_run(s, *next)) break;
        run(s, rank);
      }
    }
    for (size_t pair = 0; pair < by_pair_.size(); ++pair) {
      if (class_of(byte(pair)) != Class::kOrdered || !can_acknowledge(s, pair)) continue;
      s.acknowledged[pair] = s.accepted[pair];
      again = true;
    }
  }
}

// ---- adapters ----

bool Explorer::may_execute(const State& s, const Request& request) const {
  const Class order = class_of(request.pair);
  const uint8_t to = protocol_.pairs[request.pair].to;
  const uint8_t first = s.accepted[request.pair];
  const int times = s.executed[id_of(request)] & kCount;
  const bool is_next = request.place == first;
  const bool is_ordered = order == Class::kOrdered;
  if (request.kind == Kind::kWrite)
    return s.waiting[to] < kWaiting && (is_next || !is_ordered) &&
           (times == 0 || (times == 1 && !is_ordered && s.repeats < protocol_.repeats));
  const bool shows = s.waiting[to] == 0;
  if (request.kind == Kind::kSend) return is_next && shows;
  const auto& earlier = by_pair_[request.pair];
  const bool passes =
      !is_ordered &&
      std::all_of(earlier.begin() + first, earlier.begin() + request.place,
                  [&](uint8_t id) { return protocol_.requests[id].kind == Kind::kWrite; });
  return times == 0 && (is_next || passes) && (shows || order == Class::kRelaxed);
}

// Whether an accepted request may be executed once more.
bool Explorer::may_repeat(const State& s, const Request& request) const {
  if (request.kind != Kind::kWrite || class_of(request.pair) == Class::kOrdered) return false;
  const auto& behind = by_pair_[request.pair];
  const bool has_message =
      std::any_of(behind.begin() + request.place, behind.begin() + s.accepted[request.pair],
                  [&](uint8_t id) { return protocol_.requests[id].kind == Kind::kSend; });
  return (!has_message || protocol_.repeats_behind_messages) &&
         s.waiting[protocol_.pairs[request.pair].to] < kWaiting && s.repeats < protocol_.repeats &&
         (s.executed[id_of(request)] & kCount) < 2;
}

// A completion for which no rank waits changes nothing but that writes are not repeated, so it is left out.
bool Explorer::can_acknowledge(const State& s, size_t pair) const {
  return s.acknowledged[pair] < s.accepted[pair] && s.acknowledged[pair] < awaited_[pair] &&
         s.waiting[protocol_.pairs[pair].from] == 0;
}

void Explorer::execute(State& s, const Request& request) {
  uint8_t& executed = s.executed[id_of(request)];
  s.repeats = byte(s.repeats + size_t{executed != 0});
  ++executed;
  const uint8_t to = protocol_.pairs[request.pair].to;
  if (request.place == s.accepted[request.pair]) ++s.accepted[request.pair];
  if (request.kind == Kind::kWrite) {
    if (s.unpinned[request.cell] != 0) wrong("a write is executed that has no registration");
    s.writes[to][s.waiting[to]++] = byte(size_t{request.cell} << 4 | request.value);
  } else if (is_read(request)) {
    executed = byte(executed | s.memory[request.cell] << 4);
    if (request.kind == Kind::kAdd)
      s.memory[request.cell] = byte(size_t{s.memory[request.cell]} + request.value);
  }
}

// ---- steps ----

void Explorer::list_requests(const State& s, uint8_t pair, std::vector<Step>* steps) const {
  const std::vector<uint8_t>& ids = by_pair_[pair];
  for (size_t i = s.acknowledged[pair]; i < s.posted[pair]; ++i) {
    const Request& request = protocol_.requests[ids[i]];
    if (i < s.accepted[pair] ? may_repeat(s, request) : may_execute(s, request))
      steps->push_back({Step::Kind::kExecute, pair, ids[i]});
  }
  const uint8_t first = s.accepted[pair];
  if (first < s.posted[pair] && (s.executed[ids[first]] & kCount) != 0)
    steps->push_back({Step::Kind::kAccept, pair, ids[first]});
  if (can_acknowledge(s, pair)) steps->push_back({Step::Kind::kAcknowledge, pair, first});
}

std::vector<Explorer::Step> Explorer::steps_of(const State& s) const {
  std::vector<Step> steps;
  for (size_t rank = 0; rank < protocol_.programs.size(); ++rank) {
    const Instruction* const next = next_of(s, rank);
    if (next != nullptr && can_run(s, *next)) steps.push_back({Step::Kind::kRank, byte(rank), 0});
  }
  for (size_t pair = 0; pair < by_pair_.size(); ++pair) list_requests(s, byte(pair), &steps);
  for (size_t adapter = 0; adapter < protocol_.adapters.size(); ++adapter) {
    const bool is_relaxed = protocol_.adapters[adapter] == Class::kRelaxed;
    const size_t choices = is_relaxed ? s.waiting[adapter] : std::min(s.waiting[adapter], byte(1));
    for (size_t i = 0; i < choices; ++i)
      steps.push_back({Step::Kind::kPlace, byte(adapter), byte(i)});
  }
  return steps;
}

State Explorer::after(const State& s, const Step& step) {
  State next = s;
  switch (step.kind) {
    case Step::Kind::kRank: run(next, step.who); break;
    case Step::Kind::kExecute: execute(next, protocol_.requests[step.what]); break;
    case Step::Kind::kAccept: ++next.accepted[step.who]; break;
    case Step::Kind::kAcknowledge: next.acknowledged[step.who] = step.what; break;
    case Step::Kind::kPlace: {
      auto& writes = next.writes[step.who];
      const uint8_t write = writes[step.what];
      std::copy(writes.begin() + step.what + 1, writes.end(), writes.begin() + step.what);
      writes[--next.waiting[step.who]] = 0;
      if (next.unpinned[write >> 4] != 0) wrong("a write is placed that has no registration");
      next.memory[write >> 4] = write & 0xf;
      break;
    }
  }
  settle(next);
  return next;
}

void Explorer::check_end(const State& s) {
  for (size_t rank = 0; rank < protocol_.programs.size(); ++rank) {
    if (next_of(s, rank) != nullptr) wrong("rank " + std::to_string(rank) + " waits for ever");
  }
  for (const auto& [cell, value] : protocol_.at_the_end) {
    if (s.memory[cell] != value)
      wrong("cell " + std::to_string(cell) + " ends with " + std::to_string(s.memory[cell]));
  }
}

std::string Explorer::text(const Step& step) const {
  if (step.kind == Step::Kind::kRank) return "; rank " + std::to_string(step.who) + " goes on";
  if (step.kind == Step::Kind::kPlace)
    return "; adapter " + std::to_string(step.who) + " places write " + std::to_string(step.what);
  if (step.kind == Step::Kind::kAcknowledge)
    return "; pair " + std::to_string(step.who) + " acknowledges " + std::to_string(step.what);
  static const char* const kNames[] = {"write", "read", "add", "send"};
  const Request& request = protocol_.requests[step.what];
  return std::string(step.kind == Step::Kind::kAccept ? "; accepts " : "; executes ") +
         kNames[static_cast<size_t>(request.kind)] + " " + std::to_string(request.place) +
         " of pair " + std::to_string(request.pair) + " (cell " + std::to_string(request.cell) +
         ", value " + std::to_string(request.value) + ")";
}

Findings Explorer::explore(size_t max_states) {
  wrong_.clear();
  struct Came {
    const State* from;
    Step step;
  };
  std::unordered_map<State, Came, Hash> known;
  std::deque<const State*> open;
  State first{};
  settle(first);
  open.push_back(&known.emplace(first, Came{nullptr, {}}).first->first);
  while (!open.empty() && known.size() <= max_states) {
    const State& now = *open.front();
    open.pop_front();
    const std::vector<Step> steps = steps_of(now);
    if (steps.empty()) check_end(now);
    size_t done = 0;
    for (; done < steps.size() && wrong_.empty(); ++done) {
      const auto [found, is_new] =
          known.try_emplace(after(now, steps[done]), Came{&now, steps[done]});
      if (is_new) open.push_back(&found->first);
    }
    if (wrong_.empty()) continue;
    std::string trace = done != 0 ? text(steps[done - 1]) : "";
    for (Came came = known.at(now); came.from != nullptr; came = known.at(*came.from))
      trace = text(came.step) + trace;
    return {protocol_.name + ": " + wrong_ + ", after" + trace, known.size(), false};
  }
  return {"", known.size(), open.empty()};
}

Findings Explorer::wander(uint64_t walks, uint64_t seed) {
  wrong_.clear();
  std::mt19937_64 random(seed);
  Findings findings;
  for (uint64_t walk = 0; walk < walks; ++walk) {
    State now{};
    settle(now);
    std::vector<Step> taken;
    for (;; ++findings.states) {
      const std::vector<Step> steps = steps_of(now);
      if (steps.empty()) break;
      const Step step = steps[random() % steps.size()];
      now = after(now, step);
      taken.push_back(step);
      if (!wrong_.empty()) break;
    }
    if (wrong_.empty()) check_end(now);
    if (wrong_.empty()) continue;
    findings.violation = protocol_.name + ": " + wrong_ + ", after";
    for (const Step& step : taken) findings.violation += text(step);
    return findings;
  }
  findings.is_complete = true;
  return findings;
}

}  // namespace hydrant::model::placement
