// Memory between guards: what is inaccessible, and what is known of an address.
#include "rdma/transport/guarded_memory.hpp"

#include "firehose/base/machine/machine_limits.hpp"
#include "rdma/shm/memory/node_memory.hpp"
#include "rdma/transport/node_registrar.hpp"
#include "rdma/transport/shared_files.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/guards.hpp"
#include "tests/support/sizes.hpp"
#include "tests/unit/firehose/base/scoped_env.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fcntl.h>
#include <linux/memfd.h>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace hydrant {
namespace {

using testing::expect_guards;
using testing::is_readable;
using testing::kMiB;
using testing::kPage;

constexpr size_t kGuardedBytes = 3 * kPage;

std::byte* reserve(GuardSize size, size_t alignment = kPage) {
  std::byte* start = nullptr;
  EXPECT_EQ(reserve_guarded(kGuardedBytes, alignment, size, {"test", 7}, &start), Status::kOk)
      << last_error_text();
  return start;
}
void make_usable(std::byte* start) {
  ASSERT_EQ(mprotect(start, kGuardedBytes, PROT_READ | PROT_WRITE), 0);
  std::memset(start, 1, kGuardedBytes);
}

TEST(GuardedMemory, BothNeighboursAreGuarded) {
  std::byte* const start = reserve(GuardSize::kMin);
  make_usable(start);
  EXPECT_TRUE(is_readable(start) && is_readable(start + kGuardedBytes - 1));
  for (const size_t beyond : {size_t{1}, kPage, 8 * kMiB, kMinGuardBytes}) {
    EXPECT_FALSE(is_readable(start - beyond)) << beyond;
    EXPECT_FALSE(is_readable(start + kGuardedBytes + beyond - 1)) << beyond;
    Guarded found;
    ASSERT_TRUE(find_guarded(reinterpret_cast<uintptr_t>(start) - beyond, &found)) << beyond;
    EXPECT_EQ(found.before, beyond);
    ASSERT_TRUE(
        find_guarded(reinterpret_cast<uintptr_t>(start) + kGuardedBytes + beyond - 1, &found));
    EXPECT_EQ(found.past, beyond);
    EXPECT_EQ(found.before, 0u);
  }
  EXPECT_TRUE(release_guarded(start));
}

// The guards belong to no other mapping: memory that is mapped meanwhile lies outside.
TEST(GuardedMemory, OtherMappingsStayOutsideOfTheGuards) {
  std::byte* const start = reserve(GuardSize::kMin);
  for (int i = 0; i < 100; ++i) {
    void* other = mmap(nullptr, kMiB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(other, MAP_FAILED);
    Guarded found;
    EXPECT_FALSE(find_guarded(reinterpret_cast<uintptr_t>(other), &found));
    munmap(other, kMiB);
  }
  EXPECT_TRUE(release_guarded(start));
}

TEST(GuardedMemory, RoomyGuardsAreAsLongAsTheLongestOverrunThatIsTested) {
  std::byte* const start = reserve(GuardSize::kRoomy);
  Guarded found;
  ASSERT_TRUE(find_guarded(
      reinterpret_cast<uintptr_t>(start) + kGuardedBytes + kRoomyGuardBytes - 1, &found));
  EXPECT_EQ(found.past, kRoomyGuardBytes);
  EXPECT_STREQ(found.label.what, "test");
  EXPECT_EQ(found.label.rank, 7u);
  EXPECT_EQ(found.start, reinterpret_cast<uintptr_t>(start));
  EXPECT_EQ(found.bytes, kGuardedBytes);
  EXPECT_TRUE(release_guarded(start));
}

TEST(GuardedMemory, BeginsAtTheRequestedAlignment) {
  for (int i = 0; i < 8; ++i) {
    std::byte* const start = reserve(GuardSize::kMin, 2 * kMiB);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(start) % (2 * kMiB), 0u);
    EXPECT_FALSE(is_readable(start - 1));
    EXPECT_TRUE(release_guarded(start));
  }
}

TEST(GuardedMemory, IsForgottenWhenItIsReleased) {
  std::byte* const start = reserve(GuardSize::kMin);
  EXPECT_TRUE(release_guarded(start));
  EXPECT_FALSE(release_guarded(start));
  Guarded found;
  EXPECT_FALSE(find_guarded(reinterpret_cast<uintptr_t>(start), &found));
  EXPECT_FALSE(find_guarded(0, &found));
  EXPECT_FALSE(find_guarded(UINTPTR_MAX, &found));
}

// ---- what the library maps ----

TEST(GuardedMemory, NodesMemoryHasGuards) {
  int fd = -1;
  ASSERT_EQ(shm::NodeMemory::create(2, &fd), Status::kOk) << last_error_text();
  Guarded at;
  uintptr_t inside = 0;
  {
    shm::NodeMemory memory;
    ASSERT_EQ(memory.attach(fd, 0), Status::kOk) << last_error_text();
    inside = reinterpret_cast<uintptr_t>(memory.area(0).barrier);
    ASSERT_TRUE(find_guarded(inside, &at));
    EXPECT_EQ(at.before + at.past, 0u);
    expect_guards(at);
  }
  EXPECT_FALSE(find_guarded(inside, &at));
  close(fd);
}

TEST(GuardedMemory, AttachmentsHaveGuards) {
  constexpr size_t kFileBytes = 64 * kPage;
  const int fd = memfd_create("guarded", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(fd, kFileBytes), 0);
  ASSERT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  void* mapped = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const MemoryRange range{reinterpret_cast<uintptr_t>(mapped), kFileBytes};
  ASSERT_EQ(announce_shared_file(range, fd, 0), Status::kOk) << last_error_text();
  std::unique_ptr<Registrar> registrar;
  ASSERT_EQ(make_node_registrar(&registrar), Status::kOk) << last_error_text();
  std::byte key[4096];
  std::byte blob[4096];
  std::byte imported[4096];
  size_t len = sizeof blob;
  ASSERT_EQ(registrar->pin(range, Access::kRemoteWrite, key), Status::kOk) << last_error_text();
  ASSERT_EQ(registrar->export_key(range, key, blob, &len), Status::kOk) << last_error_text();
  ASSERT_EQ(registrar->import_key(blob, len, imported), Status::kOk) << last_error_text();
  const std::byte* here = address_by_node_key(imported, range.addr, 1);
  ASSERT_NE(here, nullptr);
  Guarded at;
  ASSERT_TRUE(find_guarded(reinterpret_cast<uintptr_t>(here), &at));
  EXPECT_EQ(at.bytes, kFileBytes);
  expect_guards(at);
  registrar->drop_import(imported);
  registrar.reset();
  EXPECT_FALSE(find_guarded(reinterpret_cast<uintptr_t>(here), &at));
  EXPECT_TRUE(forget_shared_file(range));
  munmap(mapped, kFileBytes);
  close(fd);
}

// With a limit on address space the memory takes precedence over the guards.
[[maybe_unused]] std::string reserve_in_little_space() {
  const rlimit little{256 * kMiB, 256 * kMiB};
  if (setrlimit(RLIMIT_AS, &little) != 0) return "no limit";
  std::byte* start = nullptr;
  if (reserve_guarded(64 * kMiB, kPage, GuardSize::kRoomy, {"test"}, &start) != Status::kOk)
    return last_error_text();
  Guarded found;
  if (!find_guarded(reinterpret_cast<uintptr_t>(start) - kMinGuardBytes, &found))
    return "no guards, and there was room";
  if (find_guarded(reinterpret_cast<uintptr_t>(start) - kMinGuardBytes - 1, &found))
    return "more than was needed";
  std::byte* second = nullptr;
  while (reserve_guarded(8 * kMiB, kPage, GuardSize::kMin, {"test"}, &second) == Status::kOk) {
  }
  if (std::strstr(last_error_text(), "ulimit -v") == nullptr) return last_error_text();
  Guarded last;
  if (!find_guarded(reinterpret_cast<uintptr_t>(second), &last)) return "not listed";
  return find_guarded(reinterpret_cast<uintptr_t>(second) - kMinGuardBytes, &last) &&
                 last.start == reinterpret_cast<uintptr_t>(second)
             ? "the last one had no room for guards"
             : "";
}

TEST(GuardedMemory, GuardsAreOmittedWithoutAddressSpace) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need address space without a limit";
#else
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(testing::run_in_child(reserve_in_little_space), "");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("no room for guards"));
  // Rank 0 logs it for the job.
  const ScopedEnv other("PMIX_RANK", "1");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(testing::run_in_child(reserve_in_little_space), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
#endif
}

// Guards fit by themselves, and would leave less than kMinSpaceLeft.
[[maybe_unused]] std::string reserve_beside_little_space() {
  const auto set_left = [](uint64_t left) {
    rlimit limit{uint64_t{1} << 40, RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return false;
    limit.rlim_cur = read_address_space().used_bytes + left;
    return setrlimit(RLIMIT_AS, &limit) == 0;
  };
  constexpr uint64_t kBytes = 8 * kMiB;
  constexpr uint64_t kAll = kBytes + 2 * kMinGuardBytes + kMinSpaceLeft;
  for (const bool fit : {false, true}) {
    if (!set_left(fit ? kAll + kMiB : kAll - kMiB)) return "setrlimit";
    if (guards_fit(kBytes, 1) != fit) return "guards_fit";
    if (guards_fit(kBytes, 2)) return "guards_fit for two";
    std::byte* start = nullptr;
    if (reserve_guarded(kBytes, kPage, GuardSize::kMin, {"test"}, &start) != Status::kOk)
      return last_error_text();
    Guarded found;
    if (find_guarded(reinterpret_cast<uintptr_t>(start) - 1, &found) != fit)
      return fit ? "no guards, and there was room" : "guards, and there was no room";
    if (!release_guarded(start)) return "not listed";
  }
  return "";
}

TEST(GuardedMemory, GuardsLeaveRoomInALimitedAddressSpace) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need address space without a limit";
#else
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(testing::run_in_child(reserve_beside_little_space), "");
  (void)::testing::internal::GetCapturedStderr();
#endif
}

}  // namespace
}  // namespace hydrant
