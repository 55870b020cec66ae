// Question: is one adaptive region size as good as the best fixed size?
//
// Unit: nanoseconds of the thread's processor time per use of 32 KiB (column Time), real pins (uring). A use
// is hydrant_pin + hydrant_release. No operation waits, so processor time is the cost, even on a busy
// machine. A fixed size of N bytes: registrations are rounded out to multiples of N (the granule of the same
// registrar), and regions do not merge. Sizes smaller than a use divide it, and each part is pinned by
// itself.
//
// Rows  sweep_fits   once over 64 MiB in order, budget for all of it, no earlier pins
//       sweep_half   the same with half the budget, so that half of it evicts
//       random       32 KiB at random places, multiples of 32 KiB, of 128 MiB; budget 64 MiB
//       huge_random  the same in huge pages, budget for half of them
// Column Time is that of the adaptive size. Counters BYTES_ns and adaptive_ns have the times of all sizes,
// which take turns in each repetition, in a different order each time. After the rows a table shows for each
// question every size's median, the best fixed size, and the adaptive size relative to it: the median of the
// ratios of each repetition, because both were measured in the same second.
//
// Not included: page faults (memory is touched before), unpinning the remaining regions at the end, moving
// the data.
#include "bench/support/bench_main.hpp"
#include "bench/support/domain.hpp"
#include "bench/support/limits.hpp"
#include "bench/support/machine.hpp"
#include "bench/support/memory.hpp"
#include "firehose/registrars/uring/uring_registrar.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <sys/utsname.h>
#include <vector>

namespace hydrant::bench {
namespace {

constexpr size_t kUse = 32 * kKiB;
constexpr size_t kAdaptive = 0;
constexpr int kSweeps = 3;  // in one sample
constexpr size_t kSizes[] = {kAdaptive,  4 * kKiB,   16 * kKiB, 32 * kKiB, 64 * kKiB,
                             128 * kKiB, 256 * kKiB, 1 * kMiB,  2 * kMiB,  4 * kMiB};

struct Question {
  const char* name;
  size_t set_bytes;
  size_t budget_bytes;
  PageKind pages;
  bool random;
  double bound;  // the largest allowed ratio to the best fixed size
};
constexpr Question kQuestions[] = {
    {"sweep_fits", 64 * kMiB, 68 * kMiB, PageKind::kSmall, false, 1.05},
    {"sweep_half", 64 * kMiB, 32 * kMiB, PageKind::kSmall, false, 1.05},
    {"random", 128 * kMiB, 64 * kMiB, PageKind::kSmall, true, 1.10},
    {"huge_random", 128 * kMiB, 64 * kMiB, PageKind::kHuge, true, 1.10},
};

std::string size_name(size_t size) { return size == kAdaptive ? "adaptive" : std::to_string(size); }

// ns per use of each repetition, by question and size; reported at the end.
std::map<std::string, std::map<size_t, std::vector<double>>>& results() {
  static std::map<std::string, std::map<size_t, std::vector<double>>> all;
  return all;
}

// The working set, aligned to the largest size and a whole multiple of it.
std::byte* memory_for(PageKind pages) {
  static const Memory small(132 * kMiB, PageKind::kSmall);
  static const Memory huge(132 * kMiB, PageKind::kHuge);
  const Memory& memory = pages == PageKind::kHuge ? huge : small;
  const auto start = reinterpret_cast<uintptr_t>(memory.data());
  return memory.at((4 * kMiB - start % (4 * kMiB)) % (4 * kMiB));
}

// The places of the uses in order, the same for every size.
const std::vector<uint32_t>& order_of(const Question& question) {
  static std::map<const Question*, std::vector<uint32_t>> all;
  std::vector<uint32_t>& order = all[&question];
  const auto places = static_cast<uint32_t>(question.set_bytes / kUse);
  if (!order.empty()) return order;
  if (!question.random) {
    for (uint32_t i = 0; i < places; ++i) order.push_back(i);
    return order;
  }
  std::mt19937 random(5);
  for (uint32_t i = 0; i < 2 * places; ++i)
    order.push_back(static_cast<uint32_t>(random() % places));
  return order;
}

// The uring registrar behind the C interface, with another granule. The domain owns it.
hydrant_registrar_t uring_with_granule(size_t granule) {
  Status status = Status::kOk;
  hydrant_registrar_t functions{};
  functions.size = sizeof functions;
  functions.user = make_uring_registrar({}, &status).release();
  if (functions.user == nullptr) die("no uring registrar");
  const auto self = [](void* user) { return static_cast<UringRegistrar*>(user); };
  const RegistrarTraits& traits = self(functions.user)->traits();
  functions.name = "uring";
  functions.key_bytes = traits.key_bytes;
  functions.granule_bytes = granule;
  functions.max_region_bytes = traits.max_region_bytes;
  functions.pin = [](void* user, uintptr_t addr, size_t len, uint32_t access, void* key) {
    return static_cast<int>(static_cast<UringRegistrar*>(user)->pin(
        {addr, len}, static_cast<Access>(access), static_cast<std::byte*>(key)));
  };
  functions.unpin = [](void* user, uintptr_t addr, size_t len, const void* key) {
    return static_cast<int>(
        static_cast<UringRegistrar*>(user)->unpin({addr, len}, static_cast<const std::byte*>(key)));
  };
  functions.charge = [](void* user, uintptr_t addr, size_t len) {
    return static_cast<UringRegistrar*>(user)->charge({addr, len});
  };
  functions.destroy = [](void* user) { delete static_cast<UringRegistrar*>(user); };
  return functions;
}

hydrant_domain_options_t options_for(const Question& question, size_t size,
                                     const hydrant_registrar_t* fixed) {
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.watch = HYDRANT_WATCH_CLIENT;
  options.budget_bytes = question.budget_bytes;
  if (size == kAdaptive) {
    options.registrar_name = "uring";
    options.stream_bytes = size_t{4} << 20;
  } else {
    options.registrar = fixed;
    options.merge_bytes = options.stream_bytes = 1;
  }
  return options;
}

// Holds all parts before it releases any, because a use needs all of them.
bool use_place(hydrant_domain_t domain, const std::byte* place, size_t size) {
  if (size == kAdaptive || size >= kUse) {
    return hydrant_release(hydrant_pin(domain, place, kUse, HYDRANT_LOCAL_WRITE)) == GASNET_OK;
  }
  hydrant_pin_t held[kUse / (4 * kKiB)];
  for (size_t i = 0; i < kUse / size; ++i) {
    held[i] = hydrant_pin(domain, place + i * size, size, HYDRANT_LOCAL_WRITE);
  }
  return hydrant_release_many(held, kUse / size) == GASNET_OK;
}

struct Counts {
  double ns = 0.0, uses = 0.0, registrations = 0.0, refills = 0.0;
  double extended_bytes = 0.0, wasted_bytes = 0.0;
  bool good = true;
};

// Opens the rings that the registrar keeps for small and for large pins.
bool warm_up(hydrant_domain_t domain) {
  static const Memory memory(8 * kMiB, PageKind::kSmall);
  bool good = true;
  for (const size_t len : {kUse, memory.bytes() / 2}) {
    good &= hydrant_release(hydrant_pin(domain, memory.data(), len, HYDRANT_LOCAL_WRITE)) == 0;
  }
  return hydrant_flush(domain) == GASNET_OK && good;
}

// Runs in a new domain with empty tables. Random use settles before it is timed.
void run_once(const Question& question, size_t size, Counts* counts) {
  std::byte* const memory = memory_for(question.pages);
  const std::vector<uint32_t>& order = order_of(question);
  hydrant_registrar_t fixed{};
  if (size != kAdaptive) fixed = uring_with_granule(std::max(size, page_bytes()));
  Domain domain(options_for(question, size, &fixed));
  counts->good &= warm_up(domain.get());
  auto use_all = [&] {
    for (const uint32_t i : order) {
      counts->good &= use_place(domain.get(), memory + i * kUse, size);
    }
  };
  if (question.random) use_all();
  const hydrant_stats_t before = domain.stats();
  const uint64_t start = thread_ns();
  use_all();
  counts->ns += static_cast<double>(thread_ns() - start);
  const hydrant_stats_t after = domain.stats();
  counts->uses += static_cast<double>(order.size());
  counts->registrations += static_cast<double>(after.pins - before.pins);
  counts->refills += static_cast<double>(after.refills - before.refills);
  counts->extended_bytes += static_cast<double>(after.extended_bytes - before.extended_bytes);
  counts->wasted_bytes += static_cast<double>(after.wasted_bytes - before.wasted_bytes);
}

// Takes a sample of every size, one after the other, in a changing order: slow phases of the machine affect
// all alike, and each ratio compares samples of the same second.
void row(benchmark::State& state, const Question& question) {
  const OnCore here(0);
  (void)memory_for(question.pages);
  if (question.pages == PageKind::kHuge && huge_page_bytes_in_use() < question.set_bytes / 2) {
    return state.SkipWithError("the kernel provided no huge pages");
  }
  static std::mt19937 random(3);
  std::vector<size_t> sizes(std::begin(kSizes), std::end(kSizes));
  Counts adaptive;
  bool good = true;
  for (auto _ : state) {
    std::shuffle(sizes.begin(), sizes.end(), random);
    for (const size_t size : sizes) {
      Counts counts;
      for (int i = 0; i < (question.random ? 1 : kSweeps); ++i) run_once(question, size, &counts);
      results()[question.name][size].push_back(counts.ns / counts.uses);
      good &= counts.good;
      if (size == kAdaptive) adaptive = counts;
    }
    state.SetIterationTime(adaptive.ns / adaptive.uses * 1e-9);
  }
  for (const size_t size : kSizes) {
    set_counter(state, size_name(size) + "_ns", results()[question.name][size].back());
  }
  set_counter(state, "registrations_per_use", adaptive.registrations / adaptive.uses);
  set_counter(state, "refills_per_use", adaptive.refills / adaptive.uses);
  set_counter(state, "extended_kib", adaptive.extended_bytes / kKiB);
  set_counter(state, "wasted_kib", adaptive.wasted_bytes / kKiB);
  if (!good) state.SkipWithError(hydrant_error_text());
}

void add_all_rows() {
  utsname system{};
  uname(&system);
  benchmark::AddCustomContext("kernel", system.release);
  for (const Question& question : kQuestions) {
    std::string refusal = uring_refusal();
    if (refusal.empty()) refusal = memlock_refusal(question.budget_bytes);
    benchmark::RegisterBenchmark(question.name,
                                 [&question, refusal](benchmark::State& state) {
                                   if (!refusal.empty()) {
                                     return state.SkipWithError(refusal.c_str());
                                   }
                                   row(state, question);
                                 })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kNanosecond);
  }
}

double ratio_to(const std::vector<double>& ours, const std::vector<double>& other) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(ours.size(), other.size()); ++i) {
    ratios.push_back(ours[i] / other[i]);
  }
  return median(ratios);
}

// Prints to standard error, because standard output may be JSON.
void print_comparison() {
  utsname system{};
  uname(&system);
  for (const Question& question : kQuestions) {
    const auto& sizes = results()[question.name];
    if (sizes.size() < 2 || sizes.count(kAdaptive) == 0) continue;
    std::fprintf(stderr, "\n%s, ns per use of 32 KiB (medians; uring, Linux %s)\n", question.name,
                 system.release);
    size_t best = kAdaptive;
    for (const auto& [size, ns] : sizes) {
      std::fprintf(stderr, "  %8s %9.0f\n", size_name(size).c_str(), median(ns));
      if (size == kAdaptive) continue;
      if (best == kAdaptive || median(ns) < median(sizes.at(best))) best = size;
    }
    const double ratio = ratio_to(sizes.at(kAdaptive), sizes.at(best));
    std::fprintf(stderr, "  best fixed size %zu; adaptive takes %.2f times that: %s %.2f\n", best,
                 ratio, ratio <= question.bound ? "within" : "NOT within", question.bound);
  }
}

}  // namespace
}  // namespace hydrant::bench

int main(int argc, char** argv) {
  hydrant::bench::add_all_rows();
  const int status = hydrant::bench::run_program(argc, argv, "0.01");
  hydrant::bench::print_comparison();
  return status;
}
