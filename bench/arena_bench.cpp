// Question: what does memory from libhydrant_alloc cost, and how much does it save at registration?
//
// Unit: nanoseconds per call or pair of calls (column Time). Beside each row, taken in turn with it in the
// same repetition (columns ours_ns, bare_ns, extra_ns = ours - bare, ratio = ours / bare):
//   alloc_free   hydrant_alloc + hydrant_free; bare: malloc + free of the program. Memory is not touched
//   free_pinned  hydrant_free of memory that a cache has registered (uring, released before); bare:
//                hydrant_free of as much unregistered memory. The goal is extra_ns <= 1000
//   pin          registration of memory from the arena; bare: of small pages. times_cheaper = 1 / ratio;
//                the goal is 20 at 64 MiB, where the kernel coalesces huge pages. via:bare is the system
//                call alone, via:cache is hydrant_pin of memory that is not yet cached
//   /backend:NAME/bytes:N    NAME is the allocator; HYDRANT_ALLOC_BACKEND=extents selects the other
//
// Not included: page faults (memory is touched before it is registered or freed), unregistering.
#include <hydrant/alloc.h>

#include "bench/support/bare_pins.hpp"
#include "bench/support/bench_main.hpp"
#include "bench/support/domain.hpp"
#include "bench/support/limits.hpp"
#include "bench/support/machine.hpp"
#include "bench/support/memory.hpp"
#include "bench/support/paired.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace hydrant::bench {
namespace {

constexpr int kPairsPerSample = 1000;
constexpr int kPinsPerSample = 6;

std::string row_name(const char* kind, size_t bytes, const char* more = "") {
  return std::string(kind) + "/backend:" + hydrant_alloc_backend() +
         "/bytes:" + std::to_string(bytes) + more;
}

hydrant_domain_options_t uring_options() {
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.registrar_name = "uring";
  options.budget_bytes = 512 * kMiB;
  options.merge_bytes = 1;  // no merging: every pin has the row's size
  return options;
}

void alloc_free(benchmark::State& state, size_t bytes) {
  const OnCore here(0);
  PairedSamples samples;
  size_t turn = 0;
  for (auto _ : state) {
    double ours = 0.0;
    double bare = 0.0;
    const auto mean = [](auto&& pair) {
      return nanoseconds([&] {
               for (int i = 0; i < kPairsPerSample; ++i) pair();
             }) /
             kPairsPerSample;
    };
    alternate(
        turn++,
        [&] {
          ours = mean([&] {
            void* p = hydrant_alloc(bytes);
            benchmark::DoNotOptimize(p);
            hydrant_free(p);
          });
        },
        [&] {
          bare = mean([&] {
            void* p = std::malloc(bytes);
            benchmark::DoNotOptimize(p);
            std::free(p);
          });
        });
    samples.add(ours, bare);
    state.SetIterationTime(ours * 1e-9);
  }
  samples.report(state);
}

void free_pinned(benchmark::State& state, size_t bytes) {
  const OnCore here(0);
  Domain domain(uring_options());
  PairedSamples samples;
  size_t turn = 0;
  const char* failure = nullptr;
  for (auto _ : state) {
    double ours = 0.0;
    double bare = 0.0;
    const auto one_free = [&](bool registered) {
      void* p = hydrant_alloc(bytes);
      std::memset(p, 1, bytes);
      const hydrant_pin_t pin = hydrant_pin(domain.get(), p, bytes, HYDRANT_LOCAL_WRITE);
      if (pin.region == nullptr || hydrant_release(pin) != GASNET_OK)
        failure = hydrant_error_text();
      if (!registered) {
        hydrant_invalidate(domain.get(), p, bytes);
        hydrant_poll(domain.get());
      }
      const hydrant_pin_t still = hydrant_try_pin(domain.get(), p, bytes, HYDRANT_LOCAL_WRITE);
      if ((still.region != nullptr) != registered)
        failure = "the memory's registration state is wrong";
      hydrant_release(still);
      return nanoseconds([&] { hydrant_free(p); });
    };
    alternate(
        turn++, [&] { ours = one_free(true); }, [&] { bare = one_free(false); });
    samples.add(ours, bare);
    state.SetIterationTime(ours * 1e-9);
  }
  samples.report(state);
  if (failure != nullptr) state.SkipWithError(failure);
}

// Memory from the arena beside small pages, both touched.
struct Buffers {
  explicit Buffers(size_t bytes)
      : huge_before(huge_page_bytes_in_use()),
        arena(hydrant_alloc(bytes)),
        small(bytes, PageKind::kSmall) {
    if (arena != nullptr) std::memset(arena, 1, bytes);
    has_huge_pages = huge_page_bytes_in_use() >= huge_before + bytes / 2;
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() {
    hydrant_free(arena);
    (void)hydrant_alloc_trim();  // so that the next row gets fresh memory
  }

  size_t huge_before;
  void* arena;
  Memory small;
  bool has_huge_pages;
};

template <class Pin, class Unpin>
void pin_both(benchmark::State& state, size_t bytes, Pin&& pin, Unpin&& unpin) {
  const OnCore here(0);
  Buffers buffers(bytes);
  PairedSamples samples;
  size_t turn = 0;
  bool good = buffers.arena != nullptr;
  std::vector<double> ratios;
  for (auto _ : state) {
    double ours = 0.0;
    double bare = 0.0;
    // Takes several samples in a row and drops the first, which would pay for caches that the other side
    // emptied.
    const auto group = [&](void* p) {
      std::vector<double> each;
      for (int i = 0; i < kPinsPerSample; ++i) {
        const double ns = nanoseconds([&] { good = pin(p) && good; });
        unpin(p);
        if (i > 0) each.push_back(ns);
      }
      return median(each);
    };
    alternate(
        turn++, [&] { ours = group(buffers.arena); }, [&] { bare = group(buffers.small.data()); });
    samples.add(ours, bare);
    ratios.push_back(bare / ours);
    state.SetIterationTime(ours * 1e-9);
  }
  samples.report(state);
  set_counter(state, "times_cheaper", median(ratios));
  if (!good) return state.SkipWithError("registration failed");
  if (!buffers.has_huge_pages) state.SkipWithError("the kernel provided no huge pages");
}

void pin_bare(benchmark::State& state, size_t bytes) {
  BareRing ring(2);
  pin_both(
      state, bytes, [&](void* p) { return ring.pin(0, p, bytes); }, [&](void*) { ring.unpin(0); });
}

void pin_cached(benchmark::State& state, size_t bytes) {
  Domain domain(uring_options());
  pin_both(
      state, bytes,
      [&](void* p) {
        const hydrant_pin_t pin = hydrant_pin(domain.get(), p, bytes, HYDRANT_LOCAL_WRITE);
        return pin.region != nullptr && hydrant_release(pin) == GASNET_OK;
      },
      [&](void* p) {
        hydrant_invalidate(domain.get(), p, bytes);
        hydrant_poll(domain.get());
      });
}

using Body = void (*)(benchmark::State&, size_t);

void add_row(const std::string& name, Body body, size_t bytes, int64_t samples, size_t locked) {
  std::string refusal = locked == 0 ? "" : uring_refusal();
  if (refusal.empty()) refusal = memlock_refusal(locked);
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) {
                                 if (!refusal.empty()) return state.SkipWithError(refusal.c_str());
                                 body(state, bytes);
                               })
      ->UseManualTime()
      ->Iterations(samples)
      ->Unit(benchmark::kNanosecond);
}

void add_all_rows() {
  for (const size_t bytes : {size_t{64}, 1 * kKiB, 8 * kKiB, 64 * kKiB, 1 * kMiB, 64 * kMiB}) {
    add_row(row_name("alloc_free", bytes), alloc_free, bytes, 30, 0);
  }
  for (const size_t bytes : {64 * kKiB, 2 * kMiB, 64 * kMiB}) {
    const int64_t samples = bytes < 64 * kMiB ? 200 : 20;
    add_row(row_name("free_pinned", bytes), free_pinned, bytes, samples, 2 * bytes);
  }
  for (const size_t bytes : {2 * kMiB, 16 * kMiB, 64 * kMiB}) {
    const auto samples = static_cast<int64_t>(256 * kMiB / bytes);
    add_row(row_name("pin", bytes, "/via:bare"), pin_bare, bytes, samples, bytes);
    add_row(row_name("pin", bytes, "/via:cache"), pin_cached, bytes, samples, bytes);
  }
}

}  // namespace
}  // namespace hydrant::bench

int main(int argc, char** argv) {
  benchmark::AddCustomContext("hydrant_alloc", hydrant_alloc_backend_reason());
  hydrant::bench::add_all_rows();
  return hydrant::bench::run_program(argc, argv, "0.01");
}
