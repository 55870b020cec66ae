// Question: is one region size that adapts as good as the best fixed one?
//
// Unit: nanoseconds of the thread's processor time per use of 32 KiB (column Time), real pins (uring). A use is
// hydrant_pin + hydrant_release. Nothing here waits, so that processor time is the cost, and a busy machine
// does not drown the question.
// A fixed size of N bytes cuts memory into cells of N bytes at multiples of N and pins every cell that a use
// touches, each by itself: larger sizes than a use register more than it asks for, smaller ones cut it up.
//
// Rows  sweep_fits   once over 64 MiB in order, budget for all of it; nothing is pinned before
//       sweep_half   the same with half the budget, so that half of it evicts
//       random       32 KiB at random places, multiples of 32 KiB, of 128 MiB; budget 64 MiB
//       huge_random  the same of memory in huge pages, budget for half of those
//   /size:BYTES|adaptive
//
// All sizes take turns in one repetition, in another order each time. After the rows a table shows for each
// question every size's median, the best fixed size, and how the adaptive one compares with it: the median of the
// ratios of each repetition, since both were measured in the same minute.
//
// Not included: page faults (memory is touched before), unpinning what is left at the end, moving the data.
#include "bench/support/bench_main.hpp"
#include "bench/support/domain.hpp"
#include "bench/support/limits.hpp"
#include "bench/support/machine.hpp"
#include "bench/support/memory.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <sys/utsname.h>
#include <time.h>
#include <vector>

namespace hydrant::bench {
namespace {

constexpr size_t kUse = 32 * kKiB;
constexpr size_t kAdaptive = 0;
constexpr size_t kSizes[] = {kAdaptive,  4 * kKiB,   16 * kKiB, 32 * kKiB, 64 * kKiB,
                             128 * kKiB, 256 * kKiB, 1 * kMiB,  2 * kMiB,  4 * kMiB};

struct Question {
  const char* name;
  size_t set_bytes;
  size_t budget_bytes;
  PageKind pages;
  bool random;
  double bound;  // how much slower than the best fixed size it may be
};
constexpr Question kQuestions[] = {
    {"sweep_fits", 64 * kMiB, 68 * kMiB, PageKind::kSmall, false, 1.05},
    {"sweep_half", 64 * kMiB, 32 * kMiB, PageKind::kSmall, false, 1.05},
    {"random", 128 * kMiB, 64 * kMiB, PageKind::kSmall, true, 1.10},
    {"huge_random", 128 * kMiB, 64 * kMiB, PageKind::kHuge, true, 1.10},
};

// The calling thread's processor time.
uint64_t thread_ns() {
  timespec ts{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(ts.tv_nsec);
}

std::string size_name(size_t size) { return size == kAdaptive ? "adaptive" : std::to_string(size); }

// ns per use of each repetition, by question and size; reported at the end.
std::map<std::string, std::map<size_t, std::vector<double>>>& results() {
  static std::map<std::string, std::map<size_t, std::vector<double>>> all;
  return all;
}

const Memory& memory_for(PageKind pages) {
  static const Memory small(128 * kMiB, PageKind::kSmall);
  static const Memory huge(128 * kMiB, PageKind::kHuge);
  return pages == PageKind::kHuge ? huge : small;
}

// Where the uses are, in order. The same for every size.
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
  for (uint32_t i = 0; i < 4 * places; ++i) order.push_back(static_cast<uint32_t>(random() % places));
  return order;
}

hydrant_domain_options_t options_for(const Question& question, size_t size) {
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.watch = HYDRANT_WATCH_CLIENT;
  options.registrar_name = "uring";
  options.budget_bytes = question.budget_bytes;
  if (size != kAdaptive) options.merge_bytes = options.stream_bytes = 1;
  return options;
}

// Every cell is held until the last one is, as a use needs all of it.
bool use_cells(hydrant_domain_t domain, const std::byte* place, size_t size) {
  if (size == kAdaptive || size == kUse) {
    return hydrant_release(hydrant_pin(domain, place, kUse, HYDRANT_LOCAL_WRITE)) == GASNET_OK;
  }
  hydrant_pin_t held[kUse / (4 * kKiB)];
  size_t n = 0;
  const auto first = reinterpret_cast<uintptr_t>(place) / size * size;
  for (uintptr_t cell = first; cell < reinterpret_cast<uintptr_t>(place) + kUse; cell += size) {
    held[n++] =
        hydrant_pin(domain, reinterpret_cast<const void*>(cell), size, HYDRANT_LOCAL_WRITE);
  }
  bool good = true;
  while (n != 0) good &= hydrant_release(held[--n]) == GASNET_OK;
  return good;
}

void row(benchmark::State& state, const Question& question, size_t size) {
  const OnCore here(0);
  const Memory& memory = memory_for(question.pages);
  const std::vector<uint32_t>& order = order_of(question);
  Domain domain(options_for(question, size));
  if (question.pages == PageKind::kHuge && huge_page_bytes_in_use() < memory.bytes() / 2) {
    return state.SkipWithError("the kernel gave no huge pages");
  }
  bool good = true;
  auto use_all = [&] {
    for (const uint32_t i : order) good &= use_cells(domain.get(), memory.at(i * kUse), size);
  };
  // Random use settles first; a sweep begins with nothing.
  if (question.random) use_all();
  const hydrant_stats_t before = domain.stats();
  for (auto _ : state) {
    const uint64_t start = thread_ns();
    use_all();
    const auto ns = static_cast<double>(thread_ns() - start);
    state.SetIterationTime(ns * 1e-9 / static_cast<double>(order.size()));
    results()[question.name][size].push_back(ns / static_cast<double>(order.size()));
  }
  const hydrant_stats_t after = domain.stats();
  const auto uses = static_cast<double>(order.size());
  set_counter(state, "registrations_per_use", static_cast<double>(after.pins - before.pins) / uses);
  set_counter(state, "extended_kib", static_cast<double>(after.extended_bytes >> 10));
  set_counter(state, "wasted_kib", static_cast<double>(after.wasted_bytes >> 10));
  if (!good) state.SkipWithError(hydrant_error_text());
}

void add_all_rows() {
  utsname system{};
  uname(&system);
  benchmark::AddCustomContext("kernel", system.release);
  for (const Question& question : kQuestions) {
    std::string refusal = uring_refusal();
    if (refusal.empty()) refusal = memlock_refusal(question.budget_bytes);
    for (const size_t size : kSizes) {
      const std::string name = std::string(question.name) + "/size:" + size_name(size);
      benchmark::RegisterBenchmark(name.c_str(),
                                   [&question, size, refusal](benchmark::State& state) {
                                     if (!refusal.empty()) {
                                       return state.SkipWithError(refusal.c_str());
                                     }
                                     row(state, question, size);
                                   })
          ->UseManualTime()
          ->Iterations(1)
          ->Unit(benchmark::kNanosecond);
    }
  }
}

double ratio_to(const std::vector<double>& ours, const std::vector<double>& other) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(ours.size(), other.size()); ++i) {
    ratios.push_back(ours[i] / other[i]);
  }
  return median(ratios);
}

// To standard error: standard output may be JSON.
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
