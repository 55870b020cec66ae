// Memory that the kernel itself will not pin: unmapped, or not writable.
#include <hydrant/pin_cache.h>

#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <sys/mman.h>

namespace hydrant::testing {
namespace {

TEST(PinCacheRealMemory, UnmappedMemoryIsRefusedByMlock) {
  if (mlock(nullptr, kPage) == 0)
    GTEST_SKIP() << "a sanitizer stands in for mlock and does nothing";
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.watch = HYDRANT_WATCH_CLIENT;
  options.registrar_name = "mlock";
  hydrant_domain_t domain = 0;
  ASSERT_EQ(hydrant_domain_create(&options, &domain), GASNET_OK) << hydrant_error_text();
  const Arena arena(4);
  ASSERT_EQ(munmap(arena.page(2), kPage), 0);
  EXPECT_EQ(hydrant_pin_status(hydrant_pin(domain, arena.page(1), 2 * kPage, 0)),
            HYDRANT_ERR_REFUSED);
  EXPECT_TRUE(has_text());
  EXPECT_EQ(hydrant_pin_status(hydrant_pin(domain, arena.page(2), kPage, 0)), HYDRANT_ERR_REFUSED);
  EXPECT_EQ(hydrant_pin_status(hydrant_pin(domain, nullptr, kPage, 0)), HYDRANT_ERR_REFUSED);
  const hydrant_pin_t held = hydrant_pin(domain, arena.page(0), 2 * kPage, HYDRANT_LOCAL_WRITE);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN), GASNET_OK);
}

TEST(PinCacheRealMemory, ReadOnlyMappingIsASourceAndNoTarget) {
  for (const char* name : {"mlock", "uring"}) {
    SCOPED_TRACE(name);
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.watch = HYDRANT_WATCH_CLIENT;
    options.registrar_name = name;
    hydrant_domain_t domain = 0;
    const int status = hydrant_domain_create(&options, &domain);
    if (status == HYDRANT_ERR_BROKEN) continue;  // io_uring is not allowed here
    ASSERT_EQ(status, GASNET_OK) << hydrant_error_text();
    const Arena arena(4);
    ASSERT_EQ(mprotect(arena.page(0), 4 * kPage, PROT_READ), 0);
    EXPECT_EQ(hydrant_pin_status(hydrant_pin(domain, arena.page(0), kPage, HYDRANT_LOCAL_WRITE)),
              HYDRANT_ERR_REFUSED);
    EXPECT_TRUE(has_text());
    const hydrant_pin_t source = hydrant_pin(domain, arena.page(0), kPage, HYDRANT_LOCAL_READ);
    // io_uring pins for writing only and refuses such memory whole; mlock can take it.
    const bool may_refuse = std::string(name) == "uring";
    if (source.region != nullptr) {
      EXPECT_EQ(hydrant_release(source), GASNET_OK);
    } else {
      EXPECT_TRUE(may_refuse && hydrant_pin_status(source) == HYDRANT_ERR_REFUSED)
          << hydrant_error_text();
    }
    EXPECT_EQ(hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN), GASNET_OK);
  }
}

}  // namespace
}  // namespace hydrant::testing
