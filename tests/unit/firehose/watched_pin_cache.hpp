// Fixture of the tests of a pin cache that watches: memory that is mapped and unmapped, in both modes.
#pragma once

#include <hydrant/monitor.h>
#include <hydrant/pin_cache.h>

#include "firehose/cache/coherence/upkeep.hpp"
#include "firehose/watch/mutant.hpp"
#include "tests/support/mapped_memory.hpp"
#include "tests/support/recording_registrar.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <sys/mman.h>

namespace hydrant::testing {

inline const hydrant_monitor_t& the_monitor() { return *hydrant_monitor(HYDRANT_MONITOR_VERSION); }

// A domain that watches by itself. The arena's pages are private anonymous memory until a test says
// otherwise.
class WatchedPinCache : public PinCacheTest {
 protected:
  void SetUp() override {
    HYDRANT_NEEDS_USERFAULTFD();
#if HYDRANT_MUTANTS
    // A pin whose wait for the reader expires is not cached, which a test could take for a defect.
    constexpr double kMore = 50;
    set_patience(static_cast<unsigned>(std::ceil(patience() * kMore)));
    // Regions that a test leaves dead stay so until it calls the cache.
    Upkeep::set_delay_ns(UINT64_MAX / 2);
#endif
    the_monitor().settle();  // late reports of an earlier test's memory at the same addresses
  }

  hydrant_domain_options_t watching(uint32_t mode = HYDRANT_MODE_REGION) const {
    hydrant_domain_options_t options = options_for(registrar_);
    options.watch = HYDRANT_WATCH_AUTO;
    options.mode = mode;
    return options;
  }
  // Pins and releases; the number of the registration that was used, 0 if none.
  uint64_t use(size_t page, size_t pages = 1, uint32_t access = HYDRANT_LOCAL_WRITE) {
    const hydrant_pin_t held = pin(page, pages, access);
    if (held.region == nullptr) {
      ADD_FAILURE() << hydrant_error_text();
      return 0;
    }
    hydrant_region_t part{};
    (void)hydrant_pin_parts(held, 0, &part);
    const uint64_t number = registrar_.serial_of(part.key);
    EXPECT_EQ(hydrant_release(held), GASNET_OK);
    return number;
  }
  uint32_t coverage(size_t page, size_t pages = 1) {
    // Earlier releases may be reported in part only.
    the_monitor().settle();
    uint32_t answer = ~0u;
    EXPECT_EQ(hydrant_coverage(domain_, arena_.page(page), pages * kPage, &answer), GASNET_OK);
    return answer;
  }

  // Waits until all earlier releases have been reported; from then on pins are cached.
  bool becomes_quiet() {
    return wait_until([] { return the_monitor().quiet(0) == 0; });
  }

  void unmap(size_t page, size_t pages = 1) {
    ASSERT_EQ(munmap(arena_.page(page), pages * kPage), 0);
  }
  void map(size_t page, size_t pages = 1) {
    ASSERT_EQ(mmap(arena_.page(page), pages * kPage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
              arena_.page(page))
        << strerror(errno);
  }
  // Maps new memory at the same addresses.
  void renew(size_t page, size_t pages = 1) {
    unmap(page, pages);
    map(page, pages);
  }
  void map_file(size_t page, const MemoryFile& file, int flags = MAP_SHARED, size_t pages = 1) {
    ASSERT_EQ(mmap(arena_.page(page), pages * kPage, PROT_READ | PROT_WRITE, flags | MAP_FIXED,
                   file.fd(), 0),
              arena_.page(page))
        << strerror(errno);
  }
  void remove(size_t page, size_t pages = 1, int advice = MADV_DONTNEED) {
    ASSERT_EQ(madvise(arena_.page(page), pages * kPage, advice), 0) << strerror(errno);
  }
};

}  // namespace hydrant::testing
