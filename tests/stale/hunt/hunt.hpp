// The hunt for stale pins: threads allocate, change and release memory in every way, pin it, and move data
// through the pins' registrations. If the data comes from, or goes to, another page than the one that the
// owner of the memory sees, the pin is stale.
//
// Why only the cache can cause a mismatch. Every block of memory has one owner at a time. Only the owner
// writes to its bytes (registrations write only what the owner moves) and ends its life. Ownership passes in
// three ways: through a mutex (exchange.hpp), by the kernel (a mapping that replaces nothing succeeds only at
// unmapped addresses), or by libc (malloc, pthread_create and dlopen return memory that no other code uses).
// So between the owner's write and its read of a cell, only the move through the owner's pin changes it,
// where the pin was taken in between or earlier in the same life. The kernel moves the bytes of the
// registration's page; if that page is the one mapped there, the owner reads the expected bytes. A pin of an
// earlier life has an earlier page. Each check expects bytes that no other check of the hunt has ever
// written.
//
// A hold that outlives its memory must keep the old page: before a life ends, the owner writes a last tag
// where holds read, and the tag must still be found through them afterwards.
#pragma once

#include "tests/stale/hunt/cache.hpp"
#include "tests/stale/hunt/map_calls.hpp"
#include "tests/stale/hunt/source_set.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hydrant::stale {

struct HuntOptions {
  uint64_t seed = 1;
  uint32_t threads = 4;
  // The number for all threads together, in equal shares; 0: no limit. Bystander threads end with the others.
  uint64_t operations = 0;
  double seconds = 0;  // 0: no limit. One of the two is given
  SourceSet sources = SourceSet::all();
  // With a cache that wants announcements: omits this many of 1000, which the hunt must detect.
  uint32_t forget_per_mille = 0;
  bool stop_when_stale = false;
  // How windows are mapped and unmapped.
  RawCalls raw = RawCalls::kNone;
  // Stops when the cache has detected raw calls: from then on all hits are checked.
  bool stop_when_checked = false;
  uint32_t slots = 96;  // windows for mappings; fewer cause more reuse and collisions
  size_t slot_bytes = size_t{64} << 10;
  uint32_t blocks = 24;            // most that a thread owns at once
  uint32_t forks_one_in = 40'000;  // operations
  // Per 1000 operations: pins of memory that another thread may be releasing (if the cache allows that).
  uint32_t bystanders_per_mille = 40;
  // Per 100 new lives: those in which every page is checked.
  uint32_t sweeps_percent = 8;
  // Number of threads that only pin memory of other threads.
  uint32_t bystander_threads = 0;
  // Threads that are stopped now and then at any point (stutter.hpp).
  enum class Stopped : uint8_t { kNone, kBystanders, kOwners } stopped = Stopped::kNone;
  // Called about once a second from the thread that called run_hunt().
  std::function<void(const struct HuntCounts&)> progress;
};

struct HuntCounts {
  uint64_t operations = 0;  // memory allocated, changed, released or handed over; checks; children
  uint64_t opportunities = 0;  // pins of addresses that were cached in an earlier life
  uint64_t stale = 0;          // checks that reached another page
  // With racing raw calls: stale pins that were taken before the cache had detected the first call.
  uint64_t stale_before_checked = 0;
  uint64_t raw_calls = 0;
  uint64_t unwatched_kept = 0;  // unwatched memory that stayed cached past its last hold
  uint64_t broken = 0;          // failed moves through a hold, and pins with an error
  uint64_t pins = 0, not_now = 0, refused = 0;
  uint64_t checks = 0;       // compared moves
  uint64_t late_checks = 0;  // part of them through holds that outlived their memory
  uint64_t contests = 0;     // mappings made before the last owner's release had returned
  uint64_t children = 0;
  std::array<uint64_t, kSources> lives{}, opportunities_by_source{}, stale_by_source{};
  std::array<uint64_t, kCoverages> pins_by_coverage{};
  void add(const HuntCounts& other);
};

struct HuntResult {
  HuntCounts counts;
  double seconds = 0;
  std::vector<std::string> findings;  // texts of the first ones of each kind
  std::vector<std::string> skipped;   // "hugetlb: no huge pages are set aside"
  std::string failure;                // the hunt itself failed; "" normally
  bool clean() const {
    return failure.empty() && counts.stale == 0 && counts.unwatched_kept == 0 && counts.broken == 0;
  }
};

// Runs a hunt. Only one may run in a process at a time; it changes malloc's thresholds permanently. Aborts
// the program with a message if no thread makes progress for a minute.
HuntResult run_hunt(const HuntOptions& options, Cache& cache);

}  // namespace hydrant::stale
