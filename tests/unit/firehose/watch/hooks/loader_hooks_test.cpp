#include "tests/unit/firehose/watch/hooks/fake_monitor.hpp"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <string>

namespace hydrant::testing {
namespace {

constexpr const char* kCaller = HYDRANT_HOOKS_TEST_CALLER;  // has a RUNPATH of its own
constexpr const char* kPlugin = "libhooks_test_plugin.so";  // which only that RUNPATH leads to

class LoaderHooks : public ::testing::Test {
 protected:
  FakeMonitor monitor_;
};

TEST_F(LoaderHooks, LoadedLibrariesAreSynced) {
  FakeMonitor::pin_everything();
  const uint64_t before = FakeMonitor::calls().syncs;
  void* handle = dlopen(kCaller, RTLD_NOW);
  ASSERT_NE(handle, nullptr) << dlerror();
  EXPECT_GT(FakeMonitor::calls().syncs, before);
  FakeMonitor::make_busy();
  const uint64_t settles = FakeMonitor::calls().settles;
  EXPECT_EQ(dlclose(handle), 0);
  EXPECT_GE(FakeMonitor::calls().settles, settles + 1);
}

TEST_F(LoaderHooks, DlmopenSyncsToo) {
  FakeMonitor::pin_everything();
  const uint64_t before = FakeMonitor::calls().syncs;
  void* handle = dlmopen(LM_ID_BASE, kCaller, RTLD_NOW);
  ASSERT_NE(handle, nullptr) << dlerror();
  EXPECT_GT(FakeMonitor::calls().syncs, before);
  dlclose(handle);
}

TEST_F(LoaderHooks, RefusalsAreTheLoaders) {
  EXPECT_EQ(dlopen("/nowhere/libnothing.so", RTLD_NOW), nullptr);
  EXPECT_NE(std::string(dlerror()).find("/nowhere/libnothing.so"), std::string::npos);
  EXPECT_EQ(dlopen("libnothing-of-this-name.so", RTLD_NOW), nullptr);
  EXPECT_NE(std::string(dlerror()).find("libnothing-of-this-name.so"), std::string::npos);
  EXPECT_EQ(dlopen("libm.so.6", 0), nullptr);  // neither RTLD_NOW nor RTLD_LAZY
  EXPECT_NE(dlerror(), nullptr);
  void* self = dlopen(nullptr, RTLD_NOW);
  EXPECT_NE(self, nullptr);
  EXPECT_EQ(dlclose(self), 0);
}

TEST_F(LoaderHooks, CallersPathsCount) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "no way to call the loader on behalf of others is written for this processor";
#endif
  EXPECT_EQ(dlopen(kPlugin, RTLD_NOW), nullptr) << "not in this program's paths";
  void* caller = dlopen(kCaller, RTLD_NOW);
  ASSERT_NE(caller, nullptr) << dlerror();
  using LoadFn = void* (*)(const char*, int);
  const auto load = reinterpret_cast<LoadFn>(dlsym(caller, "hooks_test_load"));
  const auto load_in_base = reinterpret_cast<LoadFn>(dlsym(caller, "hooks_test_load_in_base"));
  ASSERT_TRUE(load != nullptr && load_in_base != nullptr);
  for (const std::string& name :
       {std::string(kPlugin), std::string("$ORIGIN/plugins/") + kPlugin}) {
    for (const LoadFn function : {load, load_in_base}) {
      void* plugin = function(name.c_str(), RTLD_NOW);
      ASSERT_NE(plugin, nullptr) << name << ": " << dlerror();
      const auto answer = reinterpret_cast<int (*)()>(dlsym(plugin, "hooks_test_answer"));
      ASSERT_NE(answer, nullptr);
      EXPECT_EQ(answer(), 42);
      dlclose(plugin);
    }
  }
  dlclose(caller);
}

}  // namespace
}  // namespace hydrant::testing
