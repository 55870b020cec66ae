// Plans of random ranges within memory of which random pages are there.
#include "firehose/cache/plan/extension_limits.hpp"
#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <sys/mman.h>

namespace hydrant::testing {
namespace {

constexpr size_t kMappedPages = 64;

// Memory that is not backed by huge pages, so that only what was touched is there.
class SparseMemory {
 public:
  explicit SparseMemory(Random& random) {
    void* memory = mmap(nullptr, kMappedPages * kPage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    EXPECT_EQ(madvise(memory, kMappedPages * kPage, MADV_NOHUGEPAGE), 0);
    first_ = static_cast<volatile char*>(memory);
    for (size_t i = 0; i < kMappedPages; ++i) {
      is_there[i] = random.below(6) != 0;
      if (is_there[i]) first_[i * kPage] = 1;
    }
  }
  ~SparseMemory() { munmap(const_cast<char*>(first_), kMappedPages * kPage); }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  MemoryRange at(size_t page, size_t pages) const {
    return {reinterpret_cast<uintptr_t>(first_) + page * kPage, pages * kPage};
  }

  bool is_there[kMappedPages] = {};

 private:
  volatile char* first_ = nullptr;
};

// Within memory that the client vouches for, page by page: the whole granules around the needed ones up to
// the first page that is not there.
TEST(ExtensionLimitsModel, VouchedMemoryIsExtendedUpToTheFirstPageThatIsNotThere) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const size_t granule = 1 + seed % 2;  // in pages
    const SparseMemory memory(random);
    DomainConfig config;
    config.granule_bytes = granule * kPage;
    RegistrarTraits traits;
    Mutex mu;
    VouchedRanges vouched;
    ASSERT_TRUE(vouched.map());
    const ExtensionLimits limits(config, traits, mu, vouched);
    const size_t vouched_from = random.below(8);
    {
      const CacheLock lock(mu);
      ASSERT_TRUE(vouched.add(lock, memory.at(vouched_from, kMappedPages - vouched_from)));
    }
    for (int step = 0; step < 50; ++step) {
      const size_t granules = kMappedPages / granule;
      const size_t wanted_from = random.below(granules) * granule;
      const size_t wanted = (1 + random.below(granules - wanted_from / granule)) * granule;
      size_t from = wanted_from + random.below(wanted / granule) * granule;
      size_t to = from + (1 + random.below((wanted_from + wanted - from) / granule)) * granule;
      const MemoryRange needed = memory.at(from, to - from);
      const MemoryRange whole = memory.at(wanted_from, wanted);
      const MemoryRange limited = limits.without_untouched(needed, whole);
      if (from < vouched_from) {
        ASSERT_EQ(limited, whole);
        continue;
      }
      const auto all_there = [&](size_t first) {
        for (size_t i = first; i < first + granule; ++i) {
          if (!memory.is_there[i]) return false;
        }
        return true;
      };
      while (from > wanted_from && all_there(from - granule)) from -= granule;
      while (to < wanted_from + wanted && all_there(to)) to += granule;
      ASSERT_EQ(limited, memory.at(from, to - from)) << "step " << step;
    }
  }
}

// Whole blocks only where the account is charged for them anyway, and never for a request that must stay as
// it is.
TEST(ExtensionLimitsModel, WidenedPlansAreWholeBlocksThatAreChargedAlready) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    DomainConfig config;
    config.stream_bytes = kPage * random.below(2);
    config.max_region_bytes = (8 + random.below(40)) * kPage;
    RegistrarTraits traits;
    traits.block_bytes = random.below(4) == 0 ? 0 : 16 * kPage;
    traits.unpin_before_release = random.below(4) == 0;
    Mutex mu;
    VouchedRanges vouched;
    const ExtensionLimits limits(config, traits, mu, vouched);
    for (int step = 0; step < 100; ++step) {
      const MemoryRange pages = testing::at(random.below(60), 1 + random.below(20));
      PinRequest request{pages, pages, Access::kLocalRead, nullptr, MissPolicy::kRegister};
      request.exact = random.below(6) == 0;
      request.restless = random.below(6) == 0;
      Plan plan;
      plan.range = {pages.addr, pages.len + random.below(3) * kPage};
      const MemoryRange before = plan.range;
      const MemoryRange blocks = round_out(before, 16 * kPage);
      const size_t some = random.below((blocks.len - before.len) / kPage + 1) * kPage;
      plan.charge = random.below(3) == 0 ? before.len + some : blocks.len;
      const bool widens = traits.block_bytes != 0 && config.stream_bytes != 0 && !request.exact &&
                          !request.restless && !traits.unpin_before_release &&
                          plan.charge == blocks.len && before != blocks &&
                          blocks.len <= config.max_region_bytes;
      limits.widen_to_huge_pages(request, &plan);
      ASSERT_EQ(plan.range, widens ? blocks : before) << "step " << step;
      ASSERT_EQ(plan.huge_pages, widens && before == pages) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace hydrant::testing
