#include "tests/unit/firehose/watch/hooks/call_spy.hpp"
#include "tests/unit/firehose/watch/hooks/fake_monitor.hpp"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <sys/mman.h>

namespace hydrant::testing {
namespace {

TEST(HooksObject, ReportsItsIdentity) {
  ASSERT_NE(hooks(), nullptr);
  EXPECT_EQ(hooks()->size, sizeof(hydrant_hooks_t));
  EXPECT_EQ(hooks()->version, HYDRANT_HOOKS_VERSION);
  EXPECT_NE(hooks()->threads, nullptr);
  EXPECT_NE(hooks()->heap_blocks, nullptr);
  EXPECT_EQ(hooks()->monitor, nullptr);
  EXPECT_EQ(hooks()->overflowed, 0u);
}

TEST(HooksObject, ReportsEveryFamilyAsHooked) { EXPECT_EQ(hooks()->families, HYDRANT_HOOKS_ALL); }

TEST(HooksObject, ProgramCallsTheHooks) {
  Dl_info of_object;
  Dl_info of_call;
  ASSERT_NE(dladdr(hooks(), &of_object), 0);
  for (const char* name : {"mmap", "munmap", "malloc", "free", "pthread_create", "ftruncate64",
                           "dlopen", "shmdt", "malloc_trim"}) {
    ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, name), &of_call), 0) << name;
    EXPECT_STREQ(of_call.dli_fname, of_object.dli_fname) << name;
  }
}

TEST(HooksObject, CallsBeforeTheConstructorWork) {
  int families = -1;
  EXPECT_TRUE(early_calls_worked(&families));
  EXPECT_EQ(families, 0);  // it was before
}

TEST(HooksObject, MainThreadHasARecord) {
  ASSERT_NE(own_record(), nullptr);
  EXPECT_EQ(own_record()->entered, 0u);
  EXPECT_EQ(own_record()->ending, 0u);
}

}  // namespace
}  // namespace hydrant::testing
