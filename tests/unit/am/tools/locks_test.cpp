// The locks in a thread-safe client without GASNET_DEBUG.
#define GASNETT_THREAD_SAFE 1
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <gasnet_tools.h>
#include <thread>
#include <vector>

namespace {

TEST(Locks, StaticInitialisersAreTheSystems) {
  const gasnett_rwlock_t ours = GASNETT_RWLOCK_INITIALIZER;
  const pthread_rwlock_t theirs = PTHREAD_RWLOCK_INITIALIZER;
  EXPECT_EQ(std::memcmp(&ours, &theirs, sizeof theirs), 0);
}

TEST(Locks, MutexExcludes) {
  gasnett_mutex_t mutex = GASNETT_MUTEX_INITIALIZER;
  int guarded = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 2000; ++round) {
        gasnett_mutex_lock(&mutex);
        ++guarded;
        gasnett_mutex_unlock(&mutex);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(guarded, 8000);
  gasnett_mutex_destroy(&mutex);
}

TEST(Locks, TrylockReturnsBusy) {
  gasnett_mutex_t mutex;
  gasnett_mutex_init(&mutex);
  EXPECT_EQ(gasnett_mutex_trylock(&mutex), 0);
  std::thread([&] { EXPECT_EQ(gasnett_mutex_trylock(&mutex), EBUSY); }).join();
  EXPECT_EQ(gasnett_mutex_destroy_ignoreerr(&mutex), EBUSY);
  gasnett_mutex_assertunlocked(&mutex);  // no effect without GASNET_DEBUG
  gasnett_mutex_unlock(&mutex);
  EXPECT_EQ(gasnett_mutex_destroy_ignoreerr(&mutex), 0);
}

TEST(Locks, ConditionsWakeWaiters) {
  gasnett_mutex_t mutex = GASNETT_MUTEX_INITIALIZER;
  gasnett_cond_t cond = GASNETT_COND_INITIALIZER;
  int turn = 0;
  std::thread other([&] {
    gasnett_mutex_lock(&mutex);
    while (turn != 1) gasnett_cond_wait(&cond, &mutex);
    turn = 2;
    gasnett_cond_signal(&cond);
    gasnett_mutex_unlock(&mutex);
  });
  gasnett_mutex_lock(&mutex);
  turn = 1;
  gasnett_cond_broadcast(&cond);
  while (turn != 2) gasnett_cond_wait(&cond, &mutex);
  gasnett_mutex_unlock(&mutex);
  other.join();
  gasnett_cond_destroy(&cond);
}

TEST(Locks, ReadersShareAndWritersDoNot) {
  gasnett_rwlock_t lock = GASNETT_RWLOCK_INITIALIZER;
  gasnett_rwlock_rdlock(&lock);
  std::thread([&] {
    EXPECT_EQ(gasnett_rwlock_tryrdlock(&lock), 0);
    gasnett_rwlock_unlock(&lock);
    EXPECT_EQ(gasnett_rwlock_trywrlock(&lock), EBUSY);
  }).join();
  gasnett_rwlock_unlock(&lock);
  gasnett_rwlock_wrlock(&lock);
  std::thread([&] { EXPECT_EQ(gasnett_rwlock_tryrdlock(&lock), EBUSY); }).join();
  gasnett_rwlock_unlock(&lock);
  gasnett_rwlock_destroy(&lock);
}

}  // namespace
