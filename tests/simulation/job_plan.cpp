// Draws jobs from seeds.
#include "tests/simulation/job_plan.hpp"

#include <hydrant/remote_pin.h>

#include "tests/fakes/adapter_profiles.hpp"
#include "tests/simulation/virtual_time.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>

namespace hydrant::simulation {

namespace {

constexpr uint64_t kMs = VirtualTime::kMillisecond;
constexpr uint64_t kPatienceNs = 100 * kMs;  // an adapter gives up after two to four thirds of that
constexpr uint32_t kLongestStallMs = 40;
constexpr uint32_t kShortestCutMs = 150;

constexpr Rank kFewRanks = 8;

// Few jobs are large, because they take long.
Rank draw_ranks(Random& random) {
  const uint32_t drawn = random.below(400);
  if (drawn == 0) return random.between(17, 64);
  if (drawn < 4) return random.between(kFewRanks + 1, 16);
  return drawn < 40 ? random.between(5, kFewRanks) : random.between(2, 4);
}

JobPlan::Order draw_order(Random& random, bool is_unordered) {
  using fake_verbs::WriteOrder;
  constexpr WriteOrder kOrders[] = {WriteOrder::kAtOnce, WriteOrder::kOrdered,
                                    WriteOrder::kUnordered};
  if (random.one_in(6)) return {"relaxed", WriteOrder::kRelaxed};
  if (random.one_in(4)) return {"unordered", kOrders[random.below(3)]};
  return {nullptr, kOrders[random.below(is_unordered ? 3 : 2)]};
}

void draw_adapter(Random& random, JobPlan* plan) {
  std::vector<fake_verbs::Device> all = {fake_verbs::Device()};
  for (const fake_verbs::AdapterProfile& profile : fake_verbs::adapter_profiles()) {
    if (*profile.refusal == '\0') all.push_back(profile.device);
  }
  fake_verbs::Device device = all[random.below(all.size())];
  if (random.one_in(4)) device.max_message = random.between(1, 4) * 1024;
  constexpr uint32_t kVendorOfNvidia = 0x2c9;
  const bool is_unordered = device.vendor == kVendorOfNvidia;
  const bool is_mixed = random.one_in(6);
  for (Rank rank = 0; rank < plan->ranks; ++rank)
    plan->orders.push_back(rank == 0 || is_mixed ? draw_order(random, is_unordered)
                                                 : plan->orders[0]);
  plan->holds_writes = random.one_in(2);
  plan->device = device;
}

ibv::Options draw_options(Random& random, uint32_t rails) {
  ibv::Options options;
  options.single_threaded = true;
  options.eager_bytes = 120 + 8 * random.below(40);
  options.credits = random.between(4, 8);
  options.cell_bytes = 64 * random.between(1, 16);
  options.cells = random.between(1, 4);
  options.receive_slots = random.between(2, 4);
  options.send_depth = random.between(16, 32);
  options.inline_bytes = 64 * random.between(0, 4);
  options.operations = random.between(2, 16);
  options.probe_ns = 20 * kMs;
  options.patience_ns = kPatienceNs;
  options.stall_timeout_ns = 6 * kPatienceNs;
  options.handshakes.first_ns = kMs;
  options.handshakes.refused_ns = 5 * kMs;
  options.stripe_bytes = rails > 1 ? 65536 : 0;
  return options;
}

Action draw_operation(Random& random, const JobPlan& plan) {
  constexpr Kind kOften[] = {Kind::kMessage, Kind::kMessage, Kind::kMessage, Kind::kMessage,
                             Kind::kPut,     Kind::kPut,     Kind::kPut,     Kind::kGet,
                             Kind::kGet,     Kind::kAtomic,  Kind::kCompute};
  Action drawn;
  drawn.kind = kOften[random.below(std::size(kOften))];
  if (plan.is_burst && drawn.kind != Kind::kCompute && !random.one_in(4))
    drawn.kind = Kind::kMessage;
  drawn.rank = random.below(plan.ranks);
  drawn.peer = (drawn.rank + random.between(1, plan.ranks - 1)) % plan.ranks;
  drawn.at_ns = random.below(3 * kMs);
  drawn.lane = random.one_in(3) ? Lane::kReply : Lane::kRequest;
  drawn.slot = random.below(kSlots);
  drawn.bytes = 8 + 4 * random.below(plan.options.eager_bytes / 4 - 1);
  drawn.has_cell = random.one_in(3);
  drawn.payload = random.below(plan.options.cell_bytes + 1);
  drawn.has_reply = drawn.lane == Lane::kRequest && random.one_in(2);
  drawn.origin = random.one_in(2) ? drawn.rank : random.below(plan.ranks);
  drawn.amount = random.next() >> 40;
  if (drawn.kind == Kind::kCompute)
    drawn.amount = random.one_in(30) ? random.between(30, 3000) * kMs : random.between(1, 30) * kMs;
  return drawn;
}

// All ranks take part.
Action draw_collective(Random& random, bool is_reduction) {
  Action drawn;
  drawn.kind = is_reduction ? Kind::kReduce : Kind::kBarrier;
  drawn.at_ns = random.below(3 * kMs);
  drawn.bytes = random.below(7);
  drawn.choice = random.below(1 << 16);
  return drawn;
}

// Operations of ranks and, in half of the jobs, collectives between them: a few, or a train of one kind, of
// reductions more than there are lines.
void add_actions(Random& random, uint32_t operations, JobPlan* plan) {
  uint32_t collectives = random.one_in(2) ? random.between(1, 6) : 0;
  const bool is_train = collectives != 0 && plan->ranks <= 4 && !plan->is_burst && random.one_in(5);
  const bool has_reductions = random.one_in(2);
  if (is_train) collectives += has_reductions ? 40 : 12;
  for (uint32_t left = operations + collectives; left != 0; --left) {
    if (random.below(left) >= collectives) {
      plan->actions.push_back(draw_operation(random, *plan));
      continue;
    }
    --collectives;
    const bool is_reduction = is_train ? has_reductions : random.one_in(2);
    if (!is_reduction && random.one_in(2)) {
      plan->actions.push_back(draw_operation(random, *plan));
      plan->actions.back().kind = Kind::kPut;
    }
    plan->actions.push_back(draw_collective(random, is_reduction));
  }
}

// Puts and gets by remote pins, and recalls, between the other operations of some jobs; half of
// them concern one rank's memory. Each rank has room for two of the longest slots, at least.
void add_pins(Random random, JobPlan* plan) {
  if (plan->ranks > kFewRanks || !random.one_in(3)) return;
  constexpr uint64_t kPage = 4096;
  const uint64_t longest =
      (*std::max_element(plan->slot_bytes.begin(), plan->slot_bytes.end()) / kPage + 2) * kPage;
  plan->pins.budget_bytes = 2 * longest + kPage * random.below(2 * longest / kPage);
  plan->pins.base_percent = random.one_in(2) ? 50 : 1;
  plan->pins.flags = random.one_in(2) ? HYDRANT_REMOTE_INLINE_DONE : 0;
  plan->pins.merge_bytes = random.one_in(2) ? 1 : 0;
  for (uint32_t left = random.between(8, 40); left != 0; --left) {
    Action drawn = draw_operation(random, *plan);
    const bool forgets = random.one_in(6);
    drawn.kind = forgets ? Kind::kForget : random.one_in(3) ? Kind::kGet : Kind::kPut;
    drawn.is_pinned = true;
    Rank& owner = forgets ? drawn.rank : drawn.peer;
    if (random.one_in(2) && (forgets ? drawn.peer : drawn.rank) != 0) owner = 0;
    plan->actions.insert(plan->actions.begin() + random.below(plan->actions.size() + 1), drawn);
  }
}

Action draw_fault(Random& random, const JobPlan& plan) {
  Action drawn;
  const auto first = static_cast<uint32_t>(Kind::kLoseDatagrams);
  const auto end = static_cast<uint32_t>(plan.is_calm ? Kind::kRefuse : Kind::kEnd);
  drawn.kind = static_cast<Kind>(random.between(first, end - 1));
  drawn.rank = random.below(plan.ranks);
  drawn.at_ns = random.one_in(3) ? 0 : random.below(4 * kMs);  // before first contacts, or later
  drawn.choice = random.below(1 << 16);
  switch (drawn.kind) {
    case Kind::kLoseDatagrams: drawn.amount = random.between(1, 6); break;
    case Kind::kStall: drawn.amount = random.between(1, kLongestStallMs) * kMs; break;
    case Kind::kLoseAcknowledgement:
      drawn.amount =
          random.one_in(2) ? random.between(1, 20) * kMs : random.between(20, 400) * kMs / 1000;
      break;
    case Kind::kJump: drawn.amount = kMs << random.between(5, 15); break;
    case Kind::kCut: drawn.amount = random.between(kShortestCutMs, 3 * kShortestCutMs) * kMs; break;
    case Kind::kDie: drawn.amount = random.between(0, 300) * kMs; break;
    default: drawn.amount = random.between(1, 12); break;
  }
  return drawn;
}

}  // namespace

const char* name_of(Kind kind) {
  static const char* const kNames[] = {"message",
                                       "put",
                                       "get",
                                       "atomic",
                                       "compute",
                                       "forget",
                                       "barrier",
                                       "reduce",
                                       "lose",
                                       "stall",
                                       "lose-acknowledgement",
                                       "refuse-resource",
                                       "jump",
                                       "refuse",
                                       "fail-work",
                                       "break-pair",
                                       "cut",
                                       "remove",
                                       "die"};
  return kNames[static_cast<size_t>(kind)];
}

JobPlan plan_job(uint64_t seed) {
  Random random(seed);
  JobPlan plan;
  plan.seed = seed;
  plan.ranks = draw_ranks(random);
  if (plan.ranks <= 4 && random.one_in(5)) {
    plan.rails = 2;
    plan.ranks = random.between(2, 3);
  }
  draw_adapter(random, &plan);
  plan.options = draw_options(random, plan.rails);
  plan.slot_bytes = {random.between(1, 64), random.between(65, 300), random.between(301, 3000),
                     plan.rails > 1 ? random.between(50'000, 150'000) : random.between(3001, 9000)};
  if (plan.ranks > kFewRanks) plan.slot_bytes = {16, 32, 64, random.between(65, 300)};
  uint32_t operations = random.between(4, 60);
  if (plan.ranks > 4) operations += plan.ranks;
  plan.is_burst = plan.ranks <= 4 && random.one_in(6);
  if (plan.is_burst) {
    plan.ranks = 2;
    operations *= 3;
  }
  add_actions(random, operations, &plan);
  add_pins(Random(seed ^ 0x9125), &plan);
  plan.is_calm = random.one_in(2);
  const uint32_t faults = random.between(0, 3);
  for (uint32_t i = 0; i < faults; ++i) plan.actions.push_back(draw_fault(random, plan));
  plan.kept.assign(plan.actions.size(), true);
  return plan;
}

bool JobPlan::is_relaxed(std::initializer_list<Rank> any) const {
  return std::any_of(any.begin(), any.end(),
                     [this](Rank rank) { return orders[rank].is_relaxed(); });
}

uint32_t JobPlan::count() const {
  return static_cast<uint32_t>(std::count(kept.begin(), kept.end(), true));
}

Rank JobPlan::taking_part() const {
  std::set<Rank> all;
  for (size_t i = 0; i < actions.size(); ++i) {
    if (!kept[i]) continue;
    if (is_of_all(actions[i].kind)) return ranks;
    all.insert(actions[i].rank);
    if (!is_fault(actions[i].kind)) all.insert(actions[i].peer);
  }
  return static_cast<Rank>(all.size());
}

void JobPlan::keep_ranks(Rank below) {
  ranks = below;
  for (size_t i = 0; i < actions.size(); ++i) {
    if (std::max({actions[i].rank, actions[i].peer, actions[i].origin}) >= ranks) kept[i] = false;
  }
}

std::string JobPlan::text() const {
  std::string made = std::to_string(seed);
  if (ranks != plan_job(seed).ranks) made += '/' + std::to_string(ranks);
  if (count() == kept.size()) return made;
  char separator = ':';
  for (size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i]) continue;
    size_t last = i;
    while (last + 1 < kept.size() && kept[last + 1]) ++last;
    made += separator + std::to_string(i);
    if (last != i) made += '-' + std::to_string(last);
    separator = ',';
    i = last;
  }
  return made;
}

JobPlan read_plan(const std::string& text) {
  char* at = nullptr;
  JobPlan plan = plan_job(std::strtoull(text.c_str(), &at, 0));
  if (*at == '/') plan.keep_ranks(static_cast<Rank>(std::strtoul(at + 1, &at, 0)));
  if (*at != ':') return plan;
  plan.kept.assign(plan.kept.size(), false);
  while (*at == ':' || *at == ',') {
    const size_t first = std::strtoull(at + 1, &at, 0);
    const size_t last = *at == '-' ? std::strtoull(at + 1, &at, 0) : first;
    for (size_t i = first; i <= last && i < plan.kept.size(); ++i) plan.kept[i] = true;
  }
  return plan;
}

}  // namespace hydrant::simulation
