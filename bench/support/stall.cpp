// Rows that measure whether a registration in one thread stalls hits in another (stall.hpp); pin_miss_bench
// adds them.
#include "bench/support/stall.hpp"

#include "bench/support/bare_pins.hpp"
#include "bench/support/bench_main.hpp"
#include "bench/support/domain.hpp"
#include "bench/support/limits.hpp"
#include "bench/support/machine.hpp"
#include "bench/support/memory.hpp"
#include "bench/support/ucx_peer.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace hydrant::bench {
namespace {

constexpr size_t kBigBytes = 64 * kMiB;
constexpr size_t kHitRegions = 16;
constexpr size_t kHitBytes = 64 * kKiB;
constexpr uint64_t kLongNs = 20'000;
constexpr uint64_t kSliceNs = 40'000'000;
constexpr int kPairs = 3;

// A histogram of all hits of one kind of slice.
struct Histogram {
  std::array<uint64_t, 40> count{};  // counts by bit width of the nanoseconds
  uint64_t hits = 0;
  uint64_t total_ns = 0;
  uint64_t long_ns = 0;
  uint64_t max_ns = 0;

  void add(uint64_t ns) {
    ++count[std::min<size_t>(std::bit_width(ns), count.size() - 1)];
    ++hits;
    total_ns += ns;
    if (ns > kLongNs) long_ns += ns;
    max_ns = std::max(max_ns, ns);
  }
  double long_percent() const {
    return total_ns == 0 ? 0.0
                         : 100.0 * static_cast<double>(long_ns) / static_cast<double>(total_ns);
  }
  std::string text() const {
    std::string out;
    for (size_t i = 0; i < count.size(); ++i) {
      if (count[i] != 0) out += " " + std::to_string(1ULL << i) + ":" + std::to_string(count[i]);
    }
    return out;
  }
};

// A cache under test: hit(i) on one of kHitRegions regions; churn() registers and unregisters 64 MiB.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual bool hit(size_t region) = 0;
  virtual bool churn() = 0;

 protected:
  std::byte* region(size_t index) const { return regions_.at(index * 2 * kHitBytes); }
  std::byte* big() const { return big_.data(); }

 private:
  Memory regions_{kHitRegions * 2 * kHitBytes, PageKind::kSmall};
  Memory big_{kBigBytes, PageKind::kSmall};
};

class HydrantSubject : public Subject {
 public:
  explicit HydrantSubject(bool churn_bare) : churn_bare_(churn_bare), domain_(options()) {}
  bool hit(size_t index) override {
    return release(hydrant_pin(domain_.get(), region(index), kHitBytes, HYDRANT_LOCAL_WRITE));
  }
  bool churn() override {
    if (churn_bare_) return bare_.pin_patiently(0, big(), kBigBytes) && bare_.unpin(0);
    const hydrant_pin_t pin = hydrant_pin(domain_.get(), big(), kBigBytes, HYDRANT_LOCAL_WRITE);
    return release(pin) && hydrant_invalidate(domain_.get(), big(), kBigBytes) == GASNET_OK;
  }

 private:
  static bool release(hydrant_pin_t pin) {
    return pin.region != nullptr && hydrant_release(pin) == GASNET_OK;
  }
  static hydrant_domain_options_t options() {
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.watch = HYDRANT_WATCH_CLIENT;
    options.registrar_name = "uring";
    options.budget_bytes = kBigBytes + 4 * kMiB;
    return options;
  }
  bool churn_bare_;
  BareRing bare_;
  Domain domain_;
};

// The registering thread: runs until stop() and counts its registrations.
class Registering {
 public:
  Registering(Subject& subject, std::chrono::microseconds pause)
      : thread_([this, &subject, pause] {
          const OnCore here(1);
          while (running_.load(std::memory_order_relaxed)) {
            if (!subject.churn()) failed_.store(true, std::memory_order_relaxed);
            done_.fetch_add(1, std::memory_order_relaxed);
            if (pause.count() != 0) std::this_thread::sleep_for(pause);
          }
        }) {
    while (done_.load(std::memory_order_relaxed) == 0) std::this_thread::yield();
  }
  Registering(const Registering&) = delete;
  Registering& operator=(const Registering&) = delete;
  ~Registering() { stop(); }

  // True if every registration succeeded.
  bool stop() {
    running_.store(false, std::memory_order_relaxed);
    if (thread_.joinable()) thread_.join();
    return !failed_.load(std::memory_order_relaxed);
  }
  uint64_t done() const { return done_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> running_{true};
  std::atomic<bool> failed_{false};
  std::atomic<uint64_t> done_{0};
  std::thread thread_;
};

bool hit_for_a_slice(Subject& subject, Histogram& histogram) {
  bool good = true;
  uint32_t random = 1;
  const uint64_t end = now_ns() + kSliceNs;
  for (uint64_t last = now_ns(); last < end;) {
    random = random * 1664525U + 1013904223U;
    good &= subject.hit(random >> 28);  // the upper bits: kHitRegions == 16
    const uint64_t now = now_ns();
    histogram.add(now - last);
    last = now;
  }
  return good;
}
static_assert(kHitRegions == 16);

void measure(benchmark::State& state, Subject& subject, std::chrono::microseconds pause) {
  const OnCore here(0);
  Histogram alone;
  Histogram beside;
  uint64_t registrations = 0;
  bool good = subject.churn();
  for (size_t i = 0; i < kHitRegions; ++i) good &= subject.hit(i);
  for (auto _ : state) {
    for (int pair = 0; pair < kPairs; ++pair) {
      good &= hit_for_a_slice(subject, alone);
      Registering other(subject, pause);
      good &= hit_for_a_slice(subject, beside);
      good &= other.stop();
      registrations += other.done();
    }
    const auto hits = static_cast<double>(std::max<uint64_t>(beside.hits, 1));
    state.SetIterationTime(static_cast<double>(beside.total_ns) / hits * 1e-9);
  }
  set_counter(state, "share_alone", alone.long_percent());
  set_counter(state, "share_beside", beside.long_percent());
  set_counter(state, "share_grows", beside.long_percent() - alone.long_percent());
  set_counter(state, "longest_alone_us", static_cast<double>(alone.max_ns) * 1e-3);
  set_counter(state, "longest_beside_us", static_cast<double>(beside.max_ns) * 1e-3);
  set_counter(state, "registrations", static_cast<double>(registrations));
  state.SetLabel("alone" + alone.text() + " | beside" + beside.text());
  if (!good) state.SkipWithError("a hold or a registration failed");
}

using MakeSubject = std::function<std::unique_ptr<Subject>()>;

void add_rows(const std::string& name, const MakeSubject& make) {
  std::string refusal = uring_refusal();
  if (refusal.empty()) refusal = memlock_refusal(kBigBytes + 2 * kMiB);
  if (refusal.empty() && usable_cores().size() < 2) refusal = "needs two cores";
  for (const int pause_us : {0, 1000}) {
    benchmark::RegisterBenchmark((name + "/pause_us:" + std::to_string(pause_us)).c_str(),
                                 [=](benchmark::State& state) {
                                   if (!refusal.empty()) {
                                     return state.SkipWithError(refusal.c_str());
                                   }
                                   measure(state, *make(), std::chrono::microseconds(pause_us));
                                 })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kNanosecond);
  }
}

#if HYDRANT_HAVE_UCX

// Registers with io_uring for UCX. Both threads may call, one at a time: UCX holds its
// lock for writing.
class RingRegistration : public UcxRegistration {
 public:
  RingRegistration() {
    for (unsigned slot = 0; slot < 2 * kHitRegions; ++slot) free_.push_back(slot);
  }
  bool pin(void* addr, size_t len, uint32_t* slot) override {
    *slot = free_.back();
    if (!ring_.pin(*slot, addr, len)) return false;
    free_.pop_back();
    return true;
  }
  void unpin(uint32_t slot) override {
    ring_.unpin(slot);
    free_.push_back(slot);
  }

 private:
  BareRing ring_;
  std::vector<unsigned> free_;
};

class UcxSubject : public Subject {
 public:
  bool hit(size_t index) override {
    UcxCache::Region* got = cache_.get(region(index), kHitBytes);
    if (got != nullptr) cache_.put(got);
    return got != nullptr;
  }
  bool churn() override {
    UcxCache::Region* got = cache_.get(big(), kBigBytes);
    if (got != nullptr) cache_.invalidate(got);
    return got != nullptr;
  }

 private:
  RingRegistration registration_;
  UcxCache cache_{&registration_};
};

void add_ucx_rows() {
  add_rows("stall/ucx", [] { return std::make_unique<UcxSubject>(); });
}

#else

void add_ucx_rows() { benchmark::AddCustomContext("peers_absent", "ucx (" HYDRANT_UCX_ABSENT ")"); }

#endif

}  // namespace

void add_stall_rows() {
  add_rows("stall/hydrant", [] { return std::make_unique<HydrantSubject>(false); });
  add_rows("stall/hydrant-beside-bare", [] { return std::make_unique<HydrantSubject>(true); });
  add_ucx_rows();
}

}  // namespace hydrant::bench
