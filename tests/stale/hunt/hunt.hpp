// The hunt for stale pins: threads get, change and give back memory in every way, pin it, and move data
// through the registrations of the pins. Data that comes from, or goes to, another page than the one
// that the owner of the memory sees is a stale pin.
//
// Why a mismatch can only be the cache's fault. Every block of memory is owned by one thread at a time.
// The owner alone writes to its bytes (registrations write only what it moves), and alone ends its
// life. A block gets another owner in three ways: through a mutex (exchange.hpp), by the kernel (a
// mapping that replaces nothing succeeds only where nothing is mapped), or by libc (malloc,
// pthread_create, dlopen return memory of which they are sure). So between the owner's write and the
// owner's read of a cell, nothing changes it but the move through the pin that the owner took in
// between, or before in the same life: the kernel moves the bytes of the registration's page, and if
// that page is the one mapped there, the owner reads what it expects. A pin of an earlier life has an
// earlier page. Each check expects bytes that no other check of the hunt has ever written.
//
// A hold that outlives its memory must keep the old page: before a life ends, a last tag is written
// where holds of it look, and afterwards it is still found through them.
#pragma once

#include "tests/stale/hunt/cache.hpp"
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
  uint64_t operations = 0;  // by all threads together; 0: no limit
  double seconds = 0;       // 0: no limit. One of the two is given
  SourceSet sources = SourceSet::all();
  // With a cache that wants announcements: so many of 1000 are forgotten, and must be found.
  uint32_t forget_per_mille = 0;
  bool stop_when_stale = false;
  uint32_t slots = 96;  // windows for mappings; fewer: more reuse and more collisions
  size_t slot_bytes = size_t{64} << 10;
  uint32_t blocks = 24;            // most that a thread owns at once
  uint32_t forks_one_in = 40'000;  // operations
  // Of 1000 operations, pins of memory that another thread may be giving back (where the cache allows that).
  uint32_t bystanders_per_mille = 40;
  // Of 100 new lives, those of which every page is looked up.
  uint32_t sweeps_percent = 8;
  // So many of the threads do nothing but pin the memory of the others.
  uint32_t bystander_threads = 0;
  // Threads that are stopped now and then wherever they are (stutter.hpp).
  enum class Stopped : uint8_t { kNobody, kBystanders, kOwners } stopped = Stopped::kNobody;
  // Called about once a second from the thread that called run_hunt().
  std::function<void(const struct HuntCounts&)> progress;
};

struct HuntCounts {
  uint64_t operations = 0;      // memory got, changed, given back or handed over; checks; children
  uint64_t opportunities = 0;   // pins of addresses that had been cached in an earlier life
  uint64_t stale = 0;           // checks that met another page
  uint64_t unwatched_kept = 0;  // memory that nothing watches was kept past its last hold
  uint64_t broken = 0;          // moves through a hold that failed, pins answered with an error
  uint64_t pins = 0, not_now = 0, refused = 0;
  uint64_t checks = 0;       // moves compared
  uint64_t late_checks = 0;  // of them, through holds that outlived their memory
  uint64_t contests = 0;     // mappings made while the last owner's release had not returned
  uint64_t children = 0;
  std::array<uint64_t, kSources> lives{}, opportunities_by_source{}, stale_by_source{};
  std::array<uint64_t, kCoverages> pins_by_coverage{};
  void add(const HuntCounts& other);
};

struct HuntResult {
  HuntCounts counts;
  double seconds = 0;
  std::vector<std::string> findings;  // the first ones of each kind, in words
  std::vector<std::string> skipped;   // "hugetlb: no huge pages are set aside"
  std::string failure;                // the hunt itself could not go on; "" normally
  bool clean() const {
    return failure.empty() && counts.stale == 0 && counts.unwatched_kept == 0 && counts.broken == 0;
  }
};

// Runs a hunt. No other may run in the process at the same time; malloc's thresholds are changed for good.
// Ends the program with a message when no thread has done anything for a minute.
HuntResult run_hunt(const HuntOptions& options, Cache& cache);

}  // namespace hydrant::stale
