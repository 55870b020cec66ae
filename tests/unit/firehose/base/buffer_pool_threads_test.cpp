// Many threads share a pool: no buffer is ever handed out twice or lost, and no thread starves while an idle
// thread caches buffers.
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/base/buffer_pool_util.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <latch>
#include <pthread.h>
#include <random>
#include <set>
#include <string>

namespace hydrant::testing {
namespace {

// ---- the storm ----

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;  // ten times slower
#else
constexpr bool kSanitized = false;
#endif

// Every 8 bytes of a held buffer carry its holder's tag, so that a write by any other thread is detected.
void write_tag(const PoolBuffer& buffer, uint64_t tag) {
  for (size_t i = 0; i < buffer.size; i += 8) std::memcpy(buffer.addr + i, &tag, 8);
}
bool has_tag(const PoolBuffer& buffer, uint64_t tag) {
  for (size_t i = 0; i < buffer.size; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, buffer.addr + i, 8);
    if (word != tag) return false;
  }
  return true;
}

struct Held {
  PoolBuffer buffer;
  uint64_t tag;
};

struct StormCase {
  const char* name;
  uint32_t small, large;    // buffers of 64 and of 128 bytes
  uint32_t depth, threads;  // as in BufferPoolOptions
  uint32_t larger;
  bool symmetric;
};

class BufferPoolStress : public BufferPoolTest, public ::testing::WithParamInterface<StormCase> {
 protected:
  static constexpr uint32_t kThreads = 4;
  static constexpr int kSteps = kSanitized ? 60000 : 240000;

  // Takes and returns at random, leaves some for the others to return, checks every tag.
  void run(uint32_t number) {
    std::mt19937 random(number + 1);
    std::vector<Held> held;
    uint64_t serial = uint64_t{number + 1} << 40;
    for (int step = 0; step < kSteps; ++step) {
      const auto dice = static_cast<uint32_t>(random());
      if (held.size() < dice % 12) {
        PoolBuffer buffer;
        const Status status = pool_->take(dice >> 8 & 1 ? 64 : 100, &buffer);
        if (status == Status::kOk) {
          write_tag(buffer, ++serial);
          held.push_back({buffer, serial});
        } else if (status != Status::kNotReady) {
          ++wrong_;
        }
      } else if (!held.empty()) {
        std::swap(held[dice % held.size()], held.back());
        leave_to_others(held.back(), dice >> 16);
        held.pop_back();
      }
    }
    for (const Held& one : held) give_back(one);
  }
  // Puts the buffer where any thread may take it, and returns the one that was there.
  void leave_to_others(const Held& mine, uint32_t dice) {
    if (dice % 4 != 0) return give_back(mine);
    Held* found = places_[dice / 4 % places_used_].exchange(new Held(mine));
    if (found == nullptr) return;
    give_back(*found);
    delete found;
  }
  void give_back(const Held& one) {
    if (!has_tag(one.buffer, one.tag)) ++wrong_;
    write_tag(one.buffer, 0);
    if (pool_->release_buffer(one.buffer.addr) != Status::kOk) ++wrong_;
  }

  std::array<std::atomic<Held*>, 8> places_{};
  size_t places_used_ = 1;
  std::atomic<int> wrong_{0};
};

TEST_P(BufferPoolStress, NoBufferIsInTwoHandsAndNoneIsLost) {
  const StormCase& storm = GetParam();
  BufferPoolOptions options = pool_options(64, {storm.small, storm.large});
  options.magazine_depth = storm.depth;
  options.threads = storm.threads;
  options.larger_classes = storm.larger;
  create(options);
  places_used_ = std::min<size_t>(places_.size(), (storm.small + storm.large) / 8);
  if (storm.symmetric) BufferPoolPeer::make_symmetric(*pool_);
  std::atomic<bool> done{false};
  Threads reader;
  reader.start([&] {
    uint64_t sum = 0;
    while (!done) sum += pool_->stats(0).taken + pool_->stats(1).out();
    EXPECT_GT(sum, 0u);
  });
  for (int generation = 0; generation < 2; ++generation) {  // threads that start and exit
    Threads threads;
    for (uint32_t i = 0; i < kThreads; ++i) threads.start([this, i] { run(i); });
    threads.join();
  }
  done = true;
  reader.join();
  for (auto& place : places_) {
    const std::unique_ptr<Held> left(place.exchange(nullptr));
    if (left != nullptr) give_back(*left);
  }
  EXPECT_EQ(wrong_.load(), 0);
  for (uint32_t i = 0; i < 2; ++i) {
    const BufferPoolClassStats stats = pool_->stats(i);
    EXPECT_EQ(stats.taken, stats.returned);
    EXPECT_LE(stats.high_water, stats.count);
  }
  EXPECT_GT(pool_->stats(0).taken + pool_->stats(1).taken, 20000u) << "too few to prove anything";
  std::set<std::byte*> seen;
  std::vector<PoolBuffer> all = take_all(128);
  for (const PoolBuffer& buffer : take_all(64)) all.push_back(buffer);
  for (const PoolBuffer& buffer : all) seen.insert(buffer.addr);
  EXPECT_EQ(seen.size(), storm.small + storm.large);
  EXPECT_EQ(pool_->stats(0).out() + pool_->stats(1).out(), seen.size())
      << "one was handed out twice";
  put_all(all);
}

INSTANTIATE_TEST_SUITE_P(
    Pools, BufferPoolStress,
    ::testing::Values(StormCase{"Plenty", 512, 512, 8, 64, 0, false},
                      StormCase{"RaidsAllTheTime", 24, 16, 8, 64, 0, false},
                      StormCase{"RaidsWithFullFences", 24, 16, 8, 64, 0, true},
                      StormCase{"DeepMagazinesAndLargerClasses", 256, 120, 31, 64, 1, false},
                      StormCase{"StackAlone", 24, 16, 0, 64, 0, false},
                      StormCase{"FewerMagazinesThanThreads", 32, 32, 4, 2, 1, false},
                      StormCase{"NoMagazines", 12, 6, 8, 0, 1, false}),
    [](const auto& one) { return one.param.name; });

// An owner that is nearly always inside its magazine, and a thief that enters whenever the magazine holds
// something: the fence between the two flags decides.
class BufferPoolStealRace : public BufferPoolTest, public ::testing::WithParamInterface<bool> {
 protected:
  // Takes up to n, tags them, returns them.
  void cycle(size_t n, uint64_t tag) {
    std::vector<Held> held;
    PoolBuffer buffer;
    while (held.size() < n && pool_->take(64, &buffer) == Status::kOk) {
      write_tag(buffer, ++tag);
      held.push_back({buffer, tag});
    }
    for (const Held& one : held) {
      if (!has_tag(one.buffer, one.tag)) ++wrong_;
      if (pool_->release_buffer(one.buffer.addr) != Status::kOk) ++wrong_;
    }
  }
  std::atomic<int> wrong_{0};
};

TEST_P(BufferPoolStealRace, OwnerAndThiefNeverGetTheSameBuffer) {
  constexpr uint64_t kRaided = kSanitized ? 2000 : 20000;
  constexpr uint64_t kEnough = 10;
  BufferPoolOptions options = pool_options(64, {32});
  options.threads = 1;  // the owner's: buffers that the thief returns go to the stack
  create(options);
  if (GetParam()) BufferPoolPeer::make_symmetric(*pool_);
  std::atomic<bool> done{false};
  std::atomic<pool::Magazine*> magazine{nullptr};
  Threads owner;
  owner.start([&] {
    magazine = &BufferPoolPeer::own_magazine(*pool_);
    for (uint64_t tag = 0; !done; ++tag) cycle(1, tag << 1);
  });
  ASSERT_TRUE(wait_until([&] { return magazine.load() != nullptr; }));
  const std::atomic<uint32_t>& cached = magazine.load()->classes[0].count;
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t i = 0; pool_->stats(0).stolen < kRaided; ++i) {
    // A busy machine: fewer have to do, but enough to show something.
    const auto longest =
        pool_->stats(0).stolen > kEnough ? std::chrono::seconds(3) : patiently(kDeadline);
    if (std::chrono::steady_clock::now() - begin > longest) break;
    for (int spins = 0; cached.load() == 0 && spins < 10000; ++spins) {
    }
    cycle(32, uint64_t{1} << 63 | i << 8);
  }
  done = true;
  owner.join();
  EXPECT_GT(pool_->stats(0).stolen, kEnough) << "too few to prove anything";
  EXPECT_EQ(wrong_.load(), 0);
  EXPECT_EQ(available(64), 32u);
}

INSTANTIATE_TEST_SUITE_P(Fences, BufferPoolStealRace, ::testing::Bool(),
                         [](const auto& one) { return one.param ? "Full" : "Asymmetric"; });

// ---- magazines ----

class BufferPoolMagazines : public BufferPoolTest {
 protected:
  // Runs body in a thread that then stays, with its magazine, until stop().
  template <typename Body>
  void in_idle_thread(Body body) {
    std::latch ready(1);
    threads_.start([&, body] {
      body();
      ready.count_down();
      wait_until([&] { return stop_.load(); });
    });
    ready.wait();
  }
  void stop() {
    stop_ = true;
    threads_.join();
  }
  void TearDown() override {
    stop();
    BufferPoolTest::TearDown();
  }
  void cycle(uint32_t n) {
    std::vector<PoolBuffer> held;
    for (uint32_t i = 0; i < n; ++i) held.push_back(take(64));
    put_all(held);
  }

  std::atomic<bool> stop_{false};
  Threads threads_;
};

TEST_F(BufferPoolMagazines, BuffersOfIdleThreadsAreNotLostToOthers) {
  for (const bool symmetric : {false, true}) {
    create(pool_options(64, {64}));
    if (symmetric) BufferPoolPeer::make_symmetric(*pool_);
    for (int i = 0; i < 3; ++i) in_idle_thread([&] { cycle(12); });
    const uint32_t cached = pool_->stats(0).cached;
    ASSERT_GE(cached, 12u) << "three magazines of eight, at least half full";
    const auto all = take_all(64);
    EXPECT_EQ(all.size(), 64u);
    EXPECT_EQ(pool_->stats(0).stolen, cached);
    EXPECT_EQ(pool_->stats(0).cached, 0u);
    put_all(all);
    stop();
    stop_ = false;
    pool_.reset();
  }
}

TEST_F(BufferPoolMagazines, ReturnsGoPastTheMagazinesWhileTheClassIsShort) {
  create(pool_options(64, {64}));
  const auto all = take_all(64);
  put_all({all.begin(), all.begin() + 8});
  EXPECT_EQ(pool_->stats(0).cached, 0u);
  in_idle_thread([&] { EXPECT_EQ(available(64), 8u); });
  EXPECT_EQ(pool_->stats(0).stolen, 0u);
  put_all({all.begin() + 8, all.end()});
}

TEST_F(BufferPoolMagazines, EndOfAThreadEmptiesItsMagazine) {
  create(pool_options(64, {64}));
  Threads thread;
  thread.start([&] { cycle(12); });
  thread.join();
  EXPECT_EQ(pool_->stats(0).cached, 0u);
  EXPECT_EQ(pool_->stats(0).taken, 12u) << "its counts stay";
  EXPECT_EQ(available(64), 64u);
  EXPECT_EQ(pool_->stats(0).stolen, 0u);
}

TEST_F(BufferPoolMagazines, MagazineOfAnExitedThreadIsReused) {
  BufferPoolOptions options = pool_options(64, {64});
  options.threads = 1;
  create(options);
  in_idle_thread([&] { cycle(1); });
  const uint32_t cached = pool_->stats(0).cached;
  EXPECT_GT(cached, 0u);
  cycle(1);  // main finds no magazine free
  EXPECT_EQ(pool_->stats(0).cached, cached);
  EXPECT_EQ(pool_->stats(0).taken, 2u);
  stop();
  EXPECT_EQ(pool_->stats(0).cached, 0u);
  cycle(1);
  EXPECT_GT(pool_->stats(0).cached, 0u) << "now it has one";
}

TEST_F(BufferPoolMagazines, HundredsOfThreadsLeaveNothingBehind) {
  BufferPoolOptions options = pool_options(64, {64});
  options.threads = 4;
  create(options);
  for (int i = 0; i < 300; ++i) {
    Threads thread;
    thread.start([&] { cycle(3); });
    thread.join();
  }
  EXPECT_EQ(pool_->stats(0).taken, 900u);
  EXPECT_EQ(pool_->stats(0).cached, 0u);
  EXPECT_EQ(available(64), 64u);
}

TEST_F(BufferPoolMagazines, ThreadMayOutliveThePool) {
  create(pool_options(64, {64}));
  in_idle_thread([&] { cycle(12); });
  pool_.reset();
  create(pool_options(64, {64}));  // most likely in the same place, with the same pthread key
  cycle(1);
  const uint32_t cached = pool_->stats(0).cached;
  stop();
  EXPECT_EQ(pool_->stats(0).cached, cached) << "the thread emptied a magazine that is not its own";
}

TEST_F(BufferPoolMagazines, TwoPoolsDoNotMix) {
  create(pool_options(64, {64}));
  std::unique_ptr<BufferPool> other;
  ASSERT_EQ(BufferPool::create(registrar_, pool_options(64, {64}), &other), Status::kOk);
  for (int i = 0; i < 100; ++i) {
    PoolBuffer theirs;
    const PoolBuffer ours = take(64);
    ASSERT_EQ(other->take(64, &theirs), Status::kOk);
    EXPECT_TRUE(pool_->owns(ours.addr) && !other->owns(ours.addr));
    EXPECT_TRUE(other->owns(theirs.addr) && !pool_->owns(theirs.addr));
    EXPECT_EQ(other->release_buffer(theirs.addr), Status::kOk);
    release_buffer(ours);
  }
}

// A destructor of the client's runs after the pool's own: its buffer is returned all the same.
struct LateUse {
  pthread_key_t key;
  BufferPool* pool;
  void* addr;
  int round = 0;
};

void late_destructor(void* argument) {
  auto* late = static_cast<LateUse*>(argument);
  if (++late->round < 2) {
    pthread_setspecific(late->key, late);
  } else {
    EXPECT_EQ(late->pool->release_buffer(late->addr), Status::kOk);
  }
}

TEST_F(BufferPoolMagazines, LateDestructorMayReturnABuffer) {
  create(pool_options(64, {64}));
  LateUse late{};
  ASSERT_EQ(pthread_key_create(&late.key, &late_destructor), 0);
  Threads thread;
  thread.start([&] {
    late.pool = pool_.get();
    late.addr = take(64).addr;
    pthread_setspecific(late.key, &late);
  });
  thread.join();
  pthread_key_delete(late.key);
  EXPECT_EQ(late.round, 2);
  EXPECT_EQ(pool_->stats(0).out(), 0u);
  EXPECT_EQ(pool_->stats(0).cached, 0u);
  EXPECT_EQ(available(64), 64u);
}

}  // namespace
}  // namespace hydrant::testing
