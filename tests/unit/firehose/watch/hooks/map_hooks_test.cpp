#include "tests/support/sizes.hpp"
#include "tests/unit/firehose/watch/hooks/call_spy.hpp"
#include "tests/unit/firehose/watch/hooks/fake_monitor.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include <vector>

namespace hydrant::testing {
namespace {

constexpr size_t kBlock = size_t{1} << HYDRANT_MONITOR_BLOCK_SHIFT;
constexpr int kReadWrite = PROT_READ | PROT_WRITE;
constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;

char* map(size_t len, int flags = kPrivate, void* addr = nullptr) {
  return static_cast<char*>(mmap(addr, len, kReadWrite, flags, -1, 0));
}

// Memory of the kernel that no hook knows of.
class RawMapping {
 public:
  explicit RawMapping(size_t len) : len_(len) {
    data_ = reinterpret_cast<char*>(syscall(SYS_mmap, nullptr, len, kReadWrite, kPrivate, -1, 0));
  }
  ~RawMapping() { syscall(SYS_munmap, data_, len_); }
  RawMapping(const RawMapping&) = delete;
  RawMapping& operator=(const RawMapping&) = delete;
  char* data() const { return data_; }

 private:
  char* data_;
  size_t len_;
};

class MapHooks : public ::testing::Test {
 protected:
  // The syncs that a call brings.
  static uint64_t syncs_of(const std::function<void()>& call) {
    const uint64_t before = FakeMonitor::calls().syncs;
    call();
    return FakeMonitor::calls().syncs - before;
  }
  ~MapHooks() override { EXPECT_EQ(FakeMonitor::calls().others, 0u); }

  FakeMonitor monitor_;
};

TEST_F(MapHooks, MemoryInBlocksNeverPinnedIsNotSynced) {
  RawMapping area(8 * kBlock);
  char* p = nullptr;
  EXPECT_EQ(syncs_of([&] { p = map(kPage, kPrivate | MAP_FIXED, area.data() + 4 * kBlock); }), 0u);
  EXPECT_EQ(p, area.data() + 4 * kBlock);
  // Neighbours that were pinned do not matter.
  FakeMonitor::pin(area.data() + 5 * kBlock, 1);
  FakeMonitor::pin(area.data() + 3 * kBlock - 1, 1);
  EXPECT_EQ(syncs_of([&] { map(kPage, kPrivate | MAP_FIXED, p); }), 0u);
}

TEST_F(MapHooks, MappingOverAPinnedBlockIsSynced) {
  RawMapping area(300 * kBlock);
  char* p = area.data() + kBlock;
  for (const size_t pinned : {size_t{0}, size_t{63}, size_t{64}, size_t{65}, size_t{200}}) {
    FakeMonitor::unpin_everything();
    FakeMonitor::pin(p + pinned * kBlock, 1);
    EXPECT_EQ(syncs_of([&] { map(250 * kBlock, kPrivate | MAP_FIXED | MAP_NORESERVE, p); }), 1u)
        << pinned;
    EXPECT_EQ(syncs_of([&] { mmap64(p, 250 * kBlock, PROT_NONE, kPrivate | MAP_FIXED, -1, 0); }),
              1u);
  }
}

TEST_F(MapHooks, EnormousMappingIsSyncedUnconditionally) {
  constexpr size_t kEnormous = size_t{1} << 40;
  void* p = MAP_FAILED;
  const uint64_t syncs =
      syncs_of([&] { p = mmap(nullptr, kEnormous, PROT_NONE, kPrivate | MAP_NORESERVE, -1, 0); });
  if (p == MAP_FAILED) GTEST_SKIP() << "no terabyte of addresses: " << std::strerror(errno);
  EXPECT_EQ(syncs, 1u);
  munmap(p, kEnormous);
}

TEST_F(MapHooks, MremapIsSyncedWhereItArrives) {
  RawMapping area(16 * kBlock);
  char* from = area.data() + 2 * kBlock;
  char* to = area.data() + 10 * kBlock;
  FakeMonitor::pin(to, kBlock);
  void* got = nullptr;
  EXPECT_EQ(
      syncs_of([&] { got = mremap(from, kPage, 2 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, to); }),
      1u);
  EXPECT_EQ(got, to);
  FakeMonitor::unpin_everything();
  EXPECT_EQ(syncs_of([&] { got = mremap(to, 2 * kPage, kPage, 0); }), 0u);  // four arguments
  EXPECT_EQ(got, to);
}

// A sync may have the caches forget the range.
TEST_F(MapHooks, MappingGrownInPlaceSyncsOnlyItsNewPart) {
  RawMapping area(2 * kBlock);
  char* p = area.data();
  ASSERT_EQ(munmap(p + kBlock, kBlock), 0);
  FakeMonitor::pin_everything();
  ASSERT_EQ(mremap(p, kBlock, kBlock + 3 * kPage, 0), p);
  const auto addr = reinterpret_cast<uintptr_t>(p);
  EXPECT_FALSE(FakeMonitor::was_synced(addr + kBlock - 1, 1));
  EXPECT_TRUE(FakeMonitor::was_synced(addr + kBlock, 3 * kPage));
}

// The kernel rounds lengths up to whole huge pages if the file lies on hugetlbfs.
TEST_F(MapHooks, PossibleHugePageFileIsSyncedWhole) {
  RawMapping area(2 * kBlock);
  const auto place = (reinterpret_cast<uintptr_t>(area.data()) + kBlock - 1) / kBlock * kBlock;
  const int file = memfd_create("pages", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, static_cast<off_t>(kPage)), 0);
  FakeMonitor::pin_everything();
  EXPECT_EQ(syncs_of([&] {
              void* got = mmap(reinterpret_cast<void*>(place), kPage, PROT_READ,
                               MAP_SHARED | MAP_FIXED, file, 0);
              EXPECT_EQ(got, reinterpret_cast<void*>(place));
            }),
            1u);
  EXPECT_FALSE(FakeMonitor::was_synced(place, 1)) << "a range that may be too short";
  close(file);
}

TEST_F(MapHooks, ProgramBreakIsSyncedWhereItGrows) {
  char* before = static_cast<char*>(sbrk(0));
  FakeMonitor::pin_everything();
  void* got = nullptr;
  EXPECT_EQ(syncs_of([&] { got = sbrk(static_cast<intptr_t>(kPage)); }), 1u);
  EXPECT_EQ(got, before);
  EXPECT_EQ(syncs_of([&] { got = sbrk(0); }), 0u);
  EXPECT_EQ(got, before + kPage);
  EXPECT_EQ(syncs_of([&] { EXPECT_EQ(brk(before + 3 * kPage), 0); }), 1u);
  EXPECT_EQ(syncs_of([&] { EXPECT_EQ(brk(before), 0); }), 0u);
  EXPECT_EQ(sbrk(0), before);
  EXPECT_EQ(syncs_of([&] {
              errno = 0;
              EXPECT_EQ(brk(reinterpret_cast<void*>(~uintptr_t{0} - kPage)), -1);
              EXPECT_EQ(errno, ENOMEM);
            }),
            0u);
}

TEST_F(MapHooks, SharedMemorySegmentsAreSyncedAndTheirEndIsAFileChange) {
  const int id = shmget(IPC_PRIVATE, kPage, IPC_CREAT | 0600);
  if (id < 0) GTEST_SKIP() << "no System V shared memory: " << std::strerror(errno);
  FakeMonitor::pin_everything();
  void* p = nullptr;
  EXPECT_EQ(syncs_of([&] { p = shmat(id, nullptr, 0); }), 1u);
  shmctl(id, IPC_RMID, nullptr);
  ASSERT_NE(p, MAP_FAILED);
  const CallSpy spy;
  EXPECT_EQ(shmdt(p), 0);
  EXPECT_EQ(FakeMonitor::calls().file_changes, 2u);
  EXPECT_EQ(CallSpy::take().calls.file_changes, 1u);  // one before, one after
}

// The kernel does not report memory that a segment is attached over.
TEST_F(MapHooks, SegmentAttachedOverMemoryReplacesIt) {
  constexpr size_t kSegment = 3 * kPage + 100;
  const int id = shmget(IPC_PRIVATE, kSegment, IPC_CREAT | 0600);
  if (id < 0) GTEST_SKIP() << "no System V shared memory: " << std::strerror(errno);
  RawMapping memory(16 * kPage);
  const auto addr = reinterpret_cast<uintptr_t>(memory.data()) + 2 * kPage;
  errno = ERANGE;
  void* p = shmat(id, memory.data() + 2 * kPage + 5, SHM_REMAP | SHM_RND);
  EXPECT_EQ(errno, ERANGE);
  shmctl(id, IPC_RMID, nullptr);
  ASSERT_EQ(p, memory.data() + 2 * kPage);
  EXPECT_TRUE(FakeMonitor::was_replaced(addr, 4 * kPage));
  EXPECT_FALSE(FakeMonitor::was_replaced(addr - 1, 1));
  EXPECT_EQ(shmdt(p), 0);
}

TEST_F(MapHooks, SegmentAttachedAtAFreeAddressReplacesNothing) {
  const int id = shmget(IPC_PRIVATE, kPage, IPC_CREAT | 0600);
  if (id < 0) GTEST_SKIP() << "no System V shared memory: " << std::strerror(errno);
  void* p = shmat(id, nullptr, 0);
  shmctl(id, IPC_RMID, nullptr);
  ASSERT_NE(p, MAP_FAILED);
  EXPECT_FALSE(FakeMonitor::was_replaced(reinterpret_cast<uintptr_t>(p), 1));
  EXPECT_EQ(shmdt(p), 0);
  errno = 0;
  RawMapping memory(kPage);
  EXPECT_EQ(shmat(id, memory.data(), SHM_REMAP), MAP_FAILED);  // there is no such segment any more
  EXPECT_TRUE(errno == EINVAL || errno == EIDRM) << errno;
  EXPECT_FALSE(FakeMonitor::was_replaced(reinterpret_cast<uintptr_t>(memory.data()), 1));
}

struct Release {
  const char* name;
  std::function<void(char*)> call;  // on two mapped pages; may unmap or empty them
};

std::vector<Release> releases() {
  return {
      {"munmap", [](char* p) { EXPECT_EQ(munmap(p, kPage), 0); }},
      {"madvise", [](char* p) { EXPECT_EQ(madvise(p, kPage, MADV_DONTNEED), 0); }},
      {"posix_madvise", [](char* p) { EXPECT_EQ(posix_madvise(p, kPage, POSIX_MADV_NORMAL), 0); }},
      {"mremap", [](char* p) { EXPECT_EQ(mremap(p, 2 * kPage, kPage, 0), p); }},
      {"mmap", [](char* p) { EXPECT_EQ(map(kPage, kPrivate | MAP_FIXED, p), p); }},
      {"process_madvise",
       [](char* p) {
         const iovec range = {p, kPage};
         process_madvise(-1, &range, 1, MADV_COLD, 0);
       }},
      {"remap_file_pages", [](char* p) { remap_file_pages(p, kPage, 0, 0, 0); }},
      {"shmat", [](char*) { shmat(-1, nullptr, 0); }},
      {"shmdt", [](char* p) { shmdt(p); }},
      {"brk", [](char*) { brk(sbrk(0)); }},
      {"sbrk", [](char*) { sbrk(0); }},
  };
}

TEST_F(MapHooks, ThreadIsMarkedInsideEveryCallThatMayRelease) {
  const CallSpy spy;
  for (const Release& release : releases()) {
    RawMapping memory(2 * kPage);
    FakeMonitor::set_removals(77);
    CallSpy::take();
    release.call(memory.data());
    FakeMonitor::set_removals(1);
    const SpiedCall seen = CallSpy::take();
    EXPECT_EQ(seen.name, release.name);
    EXPECT_EQ(seen.entered, 77u) << release.name;
    ASSERT_NE(own_record(), nullptr);
    EXPECT_EQ(own_record()->entered, 0u) << release.name;
  }
}

TEST_F(MapHooks, ThreadIsMarkedWithoutAMonitorToo) {
  __atomic_store_n(&hooks()->monitor, nullptr, __ATOMIC_RELEASE);
  const CallSpy spy;
  RawMapping memory(2 * kPage);
  CallSpy::take();
  madvise(memory.data(), kPage, MADV_DONTNEED);
  EXPECT_EQ(CallSpy::take().entered, 1u);
}

TEST_F(MapHooks, ReleasesSettleIfTheReaderIsBusy) {
  for (const Release& release : releases()) {
    RawMapping memory(2 * kPage);
    const uint64_t quiet = FakeMonitor::calls().settles;
    release.call(memory.data());
    EXPECT_EQ(FakeMonitor::calls().settles, quiet) << release.name;
    RawMapping more(2 * kPage);
    FakeMonitor::make_busy();
    release.call(more.data());
    EXPECT_EQ(FakeMonitor::calls().settles, quiet + 1) << release.name;
  }
}

// Every call with arguments that the kernel rejects: the result and errno equal those of libc, whatever the
// monitor does.
TEST_F(MapHooks, RefusalsAreTheKernels) {
  FakeMonitor::pin_everything();
  const auto expect_error = [](long result, int expected, const char* what) {
    EXPECT_EQ(result, -1) << what;
    EXPECT_EQ(errno, expected) << what;
  };
  const auto as_long = [](void* p) { return reinterpret_cast<long>(p); };
  RawMapping memory(2 * kPage);
  char* p = memory.data();
  const iovec range = {p, kPage};
  FakeMonitor::make_busy();
  expect_error(as_long(mmap(nullptr, 0, kReadWrite, kPrivate, -1, 0)), EINVAL, "mmap, no length");
  expect_error(as_long(mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE, -1, 0)), EBADF,
               "mmap, no file");
  expect_error(munmap(p + 1, kPage), EINVAL, "munmap, odd address");
  FakeMonitor::make_busy();
  expect_error(munmap(p, 0), EINVAL, "munmap, no length");
  expect_error(as_long(mremap(p + 1, kPage, kPage, 0)), EINVAL, "mremap, odd address");
  expect_error(as_long(mremap(p, kPage, 64 * kPage, ~0)), EINVAL, "mremap, unknown flags");
  FakeMonitor::make_busy();
  expect_error(madvise(p, kPage, 12345), EINVAL, "madvise, unknown advice");
  expect_error(madvise(nullptr, kPage, MADV_DONTNEED), ENOMEM, "madvise, not mapped");
  FakeMonitor::make_busy();
  expect_error(process_madvise(-1, &range, 1, MADV_COLD, 0), EBADF, "process_madvise, no process");
  expect_error(remap_file_pages(p, kPage, 0, 0, 0), EINVAL, "remap_file_pages of private memory");
  expect_error(as_long(shmat(-1, nullptr, 0)), EINVAL, "shmat, no segment");
  expect_error(shmdt(p), EINVAL, "shmdt, no segment");
  errno = 0;
  FakeMonitor::make_busy();
  EXPECT_EQ(posix_madvise(p, kPage, 12345), EINVAL);
  EXPECT_EQ(errno, 0);
}

TEST_F(MapHooks, SuccessLeavesErrnoAlone) {
  FakeMonitor::pin_everything();
  errno = ERANGE;
  FakeMonitor::make_busy();
  char* p = map(kPage);
  EXPECT_EQ(errno, ERANGE);
  FakeMonitor::make_busy();
  munmap(p, kPage);
  EXPECT_EQ(errno, ERANGE);
}

}  // namespace
}  // namespace hydrant::testing
