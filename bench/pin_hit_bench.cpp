// Question: what does it cost to hold and release memory that is already pinned?
//
// Unit: nanoseconds per hold+release *per thread* (column Time, "real_time" in the JSON), for any number of
// threads; "cpu_time" agrees unless threads sleep or are interrupted. Time is a mean; p50_ns and p99_ns are
// quantiles of batches of 4096 holds. A batch takes at least 20 us, so the median batch was not interrupted:
// reports should show p50_ns.
//
// Rows   hydrant/region, hydrant/page       64 KiB regions at a 128 KiB stride, random order
//        hydrant/page4k                     the same with 4 KiB buckets at an 8 KiB stride
//        hydrant/region-inside, ucx-inside  each hold is 4 KiB at a random place of a region
//        hydrant/region-key, ucx-key        the holder also reads the region's key, as a sender does
//        ucx                                ucs_rcache_get + ucs_rcache_region_put (support/ucx_peer.hpp)
//        ucx-limited                        the same with limits on regions and bytes, which are not reached
//        floor/empty                        the loop alone
//        floor/private                      a plain increment and decrement in memory of the thread
//        floor/locked                       a locked increment and decrement of a count per region: the least
//                                           cost of any cache with shared reference counts
//
// The program links the hooks, like programs that link by firehose.pc: hits are those of the default domain.
//
// Not included: registration (the registrar does nothing, the memory is only reserved), a thread's first
// access to a region (every thread visits all of them before the clock starts), using the memory. All rows
// walk the same precomputed stream; the loop is part of every row, and floor/empty shows its cost. Threads
// share all regions. Each starts elsewhere in the stream and stays on its own core.
#include "bench/support/bench_main.hpp"
#include "bench/support/domain.hpp"
#include "bench/support/machine.hpp"
#include "bench/support/memory.hpp"
#include "bench/support/ucx_peer.hpp"

#include <functional>
#include <memory>
#include <mutex>

namespace hydrant::bench {
namespace {

constexpr size_t kBatch = 4096;   // holds between two readings of the clock: at least 20 us
constexpr int kWarmUpPasses = 3;  // until the thread's own table has every region
constexpr uint32_t kRegionCounts[] = {1, 16, 1024, 65536};

// The regions of a row, and the part of them that is held.
struct Layout {
  uint32_t regions;
  size_t region_bytes;
  size_t hold_bytes;
};

class Population {
 public:
  explicit Population(Layout layout)
      : layout_(layout), memory_(layout.regions * stride(), PageKind::kReserved) {
    std::mt19937 random(7);
    const size_t places = layout.region_bytes / layout.hold_bytes;
    for (const uint32_t region : shuffled_stream(layout.regions, 4 * kBatch, 1)) {
      const size_t place = places == 1 ? 0 : random() % places;
      offsets_.push_back(region * uint64_t{stride()} + place * layout.hold_bytes);
      indices_.push_back(region);
    }
  }

  size_t stride() const { return 2 * layout_.region_bytes; }
  const Layout& layout() const { return layout_; }
  std::byte* region(uint32_t index) const { return memory_.at(index * stride()); }
  std::byte* base() const { return memory_.data(); }
  const std::vector<uint64_t>& offsets() const { return offsets_; }
  const std::vector<uint32_t>& indices() const { return indices_; }

 private:
  Layout layout_;
  Memory memory_;
  std::vector<uint64_t> offsets_;
  std::vector<uint32_t> indices_;
};

// Measures one subject. hold_release() returns whether the hold succeeded.
template <typename Subject>
void measure(benchmark::State& state, Subject& subject) {
  const OnCore here(state.thread_index());
  const auto& stream = subject.stream();
  const auto thread = static_cast<size_t>(state.thread_index());
  size_t next = stream.size() / static_cast<size_t>(state.threads()) * thread;
  for (int pass = 0; pass < kWarmUpPasses; ++pass) {
    for (const auto item : stream) subject.hold_release(item);
  }
  bool good = true;
  std::vector<double> batch_ns;
  while (state.KeepRunningBatch(kBatch)) {
    const uint64_t start = now_ns();
    for (size_t done = 0; done < kBatch;) {
      const size_t run = std::min(kBatch - done, stream.size() - next);
      const auto* item = stream.data() + next;
      for (const auto* end = item + run; item != end; ++item) good &= subject.hold_release(*item);
      done += run;
      next = next + run == stream.size() ? 0 : next + run;
    }
    const auto elapsed = static_cast<double>(now_ns() - start);
    set_thread_time(state, elapsed);
    batch_ns.push_back(elapsed / kBatch);
  }
  using benchmark::Counter;
  state.counters["p50_ns"] = Counter(quantile(batch_ns, 0.50), Counter::kAvgThreads);
  state.counters["p99_ns"] = Counter(quantile(batch_ns, 0.99), Counter::kAvgThreads);
  if (!good) state.SkipWithError("a hold failed");
  if (!subject.only_hits()) state.SkipWithError("a registration occurred while hits were timed");
}

class HydrantHits {
 public:
  HydrantHits(const Population& population, uint32_t mode, bool read_key)
      : population_(population), domain_(options(population, mode)), read_key_(read_key) {
    const Layout& layout = population.layout();
    for (uint32_t i = 0; i < layout.regions; ++i) {
      const hydrant_pin_t pin =
          hydrant_pin(domain_.get(), population.region(i), layout.region_bytes, kAccess);
      if (pin.region == nullptr || hydrant_release(pin) != GASNET_OK) {
        std::fprintf(stderr, "populating: %s\n", hydrant_error_text());
        std::exit(1);
      }
    }
    registered_ = domain_.stats().pins;
  }

  const std::vector<uint64_t>& stream() const { return population_.offsets(); }
  bool only_hits() const { return domain_.stats().pins == registered_; }

  bool hold_release(uint64_t offset) {
    const hydrant_pin_t pin = hydrant_pin(domain_.get(), population_.base() + offset,
                                          population_.layout().hold_bytes, kAccess);
    if (pin.region == nullptr) return false;
    if (read_key_) {
      uint64_t key = *static_cast<const uint64_t*>(pin.region->key);
      benchmark::DoNotOptimize(key);
    }
    return hydrant_release(pin) == GASNET_OK;
  }

 private:
  static constexpr uint32_t kAccess = HYDRANT_LOCAL_WRITE;

  // The default watch option, which allows unchecked hits in a program that links the hooks, as this one
  // does. If the kernel cannot report releases, the client has to.
  static uint32_t watch_here(const Population& population) {
    static const uint32_t watch = [&] {
      const hydrant_registrar_t registrar = noop_registrar();
      hydrant_domain_options_t options;
      hydrant_domain_options_init(&options);
      options.registrar = &registrar;
      const Domain domain(options);
      uint32_t coverage = HYDRANT_COVERAGE_NONE;
      hydrant_coverage(domain.get(), population.base(), population.layout().hold_bytes, &coverage);
      if (coverage == HYDRANT_COVERAGE_WATCHED) return HYDRANT_WATCH_DEFAULT;
      std::fprintf(stderr, "memory is %s here: the measured domains use watch = client\n",
                   hydrant_coverage_name(coverage));
      return HYDRANT_WATCH_CLIENT;
    }();
    return watch;
  }

  static hydrant_domain_options_t options(const Population& population, uint32_t mode) {
    static const hydrant_registrar_t registrar = noop_registrar();
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.registrar = &registrar;
    options.mode = mode;
    options.watch = watch_here(population);
    options.budget_bytes = uint64_t{1} << 40;
    options.max_regions = population.layout().regions + 1024;
    options.bucket_bytes = mode == HYDRANT_MODE_PAGE ? population.layout().region_bytes : 0;
    return options;
  }

  const Population& population_;
  Domain domain_;
  bool read_key_;
  uint64_t registered_ = 0;
};

enum class Floor { kEmpty, kPrivate, kLocked };

template <Floor kind>
class FloorLoop {
 public:
  explicit FloorLoop(const Population& population) : population_(population) {
    if (kind == Floor::kLocked) counts_ = std::make_unique<Count[]>(population.layout().regions);
  }
  const std::vector<uint32_t>& stream() const { return population_.indices(); }
  bool only_hits() const { return true; }

  bool hold_release(uint32_t region) {
    if constexpr (kind == Floor::kLocked) {
      __atomic_fetch_add(&counts_[region].value, 1, __ATOMIC_ACQUIRE);
      __atomic_fetch_sub(&counts_[region].value, 1, __ATOMIC_RELEASE);
    } else if constexpr (kind == Floor::kPrivate) {
      auto* count = const_cast<volatile uint32_t*>(&own_counts()[region]);
      *count = *count + 1;
      *count = *count - 1;
    }
    benchmark::DoNotOptimize(region);
    return true;
  }

 private:
  struct alignas(64) Count {
    uint32_t value;
  };
  static uint32_t* own_counts() {
    static thread_local std::unique_ptr<uint32_t[]> counts = std::make_unique<uint32_t[]>(65536);
    return counts.get();
  }

  const Population& population_;
  std::unique_ptr<Count[]> counts_;
};

const Population& population(Layout layout) {
  static std::vector<std::unique_ptr<Population>> made;
  for (const auto& one : made) {
    const Layout& has = one->layout();
    if (has.regions == layout.regions && has.region_bytes == layout.region_bytes &&
        has.hold_bytes == layout.hold_bytes) {
      return *one;
    }
  }
  made.push_back(std::make_unique<Population>(layout));
  return *made.back();
}

// Registers a row for every thread count. The first thread creates the subject; all repetitions of all thread
// counts measure the same cache.
template <typename Subject, typename... Arguments>
void add_rows(const std::string& prefix, Layout layout, Arguments... arguments) {
  struct Shared {
    std::once_flag once;
    std::unique_ptr<Subject> subject;
  };
  const auto shared = std::make_shared<Shared>();
  static std::mutex populations;
  auto* row = benchmark::RegisterBenchmark(
      (prefix + "/regions:" + std::to_string(layout.regions)).c_str(),
      [shared, layout, arguments...](benchmark::State& state) {
        std::call_once(shared->once, [&] {
          const std::lock_guard lock(populations);
          shared->subject = std::make_unique<Subject>(population(layout), arguments...);
        });
        measure(state, *shared->subject);
      });
  row->UseManualTime()->Unit(benchmark::kNanosecond);
  for (const int threads : thread_counts()) row->Threads(threads);
}

#if HYDRANT_HAVE_UCX

class UcxHits {
 public:
  UcxHits(const Population& population, bool read_key, UcxLimits limits = UcxLimits::kNone)
      : population_(population), cache_(&registration_, limits), read_key_(read_key) {
    const Layout& layout = population.layout();
    for (uint32_t i = 0; cache_.works() && i < layout.regions; ++i) {
      UcxCache::Region* region = cache_.get(population.region(i), layout.region_bytes);
      if (region != nullptr) cache_.put(region);
    }
  }
  const std::vector<uint64_t>& stream() const { return population_.offsets(); }
  bool only_hits() const { return cache_.registrations() == population_.layout().regions; }

  bool hold_release(uint64_t offset) {
    UcxCache::Region* region =
        cache_.get(population_.base() + offset, population_.layout().hold_bytes);
    if (region == nullptr) return false;
    if (read_key_) benchmark::DoNotOptimize(region->slot);
    cache_.put(region);
    return true;
  }

 private:
  const Population& population_;
  UcxRegistration registration_;
  UcxCache cache_;
  bool read_key_;
};

void add_ucx_rows(uint32_t regions) {
  add_rows<UcxHits>("ucx", {regions, 64 * kKiB, 64 * kKiB}, false);
  add_rows<UcxHits>("ucx-limited", {regions, 64 * kKiB, 64 * kKiB}, false, UcxLimits::kUnreached);
  add_rows<UcxHits>("ucx-inside", {regions, 64 * kKiB, 4 * kKiB}, false);
  add_rows<UcxHits>("ucx-key", {regions, 64 * kKiB, 64 * kKiB}, true);
}
void describe_peers() { benchmark::AddCustomContext("peers", "ucx ucs_rcache: " + ucx_library()); }

#else

void add_ucx_rows(uint32_t) {}
void describe_peers() {
  benchmark::AddCustomContext("peers", "none");
  benchmark::AddCustomContext("peers_absent", "ucx (" HYDRANT_UCX_ABSENT ")");
}

#endif

void add_all_rows() {
  for (const uint32_t regions : kRegionCounts) {
    const Layout whole{regions, 64 * kKiB, 64 * kKiB};
    const Layout inside{regions, 64 * kKiB, 4 * kKiB};
    add_rows<HydrantHits>("hydrant/region", whole, HYDRANT_MODE_REGION, false);
    add_rows<HydrantHits>("hydrant/page", whole, HYDRANT_MODE_PAGE, false);
    add_rows<HydrantHits>("hydrant/page4k", {regions, 4 * kKiB, 4 * kKiB}, HYDRANT_MODE_PAGE,
                          false);
    add_rows<HydrantHits>("hydrant/region-inside", inside, HYDRANT_MODE_REGION, false);
    add_rows<HydrantHits>("hydrant/region-key", whole, HYDRANT_MODE_REGION, true);
    add_ucx_rows(regions);
    add_rows<FloorLoop<Floor::kEmpty>>("floor/empty", whole);
    add_rows<FloorLoop<Floor::kPrivate>>("floor/private", whole);
    add_rows<FloorLoop<Floor::kLocked>>("floor/locked", whole);
  }
}

}  // namespace
}  // namespace hydrant::bench

int main(int argc, char** argv) {
  hydrant::bench::describe_peers();
  hydrant::bench::add_all_rows();
  return hydrant::bench::run_program(argc, argv, "0.02");
}
