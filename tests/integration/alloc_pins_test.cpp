// libhydrant_alloc and libfirehose in one program, with real pins: memory of the arena is cached
// without the kernel's reports, registered once over many allocations, and never returned with a
// registration of pages that it lost.
#include <hydrant/alloc.h>
#include <hydrant/pin_cache.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <unistd.h>

namespace hydrant::testing {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kBytes = 8 * kMiB;

class AllocPins : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.registrar_name = "uring";
    // Caches only arenas and vouched memory: so only the arena's announcements can make this a hit.
    options.watch = HYDRANT_WATCH_NONE;
    if (hydrant_domain_create(&options, &domain_) != GASNET_OK) {
      GTEST_SKIP() << "no io_uring here: " << hydrant_error_text();
    }
    file_.reset(std::tmpfile());
    ASSERT_NE(file_, nullptr);
  }
  void TearDown() override {
    if (domain_ == 0) return;
    EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
  }

  static char* allocate() {
    void* p = GetParam() ? hydrant_alloc_shared(1, kBytes) : hydrant_alloc(kBytes);
    return static_cast<char*>(p);
  }
  // Pins all of it, writes its first and last byte to a file through the registration, and returns them.
  std::string through_the_pin(const char* p) {
    const hydrant_pin_t pin = hydrant_pin(domain_, p, kBytes, HYDRANT_LOCAL_WRITE);
    if (pin.region == nullptr) return hydrant_error_text();
    char seen[2] = {};
    const int file = fileno(file_.get());
    const bool moved = hydrant_uring_move(pin, p, 1, file, 0, 1) == GASNET_OK &&
                       hydrant_uring_move(pin, p + kBytes - 1, 1, file, 1, 1) == GASNET_OK &&
                       pread(file, seen, 2, 0) == 2;
    EXPECT_EQ(hydrant_release(pin), GASNET_OK);
    return moved ? std::string(seen, 2) : "not moved";
  }
  void expect_through(char* p, char first, char last) {
    p[0] = first;
    p[kBytes - 1] = last;
    EXPECT_EQ(through_the_pin(p), (std::string{first, last}));
  }
  uint64_t pins() const {
    hydrant_stats_t stats{};
    stats.size = sizeof stats;
    EXPECT_EQ(hydrant_get_stats(domain_, &stats), GASNET_OK);
    return stats.pins;
  }

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  hydrant_domain_t domain_ = 0;
  std::unique_ptr<std::FILE, Close> file_;
};

TEST_P(AllocPins, ArenaAnnouncesItsOwnReleases) {
  char* p = allocate();
  ASSERT_NE(p, nullptr);
  uint32_t coverage = 0;
  ASSERT_EQ(hydrant_coverage(domain_, p, kBytes, &coverage), GASNET_OK);
  EXPECT_EQ(coverage, HYDRANT_COVERAGE_ARENA) << hydrant_coverage_name(coverage);
  hydrant_free(p);
}

TEST_P(AllocPins, MemoryIsRegisteredOnceOverManyAllocations) {
  char* p = allocate();
  ASSERT_NE(p, nullptr);
  expect_through(p, 'a', 'b');
  const uint64_t before = pins();
  EXPECT_GT(before, 0u);
  int elsewhere = 0;
  for (char life = 'c'; life < 'w'; ++life) {
    hydrant_free(p);
    if (life % 4 == 0) (void)hydrant_alloc_trim();
    char* next = allocate();
    ASSERT_NE(next, nullptr);
    elsewhere += next != p ? 1 : 0;
    p = next;
    expect_through(p, life, static_cast<char>(life + 1));
  }
  // Registered memory stays registered wherever the allocator places it: at most one registration per
  // place.
  EXPECT_LE(pins(), before + static_cast<uint64_t>(elsewhere));
  EXPECT_LE(elsewhere, 10);
  hydrant_free(p);
}

TEST_P(AllocPins, EmptiedMemoryIsRegisteredAgain) {
  char* p = allocate();
  ASSERT_NE(p, nullptr);
  for (char life = 'a'; life < 'k'; ++life) {
    const uint64_t before = pins();
    expect_through(p, life, 'z');
    EXPECT_GT(pins(), before);
    hydrant_free(p);
    // The cache drops it, so it is emptied; the next allocation has other pages at the same addresses.
    EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
    EXPECT_GE(hydrant_alloc_trim(), kBytes - 2 * kMiB);
    p = allocate();
    ASSERT_NE(p, nullptr);
  }
  hydrant_free(p);
}

TEST_P(AllocPins, HeldMemoryIsNotEmptied) {
  char* p = allocate();
  ASSERT_NE(p, nullptr);
  std::memset(p, 'h', kBytes);
  const hydrant_pin_t pin = hydrant_pin(domain_, p, kBytes, HYDRANT_LOCAL_WRITE);
  ASSERT_NE(pin.region, nullptr) << hydrant_error_text();
  hydrant_free(p);
  (void)hydrant_alloc_trim();
  EXPECT_EQ(p[0], 'h');
  EXPECT_EQ(p[kBytes / 2], 'h');
  EXPECT_EQ(hydrant_release(pin), GASNET_OK);
}

// The registrar's registrations may not outlive their memory. It looks at the memory when it is to unpin:
// emptied pages read as 0. Parts of the first and last page may lie outside the allocation.
TEST_P(AllocPins, MemoryIsEmptiedOnlyAfterItIsUnpinned) {
  static std::atomic<uint64_t> unpins;
  static std::atomic<uint64_t> late;
  unpins = 0;
  late = 0;
  hydrant_registrar_t registrar{};
  registrar.size = sizeof registrar;
  registrar.name = "late";
  registrar.flags = HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE;
  registrar.pin = [](void*, uintptr_t, size_t, uint32_t, void*) { return GASNET_OK; };
  registrar.unpin = [](void*, uintptr_t addr, size_t len, const void*) {
    ++unpins;
    const char* p = reinterpret_cast<const char*>(addr);
    constexpr size_t kInside = 4096;
    if (p[kInside] == 0 || p[len - 1 - kInside] == 0) ++late;
    return HYDRANT_UNPIN_DONE;
  };
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.registrar = &registrar;
  options.watch = HYDRANT_WATCH_AUTO;
  hydrant_domain_t domain = 0;
  ASSERT_EQ(hydrant_domain_create(&options, &domain), GASNET_OK) << hydrant_error_text();
  size_t emptied = 0;
  for (int i = 0; i < 20; ++i) {
    char* p = allocate();
    ASSERT_NE(p, nullptr);
    std::memset(p, 'u', kBytes);
    uint32_t coverage = 0;
    ASSERT_EQ(hydrant_coverage(domain, p, kBytes, &coverage), GASNET_OK);
    EXPECT_EQ(coverage, HYDRANT_COVERAGE_ARENA) << hydrant_coverage_name(coverage);
    const hydrant_pin_t pin = hydrant_pin(domain, p, kBytes, HYDRANT_LOCAL_WRITE);
    ASSERT_NE(pin.region, nullptr) << hydrant_error_text();
    EXPECT_EQ(hydrant_release(pin), GASNET_OK);
    hydrant_free(p);
    if (i % 3 == 2) {
      EXPECT_EQ(hydrant_flush(domain), GASNET_OK);
    }
    emptied += hydrant_alloc_trim();
  }
  EXPECT_GT(emptied, 0u);
  EXPECT_GT(unpins, 0u);
  EXPECT_EQ(hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN), GASNET_OK);
  EXPECT_EQ(late, 0u);
}

INSTANTIATE_TEST_SUITE_P(, AllocPins, ::testing::Bool(),
                         [](const auto& shared) { return shared.param ? "Shared" : "Private"; });

}  // namespace
}  // namespace hydrant::testing
