// Fixture of the unit tests of the pin cache: an arena, a registrar that keeps records, and a domain.
#pragma once

#include <hydrant/pin_cache.h>

#include "tests/support/recording_registrar.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace hydrant::testing {

#if HYDRANT_TICKETS
inline constexpr bool kTickets = true;
#else
inline constexpr bool kTickets = false;
#endif
hydrant_domain_options_t options_for(const RecordingRegistrar& registrar);
hydrant_stats_t stats_of(hydrant_domain_t domain);
// Checks that the calling thread's error text is not empty: "" or the complaint.
::testing::AssertionResult has_text();
// "create: <the status's name>: <the calling thread's error text>".
std::string failure_text(const char* what, int status);
// Names the instances of tests that run in each of HYDRANT_MODE_*.
std::string mode_name(const ::testing::TestParamInfo<uint32_t>& mode);

// Pins through a domain of its own; ends with all pins released and no registration left.
class PinCacheTest : public ::testing::Test {
 protected:
  explicit PinCacheTest(uint32_t key_bytes = 8) : registrar_(arena_, key_bytes) {}
  void TearDown() override;

  void create() { create(options_for(registrar_)); }
  void create(const hydrant_domain_options_t& options);
  // merge_bytes 0: the default. 1: neighbours stay apart.
  void create_with_budget(uint64_t pages, uint64_t merge_bytes = 0);
  void destroy();
  hydrant_pin_t pin(size_t page, size_t pages = 1, uint32_t access = HYDRANT_LOCAL_WRITE) {
    return hydrant_pin(domain_, arena_.page(page), pages * kPage, access);
  }
  hydrant_pin_t try_pin(size_t page, size_t pages = 1, uint32_t access = HYDRANT_LOCAL_WRITE) {
    return hydrant_try_pin(domain_, arena_.page(page), pages * kPage, access);
  }
  bool is_cached(size_t page, size_t pages = 1);
  uint64_t serial(hydrant_pin_t pin) const { return registrar_.serial_of(pin.region->key); }

  Arena arena_{512};
  RecordingRegistrar registrar_;
  hydrant_domain_t domain_ = 0;
};

}  // namespace hydrant::testing
