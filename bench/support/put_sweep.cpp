// Random puts to working sets around the budget, in all ways in turn; firehose_bench calls it.
#include "bench/support/put_sweep.hpp"

#include "bench/support/limits.hpp"
#include "bench/support/machine.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace hydrant::bench {
namespace {

constexpr uint32_t kSweepWindow = 8;
constexpr size_t kPutsOf8 = 1000, kPutsOfMore = 256;
constexpr size_t kWarmUps =
    8;  // puts per place before the measurement, if the way of putting caches
constexpr size_t kFewWarmUps = 256;
constexpr uint64_t kMark = 0x9e3779b97f4a7c15u;

// Chooses the targets of puts: 8 bytes within a page, or a multiple of the put's size.
class Places {
 public:
  Places(size_t set_bytes, size_t put_bytes, bool zipf)
      : grain_(std::max(put_bytes, page_bytes())), put_(put_bytes), count_(set_bytes / grain_) {
    if (!zipf) return;
    double sum = 0.0;
    for (size_t i = 0; i < count_; ++i) {
      sum += std::pow(static_cast<double>(i + 1), -0.99);
      sums_.push_back(sum);
      order_.push_back(i);
    }
    std::shuffle(order_.begin(), order_.end(), random_);
  }
  size_t next() {
    size_t place = 0;
    if (sums_.empty()) {
      place = random_() % count_;
    } else {
      const double at = std::uniform_real_distribution<double>(0.0, sums_.back())(random_);
      const auto found = std::lower_bound(sums_.begin(), sums_.end(), at);
      place = order_[std::min(static_cast<size_t>(found - sums_.begin()), count_ - 1)];
    }
    return place * grain_ + random_() % (grain_ / put_) * put_;
  }
  size_t count() const { return count_; }

 private:
  size_t grain_, put_, count_;
  std::mt19937_64 random_{17};
  std::vector<double> sums_;
  std::vector<size_t> order_;
};

// A way with its own target and cache.
class Lane {
 public:
  Lane(PutWay way, const PutSweepPlan& plan, size_t bytes, size_t set_bytes, std::byte* memory,
       const std::byte* source)
      : bytes_(bytes), memory_(memory), source_(source), places_(set_bytes, bytes, plan.zipf) {
    PutSetting setting;
    setting.window = put_window(bytes);
    setting.largest = bytes;
    setting.wire_rate = plan.wire_rate;
    setting.budget_bytes = plan.budget_bytes;
    setting.memory = {{1, memory, set_bytes}};
    strategy_ = make_put_strategy(way, setting);
    const bool caches = way == PutWay::kFirehose || way == PutWay::kRendezvousKeep;
    const size_t grain = std::max(bytes, page_bytes());
    const size_t places = std::min(places_.count(), static_cast<size_t>(plan.budget_bytes) / grain);
    (void)run(caches ? kWarmUps * places : kFewWarmUps);
  }
  const std::string& failure() const { return wrong_.empty() ? strategy_->failure() : wrong_; }
  void set_delay(uint64_t ns) { strategy_->set_delay(ns); }

  // Nanoseconds per put.
  double sample(size_t puts, PutCounts* counts) {
    const PutCounts before = strategy_->counts();
    const double ns = run(puts);
    const PutCounts after = strategy_->counts();
    *counts = {after.messages - before.messages, after.registrations - before.registrations,
               after.hits - before.hits, after.bounced - before.bounced};
    return ns / static_cast<double>(puts);
  }

 private:
  // Checks the target of each put before and after it.
  double run(size_t puts) {
    std::vector<std::vector<PutOp>> programs(1);
    programs[0].reserve(puts);
    for (size_t i = 0; i < puts; ++i) {
      PutOp op{0, 1, memory_ + places_.next(), source_, bytes_, 0, {}};
      programs[0].push_back(op);
      clear(op);
    }
    const double ns = strategy_->run(programs);
    for (const PutOp& op : programs[0]) check(op);
    return ns;
  }
  void clear(const PutOp& op) {
    std::memset(op.at, 0, 8);
    std::memset(op.at + op.len - 8, 0, 8);
  }
  void check(const PutOp& op) {
    if (std::memcmp(op.at, op.data, 8) == 0 &&
        std::memcmp(op.at + op.len - 8, op.data + op.len - 8, 8) == 0)
      return;
    if (wrong_.empty()) wrong_ = "the target does not hold the data of a put";
  }

  const size_t bytes_;
  std::byte* const memory_;
  const std::byte* const source_;
  Places places_;
  std::unique_ptr<PutStrategy> strategy_;
  std::string wrong_;
};

// Measures all cells of one size and one working set, which share their caches.
void run_set(const PutSweepPlan& plan, size_t bytes, unsigned percent,
             const std::vector<std::unique_ptr<Memory>>& memory, const Memory& source,
             std::vector<PutCell>* cells) {
  const size_t grain = std::max(bytes, page_bytes());
  const size_t set_bytes =
      std::max(static_cast<size_t>(plan.budget_bytes) * percent / 100 / grain, size_t{1}) * grain;
  const size_t puts = plan.work * (bytes == 8 ? kPutsOf8 : kPutsOfMore);
  const size_t first = cells->size();
  for (const uint64_t delay : plan.delays_ns)
    cells->push_back({bytes, percent, delay, plan.zipf, {}});
  std::array<std::unique_ptr<Lane>, kPutWays> lanes;
  for (size_t i = 0; i < kPutWays; ++i) {
    lanes[i] = std::make_unique<Lane>(kAllPutWays[i], plan, bytes, set_bytes,
                                      memory[i % memory.size()]->data(), source.data());
  }
  std::mt19937 random(7);
  std::array<size_t, kPutWays> order = {0, 1, 2, 3, 4};
  for (uint32_t repetition = 0; repetition < plan.repetitions; ++repetition) {
    for (size_t d = 0; d < plan.delays_ns.size(); ++d) {
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t i : order) {
        PutSamples& samples = (*cells)[first + d].ways[i];
        if (samples.refusal.empty()) samples.refusal = lanes[i]->failure();
        if (!samples.refusal.empty()) continue;
        lanes[i]->set_delay(plan.delays_ns[d]);
        PutCounts counts;
        samples.ns.push_back(lanes[i]->sample(puts, &counts));
        const double all = static_cast<double>(puts) * plan.repetitions;
        samples.messages += static_cast<double>(counts.messages) / all;
        samples.registrations += static_cast<double>(counts.registrations) / all;
        samples.hits += static_cast<double>(counts.hits) / all;
        samples.bounced += static_cast<double>(counts.bounced) / all;
      }
    }
  }
  for (size_t d = 0; d < plan.delays_ns.size(); ++d) {
    for (size_t i = 0; i < kPutWays; ++i) {
      PutSamples& samples = (*cells)[first + d].ways[i];
      if (samples.refusal.empty()) samples.refusal = lanes[i]->failure();
      if (!samples.refusal.empty()) samples.ns.clear();
    }
  }
}

}  // namespace

uint32_t put_window(size_t bytes) { return bytes == 8 ? 1 : kSweepWindow; }

uint64_t put_budget_bytes() {
  return std::min<uint64_t>(16 * kMiB, memlock_bytes() / 8) & ~uint64_t{64 * kKiB - 1};
}

std::vector<PutCell> run_put_sweep(const PutSweepPlan& plan) {
  const OnCore here(0);
  const unsigned largest = *std::max_element(plan.percents.begin(), plan.percents.end());
  // uring: all ways share the same pages. mlock: each way needs its own, because locks of a page do not nest.
  std::vector<std::unique_ptr<Memory>> memory(uring_refusal().empty() ? 1 : kPutWays);
  for (auto& one : memory) {
    one = std::make_unique<Memory>(static_cast<size_t>(plan.budget_bytes) * largest / 100,
                                   PageKind::kSmall);
  }
  const Memory source(*std::max_element(plan.bytes.begin(), plan.bytes.end()), PageKind::kSmall);
  for (size_t i = 0; i + 8 <= source.bytes(); i += 8) {
    const uint64_t word = (i + 1) * kMark;
    std::memcpy(source.at(i), &word, 8);
  }
  std::vector<PutCell> cells;
  for (const size_t bytes : plan.bytes) {
    for (const unsigned percent : plan.percents)
      run_set(plan, bytes, percent, memory, source, &cells);
  }
  return cells;
}

}  // namespace hydrant::bench
