// Question: what do libfirehose_hooks.so's hooks add to calls on memory that was never pinned?
//
// Unit: nanoseconds per call (column Time: with the hooks). Each row measures in two processes in turn, both
// this program started again, one with the hooks preloaded and one without:
//   ours_ns   with the hooks; bare_ns without; extra_ns = ours_ns - bare_ns (medians of a repetition)
// /monitor:1 has a monitor, and a distant block was pinned once, so that every hook runs its checks.
// /monitor:0 never had a cache. Without the hooks library the hooks cost nothing: that is bare_ns.
//
// Rows  mmap, munmap             64 KiB, never touched
//       madvise                  MADV_DONTNEED of the same
//       malloc_64, free_64       1000 in a row: malloc's caches, bins and the end of the heap
//       malloc_free_64           alternating, as in a program's inner loop
//       malloc_free_64_thread    the same in the arena of another thread
//       malloc_1MiB, free_1MiB   each its own mapping (libc's threshold is fixed at its initial value)
//
// Not included: the cost of the monitor's calls once memory was pinned (invalidate_bench), process start.
#include <hydrant/monitor.h>

#include "bench/support/bench_main.hpp"
#include "bench/support/machine.hpp"
#include "bench/support/paired.hpp"
#include "bench/support/serving_child.hpp"
#include "firehose/watch/hooks_abi.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <malloc.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace hydrant::bench {
namespace {

constexpr size_t kMapBytes = size_t{64} << 10;
constexpr size_t kSmallBytes = 64;
constexpr size_t kLargeBytes = size_t{1} << 20;

void* map_one() {
  return mmap(nullptr, kMapBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

// Nanoseconds per call of the first kind, or of the second, which undoes the first.
template <typename First, typename Second>
double batch(size_t count, bool first_is_timed, First&& first, Second&& second) {
  static std::vector<void*> places(1000);
  const double first_ns = nanoseconds([&] {
    for (size_t i = 0; i < count; ++i) places[i] = first();
  });
  const double second_ns = nanoseconds([&] {
    for (size_t i = 0; i < count; ++i) second(places[i]);
  });
  return (first_is_timed ? first_ns : second_ns) / static_cast<double>(count);
}

double map_batch(bool first) {
  return batch(200, first, map_one, [](void* p) { munmap(p, kMapBytes); });
}
double malloc_batch(size_t count, size_t bytes, bool first) {
  return batch(
      count, first, [=] { return malloc(bytes); }, [](void* p) { free(p); });
}

double malloc_free_64() {
  constexpr size_t kCount = 20000;
  const double ns = nanoseconds([] {
    for (size_t i = 0; i < kCount; ++i) {
      void* p = malloc(kSmallBytes);
      benchmark::DoNotOptimize(p);
      free(p);
    }
  });
  return ns / kCount;
}

// True while a thread starts: its new stack makes the hooks call sync().
bool thread_starts = false;

struct Row {
  const char* name;
  double (*sample)();
};

const Row kRows[] = {
    {"mmap", [] { return map_batch(true); }},
    {"munmap", [] { return map_batch(false); }},
    {"madvise",
     [] {
       static void* const place = map_one();
       constexpr size_t kCount = 2000;
       return nanoseconds([] {
                for (size_t i = 0; i < kCount; ++i) madvise(place, kMapBytes, MADV_DONTNEED);
              }) /
              kCount;
     }},
    {"malloc_64", [] { return malloc_batch(1000, kSmallBytes, true); }},
    {"free_64", [] { return malloc_batch(1000, kSmallBytes, false); }},
    {"malloc_free_64", malloc_free_64},
    {"malloc_free_64_thread",
     [] {
       double ns = 0.0;
       thread_starts = true;
       std::thread([&] {
         free(malloc(kSmallBytes));  // maps the arena's heap
         thread_starts = false;
         ns = malloc_free_64();
       }).join();
       return ns;
     }},
    {"malloc_1MiB", [] { return malloc_batch(100, kLargeBytes, true); }},
    {"free_1MiB", [] { return malloc_batch(100, kLargeBytes, false); }},
};

// Installs a quiet monitor, which never has unread events.
void give_monitor(hydrant_hooks_t* hooks) {
  static uint64_t blocks[(size_t{1} << (47 - HYDRANT_MONITOR_BLOCK_SHIFT)) / 64];
  static const uint64_t sequence = 0;
  static const uint64_t removals = 1;
  static hydrant_monitor_t monitor;
  blocks[0] = 1;
  monitor.size = sizeof monitor;
  monitor.version = HYDRANT_MONITOR_VERSION;
  monitor.blocks = blocks;
  monitor.sequence = &sequence;
  monitor.removals = &removals;
  // Must not be called: that would measure something else.
  monitor.settle = monitor.files_changed = [] { std::abort(); };
  monitor.sync = [] {
    if (!thread_starts) std::abort();
  };
  __atomic_store_n(&hooks->monitor, &monitor, __ATOMIC_RELEASE);
}

// The child: reads row numbers from standard input and writes a sample for each to standard output.
int serve(const std::string& kind) {
  auto* hooks = static_cast<hydrant_hooks_t*>(dlsym(RTLD_DEFAULT, "hydrant_hooks_1"));
  if ((hooks != nullptr) != (kind != "bare")) return 2;
  if (kind == "monitor:1") give_monitor(hooks);
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  const OnCore here(0);
  int row = 0;
  while (read_all(STDIN_FILENO, &row, sizeof row)) {
    const double ns = kRows[row].sample();
    if (!write_all(STDOUT_FILENO, &ns, sizeof ns)) return 1;
  }
  return 0;
}

class Child : public ServingChild {
 public:
  explicit Child(const std::string& kind)
      : ServingChild(kind, kind == "bare" ? "" : HYDRANT_HOOKS_LIBRARY) {}

  // Nanoseconds; negative if the child has ended.
  double ask(int row) const {
    double ns = -1.0;
    return send(&row, sizeof row) && receive(&ns, sizeof ns) ? ns : -1.0;
  }
};

void compare(benchmark::State& state, int row, const std::string& kind) {
  const Child hooked(kind);
  const Child bare("bare");
  hooked.ask(row);  // warms both up
  bare.ask(row);
  PairedSamples samples;
  size_t turn = 0;
  bool good = true;
  for (auto _ : state) {
    double ours_ns = 0.0;
    double bare_ns = 0.0;
    alternate(
        turn++, [&] { ours_ns = hooked.ask(row); }, [&] { bare_ns = bare.ask(row); });
    good = good && ours_ns >= 0 && bare_ns >= 0;
    samples.add(ours_ns, bare_ns);
    state.SetIterationTime(std::max(ours_ns, 0.0) * 1e-9);
  }
  samples.report(state);
  if (!good) state.SkipWithError("a child ended: it has no hooks, or they called a quiet monitor");
}

void add_all_rows() {
  for (int row = 0; row < static_cast<int>(std::size(kRows)); ++row) {
    for (const char* kind : {"monitor:0", "monitor:1"}) {
      const std::string name = std::string("hooks/") + kRows[row].name + "/" + kind;
      benchmark::RegisterBenchmark(name.c_str(),
                                   [=](benchmark::State& state) { compare(state, row, kind); })
          ->UseManualTime()
          ->Iterations(41)
          ->Unit(benchmark::kNanosecond);
    }
  }
}

}  // namespace
}  // namespace hydrant::bench

int main(int argc, char** argv) {
  if (argc > 1 && std::strncmp(argv[1], "--serve=", 8) == 0) {
    return hydrant::bench::serve(argv[1] + 8);
  }
  hydrant::bench::add_all_rows();
  return hydrant::bench::run_program(argc, argv, "0.01");
}
