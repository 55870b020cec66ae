// When the library starts threads: at the creation of a domain, in no later call. A client may pin where no
// thread can be created, for example in a callback of dl_iterate_phdr() while another thread loads a library.
#include <hydrant/monitor.h>
#include <hydrant/pin_cache.h>

#include "tests/support/child_process.hpp"
#include "tests/support/mapped_memory.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <string>

namespace hydrant::testing {
namespace {

using PinCacheStart = PinCacheTest;

size_t threads_here() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

// In a child, which inherits no thread.
TEST_F(PinCacheStart, OnlyTheCreationOfADomainStartsThreads) {
  if (!kThreadsInChildren) GTEST_SKIP() << "the thread sanitizer ends a child that starts a thread";
  HYDRANT_NEEDS_USERFAULTFD();
  EXPECT_EQ(run_in_child([&]() -> std::string {
              if (threads_here() != 1) return "there are threads before";
              const RecordingRegistrar own(arena_);
              hydrant_domain_options_t options = options_for(own);
              options.watch = HYDRANT_WATCH_AUTO;
              hydrant_domain_t domain = 0;
              int status = hydrant_domain_create(&options, &domain);
              if (status != GASNET_OK) return failure_text("create", status);
              const size_t threads = threads_here();
              if (threads < 2) return "the creation starts no thread";
              const hydrant_pin_t held =
                  hydrant_pin(domain, arena_.page(0), kPage, HYDRANT_LOCAL_WRITE);
              if (held.region == nullptr) return failure_text("pin", hydrant_pin_status(held));
              if (threads_here() != threads) return "a pin starts a thread";
              status = hydrant_release(held);
              if (status != GASNET_OK) return failure_text("release", status);
              (void)hydrant_poll(domain);
              return threads_here() == threads ? "" : "a release or poll starts a thread";
            }),
            "");
}

}  // namespace
}  // namespace hydrant::testing
