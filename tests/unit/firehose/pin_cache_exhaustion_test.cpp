// A network layer when memory cannot be pinned: the cache evicts, retries and shrinks its budget; a
// transfer that is "not now" after that goes through a pool of buffers that were pinned before. Cache and
// pool share one account, as they do with the kernel. Every operation completes, or is "not now" itself;
// nothing fails, nothing leaks, and all memory that the device used was pinned while it used it.
#include <hydrant/pin_cache.h>

#include "firehose/base/buffer_pool/buffer_pool.hpp"
#include "tests/fakes/fake_registrar.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace hydrant::testing {
namespace {

constexpr size_t kSetPages = 256;
constexpr size_t kBudgetPages = 32;
constexpr size_t kLargestPages = 8;
constexpr size_t kPoolBuffers = 2;
constexpr size_t kPoolPages = kPoolBuffers * kLargestPages;
constexpr size_t kOutstanding = 6;

hydrant_registrar_t c_table_of(FakeRegistrar* fake) {
  hydrant_registrar_t table{};
  table.size = sizeof table;
  table.user = fake;
  table.name = "fake";
  table.key_bytes = fake->traits().key_bytes;
  table.pin = [](void* user, uintptr_t addr, size_t len, uint32_t access, void* key) {
    return static_cast<int>(static_cast<FakeRegistrar*>(user)->pin(
        {addr, len}, static_cast<Access>(access), static_cast<std::byte*>(key)));
  };
  table.unpin = [](void* user, uintptr_t addr, size_t len, const void* key) {
    return static_cast<int>(
        static_cast<FakeRegistrar*>(user)->unpin({addr, len}, static_cast<const std::byte*>(key)));
  };
  table.pending_charge = [](void* user) {
    return static_cast<FakeRegistrar*>(user)->pending_charge();
  };
  return table;
}

enum class Outcome { kPinned, kCopied, kNotNow, kFailed };

struct Counts {
  int pinned = 0, copied = 0, not_now = 0;
};

class PinCacheExhaustion : public ::testing::TestWithParam<uint32_t> {
 protected:
  void TearDown() override { destroy(); }

  void create(const FakeOptions& fake_options = {}) {
    fake_ = std::make_unique<FakeRegistrar>(fake_options);
    BufferPoolOptions pool_options;
    pool_options.smallest_bytes = pool_options.largest_bytes = kLargestPages * kPage;
    pool_options.counts[0] = kPoolBuffers;
    pool_options.magazine_depth = 0;
    ASSERT_EQ(BufferPool::create(*fake_, pool_options, &pool_), Status::kOk) << last_error_text();
    const hydrant_registrar_t table = c_table_of(fake_.get());
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.watch = HYDRANT_WATCH_CLIENT;
    options.registrar = &table;
    options.mode = GetParam();
    options.budget_bytes = kBudgetPages * kPage;
    ASSERT_EQ(hydrant_domain_create(&options, &domain_), GASNET_OK) << hydrant_error_text();
  }
  void destroy() {
    if (domain_ == 0) return;
    EXPECT_EQ(stats_of(domain_).live_holds, 0u);
    EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
    domain_ = 0;
    pool_.reset();
    fake_->release_charges();
    EXPECT_EQ(fake_->leftovers(), "");
  }

  // Transfers these pages. A pin that succeeds is kept in `held`, as if the device were still using it.
  Outcome operate(size_t page, size_t pages, std::deque<hydrant_pin_t>* held) {
    const hydrant_pin_t pin =
        hydrant_pin(domain_, arena_.page(page), pages * kPage, HYDRANT_LOCAL_WRITE);
    if (pin.region != nullptr) {
      bool good = true;
      for_each_part(pin, [&](const hydrant_region_t& part) {
        good = good && fake_->is_pinned({part.addr, part.len}, Access::kLocalWrite,
                                        static_cast<const std::byte*>(part.key));
      });
      held->push_back(pin);
      return good ? Outcome::kPinned : Outcome::kFailed;
    }
    if (hydrant_pin_status(pin) != GASNET_ERR_NOT_READY) return Outcome::kFailed;
    PoolBuffer buffer;
    const Status status = pool_->take(pages * kPage, &buffer);
    if (status == Status::kNotReady) return Outcome::kNotNow;
    if (status != Status::kOk) return Outcome::kFailed;
    const bool good = fake_->is_pinned(pool_->memory(), Access::kLocalWrite, buffer.key);
    return pool_->release_buffer(buffer.addr) == Status::kOk && good ? Outcome::kCopied
                                                                     : Outcome::kFailed;
  }

  static void release_down_to(size_t n, std::deque<hydrant_pin_t>* held) {
    for (; held->size() > n; held->pop_front()) {
      EXPECT_EQ(hydrant_release(held->front()), GASNET_OK) << hydrant_error_text();
    }
  }

  // `count` random transfers, the last kOutstanding of them under way.
  Counts operate_many(int count, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::deque<hydrant_pin_t> held;
    Counts counts;
    for (int i = 0; i < count; ++i) {
      const size_t pages = 1 + random() % kLargestPages;
      release_down_to(kOutstanding - 1, &held);
      switch (operate(random() % (kSetPages - pages + 1), pages, &held)) {
        case Outcome::kPinned: ++counts.pinned; break;
        case Outcome::kCopied: ++counts.copied; break;
        case Outcome::kNotNow: ++counts.not_now; break;
        case Outcome::kFailed:
          ADD_FAILURE() << "transfer " << i << ", seed " << seed << ": " << hydrant_error_text();
          release_down_to(0, &held);
          return counts;
      }
    }
    release_down_to(0, &held);
    return counts;
  }

  Arena arena_{kSetPages};
  std::unique_ptr<FakeRegistrar> fake_;
  std::unique_ptr<BufferPool> pool_;
  hydrant_domain_t domain_ = 0;
};

TEST_P(PinCacheExhaustion, NoBudgetAtTheNthCallForEveryN) {
  for (uint64_t n = 1; n <= 48; ++n) {
    for (const bool repeat : {false, true}) {
      SCOPED_TRACE("n " + std::to_string(n) + (repeat ? ", again and again" : ""));
      create();
      fake_->fail_call(FakeCall::kPin, n, Status::kNotReady, repeat);
      const Counts counts = operate_many(60, n);
      EXPECT_EQ(counts.not_now, 0) << "one thread never has both buffers out";
      EXPECT_EQ(counts.pinned + counts.copied, 60);
      if (!repeat || n > 1) {
        EXPECT_GT(counts.pinned, 0);
      } else {
        EXPECT_EQ(counts.copied, 60) << "what every call refuses is copied";
      }
      destroy();
    }
  }
}

TEST_P(PinCacheExhaustion, MemlockThatOthersUse) {
  // The cache's budget is kBudgetPages; the account allows fewer, or the pool's pages alone.
  for (const size_t left : {kBudgetPages / 2, kLargestPages, size_t{1}, size_t{0}}) {
    SCOPED_TRACE(left);
    create();
    const uint64_t limit = (kPoolPages + left) * kPage;
    fake_->set_charge_limit(limit);
    const Counts counts = operate_many(400, left);
    EXPECT_EQ(counts.pinned + counts.copied, 400);
    EXPECT_EQ(counts.pinned == 0, left == 0);
    EXPECT_GT(counts.copied, 0);
    EXPECT_LE(fake_->max_charged_bytes(), limit);
    EXPECT_LT(stats_of(domain_).budget_bytes, kBudgetPages * kPage) << "it did not learn";
    destroy();
  }
}

TEST_P(PinCacheExhaustion, LimitThatFallsAndRisesAgain) {
  create();
  EXPECT_GT(operate_many(200, 1).pinned, 100);
  fake_->set_charge_limit(kPoolPages * kPage);  // less than is pinned now
  EXPECT_EQ(operate_many(200, 2).not_now, 0);
  fake_->set_charge_limit(UINT64_MAX);
  EXPECT_GT(operate_many(200, 3).pinned, 0);
}

TEST_P(PinCacheExhaustion, TableOfRegionsIsFull) {
  for (const uint64_t regions : {2u, 3u, 6u}) {  // one is the pool's
    SCOPED_TRACE(regions);
    FakeOptions options;
    options.max_regions = regions;
    create(options);
    const Counts counts = operate_many(400, regions);
    EXPECT_EQ(counts.pinned + counts.copied, 400);
    EXPECT_GT(counts.copied, 0);
    EXPECT_GT(counts.pinned, 0);
    destroy();
  }
}

TEST_P(PinCacheExhaustion, OperationsCompleteWithLateUncharges) {
  FakeOptions options;
  options.pending_charges = true;
  options.charge_limit = (kPoolPages + kBudgetPages) * kPage;
  create(options);
  int pinned_at_last = 0;
  for (uint64_t round = 0; round < 20; ++round) {
    const Counts counts = operate_many(40, round);
    EXPECT_EQ(counts.pinned + counts.copied, 40);
    pinned_at_last = counts.pinned;
    fake_->release_charges(round % 2 == 0 ? UINT64_MAX : 3 * kPage);
  }
  EXPECT_GT(pinned_at_last, 0);
  // The charges are never released: all transfers are copied in the end, and none hangs.
  EXPECT_EQ(operate_many(200, 100).not_now, 0);
  const Counts stuck = operate_many(100, 101);
  EXPECT_EQ(stuck.pinned + stuck.copied, 100);
  EXPECT_GT(stuck.copied, 0);
  fake_->release_charges();
  EXPECT_GT(operate_many(50, 102).pinned, 0);
  EXPECT_LE(fake_->max_charged_bytes(), options.charge_limit);
}

TEST_P(PinCacheExhaustion, VictimsGoBeforeAnythingIsCopied) {
  create();
  std::deque<hydrant_pin_t> held;
  for (size_t page = 0; page + kLargestPages <= kSetPages; page += kLargestPages) {
    EXPECT_EQ(operate(page, kLargestPages, &held), Outcome::kPinned) << "page " << page;
    release_down_to(0, &held);
  }
  EXPECT_GT(stats_of(domain_).evictions, 0u);
}

TEST_P(PinCacheExhaustion, HeldBudgetFallsBackToCopyThenNotReady) {
  create();
  std::deque<hydrant_pin_t> held;
  size_t page = 0;
  for (; page < kBudgetPages; page += kLargestPages) {
    ASSERT_EQ(operate(page, kLargestPages, &held), Outcome::kPinned) << hydrant_error_text();
  }
  EXPECT_EQ(operate(page, kLargestPages, &held), Outcome::kCopied);
  std::vector<PoolBuffer> out(kPoolBuffers);
  for (PoolBuffer& buffer : out) ASSERT_EQ(pool_->take(kPage, &buffer), Status::kOk);
  EXPECT_EQ(operate(page, kLargestPages, &held), Outcome::kNotNow);
  EXPECT_EQ(operate(0, 1, &held), Outcome::kPinned) << "what is pinned needs no budget";
  EXPECT_EQ(pool_->release_buffer(out.back().addr), Status::kOk);
  EXPECT_EQ(operate(page, kLargestPages, &held), Outcome::kCopied);
  EXPECT_EQ(pool_->release_buffer(out.front().addr), Status::kOk);
  release_down_to(0, &held);
  EXPECT_EQ(operate(page, kLargestPages, &held), Outcome::kPinned);
  release_down_to(0, &held);
}

TEST_P(PinCacheExhaustion, ThreadsShareTheBudget) {
  FakeOptions options;
  options.charge_limit = (kPoolPages + kBudgetPages / 2) * kPage;
  create(options);
  fake_->fail_call(FakeCall::kPin, 7, Status::kNotReady, true);
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    threads.emplace_back([&, seed] {
      const Counts counts = operate_many(300, seed);
      done += counts.pinned + counts.copied + counts.not_now;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done.load(), 900);
}

INSTANTIATE_TEST_SUITE_P(Modes, PinCacheExhaustion,
                         ::testing::Values(HYDRANT_MODE_REGION, HYDRANT_MODE_PAGE),
                         [](const auto& param) {
                           return param.param == HYDRANT_MODE_PAGE ? "Page" : "Region";
                         });

}  // namespace
}  // namespace hydrant::testing
