// Policies of the test behind the interfaces of cache/policy/, in a domain over a registrar that pins
// nothing: each of their answers has its effect.
#include <hydrant/pin_cache.h>

#include "firehose/cache/domain_registry.hpp"
#include "tests/fakes/fake_registrar.hpp"
#include "tests/support/recording_registrar.hpp"
#include "tests/support/sizes.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace hydrant::testing {
namespace {

constexpr uintptr_t kBase = uintptr_t{1} << 40;
constexpr uint32_t kMostRegions = 64;
constexpr MemoryRange at(size_t page, size_t pages = 1) {
  return {kBase + page * kPage, pages * kPage};
}

// Answers as the test sets, and keeps what it was asked.
class ScriptedAdmission final : public AdmissionPolicy {
 public:
  Admission decide(const Candidate& candidate) noexcept override {
    asked.push_back(candidate);
    if (random) return static_cast<Admission>(engine() % 3);
    return candidate.is_beyond_need ? beyond : request;
  }

  void reset_in_child() noexcept override { ++resets; }

  Admission request = Admission::kKeep;
  Admission beyond = Admission::kKeep;
  bool random = false;
  std::mt19937 engine{7};
  std::vector<Candidate> asked;  // (allocates under the mutex, which a policy that ships must not)
  int resets = 0;
};

class CostByLength final : public RegistrationCost {
 public:
  uint64_t estimate_ns(size_t bytes) const noexcept override { return 1000 + bytes; }
};

class CachePoliciesTest : public ::testing::Test {
 protected:
  void create(uint64_t budget_pages, size_t merge_bytes = 1, bool is_remote = false,
              bool unpins_first = false) {
    auto registrar = std::make_unique<FakeRegistrar>();
    auto admission = std::make_unique<ScriptedAdmission>();
    fake_ = registrar.get();
    admission_ = admission.get();
    CachePolicies policies{nullptr, std::move(admission), std::make_unique<CostByLength>()};
    DomainConfig config;
    config.budget_bytes = budget_pages * kPage;
    config.max_regions = kMostRegions;
    config.max_region_bytes = config.budget_bytes;
    config.merge_bytes = merge_bytes;
    config.is_remote = is_remote;
    config.unpin_before_release = unpins_first;
    ASSERT_TRUE(policies.complete(registrar->traits(), Domain::slots_for(config.max_regions)));
    handle_ = claim_domain_handle();
    ASSERT_NE(handle_, 0u);
    auto domain =
        std::make_unique<Domain>(config, std::move(registrar), std::move(policies), handle_);
    ASSERT_EQ(domain->set_up(), Status::kOk);
    domain_ = domain.get();
    add_to_fork_list(*domain);
    publish_domain(std::move(domain));
  }
  void TearDown() override {
    if (handle_ != 0) destroy();
  }
  void destroy() {
    hydrant_flush(handle_);
    const hydrant_stats_t stats = stats_now();
    EXPECT_EQ(stats.live_holds, 0u);
    EXPECT_EQ(stats.dead_regions, 0u);
    EXPECT_EQ(fake_->live_pins(), stats.regions);
    EXPECT_EQ(fake_->charged_bytes(), stats.charged_bytes);
    EXPECT_EQ(fake_->violations(), 0u) << fake_->first_violation();
    EXPECT_EQ(hydrant_domain_destroy(std::exchange(handle_, 0), 0), GASNET_OK);
  }
  hydrant_pin_t pin(MemoryRange range) {
    return hydrant_pin(handle_, reinterpret_cast<void*>(range.addr), range.len,
                       HYDRANT_LOCAL_WRITE);
  }
  void use(MemoryRange range) {
    const hydrant_pin_t held = pin(range);
    ASSERT_NE(held.region, nullptr) << hydrant_error_text();
    EXPECT_TRUE(fake_->is_pinned(range, Access::kLocalWrite));
    EXPECT_EQ(hydrant_release(held), GASNET_OK);
  }
  hydrant_stats_t stats_now() const {
    hydrant_stats_t stats{};
    stats.size = sizeof stats;
    EXPECT_EQ(hydrant_get_stats(handle_, &stats), GASNET_OK);
    return stats;
  }

  hydrant_domain_t handle_ = 0;
  Domain* domain_ = nullptr;
  FakeRegistrar* fake_ = nullptr;
  ScriptedAdmission* admission_ = nullptr;
};

TEST_F(CachePoliciesTest, CandidateStatesItsPrice) {
  create(4);
  use(at(0, 3));
  use(at(10, 3));
  ASSERT_EQ(admission_->asked.size(), 2u);
  const AdmissionPolicy::Candidate& first = admission_->asked[0];
  EXPECT_EQ(first.range, at(0, 3));
  EXPECT_EQ(first.charge, 3 * kPage);
  EXPECT_EQ(first.request, at(0, 3));
  EXPECT_EQ(first.lack_bytes, 0u);
  EXPECT_EQ(first.lack_regions, 0u);
  EXPECT_EQ(first.cost->estimate_ns(first.range.len), 1000 + 3 * kPage);
  EXPECT_FALSE(first.is_beyond_need);
  EXPECT_EQ(admission_->asked[1].lack_bytes, 2 * kPage);
  EXPECT_EQ(stats_now().evictions, 1u);
  use(at(10, 3));  // a hit asks nothing
  EXPECT_EQ(admission_->asked.size(), 2u);
}

// However often a use is tried, it counts once.
TEST_F(CachePoliciesTest, UseAsksOnce) {
  create(4);
  int spoiled = 0;
  fake_->set_pin_hook([&](MemoryRange range, Access) {
    if (spoiled++ < 3) hydrant_invalidate(handle_, reinterpret_cast<void*>(range.addr), range.len);
  });
  const hydrant_pin_t all = pin(at(0, 4));
  ASSERT_NE(all.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(stats_now().retries, 3u);
  EXPECT_EQ(admission_->asked.size(), 1u);
  EXPECT_EQ(hydrant_pin_status(hydrant_pin_wait(handle_, reinterpret_cast<void*>(at(10).addr),
                                                kPage, HYDRANT_LOCAL_WRITE, 1'000'000)),
            GASNET_ERR_NOT_READY);
  EXPECT_EQ(admission_->asked.size(), 2u);
  const auto release = [](void*, hydrant_pin_t done) {
    EXPECT_EQ(hydrant_release(done), GASNET_OK) << hydrant_error_text();
  };
  ASSERT_EQ(hydrant_pin_async(handle_, reinterpret_cast<void*>(at(20).addr), kPage,
                              HYDRANT_LOCAL_WRITE, release, nullptr),
            GASNET_OK);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(hydrant_poll(handle_), 0);
  EXPECT_EQ(hydrant_release(all), GASNET_OK);
  EXPECT_EQ(hydrant_poll(handle_), 1);
  EXPECT_EQ(admission_->asked.size(), 3u);
}

TEST_F(CachePoliciesTest, CandidateStatesTheRoom) {
  create(8);
  use(at(0, 3));
  EXPECT_EQ(admission_->asked[0].room_bytes, 8 * kPage);
  EXPECT_EQ(admission_->asked[0].room_regions, kMostRegions);
  EXPECT_EQ(admission_->asked[0].budget_bytes, 8 * kPage);
  use(at(10));
  EXPECT_EQ(admission_->asked[1].room_bytes, 5 * kPage);
  EXPECT_EQ(admission_->asked[1].room_regions, kMostRegions - 1);
}

TEST_F(CachePoliciesTest, WhatIsUsedOnceIsUnpinnedAtItsLastRelease) {
  create(8);
  admission_->request = Admission::kUseOnce;
  const hydrant_pin_t held = pin(at(0));
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  const hydrant_pin_t again = pin(at(0));
  ASSERT_NE(again.region, nullptr);
  EXPECT_NE(held.region, again.region);
  EXPECT_EQ(fake_->live_pins(), 2u);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(hydrant_release(again), GASNET_OK);
  EXPECT_EQ(fake_->live_pins(), 0u);
  EXPECT_EQ(stats_now().evictions, 0u);
}

TEST_F(CachePoliciesTest, WhatIsKeptInFreeRoomDoesNotStayInAFullCache) {
  create(4);
  admission_->request = Admission::kKeepInFreeRoom;
  for (size_t page = 0; page < 8; page += 2) use(at(page));
  EXPECT_EQ(stats_now().regions, 4u);
  use(at(10));  // needs the room of another, and leaves it free
  EXPECT_EQ(stats_now().evictions, 1u);
  EXPECT_EQ(fake_->live_pins(), 3u);
  use(at(12));
  EXPECT_EQ(stats_now().evictions, 1u);
  EXPECT_EQ(fake_->live_pins(), 4u);
}

TEST_F(CachePoliciesTest, RoomIsAlsoThatOfRegions) {
  create(1000);
  admission_->request = Admission::kKeepInFreeRoom;
  for (size_t page = 0; page < 2 * kMostRegions; page += 2) use(at(page));
  EXPECT_EQ(stats_now().regions, kMostRegions);
  use(at(500));
  EXPECT_EQ(admission_->asked.back().lack_bytes, 0u);
  EXPECT_EQ(admission_->asked.back().lack_regions, 1u);
  EXPECT_EQ(stats_now().evictions, 1u);
  EXPECT_EQ(fake_->live_pins(), kMostRegions - 1);
}

// A registration that is used once serves its own pin alone, so no other one waits for it.
TEST_F(CachePoliciesTest, PinsOfMemoryThatIsUsedOnceDoNotWaitForEachOther) {
  create(8);
  admission_->request = Admission::kUseOnce;
  std::atomic<int> inside{0};
  std::atomic<bool> met{false};
  fake_->set_pin_hook([&](MemoryRange, Access) {
    ++inside;
    met = met || wait_until([&] { return inside == 2; });
  });
  std::thread other([&] { use(at(0)); });
  use(at(0));
  other.join();
  EXPECT_TRUE(met) << "the second registration began after the end of the first one";
  EXPECT_EQ(fake_->pin_calls(), 2u);
}

TEST_F(CachePoliciesTest, PoliciesForgetTheParentInTheChild) {
  create(8);
  use(at(0));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(admission_->resets == 1 ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(admission_->resets, 0);
}

TEST_F(CachePoliciesTest, RequestAloneIsAskedForWhenMoreIsNotAdmitted) {
  create(64, 64 * kPage);
  admission_->beyond = Admission::kUseOnce;
  use(at(0));
  use(at(2));
  use(at(1));  // joins both
  ASSERT_EQ(admission_->asked.size(), 4u);
  EXPECT_EQ(admission_->asked[2].range, at(0, 3));
  EXPECT_TRUE(admission_->asked[2].is_beyond_need);
  EXPECT_EQ(admission_->asked[3].range, at(1));
  EXPECT_FALSE(admission_->asked[3].is_beyond_need);
  EXPECT_EQ(stats_now().regions, 3u);
}

// The registrar has room for the request alone: nothing is evicted for memory beyond it.
TEST_F(CachePoliciesTest, FailedExtensionEvictsNothing) {
  create(64, 16 * kPage);
  for (size_t page = 100; page < 120; page += 2) use(at(page));
  use(at(0, 4));
  use(at(5, 4));
  fake_->set_charge_limit(fake_->charged_bytes() + kPage);
  use(at(4));
  EXPECT_EQ(stats_now().pin_failures, 1u);
  EXPECT_EQ(stats_now().evictions, 0u);
  EXPECT_EQ(stats_now().regions, 13u);
}

// Memory that peers have has to be recalled before it is released, and what is used once cannot be.
TEST_F(CachePoliciesTest, PinsForPeersAreKeptWhereMemoryIsUnpinnedFirst) {
  for (const bool unpins_first : {false, true}) {
    create(8, 1, false, unpins_first);
    admission_->request = Admission::kUseOnce;
    const RegionSlot* held = nullptr;
    ASSERT_EQ(domain_->pin(at(0), Access::kRemoteRead, MissPolicy::kRegisterSparingly, &held),
              Status::kOk);
    Domain::ExportInfo exported;
    ASSERT_TRUE(domain_->exports().describe(held, at(0), &exported));
    EXPECT_EQ(exported.cached, unpins_first);
    EXPECT_EQ(domain_->release(held), Status::kOk);
    destroy();
  }
}

TEST_F(CachePoliciesTest, AllOfSeveralMayBeUsedOnce) {
  create(8);
  admission_->request = Admission::kUseOnce;
  hydrant_range_t ranges[3];
  for (size_t i = 0; i < 3; ++i) ranges[i] = {at(10 * i).addr, kPage};
  hydrant_pin_t pins[3];
  ASSERT_EQ(hydrant_pin_many(handle_, ranges, 3, HYDRANT_LOCAL_WRITE, pins), GASNET_OK);
  EXPECT_EQ(fake_->live_pins(), 3u);
  for (const AdmissionPolicy::Candidate& one : admission_->asked) {
    EXPECT_EQ(one.lack_bytes, 0u);
    EXPECT_EQ(one.room_bytes, UINT64_MAX);
  }
  EXPECT_EQ(hydrant_release_many(pins, 3), GASNET_OK);
  EXPECT_EQ(fake_->live_pins(), 0u);
}

// The peer would keep it; the policy of this process does not.
TEST_F(CachePoliciesTest, GrantOfAPeerMayBeUsedOnce) {
  create(8, 1, true);
  admission_->request = Admission::kUseOnce;
  PeerPin pin;
  const RegionSlot* held = nullptr;
  ASSERT_EQ(domain_->peer_regions().begin(at(0), Access::kRemoteRead, &pin, &held),
            Status::kNotReady);
  ASSERT_TRUE(pin.has_begun);
  std::byte key[16];
  ASSERT_EQ(fake_->pin(at(0), Access::kAll, key), Status::kOk);
  ASSERT_EQ(domain_->peer_regions().end(pin, Status::kOk, {at(0), kPage, key, false}, &held),
            Status::kOk);
  EXPECT_EQ(domain_->release(held), Status::kOk);
  EXPECT_EQ(fake_->live_pins(), 0u);
}

// Under random answers requests are served, the budget is kept, and regions that are not kept are unpinned.
TEST_F(CachePoliciesTest, RandomAnswersCostNoPinAndNoBudget) {
  create(16, 8 * kPage);
  admission_->random = true;
  std::mt19937 engine(11);
  std::vector<hydrant_pin_t> held;
  for (int step = 0; step < 4000; ++step) {
    if (held.size() > 3 || (!held.empty() && engine() % 2 == 0)) {
      const size_t i = engine() % held.size();
      EXPECT_EQ(hydrant_release(held[i]), GASNET_OK);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    const hydrant_pin_t one = pin(at(engine() % 100, 1 + engine() % 3));
    // (Regions of 8 pages that are held may leave too little.)
    if (one.region == nullptr) {
      EXPECT_EQ(hydrant_pin_status(one), GASNET_ERR_NOT_READY) << hydrant_error_text();
      continue;
    }
    held.push_back(one);
    ASSERT_LE(fake_->charged_bytes(), 16 * kPage);
  }
  EXPECT_GT(admission_->asked.size(), 100u);
  EXPECT_GT(stats_now().hits, 0u);
  for (const hydrant_pin_t one : held) EXPECT_EQ(hydrant_release(one), GASNET_OK);
}

}  // namespace
}  // namespace hydrant::testing
