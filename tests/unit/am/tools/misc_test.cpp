#define GASNETT_THREAD_SAFE 1
#include <gtest/gtest.h>

#include <gasnet_tools.h>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

GASNETT_IDENT(hydrant_misc_test_ident, "$HydrantMiscTest: a text to be found $");

GASNETT_THREADKEY_DECLARE(hydrant_misc_test_key);
GASNETT_THREADKEY_DEFINE(hydrant_misc_test_key);

namespace {

TEST(Machine, Sizes) {
  EXPECT_EQ(sysconf(_SC_PAGESIZE), GASNETT_PAGESIZE);
  EXPECT_EQ(1 << GASNETT_PAGESHIFT, GASNETT_PAGESIZE);
  EXPECT_EQ(gasnett_cpu_count(), sysconf(_SC_NPROCESSORS_ONLN));
  EXPECT_GT(gasnett_getPhysMemSz(1), UINT64_C(1) << 24);
  EXPECT_TRUE(gasnett_isLittleEndian() == (PLATFORM_ARCH_LITTLE_ENDIAN + 0 == 1));
}

TEST(Machine, Names) {
  char host[256];
  ASSERT_EQ(gethostname(host, sizeof host), 0);
  EXPECT_STREQ(gasnett_gethostname(), host);
  EXPECT_EQ(gasnett_exe_name()[0], '/');
  EXPECT_NE(std::string(gasnett_exe_name()).find("unit_am_tools"), std::string::npos);
}

TEST(Machine, AffinityBindsTheCallingThread) {
  std::thread([] {
    cpu_set_t allowed;
    ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    const int cpu = sched_getcpu();
    ASSERT_TRUE(CPU_ISSET(static_cast<size_t>(cpu), &allowed));
    if (cpu >= gasnett_cpu_count())
      return;  // gaps in the processor numbers: "modulo the count" selects another one
    ASSERT_EQ(gasnett_set_affinity(cpu + gasnett_cpu_count()), 0) << "modulo the count";
    cpu_set_t now;
    ASSERT_EQ(sched_getaffinity(0, sizeof now, &now), 0);
    EXPECT_EQ(CPU_COUNT(&now), 1);
    EXPECT_TRUE(CPU_ISSET(static_cast<size_t>(cpu), &now));
  }).join();
}

TEST(Machine, LimitsAreRaisedUnlessDisabled) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_CORE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_CORE, &low), 0);
  gasnett_setenv("GASNET_MAXIMIZE_RLIMIT_CORE", "0");
  EXPECT_TRUE(gasnett_maximize_rlimit(RLIMIT_CORE, "RLIMIT_CORE"));
  rlimit now{};
  ASSERT_EQ(getrlimit(RLIMIT_CORE, &now), 0);
  EXPECT_EQ(now.rlim_cur, 0u);
  gasnett_unsetenv("GASNET_MAXIMIZE_RLIMIT_CORE");
  EXPECT_TRUE(gasnett_maximize_rlimit(RLIMIT_CORE, "RLIMIT_CORE"));
  ASSERT_EQ(getrlimit(RLIMIT_CORE, &now), 0);
  EXPECT_EQ(now.rlim_cur, before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_CORE, &before), 0);
  EXPECT_FALSE(gasnett_maximize_rlimit(-1, "RLIMIT_NONE"));
}

TEST(Machine, MappedMemoryIsZeroedAndAligned) {
  auto* const memory = static_cast<char*>(gasnett_mmap(3 * GASNETT_PAGESIZE));
  ASSERT_NE(static_cast<void*>(memory), MAP_FAILED);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % GASNETT_PAGESIZE, 0u);
  EXPECT_EQ(gasnett_count0s(memory, 3 * GASNETT_PAGESIZE), size_t{3} * GASNETT_PAGESIZE);
  EXPECT_EQ(munmap(memory, 3 * GASNETT_PAGESIZE), 0);
  EXPECT_EQ(gasnett_mmap(UINTPTR_MAX / 2), MAP_FAILED);
}

TEST(Machine, ClosedStreamsReferToDevNull) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::fputs("before", stderr);
        gasnett_flush_streams();
        gasnett_close_streams();
        std::fputs("behind", stderr);
        const int next = dup(STDOUT_FILENO);
        std::exit(next > STDERR_FILENO ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "before$");
}

TEST(Versions, AreThoseOfTheRelease) {
  EXPECT_STREQ(gasnett_release_version_str(), "2025.8.0");
  EXPECT_EQ(gasnett_release_version(), UINT64_C(2025080000));
  EXPECT_EQ(GASNETT_SPEC_VERSION_MAJOR, 1);
  EXPECT_EQ(GASNETT_SPEC_VERSION_MINOR, 20);
  EXPECT_NE(gasnett_performance_warning_str(), nullptr);
  EXPECT_NE(std::string(GASNETT_CONFIG_STRING).find("SPEC=1.20,PTR=64bit,nodebug,PAR,"),
            std::string::npos)
      << GASNETT_CONFIG_STRING;
}

TEST(Bytes, ZerosAreCountedAtEveryAlignmentAndLength) {
  std::vector<char> source(64);
  for (size_t i = 0; i < source.size(); ++i) {
    source[i] = static_cast<char>(i * 37 % 5 == 0 ? 0 : i * 11 % 3 == 0 ? 1 << (i % 8) : 0x80);
  }
  for (size_t at = 0; at < 9; ++at) {
    for (size_t len = 0; len < 40; ++len) {
      size_t expected = 0;
      for (size_t i = 0; i < len; ++i) expected += source[at + i] == 0;
      std::vector<char> copy(60, 'x');
      EXPECT_EQ(gasnett_count0s(&source[at], len), expected);
      EXPECT_EQ(gasnett_count0s_copy(&copy[at % 3], &source[at], len), expected);
      EXPECT_EQ(std::string(&copy[at % 3], len), std::string(&source[at], len));
      EXPECT_EQ(copy[at % 3 + len], 'x');
    }
  }
}

TEST(Bytes, ZeroBytesOfWordsAreCounted) {
  EXPECT_EQ(gasnett_count0s_uint64_t(0), 8);
  EXPECT_EQ(gasnett_count0s_uint32_t(0), 4);
  EXPECT_EQ(gasnett_count0s_uintptr_t(UINTPTR_MAX), 0);
  for (int bit = 0; bit < 64; ++bit) EXPECT_EQ(gasnett_count0s_uint64_t(UINT64_C(1) << bit), 7);
  for (int bit = 0; bit < 32; ++bit) EXPECT_EQ(gasnett_count0s_uint32_t(1u << bit), 3);
  EXPECT_EQ(gasnett_count0s_uint64_t(UINT64_C(0x0100010001000100)), 4) << "no carry between bytes";
}

TEST(Bytes, ChecksumsDifferForDifferentData) {
  std::vector<unsigned char> data(100);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i);
  for (const int len : {0, 1, 7, 8, 9, 100}) {
    const uint64_t sum = gasnett_checksum(data.data(), len);
    EXPECT_EQ(gasnett_checksum(std::vector<unsigned char>(data).data(), len), sum);
    for (size_t i = 0; i < static_cast<size_t>(len); ++i) {
      data[i] ^= 0x40;
      EXPECT_NE(gasnett_checksum(data.data(), len), sum) << "byte " << i << " of " << len;
      data[i] ^= 0x40;
    }
  }
  const char zeros[16] = {};
  EXPECT_NE(gasnett_checksum(zeros, 8), gasnett_checksum(zeros, 16));
}

uint64_t value_of(const void* p, size_t bytes) { GASNETT_VALUE_RETURN(p, bytes); }

TEST(Bytes, ValuesMoveTheirLowBytes) {
  for (size_t bytes = 1; bytes <= 8; ++bytes) {
    unsigned char memory[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0xee};
    GASNETT_VALUE_ASSIGN(memory, UINT64_C(0x8877665544332211), bytes);
    EXPECT_EQ(memory[8], 0xee);
    const uint64_t mask = bytes == 8 ? UINT64_MAX : (UINT64_C(1) << (8 * bytes)) - 1;
    EXPECT_EQ(value_of(memory, bytes), UINT64_C(0x8877665544332211) & mask);
  }
}

TEST(ThreadKeys, EveryThreadHasItsOwn) {
  int mine = 0;
  gasnett_threadkey_init(hydrant_misc_test_key);
  EXPECT_EQ(gasnett_threadkey_get(hydrant_misc_test_key), nullptr);
  gasnett_threadkey_set(hydrant_misc_test_key, &mine);
  std::thread([] {
    int theirs = 0;
    EXPECT_EQ(gasnett_threadkey_get_noinit(hydrant_misc_test_key), nullptr);
    gasnett_threadkey_set_noinit(hydrant_misc_test_key, &theirs);
    EXPECT_EQ(gasnett_threadkey_get(hydrant_misc_test_key), &theirs);
  }).join();
  EXPECT_EQ(gasnett_threadkey_get_noinit(hydrant_misc_test_key), &mine);
  gasnett_threadkey_set(hydrant_misc_test_key, nullptr);
}

TEST(Annotations, UnusedArgumentsAreEvaluatedOnce) {
  int count = 0;
  GASNETT_UNUSED_ARGS8(++count, ++count, ++count, ++count, ++count, ++count, ++count, ++count);
  EXPECT_EQ(count, 8);
  EXPECT_TRUE(GASNETT_PREDICT_TRUE(count) && !GASNETT_PREDICT_FALSE(count - 8));
}

TEST(Tracing, HasNoEffectWithoutAJob) {
  const char* file = "kept";
  unsigned line = 7;
  GASNETT_TRACE_GETSOURCELINE(&file, &line);
  GASNETT_TRACE_PRINTF("%s:%u", file, line);
  GASNETT_STATS_PRINTF_FORCE("%u", line);
  EXPECT_EQ(line, 7u);
  EXPECT_FALSE(GASNETT_TRACE_ENABLED);
  EXPECT_STREQ(GASNETT_STATS_GETMASK(), "");
}

}  // namespace
