// Question: what does the cache add to a registration, and does a registration slow down hits of other
// threads?
//
// Unit: nanoseconds per call (column Time), real pins. Each row is compared with the bare call, which
// alternates with it in the same repetition, over the same memory and with as many other regions in the
// table:
//   bare_ns   io_uring_register_buffers_update_tag on a ring just large enough, or mlock / munlock
//   ours_ns   the same statistic with the cache; extra_ns = ours_ns - bare_ns, ratio = ours_ns / bare_ns
//
// Rows  first_pin           hydrant_pin of memory that is not cached
//       pin_after_eviction  hydrant_pin with the budget full: bare is clear one slot + register another
//       release_unpin       hydrant_release of memory that may not be cached, so that it is unpinned at once
//                           (watch = HYDRANT_WATCH_NONE): bare is clear the slot. unpinned_share is the share
//                           that was in fact unpinned
//       stall               hits beside another thread that registers 64 MiB repeatedly
//                           (support/stall.hpp)
//   /REGISTRAR/bytes:N/pages:small|huge/others:N    others: 4 KiB regions that stay pinned meanwhile
//
// Not included: page faults (memory is touched before), the unpinning after a first pin, using the memory.
// ours_ns and bare_ns are medians of the samples of one repetition. Evictions come in batches, so there a
// sample is the mean of `group` pins. The number of samples per row is fixed, because untimed work (pinning
// before a release) may cost a thousand times the timed work.
#include "bench/support/bare_pins.hpp"
#include "bench/support/bench_main.hpp"
#include "bench/support/domain.hpp"
#include "bench/support/limits.hpp"
#include "bench/support/machine.hpp"
#include "bench/support/memory.hpp"
#include "bench/support/paired.hpp"
#include "bench/support/stall.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace hydrant::bench {
namespace {

constexpr uint32_t kAccess = HYDRANT_LOCAL_WRITE;
constexpr size_t kOtherBytes = 4 * kKiB;

struct Row {
  bool uring;
  size_t bytes;
  PageKind pages;
  size_t others;

  const char* registrar() const { return uring ? "uring" : "mlock"; }
  std::string suffix() const {
    return std::string("/") + registrar() + "/bytes:" + std::to_string(bytes) +
           "/pages:" + page_kind_name(pages) + "/others:" + std::to_string(others);
  }
};

// Addresses of the other regions: every second page, so that they are never adjacent.
std::byte* other(size_t index) {
  static const Memory memory(4096 * 2 * kOtherBytes, PageKind::kSmall);
  return memory.at(index * 2 * kOtherBytes);
}

hydrant_domain_options_t options_for(const Row& row, uint64_t budget_bytes, uint64_t regions) {
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.watch = HYDRANT_WATCH_CLIENT;
  options.registrar_name = row.registrar();
  options.budget_bytes = budget_bytes;
  options.max_regions = regions;
  options.merge_bytes = 1;  // no merging: every pin has the row's size
  return options;
}

// The charge of a region of the row: io_uring is charged for whole huge pages.
size_t charge_bytes(const Row& row) {
  return row.uring && row.pages == PageKind::kHuge ? std::max(row.bytes, kHugePageBytes)
                                                   : row.bytes;
}

// How many regions of the row's size fill the budget of pin_after_eviction.
size_t budget_regions(const Row& row) { return std::min<size_t>(256, 128 * kMiB / row.bytes); }

unsigned ring_slots(const Row& row) {
  return static_cast<unsigned>(
      std::bit_ceil(std::max<size_t>(row.others + budget_regions(row), kSmallRingSlots)));
}

// A domain and a bare ring with the same other regions pinned. The domain's other regions are held, so that
// evictions take only the row's own pins.
class Rig {
 public:
  Rig(const Row& row, const hydrant_domain_options_t& options)
      : domain_(options), bare_(row.uring, ring_slots(row)), others_(row.others) {
    for (size_t i = 0; i < others_; ++i) {
      holds_.push_back(hydrant_pin(domain_.get(), other(i), kOtherBytes, kAccess));
      check(holds_.back().region != nullptr);
      // mlock state is per process: pages that the domain locked also count for the bare call.
      if (row.uring) {
        check_bare(bare_.pin(static_cast<unsigned>(i), other(i), kOtherBytes));
      }
    }
  }
  ~Rig() { hydrant_release_many(holds_.data(), holds_.size()); }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  // Records the first failure, with the text of the failing side.
  void check(bool good) {
    if (!good) note(hydrant_error_text());
  }
  void check_bare(bool good) {
    if (!good) note(std::strerror(errno));
  }
  void check_pages(const Memory& memory, PageKind pages) {
    if (pages != PageKind::kHuge) return;
    if (huge_page_bytes_in_use() < memory.bytes() / 2) note("the kernel provided no huge pages");
  }
  bool good() const { return failure_.empty(); }
  void report(benchmark::State& state) const {
    if (!good()) state.SkipWithError(failure_.c_str());
  }

  hydrant_domain_t domain() const { return domain_.get(); }
  hydrant_stats_t stats() const { return domain_.stats(); }
  BarePins& bare() { return bare_; }
  // The bare ring's slot for the index-th region of the row itself, after the others.
  unsigned own_slot(size_t index) const { return static_cast<unsigned>(others_ + index); }

 private:
  void note(const char* why) {
    if (failure_.empty()) failure_ = why;
  }

  Domain domain_;
  BarePins bare_;
  size_t others_;
  std::vector<hydrant_pin_t> holds_;
  std::string failure_;
};

// The number of places that a row uses, so that more than one page is warm. Each row has new memory, because
// mlock of a part of a huge page splits it.
size_t place_count(const Row& row) { return std::clamp<size_t>(64 * kMiB / row.bytes, 2, 64); }

void first_pin(benchmark::State& state, const Row& row) {
  const OnCore here(0);
  const size_t places = place_count(row);
  const Memory memory(places * row.bytes, row.pages);
  Rig rig(row, options_for(row, charge_bytes(row) + row.others * kOtherBytes + 4 * kMiB, 16000));
  rig.check_pages(memory, row.pages);
  PairedSamples samples;
  size_t turn = 0;
  for (auto _ : state) {
    std::byte* place = memory.at(turn % places * row.bytes);
    double ours = 0.0;
    double bare = 0.0;
    alternate(
        turn++,
        [&] {
          hydrant_pin_t pin;
          ours = nanoseconds([&] { pin = hydrant_pin(rig.domain(), place, row.bytes, kAccess); });
          rig.check(pin.region != nullptr && hydrant_release(pin) == GASNET_OK);
          hydrant_invalidate(rig.domain(), place, row.bytes);
        },
        [&] {
          bare = nanoseconds(
              [&] { rig.check_bare(rig.bare().pin(rig.own_slot(0), place, row.bytes)); });
          rig.bare().unpin(rig.own_slot(0), place, row.bytes);
        });
    samples.add(ours, bare);
    state.SetIterationTime(ours * 1e-9);
  }
  samples.report(state);
  if (rig.stats().misses != turn + row.others) state.SkipWithError("a first pin was a hit");
  rig.report(state);
}

void pin_after_eviction(benchmark::State& state, const Row& row) {
  const OnCore here(0);
  const size_t full = budget_regions(row);
  const size_t group = std::min<size_t>(64, full);
  // Each side has its own memory: locks of the same page would not add up.
  const size_t places = full + (full + 1) / 2;
  const Memory memory(2 * places * row.bytes, row.pages);
  Rig rig(row, options_for(row, full * charge_bytes(row) + row.others * kOtherBytes, 0));
  rig.check_pages(memory, row.pages);
  auto place = [&](size_t index) { return memory.at(index % places * row.bytes); };
  auto bare_place = [&](size_t index) { return memory.at((places + index % places) * row.bytes); };
  for (size_t i = 0; i < full; ++i) {
    rig.check_bare(rig.bare().pin(rig.own_slot(i), bare_place(i), row.bytes));
  }
  size_t ours_next = 0;
  auto ours_once = [&] {
    // A policy may keep regions that a plain queue would have evicted; a hit is not a sample.
    for (size_t tries = 0; tries < places; ++tries, ++ours_next) {
      const hydrant_pin_t kept =
          hydrant_try_pin(rig.domain(), place(ours_next), row.bytes, kAccess);
      if (kept.region == nullptr) break;
      hydrant_release(kept);
    }
    hydrant_pin_t pin;
    void* where = place(ours_next++);
    const double ns =
        nanoseconds([&] { pin = hydrant_pin(rig.domain(), where, row.bytes, kAccess); });
    rig.check(pin.region != nullptr && hydrant_release(pin) == GASNET_OK);
    return ns;
  };
  for (size_t i = 0; rig.good() && i < full; ++i) ours_once();
  size_t bare_next = full;
  auto bare_once = [&] {
    const size_t old = bare_next - full;
    const unsigned slot = rig.own_slot(bare_next % full);
    const double ns = nanoseconds([&] {
      rig.bare().unpin(slot, bare_place(old), row.bytes);
      rig.check_bare(rig.bare().pin(slot, bare_place(bare_next), row.bytes));
    });
    ++bare_next;
    return ns;
  };
  PairedSamples samples;
  size_t turn = 0;
  const uint64_t before = rig.stats().evictions;
  while (state.KeepRunningBatch(static_cast<int64_t>(group))) {
    // Runs to the end: all repetitions of a row must have the same number of iterations.
    if (!rig.good()) continue;
    double ours = 0.0;
    double bare = 0.0;
    alternate(
        turn++,
        [&] {
          for (size_t i = 0; i < group; ++i) ours += ours_once();
        },
        [&] {
          for (size_t i = 0; i < group; ++i) bare += bare_once();
        });
    samples.add(ours / static_cast<double>(group), bare / static_cast<double>(group));
    state.SetIterationTime(ours * 1e-9);
  }
  samples.report(state);
  set_counter(state, "group", static_cast<double>(group));
  set_counter(state, "evictions_per_pin",
              static_cast<double>(rig.stats().evictions - before) /
                  static_cast<double>(std::max<size_t>(turn * group, 1)));
  for (size_t i = bare_next - full; i < bare_next; ++i) {
    rig.bare().unpin(rig.own_slot(i % full), bare_place(i), row.bytes);
  }
  rig.report(state);
}

void release_unpin(benchmark::State& state, const Row& row) {
  const OnCore here(0);
  const size_t places = place_count(row);
  const Memory memory(places * row.bytes, row.pages);
  hydrant_domain_options_t options =
      options_for(row, charge_bytes(row) + row.others * kOtherBytes + 4 * kMiB, 16000);
  options.watch = HYDRANT_WATCH_NONE;
  Rig rig(row, options);
  rig.check_pages(memory, row.pages);
  PairedSamples samples;
  size_t turn = 0;
  const uint64_t before = rig.stats().unpins;
  for (auto _ : state) {
    std::byte* place = memory.at(turn % places * row.bytes);
    double ours = 0.0;
    double bare = 0.0;
    alternate(
        turn++,
        [&] {
          const hydrant_pin_t pin = hydrant_pin(rig.domain(), place, row.bytes, kAccess);
          rig.check(pin.region != nullptr);
          ours = nanoseconds([&] { rig.check(hydrant_release(pin) == GASNET_OK); });
        },
        [&] {
          rig.check_bare(rig.bare().pin(rig.own_slot(0), place, row.bytes));
          bare = nanoseconds([&] { rig.bare().unpin(rig.own_slot(0), place, row.bytes); });
        });
    samples.add(ours, bare);
    state.SetIterationTime(ours * 1e-9);
  }
  samples.report(state);
  set_counter(state, "unpinned_share",
              static_cast<double>(rig.stats().unpins - before) /
                  static_cast<double>(std::max<size_t>(turn, 1)));
  rig.report(state);
}

using Body = void (*)(benchmark::State&, const Row&);

// Samples per repetition: about 10 ms of registering. An even number, because the first side finds the
// kernel's page data cold, and 64 MiB of huge pages then cost half as much again.
int64_t sample_count(const Row& row) {
  return std::clamp<int64_t>(static_cast<int64_t>(64 * kMiB / row.bytes), 6, 512);
}

void add_row(const char* name, Body body, const Row& row, uint64_t locked_bytes) {
  std::string refusal = row.uring ? uring_refusal() : "";
  if (refusal.empty()) refusal = memlock_refusal(locked_bytes);
  benchmark::RegisterBenchmark((std::string(name) + row.suffix()).c_str(),
                               [=](benchmark::State& state) {
                                 if (!refusal.empty()) return state.SkipWithError(refusal.c_str());
                                 body(state, row);
                               })
      ->UseManualTime()
      ->Iterations(sample_count(row))
      ->Unit(benchmark::kNanosecond);
}

void add_all_rows() {
  for (const bool uring : {true, false}) {
    for (const size_t bytes : {4 * kKiB, 64 * kKiB, 1 * kMiB, 64 * kMiB}) {
      for (const PageKind pages : {PageKind::kSmall, PageKind::kHuge}) {
        for (const size_t others : {size_t{0}, size_t{4096}}) {
          const Row row{uring, bytes, pages, others};
          // Charges of both sides.
          const uint64_t charge = charge_bytes(row);
          const uint64_t population = 2 * others * kOtherBytes;
          add_row("first_pin", first_pin, row, population + 2 * charge);
          add_row("release_unpin", release_unpin, row, population + 2 * charge);
          add_row("pin_after_eviction", pin_after_eviction, row,
                  population + 2 * charge * budget_regions(row));
        }
      }
    }
  }
}

}  // namespace
}  // namespace hydrant::bench

int main(int argc, char** argv) {
  hydrant::bench::add_all_rows();
  hydrant::bench::add_stall_rows();
  return hydrant::bench::run_program(argc, argv, "0.01");
}
