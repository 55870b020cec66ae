// Draws jobs from seeds.
#include "tests/simulation/job_plan.hpp"

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

void draw_adapter(Random& random, JobPlan* plan) {
  std::vector<fake_verbs::Device> all = {fake_verbs::Device()};
  for (const fake_verbs::AdapterProfile& profile : fake_verbs::adapter_profiles()) {
    if (*profile.refusal == '\0') all.push_back(profile.device);
  }
  fake_verbs::Device device = all[random.below(all.size())];
  if (random.one_in(4)) device.max_message = random.between(1, 4) * 1024;
  constexpr uint32_t kVendorOfNvidia = 0x2c9;
  const bool is_unordered = device.vendor == kVendorOfNvidia;
  using fake_verbs::WriteOrder;
  constexpr WriteOrder kOrders[] = {WriteOrder::kAtOnce, WriteOrder::kOrdered,
                                    WriteOrder::kUnordered, WriteOrder::kRelaxed};
  device.write_order = kOrders[random.below(is_unordered ? 3 : 2)];
  if (random.one_in(6)) {
    plan->order = "relaxed";
    device.write_order = WriteOrder::kRelaxed;
  } else if (random.one_in(4)) {
    plan->order = "unordered";
    device.write_order = kOrders[random.below(3)];
  }
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
  if (drawn.kind == Kind::kCompute) drawn.amount = random.between(1, 30) * kMs;
  return drawn;
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
    case Kind::kLoseAcknowledgement: drawn.amount = random.between(1, 20) * kMs; break;
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
                                       "lose",
                                       "stall",
                                       "lose-acknowledgement",
                                       "refuse-resource",
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
  plan.ranks = random.between(2, 4);
  if (random.one_in(5)) {
    plan.rails = 2;
    plan.ranks = random.between(2, 3);
  }
  draw_adapter(random, &plan);
  plan.options = draw_options(random, plan.rails);
  plan.slot_bytes = {random.between(1, 64), random.between(65, 300), random.between(301, 3000),
                     plan.rails > 1 ? random.between(50'000, 150'000) : random.between(3001, 9000)};
  uint32_t operations = random.between(4, 60);
  plan.is_burst = random.one_in(6);
  if (plan.is_burst) {
    plan.ranks = 2;
    operations *= 3;
  }
  for (uint32_t i = 0; i < operations; ++i) plan.actions.push_back(draw_operation(random, plan));
  plan.is_calm = random.one_in(2);
  const uint32_t faults = random.between(0, 3);
  for (uint32_t i = 0; i < faults; ++i) plan.actions.push_back(draw_fault(random, plan));
  plan.kept.assign(plan.actions.size(), true);
  return plan;
}

uint32_t JobPlan::count() const {
  return static_cast<uint32_t>(std::count(kept.begin(), kept.end(), true));
}

Rank JobPlan::taking_part() const {
  std::set<Rank> all;
  for (size_t i = 0; i < actions.size(); ++i) {
    if (!kept[i]) continue;
    all.insert(actions[i].rank);
    if (!is_fault(actions[i].kind)) all.insert(actions[i].peer);
  }
  return static_cast<Rank>(all.size());
}

std::string JobPlan::text() const {
  std::string made = std::to_string(seed);
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
