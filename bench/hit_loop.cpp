// The loop that bench/instruction_count runs under valgrind: holds and releases of pinned, vouched memory
// only, without a benchmark library or peers.
//
//   hit_loop count REGIONS OPERATIONS       one thread; for callgrind
//   hit_loop trace REGIONS OPERATIONS HOW   four threads, one after the other; for lackey's memory trace
//
// Prints one JSON object: the cache's counters and the addresses of the traced sections.
// HOW is `plain`, or a mutant that the checks must catch: `locked` adds to each hit a locked increment
// of a shared line, `stored` with a plain one.
#include "bench/support/domain.hpp"
#include "bench/support/memory.hpp"

#include <condition_variable>
#include <cstring>
#include <fstream>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kRegionBytes = 64 * hydrant::bench::kKiB;
constexpr size_t kThreads = 4;
constexpr int kMaxVisits = 16;

// Stores to begin and end mark a thread's section in the trace.
struct alignas(128) Marker {
  volatile uint64_t begin;
  alignas(128) volatile uint64_t end;
};
Marker markers[kThreads];

alignas(128) volatile uint64_t shared_count;

}  // namespace

// The measurement covers the callees of hit_section(); its own instructions and stack belong to the loop. C
// names, so that the script finds the functions.
extern "C" {
bool hit_section(hydrant_domain_t domain, const std::byte* memory, uint32_t regions,
                 uint64_t operations, void (*extra)(void), uint64_t thread);
void locked_extra(void);
void stored_extra(void);
}

[[gnu::noinline]] void locked_extra(void) {
  __atomic_fetch_add(&shared_count, 1, __ATOMIC_RELAXED);
}
[[gnu::noinline]] void stored_extra(void) { shared_count = shared_count + 1; }

[[gnu::noinline]] bool hit_section(hydrant_domain_t domain, const std::byte* memory,
                                   uint32_t regions, uint64_t operations, void (*extra)(void),
                                   uint64_t thread) {
  bool good = true;
  uint32_t random = 1;
  markers[thread].begin = 1;
  for (uint64_t i = 0; i < operations; ++i) {
    random = random * 1664525U + 1013904223U;
    const size_t region = (uint64_t{random} * regions) >> 32;
    const hydrant_pin_t pin =
        hydrant_pin(domain, memory + region * 2 * kRegionBytes, kRegionBytes, HYDRANT_LOCAL_WRITE);
    if (extra != nullptr) extra();
    good &= pin.region != nullptr && hydrant_release(pin) == GASNET_OK;
  }
  markers[thread].end = 1;
  return good;
}

namespace {

// The cache's counters over some sections.
struct Counts {
  uint64_t hits = 0, refills = 0, misses = 0;
  bool good = true;
};

struct Loop {
  const hydrant::bench::Domain* domain;
  const std::byte* memory;
  uint32_t regions;
  uint64_t operations;
  void (*extra)(void);

  // Visits every region until the calling thread's table has them all. The first visit registers, later ones
  // fill the table, which may grow meanwhile.
  bool warm_up() const {
    bool good = true;
    for (int round = 0; round < kMaxVisits; ++round) {
      const uint64_t before = domain->stats().hits;
      good &= visit_all();
      if (domain->stats().hits == before + regions) break;
    }
    return good;
  }
  bool visit_all() const {
    bool good = true;
    for (uint32_t i = 0; i < regions; ++i) {
      const hydrant_pin_t pin = hydrant_pin(domain->get(), memory + i * 2 * kRegionBytes,
                                            kRegionBytes, HYDRANT_LOCAL_WRITE);
      good &= pin.region != nullptr && hydrant_release(pin) == GASNET_OK;
    }
    return good;
  }
  void section(uint64_t thread, Counts& counts) const {
    counts.good &= warm_up();
    const hydrant_stats_t before = domain->stats();
    counts.good &= hit_section(domain->get(), memory, regions, operations, extra, thread);
    const hydrant_stats_t after = domain->stats();
    counts.hits += after.hits - before.hits;
    counts.refills += after.refills - before.refills;
    counts.misses += after.misses - before.misses;
  }
};

// Runs the threads one after the other, and keeps all alive until the last has finished, so that none
// inherits the state of an earlier one.
void run_threads(const Loop& loop, Counts& counts) {
  std::mutex mutex;
  std::condition_variable changed;
  size_t next = 0;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return next == i; });
      loop.section(i, counts);
      ++next;
      changed.notify_all();
      changed.wait(lock, [&] { return next == kThreads; });
    });
  }
  for (auto& thread : threads) thread.join();
}

hydrant_domain_options_t options(const hydrant_registrar_t* registrar, uint32_t regions) {
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.registrar = registrar;
  options.watch = HYDRANT_WATCH_NONE;  // so that only vouched memory can be a hit
  options.budget_bytes = uint64_t{1} << 40;
  options.max_regions = regions + 64;
  return options;
}

void print_places() {
  std::cout << ", \"markers\": [";
  for (size_t i = 0; i < kThreads; ++i) {
    std::cout << (i == 0 ? "[" : ", [") << reinterpret_cast<uintptr_t>(&markers[i].begin) << ", "
              << reinterpret_cast<uintptr_t>(&markers[i].end) << "]";
  }
  std::cout << "], \"hit_section\": " << reinterpret_cast<uintptr_t>(&hit_section)
            << ", \"maps\": [";
  std::ifstream maps("/proc/self/maps");
  const char* separator = "";
  for (std::string line; std::getline(maps, line);) {
    if (line.find(" r-xp ") == std::string::npos || line.find('/') == std::string::npos) continue;
    std::cout << separator << '"' << line << '"';
    separator = ", ";
  }
  std::cout << "]";
}

}  // namespace

int main(int argc, char** argv) {
  const bool trace = argc == 5 && std::strcmp(argv[1], "trace") == 0;
  if (!trace && !(argc == 4 && std::strcmp(argv[1], "count") == 0)) {
    std::cerr << "usage: hit_loop count REGIONS OPERATIONS\n"
                 "       hit_loop trace REGIONS OPERATIONS plain|locked|stored\n";
    return 2;
  }
  const auto regions = static_cast<uint32_t>(std::stoul(argv[2]));
  const uint64_t operations = std::stoull(argv[3]);
  const std::string how = trace ? argv[4] : "plain";
  const hydrant_registrar_t registrar = hydrant::bench::noop_registrar();
  const hydrant::bench::Domain domain(options(&registrar, regions));
  const hydrant::bench::Memory memory(regions * 2 * kRegionBytes,
                                      hydrant::bench::PageKind::kReserved);
  bool good = hydrant_vouch(domain.get(), memory.data(), memory.bytes()) == GASNET_OK;
  Loop loop{&domain, memory.data(), regions, operations, nullptr};
  if (how == "locked") loop.extra = &locked_extra;
  if (how == "stored") loop.extra = &stored_extra;
  Counts counts;
  if (trace) {
    run_threads(loop, counts);
  } else {
    loop.section(0, counts);
  }
  good &= counts.good;
  std::cout << "{\"good\": " << (good ? "true" : "false")
            << ", \"operations\": " << operations * (trace ? kThreads : 1)
            << ", \"hits\": " << counts.hits << ", \"refills\": " << counts.refills
            << ", \"misses\": " << counts.misses;
  print_places();
  std::cout << "}\n";
  return good ? 0 : 1;
}
