// The schedule of a job, its start and its end.
#include "tests/simulation/simulated_job.hpp"

#include "firehose/base/log.hpp"
#include "firehose/registrars/ibv/ibv_registrar.hpp"
#include "tests/simulation/virtual_time.hpp"
#include "tests/unit/firehose/base/scoped_env.hpp"

#include <cinttypes>
#include <cstdio>
#include <numeric>

namespace hydrant::simulation {

namespace {

// A wait may last so long after anything has happened: longer than patience, probes, and the longest interval
// of handshakes.
constexpr uint64_t kDeadlineNs = 10 * VirtualTime::kSecond;
constexpr uint32_t kIdleSteps = 200;  // without progress until the clock moves faster
constexpr uint32_t kSettlingPolls = 40;

constexpr size_t whole_pages(size_t bytes) { return (bytes + 4095) & ~size_t{4095}; }

// That of Operations::make_registrar() reads the machine's limits, which takes longer than a job.
std::unique_ptr<Registrar> make_registrar(IbvTransport& transport) {
  if (transport.rails() > 1) return transport.pinned()->make_registrar();
  std::unique_ptr<IbvRegistrar> made;
  (void)IbvRegistrar::create(transport.port().device.pd, &made);
  return made;
}

// The job whose peer-failed callbacks are called, and the rank that runs: the callback has no argument for
// them.
JobOperations* g_operations = nullptr;
Rank g_running = 0;

void hear_failure(Rank peer, const char* why) noexcept {
  g_operations->lose_peer(g_running, peer, why);
}

}  // namespace

void Recorder::note(const char* what, uint64_t a, uint64_t b, uint64_t c) {
  last_ns_ = VirtualTime::elapsed_ns();
  uint64_t& hash = outcome_.hash;
  for (const char* at = what; *at != '\0'; ++at)
    hash = Random(hash ^ static_cast<uint64_t>(*at)).next();
  for (const uint64_t each : {last_ns_, a, b, c}) hash = Random(hash ^ each).next();
  if (!prints_) return;
  std::printf("%10.3f ms  %s %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
              static_cast<double>(last_ns_) / 1e6, what, a, b, c);
}

void Recorder::fail(const std::string& what) {
  if (has_failed()) return;
  outcome_.failure = what;
  note("failed");
}

// ---- start ----

void SimulatedJob::open() {
  fake_verbs::reset();
  fake_verbs::seed_writes(world_.plan.seed);
  const JobPlan& plan = world_.plan;
  for (uint32_t i = 0; i < plan.ranks * plan.rails; ++i)
    world_.devices.push_back("fake" + std::to_string(i));
  for (size_t i = 0; i < world_.devices.size(); ++i) {
    fake_verbs::Device device = plan.device;
    device.name = world_.devices[i].c_str();
    device.write_order = plan.orders[i / plan.rails].writes;
    fake_verbs::add_device(device);
  }
  fake_verbs::hold_writes(plan.holds_writes);
  for (Rank rank = 0; rank < plan.ranks; ++rank) open_rank(rank);
  if (!world_.recorder.has_failed()) exchange_keys();
  if (!world_.recorder.has_failed()) operations_.collectives().open(hear_failure);
  if (!world_.recorder.has_failed()) operations_.pins().open();
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    if (!plan.kept[i]) continue;
    if (is_fault(plan.actions[i].kind)) {
      faults_.add(i);
    } else if (is_of_all(plan.actions[i].kind)) {
      for (SimulatedRank& rank : world_.ranks) rank.todo.push_back(i);
    } else {
      world_.ranks[plan.actions[i].rank].todo.push_back(i);
    }
  }
}

void SimulatedJob::open_rank(Rank number) {
  const JobPlan& plan = world_.plan;
  SimulatedRank& rank = world_.ranks[number];
  IbvTransport::Options options = plan.options;
  std::string ports = world_.devices[number * plan.rails];
  for (uint32_t rail = 1; rail < plan.rails; ++rail)
    ports += "," + world_.devices[number * plan.rails + rail];
  options.ports = ports.c_str();
  const ScopedEnv order("HYDRANT_IBV_ORDER", plan.orders[number].setting);
  rank.ibv = std::make_unique<testing::IbvRank>(world_.box, number, plan.ranks, options);
  if (rank.ibv->opened != Status::kOk) {
    world_.recorder.fail(std::string("no transport: ") + last_error_text());
    rank.ibv.reset();
    return;
  }
  rank.transport().set_peer_failed_callback(hear_failure);
  rank.ibv->inbox.then = [this, number](const Incoming& message) {
    operations_.deliver(number, message);
    if (world_.random.one_in(8))
      (void)world_.ranks[number].transport().poll(world_.ranks[number].ibv->inbox, 2, true);
  };
  const bool has_atomics = (rank.transport().capabilities() & Transport::kAtomics) != 0;
  Access access = testing::kTarget | Access::kLocalWrite;
  if (has_atomics) access = access | Access::kRemoteAtomic;
  rank.memory = std::make_unique<testing::PinnedMemory>(
      make_registrar(rank.transport()), access, whole_pages(world_.memory.layout().bytes()));
}

void SimulatedJob::exchange_keys() {
  for (SimulatedRank& rank : world_.ranks) {
    for (SimulatedRank& peer : world_.ranks) {
      std::byte blob[64];
      size_t length = sizeof blob;
      const MemoryRange range{peer.memory->address(), peer.memory->bytes_};
      const bool is_imported =
          peer.memory->registrar->export_key(range, peer.memory->key.data(), blob, &length) ==
              Status::kOk &&
          rank.memory->registrar->import_key(blob, length, rank.remote.emplace_back().key.data()) ==
              Status::kOk;
      rank.remote.back().address = range.addr;
      if (!is_imported) world_.recorder.fail(std::string("no key: ") + last_error_text());
    }
  }
}

// ---- schedule ----

Outcome SimulatedJob::run() {
  g_operations = &operations_;
  open();
  Recorder& recorder = world_.recorder;
  run_until_done();
  operations_.pins().give_back();
  run_until_done();
  if (!recorder.has_failed()) settle();
  close();
  recorder.outcome().virtual_ns = VirtualTime::elapsed_ns();
  return recorder.outcome();
}

void SimulatedJob::run_until_done() {
  Recorder& recorder = world_.recorder;
  while (!recorder.has_failed() && !(operations_.is_done() && faults_.is_done())) {
    step();
    if (VirtualTime::elapsed_ns() - recorder.last_ns() > kDeadlineNs)
      recorder.fail("waits have not ended:" + operations_.describe_waits());
  }
}

void SimulatedJob::step() {
  ++world_.recorder.outcome().steps;
  faults_.run();
  const Rank number = world_.random.below(world_.plan.ranks);
  SimulatedRank& rank = world_.ranks[number];
  uint32_t done = 0;
  if (rank.is_alive() && rank.computes_until_ns <= VirtualTime::elapsed_ns()) {
    g_running = number;
    const size_t before = rank.todo.size();
    operations_.act(number);
    done = poll(number);
    faults_.note_poll();
    if (rank.todo.size() != before) ++done;
  }
  advance_clock(done != 0);
}

uint32_t SimulatedJob::poll(Rank number) {
  SimulatedRank& rank = world_.ranks[number];
  Random& random = world_.random;
  if (random.one_in(16) || (idle_steps_ > kIdleSteps && random.one_in(2)))
    (void)rank.transport().notices().arm_events();
  const uint32_t budget = random.one_in(4) ? random.between(1, 3) : 16;
  return rank.transport().poll(rank.ibv->inbox, budget, random.one_in(8));
}

void SimulatedJob::advance_clock(bool has_progress) {
  idle_steps_ = has_progress ? 0 : idle_steps_ + 1;
  const uint32_t most = idle_steps_ > kIdleSteps ? 2000 : 20;
  VirtualTime::elapse(world_.random.between(1, most) * VirtualTime::kMicrosecond);
}

// ---- end ----

// Shows what comes late or twice.
void SimulatedJob::settle() {
  for (uint32_t i = 0; i < kSettlingPolls * world_.plan.ranks; ++i) step();
  operations_.check_sums();
  operations_.collectives().check_lines();
}

void SimulatedJob::add_counts(Rank number) {
  const IbvTransport::Counts counts = world_.ranks[number].transport().counts();
  Recorder& recorder = world_.recorder;
  recorder.count("connected", counts.connected);
  recorder.count("handshakes", counts.handshakes);
  recorder.count("control messages", counts.control);
  recorder.count("probes", counts.probes);
  recorder.count("stalled cells", counts.stalls);
  recorder.count("striped operations", counts.striped);
}

void SimulatedJob::close() {
  Recorder& recorder = world_.recorder;
  for (Rank number = 0; number < world_.plan.ranks; ++number) {
    SimulatedRank& rank = world_.ranks[number];
    if (!rank.is_alive()) continue;
    g_running = number;
    world_.pairs.disturb(number);  // the others notice that it ends
    rank.transport().flush(now_ns() + 10 * VirtualTime::kMillisecond);
    add_counts(number);
    operations_.collectives().close(number);
    operations_.pins().close(number);
    rank.memory.reset();
    rank.ibv.reset();
  }
  if (!fake_verbs::live().none()) recorder.fail("an object was not released");
  const fake_verbs::Traffic traffic = fake_verbs::traffic();
  if (traffic.not_ready != 0) recorder.fail("a message found no receive buffer");
  if (traffic.overruns != 0) recorder.fail("a completion found no room");
  if (traffic.bad_keys != 0) recorder.fail("a local key does not permit an access");
  if (traffic.bad_rkeys != 0) recorder.fail("a peer's key does not permit an access");
  if (traffic.too_early != 0) recorder.fail("a request was sent before the peer could receive");
}

Outcome run_job(const JobPlan& plan, bool prints) {
  const VirtualTime time(plan.seed);
  const ScopedEnv transport("HYDRANT_TRANSPORT", "ibv");  // each rank counts as a node
  const LogLevel level = log_level();
  if (!prints) set_log_level(LogLevel::kError);
  if (prints)
    std::printf("%u ranks, %u rails, %s%s, longest message %u\n", plan.ranks, plan.rails,
                plan.device.name, plan.holds_writes ? ", writes held" : "",
                plan.device.max_message);
  for (Rank rank = 0; prints && rank < plan.ranks; ++rank) {
    const JobPlan::Order& order = plan.orders[rank];
    std::printf("rank %u: order %s, writes %d\n", rank,
                order.setting != nullptr ? order.setting : "of the vendor",
                static_cast<int>(order.writes));
  }
  SimulatedJob job(plan, prints);
  Outcome outcome = job.run();
  fake_verbs::reset();
  set_log_level(level);
  return outcome;
}

}  // namespace hydrant::simulation
