// The fixture of tests of a domain over the registrar mlock beside locks of the program.
#pragma once

#include "firehose/registrars/mlock_calls.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::testing {

class MlockedPinCache : public WatchedPinCache {
 protected:
  // merge_bytes 0: the default, also for streams. Skips the test if too little memory can be locked.
  void create_over_mlock(uint32_t watch, size_t merge_bytes = 0,
                         uint32_t mode = HYDRANT_MODE_REGION) {
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.registrar_name = "mlock";
    options.watch = watch;
    options.mode = mode;
    options.merge_bytes = merge_bytes;
    options.stream_bytes = merge_bytes;
    if (hydrant_domain_create(&options, &domain_) != GASNET_OK)
      GTEST_SKIP() << hydrant_error_text();
    if (!lock(0, 32)) GTEST_SKIP() << "the memlock limit is less than 128 KiB";
    ASSERT_EQ(syscall(SYS_munlock, arena_.page(0), 32 * kPage), 0);
  }
  // Direct calls: a sanitizer's mlock() locks nothing.
  bool lock(size_t page, size_t pages) {
    return syscall(SYS_mlock, arena_.page(page), pages * kPage) == 0;
  }
  size_t count_locked(size_t page, size_t pages) const {
    size_t n = 0;
    for (size_t i = page; i < page + pages; ++i) {
      const MemoryRange range{reinterpret_cast<uintptr_t>(arena_.page(i)), kPage};
      n += kMlockCalls.find_lock(range) == EBUSY ? 1 : 0;
    }
    return n;
  }
  // Pins and releases.
  void keep(size_t page, size_t pages) {
    const hydrant_pin_t held = pin(page, pages);
    ASSERT_NE(held.region, nullptr) << hydrant_error_text();
    ASSERT_EQ(hydrant_release(held), GASNET_OK);
  }
};

}  // namespace hydrant::testing
