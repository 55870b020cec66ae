// Question: how much memory does the cache itself use, per region and per thread?
//
// Unit: bytes, in the counters. Column Time, nanoseconds per first access to a region with threads running
// one after the other, is not the subject.
//   shared_bytes_per_region  the domain's tables, as the cache counts them
//   thread_bytes             tables of one thread that has touched every region, as the cache counts them
//   thread_bytes_per_region  the same, per region
//   resident_per_region      growth of the resident process, per region, all threads included
//
// Rows  memory/region|page/regions:R/bytes:LENGTH/threads:T
//       memory/.../capacity:default/threads:1   a domain with the default max_regions; else it is about R
//       memory/.../[keys:12/][order:random|descending/]threads:T   keys as large as uring's (8 bytes
//       otherwise); the order of first uses (ascending otherwise). Random order leaves the chunks of the
//       region table three quarters full, which is the worst case.
//
// Not included: the pinned memory, and the memory that a kernel or device needs for a registration (the
// registrar does nothing). Threads are alive together when the bytes are counted.
#include "bench/support/bench_main.hpp"
#include "bench/support/domain.hpp"
#include "bench/support/machine.hpp"
#include "bench/support/memory.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace hydrant::bench {
namespace {

constexpr const char* kAscending = "ascending";

struct Row {
  uint32_t mode;
  uint32_t regions;
  size_t bytes;
  size_t threads;
  uint32_t key_bytes = 8;
  const char* order = kAscending;
  bool default_capacity = false;
};

// The regions in the order in which they are first used.
std::vector<uint32_t> order_of(const Row& row) {
  std::vector<uint32_t> order(row.regions);
  std::iota(order.begin(), order.end(), 0u);
  if (std::strcmp(row.order, "random") == 0)
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
  if (std::strcmp(row.order, "descending") == 0) std::reverse(order.begin(), order.end());
  return order;
}

size_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  size_t total = 0;
  size_t resident = 0;
  const int read = std::fscanf(file, "%zu %zu", &total, &resident);
  std::fclose(file);
  return read == 2 ? resident * page_bytes() : 0;
}

bool visit_all(const Domain& domain, const Memory& memory, const Row& row,
               const std::vector<uint32_t>& order) {
  bool good = true;
  for (const uint32_t i : order) {
    const hydrant_pin_t pin =
        hydrant_pin(domain.get(), memory.at(i * 2 * row.bytes), row.bytes, HYDRANT_LOCAL_WRITE);
    good &= pin.region != nullptr && hydrant_release(pin) == GASNET_OK;
  }
  return good;
}

// Starts `threads` threads that touch every region in turn, calls `count` while all live, ends them.
template <typename Count>
bool with_threads(const Row& row, const Domain& domain, const Memory& memory, Count&& count) {
  std::mutex mutex;
  std::condition_variable changed;
  size_t visited = 0;
  bool done = false;
  bool good = true;
  const std::vector<uint32_t> order = order_of(row);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < row.threads; ++i) {
    threads.emplace_back([&, i] {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return visited == i; });
      good &= visit_all(domain, memory, row, order);
      ++visited;
      changed.notify_all();
      changed.wait(lock, [&] { return done; });
    });
  }
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return visited == row.threads; });
    count();
    done = true;
  }
  changed.notify_all();
  for (auto& thread : threads) thread.join();
  return good;
}

void measure(benchmark::State& state, const Row& row) {
  hydrant_registrar_t registrar = noop_registrar();
  registrar.key_bytes = row.key_bytes;
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.watch = HYDRANT_WATCH_CLIENT;
  options.registrar = &registrar;
  options.mode = row.mode;
  options.bucket_bytes = row.mode == HYDRANT_MODE_PAGE ? row.bytes : 0;
  options.budget_bytes = uint64_t{1} << 46;
  options.max_regions = row.default_capacity ? 0 : row.regions + 64;
  const Memory memory(row.regions * 2 * row.bytes, PageKind::kReserved);
  const size_t before = resident_bytes();
  const Domain domain(options);
  for (auto _ : state) {
    const uint64_t start = now_ns();
    hydrant_stats_t stats{};
    size_t resident = 0;
    const bool good = with_threads(row, domain, memory, [&] {
      stats = domain.stats();
      resident = resident_bytes();
    });
    const auto looks = static_cast<double>(row.regions) * static_cast<double>(row.threads);
    state.SetIterationTime(static_cast<double>(now_ns() - start) * 1e-9 / looks);
    const double regions = row.regions;
    const double per_thread =
        static_cast<double>(stats.thread_table_bytes) / static_cast<double>(row.threads);
    set_counter(state, "shared_bytes_per_region",
                static_cast<double>(stats.shared_table_bytes) / regions);
    set_counter(state, "thread_bytes", per_thread);
    set_counter(state, "thread_bytes_per_region", per_thread / regions);
    set_counter(state, "resident_per_region",
                (static_cast<double>(resident) - static_cast<double>(before)) / regions);
    if (!good || stats.regions != row.regions) state.SkipWithError("not every region was pinned");
  }
}

void add_row(const Row& row) {
  const std::string name =
      std::string("memory/") + (row.mode == HYDRANT_MODE_PAGE ? "page" : "region") +
      "/regions:" + std::to_string(row.regions) + "/bytes:" + std::to_string(row.bytes) +
      (row.default_capacity ? "/capacity:default" : "") +
      (row.key_bytes != 8 ? "/keys:" + std::to_string(row.key_bytes) : "") +
      (std::strcmp(row.order, kAscending) != 0 ? std::string("/order:") + row.order : "") +
      "/threads:" + std::to_string(row.threads);
  benchmark::RegisterBenchmark(name.c_str(),
                               [row](benchmark::State& state) { measure(state, row); })
      ->UseManualTime()
      ->Iterations(1);
}

}  // namespace
}  // namespace hydrant::bench

int main(int argc, char** argv) {
  using namespace hydrant::bench;  // NOLINT(google-build-using-namespace): main only
  for (const uint32_t mode : {HYDRANT_MODE_REGION, HYDRANT_MODE_PAGE}) {
    for (const size_t threads : {size_t{1}, size_t{8}, size_t{64}}) {
      add_row({mode, 1024, 64 * kKiB, threads});
      add_row({mode, 65536, 64 * kKiB, threads});
    }
    for (const uint32_t regions : {1024u, 65536u}) {
      add_row({mode, regions, 64 * kKiB, 1, 8, kAscending, true});
    }
    add_row({mode, 65536, 4 * kKiB, 1});
    add_row({mode, 65536, 1 * kMiB, 1});
    for (const uint32_t key_bytes : {8u, 12u}) {
      if (key_bytes != 8) add_row({mode, 65536, 64 * kKiB, 1, key_bytes});
      for (const char* order : {"random", "descending"}) {
        add_row({mode, 65536, 64 * kKiB, 1, key_bytes, order});
      }
    }
  }
  return run_program(argc, argv, "0.01");
}
