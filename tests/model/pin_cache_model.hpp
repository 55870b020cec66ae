// Random operations on a pin cache, checked after each step against a naive map of holds and invalidations.
// Single-threaded; pin_cache_model_threads_test.cpp has the version with threads.
#pragma once

#include <hydrant/pin_cache.h>

#include "tests/support/recording_registrar.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace hydrant::model {

// 20 with HYDRANT_TEST_LONG=1, else 1.
uint64_t test_factor();

// The text of a failed call.
std::string failed(const char* what, int status);

// A configuration of the cache, and of the faults of its registrar.
struct ModelSetup {
  const char* name;
  uint32_t mode = HYDRANT_MODE_REGION;
  uint32_t watch = HYDRANT_WATCH_CLIENT;
  size_t arena_pages = 64;
  uint64_t budget_pages = 48;
  uint64_t max_regions = 64;
  size_t max_region_pages = 0;
  size_t merge_pages = 16;  // 0: never
  size_t bucket_pages = 1;
  uint32_t key_bytes = 8;
  uint32_t eager_access = 0;
  bool refusing = false;           // some pages refuse writing rights, some all rights
  uint32_t failing_per_mille = 0;  // random failures of registrations
  bool slow = false;               // registrations are slow (threads only)
  bool late_charges = false;       // unpins answer PENDING and settle at some poll
};

inline std::ostream& operator<<(std::ostream& out, const ModelSetup& setup) {
  return out << setup.name;
}

class PinCacheModel {
 public:
  PinCacheModel(const ModelSetup& setup, uint64_t seed);
  ~PinCacheModel();
  PinCacheModel(const PinCacheModel&) = delete;
  PinCacheModel& operator=(const PinCacheModel&) = delete;

  // Runs a random operation; "" or the error.
  std::string step();
  // Releases everything and checks that no registration is left; "" or the error.
  std::string finish();
  // Counts of outcomes, so that a test can check that the run reached them.
  struct Tally {
    uint64_t pins = 0, cached = 0, not_ready = 0, refused = 0, too_large = 0, invalidations = 0;
  };
  const Tally& tally() const { return tally_; }

 private:
  struct Request {
    uintptr_t addr;
    size_t len;
    uint32_t access;
  };
  struct Held {
    hydrant_pin_t pin;
    Request request;
  };
  struct Pages {
    size_t first, count;
  };
  using RegionName = std::tuple<uint64_t, uintptr_t, size_t>;  // serial, addr, len

  std::string create();
  std::string destroy_and_create();
  std::string pin_one();
  std::string try_one();
  std::string partial_one();
  std::string pin_several();
  std::string release_one() { return release_in(false); }
  std::string release_elsewhere() { return release_in(true); }
  std::string release_in(bool elsewhere);
  std::string release_several();
  std::string invalidate(uintptr_t addr, size_t len);
  std::string invalidate_random();
  std::string vouch();
  std::string flush();
  std::string poll();
  std::string change_refusals();
  std::string check_stats();

  std::string take(hydrant_pin_t pin, const Request& request);
  std::string before_release(const Held& held);
  std::string check_failure(int status, const std::vector<Request>& requests);
  std::string describe() const;
  void account(hydrant_pin_t pin, int delta);
  bool overlaps_refusal(const Request& request) const;
  bool too_large(const std::vector<Request>& requests) const;
  bool must_fit(const std::vector<Request>& requests) const;
  uint64_t pages_touching(const Request& request) const;
  Pages pages_of(const Request& request) const;
  size_t granule() const { return setup_.mode == HYDRANT_MODE_PAGE ? setup_.bucket_pages : 1; }

  uint64_t random(uint64_t bound) { return random_() % bound; }
  Request random_request();

  const ModelSetup setup_;
  std::mt19937_64 random_;
  testing::Arena arena_;
  testing::RecordingRegistrar registrar_;
  hydrant_domain_t domain_ = 0;
  uint64_t pins_before_ = 0,
           unpins_before_ = 0;  // the registrar's counts when the domain was created
  std::vector<Held> held_;
  std::map<RegionName, uint64_t> held_regions_;  // with this test's number of holds
  std::vector<uint64_t> oldest_;                 // by page: the least serial that may still be hit
  std::vector<uint32_t> refused_;  // by page: rights, or RecordingRegistrar::kAnyAccess
  std::vector<bool> vouched_;      // by page
  std::string broken_at_start_;
  Tally tally_;
};

}  // namespace hydrant::model
