// Random operations from threads that start and end, with holds that change hands, checked against the
// guarantees of every hold and every invalidation. HYDRANT_TEST_SEED and HYDRANT_TEST_LONG as in
// pin_cache_model_test.cpp; a seed repeats the choices, not the interleaving.
#include "tests/model/pin_cache_model.hpp"
#include "tests/support/test_seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace hydrant::model {
namespace {

using testing::Arena;
using testing::check_hold;
using testing::kPage;
using testing::RecordingRegistrar;

constexpr size_t kPages = 64;
constexpr size_t kWorkers = 4;
constexpr int kRounds = 25;
constexpr uint64_t kStepsPerThread = 1500;

struct Held {
  hydrant_pin_t pin;
  uintptr_t addr;
  size_t len;
  uint32_t access;
  bool noted;  // the registrar has recorded the hold
};

// State shared by the threads of one test.
struct Common {
  Common(const ModelSetup& chosen, uint64_t) : setup(chosen), registrar(arena, chosen.key_bytes) {}

  const ModelSetup setup;
  Arena arena{kPages};
  RecordingRegistrar registrar;
  hydrant_domain_t domain = 0;
  std::array<std::atomic<uint64_t>, kPages> oldest{};  // raised when an invalidation has returned
  std::mutex mutex;
  std::vector<Held> handed_on;  // under mutex
  std::atomic<uint64_t> holds{0}, asynchronous{0}, answered{0};
};

struct AsyncRequest {
  Common* common;
  uintptr_t addr;
  size_t len;
  uint32_t access;
};

class Worker {
 public:
  Worker(Common& common, uint64_t seed) : c_(common), random_(seed), quiet_(seed % 2 == 0) {}

  void run(uint64_t steps) {
    for (uint64_t i = 0; i < steps && c_.registrar.problems().empty(); ++i) step();
    // Some holds outlive their thread: another thread takes them.
    while (!mine_.empty()) random(2) ? hand_on() : release();
  }

 private:
  uint64_t random(uint64_t bound) { return random_() % bound; }
  void wrong(const std::string& what) { c_.registrar.problem(what); }

  void step() {
    const uint64_t draw = random(100);
    if (mine_.size() > 12 || draw < 34) return release();
    if (draw < 74) return pin(draw < 64);
    if (draw < 78) return pin_many();
    if (draw < 80) return pin_async();
    if (draw < 84) return hand_on();
    if (draw < 88) return take_over();
    if (draw < 95) return invalidate();
    if (draw < 98) return poll();
    if (hydrant_flush(c_.domain) != GASNET_OK) wrong(failed("flush", 0));
  }

  Held request() {
    const size_t start = random(2) ? random(kPages * kPage) : random(8) * 5 * kPage;
    const size_t len = std::min(1 + random(4 * kPage), kPages * kPage - start);
    return {{},
            c_.arena.addr(0) + start,
            len,
            random(4) ? HYDRANT_LOCAL_WRITE : HYDRANT_REMOTE_READ,
            false};
  }

  // The least serials for `h`, read before the pin, so that a later invalidation does not affect the check.
  std::array<uint64_t, kPages> oldest_now(const Held& h) const {
    std::array<uint64_t, kPages> oldest{};
    const size_t last = c_.arena.index(h.addr + h.len - 1);
    for (size_t i = c_.arena.index(h.addr); i <= last; ++i) oldest[i] = c_.oldest[i].load();
    return oldest;
  }

  void took(Held h, const std::array<uint64_t, kPages>& oldest) {
    const std::string text =
        check_hold(c_.registrar, h.pin, h.addr, h.len, h.access, oldest.data());
    if (!text.empty()) wrong("after pin: " + text);
    // Half of the threads record no holds: the locked instructions of the records would act as fences and
    // could hide missing ones.
    h.noted = !quiet_;
    if (h.noted) note(h, +1);
    ++c_.holds;
    mine_.push_back(h);
  }

  void note(const Held& h, int delta) {
    testing::for_each_part(
        h.pin, [&](const hydrant_region_t& part) { c_.registrar.note_hold(part, delta); });
  }

  void check_answer(int status) {
    if (status == GASNET_ERR_NOT_READY) return;
    if (status == HYDRANT_ERR_BROKEN && c_.setup.failing_per_mille != 0) return;
    if (status == GASNET_ERR_RESOURCE && c_.setup.budget_pages < 5 * kWorkers) return;
    wrong(failed("unexpected answer", status));
  }

  void pin(bool may_register) {
    Held h = request();
    const auto oldest = oldest_now(h);
    const auto* addr = reinterpret_cast<const void*>(h.addr);
    h.pin = may_register ? hydrant_pin(c_.domain, addr, h.len, h.access)
                         : hydrant_try_pin(c_.domain, addr, h.len, h.access);
    h.pin.region != nullptr ? took(h, oldest) : check_answer(hydrant_pin_status(h.pin));
  }

  void pin_many() {
    std::array<Held, 3> wanted = {request(), request(), request()};
    std::array<std::array<uint64_t, kPages>, 3> oldest;
    std::array<hydrant_range_t, 3> ranges;
    std::array<hydrant_pin_t, 3> pins{};
    for (size_t i = 0; i < wanted.size(); ++i) {
      wanted[i].access = HYDRANT_LOCAL_WRITE;
      oldest[i] = oldest_now(wanted[i]);
      ranges[i] = {wanted[i].addr, wanted[i].len};
    }
    const int status =
        hydrant_pin_many(c_.domain, ranges.data(), ranges.size(), HYDRANT_LOCAL_WRITE, pins.data());
    if (status != GASNET_OK) return check_answer(status);
    for (size_t i = 0; i < wanted.size(); ++i) {
      wanted[i].pin = pins[i];
      took(wanted[i], oldest[i]);
    }
  }

  void pin_async() {
    const Held h = request();
    auto* asked = new AsyncRequest{&c_, h.addr, h.len, h.access};
    ++c_.asynchronous;
    const int status = hydrant_pin_async(c_.domain, reinterpret_cast<const void*>(h.addr), h.len,
                                         h.access, &Worker::answered, asked);
    if (status == GASNET_OK) return;
    ++c_.answered;
    delete asked;
    check_answer(status);
  }

  static void answered(void* context, hydrant_pin_t pin) {
    const auto* asked = static_cast<AsyncRequest*>(context);
    Common& c = *asked->common;
    ++c.answered;
    if (pin.region != nullptr) {
      const std::string text = check_hold(c.registrar, pin, asked->addr, asked->len, asked->access);
      if (!text.empty()) c.registrar.problem("in a callback: " + text);
      const std::lock_guard guard(c.mutex);
      c.handed_on.push_back({pin, asked->addr, asked->len, asked->access, false});
    }
    delete asked;
  }

  void release() {
    if (mine_.empty()) return;
    std::swap(mine_[random(mine_.size())], mine_.back());
    const Held h = mine_.back();
    mine_.pop_back();
    const std::string text = check_hold(c_.registrar, h.pin, h.addr, h.len, h.access);
    if (!text.empty()) wrong("while held: " + text);
    if (h.noted) note(h, -1);
    const int status = hydrant_release(h.pin);
    if (status != GASNET_OK) wrong(failed("release", status));
  }

  void hand_on() {
    if (mine_.empty()) return;
    const std::lock_guard guard(c_.mutex);
    c_.handed_on.push_back(mine_.back());
    mine_.pop_back();
  }

  void take_over() {
    const std::lock_guard guard(c_.mutex);
    if (c_.handed_on.empty()) return;
    mine_.push_back(c_.handed_on.back());
    c_.handed_on.pop_back();
  }

  void invalidate() {
    const Held h = request();
    const uint64_t serial = c_.registrar.next_serial();
    const int status = hydrant_invalidate(c_.domain, reinterpret_cast<const void*>(h.addr), h.len);
    if (status != GASNET_OK) wrong(failed("invalidate", status));
    const size_t last = c_.arena.index(h.addr + h.len - 1);
    for (size_t i = c_.arena.index(h.addr); i <= last; ++i) {
      uint64_t known = c_.oldest[i].load();
      while (known < serial && !c_.oldest[i].compare_exchange_weak(known, serial)) {
      }
    }
  }

  void poll() {
    if (const int ran = hydrant_poll(c_.domain); ran < 0) wrong(failed("poll", -ran));
  }

  Common& c_;
  std::mt19937_64 random_;
  const bool quiet_;
  std::vector<Held> mine_;
};

const ModelSetup kSetups[] = {
    {.name = "RegionRoomy", .budget_pages = 4096, .max_regions = 4096},
    {.name = "RegionTight", .budget_pages = 40, .max_regions = 40},
    {.name = "RegionSlow", .budget_pages = 40, .slow = true},
    {.name = "RegionFewSlots", .max_regions = 5},
    {.name = "RegionNeverMerging", .budget_pages = 40, .merge_pages = 0},
    {.name = "RegionOverlapping", .budget_pages = 4096, .max_regions = 4096, .merge_pages = 0},
    {.name = "RegionWithoutKeys", .budget_pages = 40, .key_bytes = 0},
    {.name = "RegionFailing", .budget_pages = 40, .failing_per_mille = 100},
    {.name = "PageRoomy", .mode = HYDRANT_MODE_PAGE, .budget_pages = 4096, .max_regions = 4096},
    {.name = "PageTight", .mode = HYDRANT_MODE_PAGE, .budget_pages = 40},
    {.name = "PageSlow", .mode = HYDRANT_MODE_PAGE, .budget_pages = 40, .slow = true},
    {.name = "PageBuckets", .mode = HYDRANT_MODE_PAGE, .bucket_pages = 4},
    {.name = "PageFailing",
     .mode = HYDRANT_MODE_PAGE,
     .budget_pages = 40,
     .failing_per_mille = 100},
};

class PinCacheThreadsModel : public ::testing::TestWithParam<ModelSetup> {
 protected:
  static hydrant_domain_options_t options(Common& c) {
    hydrant_domain_options_t o;
    hydrant_domain_options_init(&o);
    o.watch = HYDRANT_WATCH_CLIENT;
    o.name = c.setup.name;
    o.registrar_name = nullptr;
    o.registrar = &c.registrar.table;
    o.mode = c.setup.mode;
    o.budget_bytes = c.setup.budget_pages * kPage;
    o.max_regions = c.setup.max_regions;
    o.bucket_bytes = c.setup.bucket_pages * kPage;
    o.merge_bytes = c.setup.merge_pages == 0 ? 1 : c.setup.merge_pages * kPage;
    return o;
  }
};

TEST_P(PinCacheThreadsModel, HoldsStayPinnedAndInvalidatedMemoryIsNotHit) {
  const uint64_t seed = testing::test_seed();
  Common c(GetParam(), seed);
  c.registrar.watch_limits(c.setup.budget_pages * kPage, c.setup.max_regions);
  if (c.setup.slow) c.registrar.sleep_in_pins(std::chrono::microseconds(50));
  c.registrar.fail_pins(c.setup.failing_per_mille, seed);
  const hydrant_domain_options_t o = options(c);
  ASSERT_EQ(hydrant_domain_create(&o, &c.domain), GASNET_OK) << hydrant_error_text();

  const auto rounds = kRounds * static_cast<int>(test_factor());
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < kWorkers; ++i) {
      // Threads run for different numbers of steps, so that some end while others are busy.
      const uint64_t steps = kStepsPerThread * (i + 1) / kWorkers;
      threads.emplace_back([&c, i, round, steps, seed] {
        Worker(c, seed + static_cast<uint64_t>(round) * kWorkers + i).run(steps);
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(c.registrar.problems(), "") << "round " << round << ", HYDRANT_TEST_SEED=" << seed;
  }

  const auto release_all = [&c] {
    std::vector<Held> left;
    std::swap(left, c.handed_on);
    for (const Held& h : left) {
      if (h.noted) {
        testing::for_each_part(
            h.pin, [&](const hydrant_region_t& part) { c.registrar.note_hold(part, -1); });
      }
      EXPECT_EQ(hydrant_release(h.pin), GASNET_OK);
    }
    return !left.empty();
  };
  // Waiting requests are served as holds are released; their own holds return through handed_on.
  c.registrar.fail_pins(0, seed);
  // A registrar that failed may have reduced the budget for a while: destroy answers requests that still
  // wait.
  const bool failed = c.setup.failing_per_mille != 0;
  const bool served = testing::happens_within(
      failed ? std::chrono::seconds(2) : testing::patiently(testing::kDeadline), [&] {
        EXPECT_GE(hydrant_poll(c.domain), 0);
        return !release_all() && c.answered == c.asynchronous;
      });
  EXPECT_TRUE(served || failed);
  release_all();
  EXPECT_EQ(hydrant_flush(c.domain), GASNET_OK);
  EXPECT_EQ(c.registrar.live(), 0u);
  hydrant_stats_t s{};
  s.size = sizeof s;
  ASSERT_EQ(hydrant_get_stats(c.domain, &s), GASNET_OK);
  EXPECT_EQ(s.live_holds, 0u);
  EXPECT_EQ(s.pins, s.unpins);
  EXPECT_EQ(s.pins, c.registrar.pins());
  EXPECT_EQ(s.regions + s.dead_regions, 0u);
  EXPECT_EQ(s.charged_bytes, 0u);
  EXPECT_EQ(hydrant_domain_destroy(c.domain, HYDRANT_FINI_UNPIN), GASNET_OK);
  EXPECT_EQ(c.answered.load(), c.asynchronous.load());
  EXPECT_EQ(c.registrar.problems(), "") << "HYDRANT_TEST_SEED=" << seed;
  EXPECT_GT(c.holds.load(), 1000u);
}

INSTANTIATE_TEST_SUITE_P(Setups, PinCacheThreadsModel, ::testing::ValuesIn(kSetups),
                         [](const auto& setup) { return std::string(setup.param.name); });

}  // namespace
}  // namespace hydrant::model
