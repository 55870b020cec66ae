// Question: how much does an additional thread cost all others, when threads pin memory and release it to the
// kernel?
//
// Unit: microseconds of processor time, of all threads and the reader together, per operation (column
// cpu_us): map 64 KiB, touch it, pin it, release the pin, unmap it; 60 times in each thread. The cost is
// linear in the number of threads if every row has the same figure. The start and end of the threads are
// included.
//
// Rows  churn/threads:N/watch:WATCH
//         WATCH   none     no caching: each operation registers and deregisters
//                 checked  only the kernel reports releases: userfaultfd and the reader thread
//                 client   the client reports it by hydrant_invalidate() before it unmaps
//       hits/threads:N   each thread pins the same memory repeatedly: hits only, and no operation of another
//                 thread. ns (column cpu_ns)
//
// The registrar does nothing. Wall-clock time is in column Time.
#include <hydrant/pin_cache.h>

#include "bench/support/bench_main.hpp"
#include "bench/support/domain.hpp"

#include <ctime>
#include <pthread.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace hydrant::bench {
namespace {

constexpr size_t kBytes = size_t{64} << 10;
constexpr uint32_t kAccess = HYDRANT_LOCAL_READ | HYDRANT_LOCAL_WRITE;
constexpr int kOperations = 60;  // of each thread
constexpr int kHits = 100'000;

double process_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

void* map_touched() {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) *static_cast<volatile char*>(memory) = 1;
  return memory;
}

bool use(hydrant_domain_t domain, void* memory) {
  const hydrant_pin_t pin = hydrant_pin(domain, memory, kBytes, kAccess);
  return pin.region != nullptr && hydrant_release(pin) == GASNET_OK;
}

// Runs `body` in `count` threads at once; false if any of them failed.
template <class Body>
bool run_threads(int count, const Body& body) {
  pthread_barrier_t start;
  pthread_barrier_init(&start, nullptr, static_cast<unsigned>(count));
  std::vector<char> good(static_cast<size_t>(count), 0);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  for (int t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      pthread_barrier_wait(&start);
      good[static_cast<size_t>(t)] = body() ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  pthread_barrier_destroy(&start);
  return std::find(good.begin(), good.end(), 0) == good.end();
}

void churn(benchmark::State& state, int threads, uint32_t watch) {
  const hydrant_registrar_t registrar = noop_registrar();
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.registrar = &registrar;
  options.budget_bytes = uint64_t{256} << 20;
  options.watch = watch;
  double cpu = 0.0;
  double done = 0.0;
  for (auto _ : state) {
    const Domain domain(options);
    const double before = process_cpu_ns();
    const bool good = run_threads(threads, [&] {
      bool all = true;
      for (int i = 0; i < kOperations; ++i) {
        void* memory = map_touched();
        all = all && memory != MAP_FAILED && use(domain.get(), memory);
        if (watch == HYDRANT_WATCH_CLIENT) hydrant_invalidate(domain.get(), memory, kBytes);
        munmap(memory, kBytes);
      }
      return all;
    });
    cpu += process_cpu_ns() - before;
    done += static_cast<double>(threads) * kOperations;
    if (!good) state.SkipWithError(hydrant_error_text());
  }
  state.counters["cpu_us"] = cpu / done / 1e3;
}

void hits(benchmark::State& state, int threads) {
  const hydrant_registrar_t registrar = noop_registrar();
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.registrar = &registrar;
  options.watch = HYDRANT_WATCH_CLIENT;
  double cpu = 0.0;
  double done = 0.0;
  for (auto _ : state) {
    const Domain domain(options);
    const double before = process_cpu_ns();
    const bool good = run_threads(threads, [&] {
      void* memory = map_touched();
      bool all = memory != MAP_FAILED;
      for (int i = 0; all && i < kHits; ++i) all = use(domain.get(), memory);
      hydrant_invalidate(domain.get(), memory, kBytes);
      munmap(memory, kBytes);
      return all;
    });
    cpu += process_cpu_ns() - before;
    done += static_cast<double>(threads) * kHits;
    if (!good) state.SkipWithError(hydrant_error_text());
  }
  state.counters["cpu_ns"] = cpu / done;
}

void register_rows() {
  const struct {
    const char* name;
    uint32_t watch;
  } kinds[] = {{"none", HYDRANT_WATCH_NONE},
               {"checked", HYDRANT_WATCH_AUTO},
               {"client", HYDRANT_WATCH_CLIENT}};
  for (const int threads : {10, 100, 300, 1000, 3000}) {
    for (const auto& kind : kinds) {
      const std::string name =
          "churn/threads:" + std::to_string(threads) + "/watch:" + std::string(kind.name);
      benchmark::RegisterBenchmark(
          name.c_str(), [=](benchmark::State& state) { churn(state, threads, kind.watch); })
          ->UseRealTime()
          ->Iterations(1)
          ->Unit(benchmark::kMillisecond);
    }
    const std::string name = "hits/threads:" + std::to_string(threads);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) { hits(state, threads); })
        ->UseRealTime()
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace hydrant::bench

int main(int argc, char** argv) {
  hydrant::bench::register_rows();
  return hydrant::bench::run_program(argc, argv, "0.01");
}
