// The locks in a thread-safe client with GASNET_DEBUG: every misuse ends the program with the position.
#define GASNETT_THREAD_SAFE 1
#define GASNET_DEBUG 1
#include <gtest/gtest.h>

#include <cerrno>
#include <gasnet_tools.h>
#include <thread>

namespace {

class LocksChecked : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  gasnett_mutex_t mutex_ = GASNETT_MUTEX_INITIALIZER;
  gasnett_cond_t cond_ = GASNETT_COND_INITIALIZER;
  gasnett_rwlock_t rwlock_ = GASNETT_RWLOCK_INITIALIZER;
};

#define HYDRANT_EXPECT_MISUSE(statement, text)               \
  EXPECT_EXIT(statement, ::testing::KilledBySignal(SIGABRT), \
              "FATAL ERROR: .*locks_checked_test.cpp:[0-9]+: .*" text)

TEST_F(LocksChecked, CorrectUseIsNoMisuse) {
  gasnett_mutex_lock(&mutex_);
  gasnett_mutex_assertlocked(&mutex_);
  std::thread([&] {
    gasnett_mutex_assertunlocked(&mutex_);
    EXPECT_EQ(gasnett_mutex_trylock(&mutex_), EBUSY);
  }).join();
  gasnett_mutex_unlock(&mutex_);
  EXPECT_EQ(gasnett_mutex_trylock(&mutex_), 0);
  gasnett_mutex_unlock(&mutex_);
  gasnett_mutex_assertunlocked(&mutex_);
  gasnett_mutex_destroy(&mutex_);
  gasnett_mutex_init(&mutex_);
}

TEST_F(LocksChecked, WaitReleasesTheMutexAndTakesItAgain) {
  bool is_set = false;
  gasnett_mutex_lock(&mutex_);
  std::thread other([&] {
    gasnett_mutex_lock(&mutex_);
    is_set = true;
    gasnett_cond_signal(&cond_);
    gasnett_mutex_unlock(&mutex_);
  });
  while (!is_set) gasnett_cond_wait(&cond_, &mutex_);
  gasnett_mutex_assertlocked(&mutex_);
  gasnett_mutex_unlock(&mutex_);
  other.join();
}

TEST_F(LocksChecked, MutexMisuse) {
  HYDRANT_EXPECT_MISUSE((gasnett_mutex_lock(&mutex_), gasnett_mutex_lock(&mutex_)),
                        "not recursive");
  HYDRANT_EXPECT_MISUSE((gasnett_mutex_lock(&mutex_), (void)gasnett_mutex_trylock(&mutex_)),
                        "not recursive");
  HYDRANT_EXPECT_MISUSE(gasnett_mutex_unlock(&mutex_), "does not hold");
  HYDRANT_EXPECT_MISUSE(
      {
        gasnett_mutex_lock(&mutex_);
        std::thread([&] { gasnett_mutex_unlock(&mutex_); }).join();
      },
      "does not hold");
  HYDRANT_EXPECT_MISUSE((gasnett_mutex_lock(&mutex_), gasnett_mutex_destroy(&mutex_)), "is locked");
  HYDRANT_EXPECT_MISUSE(gasnett_mutex_assertlocked(&mutex_), "should hold");
  HYDRANT_EXPECT_MISUSE((gasnett_mutex_lock(&mutex_), gasnett_mutex_assertunlocked(&mutex_)),
                        "should not hold");
  HYDRANT_EXPECT_MISUSE(gasnett_cond_wait(&cond_, &mutex_), "should hold");
}

TEST_F(LocksChecked, RwlockTracksTheHoldsOfEachThread) {
  gasnett_rwlock_t more[20];
  for (auto& lock : more) {
    gasnett_rwlock_init(&lock);
    gasnett_rwlock_rdlock(&lock);
  }
  gasnett_rwlock_assertunlocked(&rwlock_);
  gasnett_rwlock_wrlock(&rwlock_);
  gasnett_rwlock_assertwrlocked(&rwlock_);
  gasnett_rwlock_assertlocked(&rwlock_);
  std::thread([&] {
    gasnett_rwlock_assertunlocked(&rwlock_);
    EXPECT_EQ(gasnett_rwlock_tryrdlock(&rwlock_), EBUSY);
    EXPECT_EQ(gasnett_rwlock_trywrlock(&more[3]), EBUSY);
    EXPECT_EQ(gasnett_rwlock_tryrdlock(&more[3]), 0);
    gasnett_rwlock_assertrdlocked(&more[3]);
    gasnett_rwlock_unlock(&more[3]);
  }).join();
  for (auto& lock : more) {
    gasnett_rwlock_assertrdlocked(&lock);
    gasnett_rwlock_unlock(&lock);
    gasnett_rwlock_destroy(&lock);
  }
  gasnett_rwlock_unlock(&rwlock_);
  EXPECT_EQ(gasnett_rwlock_trywrlock(&rwlock_), 0);
  gasnett_rwlock_unlock(&rwlock_);
}

TEST_F(LocksChecked, RwlockMisuse) {
  HYDRANT_EXPECT_MISUSE((gasnett_rwlock_rdlock(&rwlock_), gasnett_rwlock_rdlock(&rwlock_)),
                        "not recursive");
  HYDRANT_EXPECT_MISUSE((gasnett_rwlock_rdlock(&rwlock_), gasnett_rwlock_wrlock(&rwlock_)),
                        "not recursive");
  HYDRANT_EXPECT_MISUSE(gasnett_rwlock_unlock(&rwlock_), "does not hold");
  HYDRANT_EXPECT_MISUSE((gasnett_rwlock_rdlock(&rwlock_), gasnett_rwlock_assertwrlocked(&rwlock_)),
                        "for writing");
  HYDRANT_EXPECT_MISUSE((gasnett_rwlock_wrlock(&rwlock_), gasnett_rwlock_assertrdlocked(&rwlock_)),
                        "for reading");
  HYDRANT_EXPECT_MISUSE(gasnett_rwlock_assertlocked(&rwlock_), "should hold");
  HYDRANT_EXPECT_MISUSE((gasnett_rwlock_rdlock(&rwlock_), gasnett_rwlock_assertunlocked(&rwlock_)),
                        "should not hold");
  HYDRANT_EXPECT_MISUSE((gasnett_rwlock_rdlock(&rwlock_), gasnett_rwlock_destroy(&rwlock_)),
                        "should not hold");
  HYDRANT_EXPECT_MISUSE(
      {
        std::thread([&] { gasnett_rwlock_rdlock(&rwlock_); }).join();
        gasnett_rwlock_destroy(&rwlock_);
      },
      "another thread holds");
}

}  // namespace
