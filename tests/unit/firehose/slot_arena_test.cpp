// Slots outlive their domains: late releases return an error and never crash, and domains may be created and
// destroyed for ever without using up the address space.
#include "firehose/hit/slot_arena.hpp"

#include <hydrant/pin_cache.h>

#include "tests/support/child_process.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

namespace hydrant::testing {
namespace {

class SlotArenas : public PinCacheTest {
 protected:
  // Creates a domain, pins a page in it, and ends the domain; returns the released pin.
  hydrant_pin_t come_and_go(uint64_t max_regions, uint32_t mode = HYDRANT_MODE_REGION) {
    hydrant_domain_options_t options = options_for(registrar_);
    options.max_regions = max_regions;
    options.mode = mode;
    options.bucket_bytes = mode == HYDRANT_MODE_PAGE ? kPage : 0;
    create(options);
    if (domain_ == 0) return {};
    const hydrant_pin_t gone = pin(0);
    EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
    domain_ = 0;
    return gone;
  }
};

TEST_F(SlotArenas, LateReleasesAfterManyDomainsOfOtherSizes) {
  std::vector<hydrant_pin_t> gone;
  for (size_t i = 0; i < 400; ++i) gone.push_back(come_and_go(10 + 5 * i));
  const hydrant_pin_t last = gone.back();
  EXPECT_EQ(hydrant_release(last), GASNET_ERR_NOT_INIT);
  // The oldest ones may be slots of newer domains by now, all of which have ended, too.
  for (const hydrant_pin_t& pin : gone) {
    const int status = hydrant_release(pin);
    EXPECT_TRUE(status == GASNET_ERR_NOT_INIT || (kTickets && status == GASNET_ERR_BAD_ARG))
        << status << ": " << hydrant_error_text();
  }
}

TEST_F(SlotArenas, LatestArenasOfASizeAreNotReused) {
  const hydrant_pin_t first = come_and_go(100);
  for (size_t i = 0; i < 240; ++i) ASSERT_NE(come_and_go(100).region, first.region);
  EXPECT_EQ(hydrant_release(first), GASNET_ERR_NOT_INIT);
}

size_t address_space_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  size_t total = 0;
  const int read = file == nullptr ? 0 : std::fscanf(file, "%zu", &total);
  if (file != nullptr) std::fclose(file);
  return read == 1 ? total * static_cast<size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

std::string leave_address_space(size_t bytes) {
  const size_t used = address_space_bytes();
  const rlimit limit{used + bytes, used + bytes};
  return used != 0 && setrlimit(RLIMIT_AS, &limit) == 0 ? "" : "RLIMIT_AS cannot be set";
}

TEST_F(SlotArenas, DomainsAreRecreatedInALimitedAddressSpace) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep what is freed, and need address space of their own";
#endif
  const auto child = [&]() -> std::string {
    const hydrant_pin_t before = come_and_go(65536);
    if (std::string wrong = leave_address_space(size_t{640} << 20); !wrong.empty()) return wrong;
    hydrant_pin_t late{};
    for (size_t i = 0; i < 500; ++i) {
      late = come_and_go(65536 + 64 * i, i % 8 == 0 ? HYDRANT_MODE_PAGE : HYDRANT_MODE_REGION);
      if (late.region == nullptr) return std::to_string(i) + ": " + hydrant_error_text();
    }
    if (hydrant_release(late) != GASNET_ERR_NOT_INIT) return "late release";
    if (hydrant_release(before) != GASNET_ERR_NOT_INIT) return "very late release";
    // The program has something left for itself.
    const std::vector<char> own(size_t{64} << 20, 1);
    return own.back() == 1 ? "" : "no memory";
  };
  EXPECT_EQ(run_in_child(child), "");
}

TEST_F(SlotArenas, RetainedAddressSpaceServesALargerArena) {
  const auto child = [&]() -> std::string {
    std::vector<hydrant_pin_t> gone;
    for (size_t i = 0; i < 20; ++i) gone.push_back(come_and_go(65536));
    // Less than what those keep, so that the next one fits only where they were.
    if (std::string wrong = leave_address_space(size_t{128} << 20); !wrong.empty()) return wrong;
    std::vector<SlotArena> arenas;
    for (;;) {
      arenas.push_back(acquire_slot_arena(size_t{1} << 18));
      if (arenas.back().slots == nullptr) break;
    }
    if (arenas.size() < 15) return "only " + std::to_string(arenas.size() - 1) + " fit";
    for (const hydrant_pin_t& pin : gone) {
      if (hydrant_release(pin) != GASNET_ERR_NOT_INIT) return "late release";
    }
    return "";
  };
  EXPECT_EQ(run_in_child(child), "");
}

}  // namespace
}  // namespace hydrant::testing
