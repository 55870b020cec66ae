// Registrations that grow with a stream of misses: how far, at which borders they stop, and how they fail.
#include "tests/support/child_process.hpp"
#include "tests/unit/firehose/base/scoped_env.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace hydrant::testing {
namespace {

class PinCacheStreams : public WatchedPinCache {
 protected:
  void SetUp() override {}
  hydrant_domain_options_t client() {
    hydrant_domain_options_t options = options_for(registrar_);
    options.stream_bytes = 4 * kMiB;
    return options;
  }
  using PinCacheTest::create;
  void create() { create(client()); }

  // Pins and releases; the region in pages of the arena, {first, count}.
  std::pair<size_t, size_t> region(size_t page, size_t pages = 1) {
    const hydrant_pin_t held = pin(page, pages);
    if (held.region == nullptr) {
      ADD_FAILURE() << "page " << page << ": " << hydrant_error_text();
      return {0, 0};
    }
    EXPECT_EQ(check_hold(registrar_, held, arena_.addr(page), pages * kPage, HYDRANT_LOCAL_WRITE),
              "");
    const std::pair<size_t, size_t> answer{arena_.index(held.region->addr),
                                           held.region->len / kPage};
    EXPECT_EQ(hydrant_release(held), GASNET_OK);
    return answer;
  }
  // Uses pages one by one; the longest region seen, in pages.
  size_t walk(size_t from, size_t to, size_t pages = 1) {
    size_t longest = 0;
    for (size_t i = from; i < to; i += pages) longest = std::max(longest, region(i, pages).second);
    return longest;
  }
  uint64_t extended() { return stats_of(domain_).extended_bytes / kPage; }
  uint64_t wasted() { return stats_of(domain_).wasted_bytes / kPage; }
};
using Pages = std::pair<size_t, size_t>;

// A client that invalidates may know only of the memory that it has pinned itself.
TEST_F(PinCacheStreams, ClientsThatInvalidateMustEnableStreams) {
  create(options_for(registrar_));
  walk(0, 64);
  EXPECT_EQ(extended(), 0u);
}

TEST_F(PinCacheStreams, MissesThatFollowEachOtherRegisterMoreEachTime) {
  create();
  EXPECT_EQ(region(0), Pages(0, 1));
  EXPECT_EQ(region(1), Pages(0, 2));
  EXPECT_EQ(region(2), Pages(2, 2));
  EXPECT_EQ(region(3), Pages(2, 2));
  EXPECT_EQ(region(4), Pages(4, 4));
  EXPECT_EQ(region(8), Pages(8, 8));
  EXPECT_EQ(extended(), 1u + 3u + 7u);
  walk(9, 512);
  EXPECT_LE(registrar_.pin_calls(), 10u);
  EXPECT_EQ(registrar_.problems(), "") << "it left the mapping";
}

TEST_F(PinCacheStreams, DownwardsToo) {
  create();
  region(511), region(510);
  EXPECT_EQ(region(509), Pages(508, 2));
  EXPECT_EQ(region(507), Pages(504, 4));
  for (size_t i = 504; i-- > 0;) region(i);
  EXPECT_LE(registrar_.pin_calls(), 10u);
}

TEST_F(PinCacheStreams, AtAConstantDistanceToo) {
  create();
  for (size_t i = 0; i < 512; i += 4) region(i);
  EXPECT_LE(registrar_.pin_calls(), 12u);
}

TEST_F(PinCacheStreams, RandomUseRegistersOnlyRequests) {
  create();
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(region(i * 37 % 64 * 8).second, 1u);
  EXPECT_EQ(extended(), 0u);
}

TEST_F(PinCacheStreams, LimitsHold) {
  hydrant_domain_options_t options = client();
  options.stream_bytes = 8 * kPage;
  create(options);
  EXPECT_EQ(walk(0, 512), 8u);
  destroy();
  options.stream_bytes = 4 * kMiB;
  options.max_region_bytes = 4 * kPage;
  create(options);
  EXPECT_LE(walk(0, 512), 4u);
  destroy();
  options.max_region_bytes = 0;
  options.budget_bytes = 128 * kPage;
  create(options);
  walk(0, 64);
  EXPECT_GT(extended(), 0u);
  for (const RecordingRegistrar::Registration& r : registrar_.registrations()) {
    EXPECT_LE(r.len, 128 * kPage / 4 + kPage) << "more than its share of the budget";
  }
}

TEST_F(PinCacheStreams, CanBeSwitchedOff) {
  hydrant_domain_options_t options = client();
  options.stream_bytes = 1;
  create(options);
  walk(0, 64);
  EXPECT_EQ(extended(), 0u);
  destroy();
  options.stream_bytes = 4 * kMiB;
  options.merge_bytes = 1;
  create(options);
  EXPECT_EQ(walk(0, 64), 1u);
}

TEST_F(PinCacheStreams, PageModeAndUnwatchedDomainsKnowNone) {
  hydrant_domain_options_t options = client();
  options.mode = HYDRANT_MODE_PAGE;
  create(options);
  EXPECT_EQ(walk(0, 64), 1u);
  destroy();
  options.mode = HYDRANT_MODE_REGION;
  options.watch = HYDRANT_WATCH_NONE;
  create(options);
  EXPECT_EQ(walk(0, 64), 1u);
}

TEST_F(PinCacheStreams, ShortStreamEvictsNothing) {
  hydrant_domain_options_t options = client();
  options.budget_bytes = 64 * kPage;
  create(options);
  for (size_t i = 0; i < 61; ++i) region(100 + 6 * (i * 17 % 61));
  ASSERT_EQ(stats_of(domain_).evictions, 0u);
  region(0), region(10), region(20);
  ASSERT_EQ(stats_of(domain_).charged_bytes, 64 * kPage);
  region(50), region(51), region(52);
  EXPECT_EQ(stats_of(domain_).evictions, 3u) << "more than the request needed";
  EXPECT_EQ(extended(), 0u);
}

TEST_F(PinCacheStreams, LongStreamEvictsNoMoreThanItsMisses) {
  hydrant_domain_options_t options = client();
  options.budget_bytes = 128 * kPage;
  registrar_.watch_limits(128 * kPage, 4096);
  create(options);
  walk(0, 512);
  EXPECT_LE(registrar_.pin_calls(), 60u) << "16 pages at once, after a start";
}

TEST_F(PinCacheStreams, CachedMemoryIsNotRegisteredAgain) {
  create();
  region(6);
  region(0), region(1), region(2);
  EXPECT_EQ(region(4), Pages(4, 2)) << "over a region that is there";
}

TEST_F(PinCacheStreams, WasteIsCountedAndDelaysExtensions) {
  create();
  region(0, 16), region(16, 16);
  EXPECT_EQ(region(32, 16), Pages(32, 32));
  EXPECT_EQ(wasted(), 0u);
  ASSERT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(wasted(), 16u);
  EXPECT_EQ(extended(), 16u);
  for (size_t i = 0; i < 4; ++i) region(128 + 16 * i, 16);
  EXPECT_EQ(extended(), 16u) << "not as soon as before";
  EXPECT_EQ(region(192, 16), Pages(192, 32)) << "believed in the end";
  region(208, 16);
  ASSERT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(wasted(), 16u) << "used by a hit that a slow call saw";
  region(300, 16), region(316, 16);
  EXPECT_EQ(region(332, 16), Pages(332, 32)) << "what was used counts for it";
}

TEST_F(PinCacheStreams, ContinuingStreamWastesNothing) {
  create();
  walk(0, 256, 16);
  ASSERT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_GT(extended(), 100u);
  EXPECT_EQ(wasted(), 0u);
}

// The registrar reports the charge of memory that was unpinned after the request was planned.
TEST_F(PinCacheStreams, ExtensionDoesNotTakeWhatTheKernelStillCharges) {
  static uint64_t kept;
  kept = 0;
  registrar_.table.charge = [](void*, uintptr_t, size_t len) -> uint64_t {
    if (len > kPage) kept = UINT64_MAX / 4;
    return len;
  };
  registrar_.table.pending_charge = [](void*) { return std::exchange(kept, 0); };
  create();
  EXPECT_EQ(region(0), Pages(0, 1));
  EXPECT_EQ(region(1), Pages(1, 1)) << "not with its neighbour";
}

TEST_F(PinCacheStreams, DownwardWasteIsAtTheLowerEnd) {
  create();
  region(256, 16), region(240, 16);
  EXPECT_EQ(region(224, 16), Pages(208, 32));
  region(216, 8);
  ASSERT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(wasted(), 8u);
}

TEST_F(PinCacheStreams, RefusedExtensionIsRetriedExactlyAndRemembered) {
  registrar_.refuse(arena_.addr(100), kPage, HYDRANT_ACCESS_ALL);
  create();
  walk(0, 100);
  const uint64_t first = stats_of(domain_).pin_failures;
  EXPECT_GE(first, 1u);
  EXPECT_LE(first, 6u);
  EXPECT_EQ(hydrant_pin_status(pin(100)), HYDRANT_ERR_REFUSED);
  walk(101, 200);
  for (int round = 0; round < 5; ++round) {
    ASSERT_EQ(hydrant_flush(domain_), GASNET_OK);
    walk(0, 100);
  }
  EXPECT_LE(stats_of(domain_).pin_failures, first + 1 + 5) << "each time it pays again";
}

TEST_F(PinCacheStreams, LateRegistrarsStreamToo) {
  registrar_.offer_async();
  create();
  for (size_t i = 0; i < 5; ++i) {
    hydrant_pin_t held{};
    const auto done = [](void* context, hydrant_pin_t pin) {
      *static_cast<hydrant_pin_t*>(context) = pin;
    };
    ASSERT_EQ(hydrant_pin_async(domain_, arena_.page(i), kPage, HYDRANT_LOCAL_WRITE, done, &held),
              GASNET_OK);
    (void)registrar_.complete_async(GASNET_OK);
    ASSERT_TRUE(wait_until([&] { return hydrant_poll(domain_) >= 0 && held.region != nullptr; }));
    EXPECT_EQ(hydrant_release(held), GASNET_OK);
  }
  EXPECT_EQ(extended(), 1u + 3u);
}

TEST_F(PinCacheStreams, MergedBordersOfStreamsGoAtTheFirstUseOverThem) {
  hydrant_domain_options_t options = client();
  options.stream_bytes = 16 * kPage;
  create(options);
  walk(0, 128);
  const Pages whole = region(60, 8);
  EXPECT_GE(whole.second, 32u);
  EXPECT_EQ(whole.first % 16, 0u);
}

TEST_F(PinCacheStreams, RequestCoveredByTwoRegionsNeedsOnlyItsOwnRights) {
  create();
  // Apart, because page 13 does not grant what the other region has.
  registrar_.refuse(arena_.addr(13), kPage, HYDRANT_REMOTE_READ);
  ASSERT_EQ(hydrant_release(pin(16, 8, HYDRANT_REMOTE_READ)), GASNET_OK);
  ASSERT_EQ(region(12, 4), Pages(12, 4));
  EXPECT_EQ(region(12, 12).second, 12u);
}

// ---- watched memory ----

class PinCacheStreamsWatched : public PinCacheStreams {
 protected:
  void SetUp() override { WatchedPinCache::SetUp(); }
};

TEST_F(PinCacheStreamsWatched, StreamExtensionIsWatched) {
  create(watching());
  use(0), use(1);
  const uint64_t before = use(2);
  EXPECT_TRUE(is_cached(3));
  renew(3);
  EXPECT_FALSE(is_cached(3)) << "the extension outlived its memory";
  EXPECT_NE(use(2), before);
}

TEST_F(PinCacheStreamsWatched, AreSwitchedOffByTheirKnob) {
  {
    const ScopedEnv off("FIREHOSE_STREAM", "1");
    create(watching());
  }
  walk(0, 64);
  EXPECT_EQ(extended(), 0u);
  destroy();
  create(watching());
  walk(0, 64);
  EXPECT_GT(extended(), 0u);
}

TEST_F(PinCacheStreamsWatched, StopsAtUnwatchedMemory) {
  const MemoryFile file(64);
  map_file(64, file, MAP_SHARED, 64);
  create(watching());
  EXPECT_LE(walk(0, 64), 64u);
  EXPECT_TRUE(is_cached(0) && is_cached(63));
  EXPECT_FALSE(is_cached(64));
  EXPECT_EQ(stats_of(domain_).pin_failures, 0u);
}

TEST_F(PinCacheStreamsWatched, StaysInVouchedMemory) {
  const MemoryFile file(64);
  map_file(64, file, MAP_SHARED, 64);
  create(watching());
  ASSERT_EQ(hydrant_vouch(domain_, arena_.page(64), 11 * kPage), GASNET_OK);
  for (size_t i = 64; i < 128; ++i) *arena_.page(i) = std::byte{1};
  walk(64, 75);
  for (size_t i = 64; i < 75; ++i) EXPECT_TRUE(is_cached(i)) << i;
  EXPECT_FALSE(is_cached(75));
  EXPECT_GT(extended(), 0u);
}

// Such memory may be reserved and not there yet.
TEST_F(PinCacheStreamsWatched, BringsNoPagesOfVouchedMemoryThatNoRequestNeeds) {
  const MemoryFile file(64);
  map_file(64, file, MAP_SHARED, 64);
  create(watching());
  ASSERT_EQ(hydrant_vouch(domain_, arena_.page(64), 64 * kPage), GASNET_OK);
  walk(64, 80);
  EXPECT_EQ(extended(), 0u);
  EXPECT_FALSE(is_cached(80));
  // Existing memory is extended over as any memory is, up to its end, in both directions.
  for (size_t i = 80; i < 100; ++i) *arena_.page(i) = std::byte{1};
  walk(80, 100);
  EXPECT_GT(extended(), 0u);
  EXPECT_FALSE(is_cached(100));
  const uint64_t before = extended();
  for (size_t i = 127; i >= 118; --i) (void)region(i);
  EXPECT_EQ(extended(), before);
  EXPECT_FALSE(is_cached(117));
}

// ---- memory that the kernel pins ----

// Walks pages of real memory, page by page, from `from` in steps of `step`; "" or what went wrong.
std::string walk_real(hydrant_domain_t domain, const MappedMemory& memory, size_t first, size_t end,
                      bool down) {
  for (size_t i = first; i < end; ++i) {
    const size_t page = down ? end - 1 - (i - first) : i;
    const hydrant_pin_t held = hydrant_pin(domain, memory.page(page), kPage, HYDRANT_LOCAL_WRITE);
    if (held.region == nullptr) return "page " + std::to_string(page) + ": " + hydrant_error_text();
    const uintptr_t last = held.region->addr + held.region->len;
    if (held.region->addr < memory.addr(first) || last > memory.addr(end)) {
      return "page " + std::to_string(page) + ": the region leaves its memory";
    }
    if (hydrant_release(held) != GASNET_OK) return hydrant_error_text();
  }
  return "";
}

// Pages 40 to 99 of 140 can be pinned; something else is around them.
class MappingBoundaries : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr size_t kFirst = 40, kEnd = 100;
  void surround() {
    const std::string kind = GetParam();
    memory_.replace(kFirst, kEnd - kFirst);
    if (kind == "guard") return;
    if (kind == "hole") {
      memory_.unmap(0, kFirst);
      memory_.unmap(kEnd, 140 - kEnd);
    } else if (kind == "readonly") {
      memory_.replace(0, kFirst, PROT_READ);
      memory_.replace(kEnd, 140 - kEnd, PROT_READ);
    } else {
      // A file of 60 pages under a mapping of 140: pages beyond its end cannot be pinned.
      memory_.replace_by_file(kFirst, 140 - kFirst, file_.fd());
    }
  }
  // Two walks, up and down, each over an empty cache; "" or a description of the failure.
  std::string try_all(uint64_t* failures) {
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.watch = HYDRANT_WATCH_CLIENT;
    options.stream_bytes = 4 * kMiB;
    options.registrar_name = "uring";
    hydrant_domain_t domain = 0;
    if (hydrant_domain_create(&options, &domain) != GASNET_OK) return hydrant_error_text();
    std::string wrong;
    for (const bool down : {false, true}) {
      if (wrong.empty()) wrong = walk_real(domain, memory_, kFirst, kEnd, down);
      hydrant_flush(domain);
    }
    hydrant_stats_t stats{};
    stats.size = sizeof stats;
    hydrant_get_stats(domain, &stats);
    *failures = stats.pin_failures;
    if (wrong.empty() && stats.extended_bytes == 0) wrong = "nothing was extended";
    if (wrong.empty() && stats.pins > 40) wrong = std::to_string(stats.pins) + " registrations";
    if (hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN) != GASNET_OK) return "destroy";
    return wrong;
  }
  static std::string why_no_uring() {
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.watch = HYDRANT_WATCH_CLIENT;
    options.registrar_name = "uring";
    hydrant_domain_t domain = 0;
    if (hydrant_domain_create(&options, &domain) != GASNET_OK) return hydrant_error_text();
    hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN);
    return "";
  }

  MappedMemory memory_{140};
  MemoryFile file_{kEnd - kFirst};
};

TEST_P(MappingBoundaries, AreNotCrossedAndCostLittle) {
  if (const std::string why = why_no_uring(); !why.empty()) GTEST_SKIP() << why;
  surround();
  uint64_t failures = 0;
  EXPECT_EQ(try_all(&failures), "");
  EXPECT_LE(failures, 8u);
}

TEST_P(MappingBoundaries, AreFoundByRefusalWithoutAQuery) {
  if (const std::string why = why_no_uring(); !why.empty()) GTEST_SKIP() << why;
  surround();
  const auto child = [&]() -> std::string {
    constexpr uint32_t kProcmapQuery = _IOWR('f', 17, char[104]);
    const std::string why = refuse_system_call(SYS_ioctl, ENOTTY, kProcmapQuery);
    if (!why.empty()) return why;
    uint64_t failures = 0;
    const std::string wrong = try_all(&failures);
    if (!wrong.empty()) return wrong;
    return failures >= 1 && failures <= 16 ? "" : std::to_string(failures) + " failures";
  };
  EXPECT_EQ(run_in_child(child), "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, MappingBoundaries,
                         ::testing::Values("guard", "hole", "readonly", "file"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST(PinCacheHugePages, PartOfAHugePageIsRegisteredWhole) {
  constexpr size_t kHuge = 2 * kMiB;
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.watch = HYDRANT_WATCH_CLIENT;
  options.stream_bytes = 4 * kMiB;
  options.registrar_name = "uring";
  hydrant_domain_t domain = 0;
  if (hydrant_domain_create(&options, &domain) != GASNET_OK) GTEST_SKIP() << hydrant_error_text();
  const MappedMemory memory(3 * kHuge / kPage);
  const_cast<MappedMemory&>(memory).replace(0, memory.pages());
  const uintptr_t start = (memory.addr() + kHuge - 1) / kHuge * kHuge;
  auto* block = reinterpret_cast<std::byte*>(start);
  ASSERT_EQ(madvise(block, kHuge, MADV_HUGEPAGE), 0);
  *block = std::byte{1};
  const hydrant_pin_t held = hydrant_pin(domain, block + 7 * kPage, kPage, HYDRANT_LOCAL_WRITE);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  hydrant_stats_t stats{};
  stats.size = sizeof stats;
  hydrant_get_stats(domain, &stats);
  const bool charged_whole = stats.charged_bytes == kHuge;
  const hydrant_region_t region = *held.region;
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN), GASNET_OK);
  if (!charged_whole) GTEST_SKIP() << "no huge page here, or the kernel does not tell";
  EXPECT_EQ(region.addr, start);
  EXPECT_EQ(region.len, kHuge);
}

}  // namespace
}  // namespace hydrant::testing
