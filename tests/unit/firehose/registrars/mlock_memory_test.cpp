// The mlock registrar in a process whose memory is used up.
#include "firehose/registrars/mlock_registrar.hpp"
#include "tests/support/patience.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant {
namespace {

using testing::kPageBytes;
using testing::MappedPages;

// The counts of so many separate single pages take more memory than the heap has left.
constexpr size_t kPins = 512;

enum MemoryOutcome : int { kPassed, kNoMlock, kNotUsedUp, kWrongStatus, kUnpinFailed };

// Runs in a child: the memory cannot be freed again.
MemoryOutcome pin_without_memory(const MappedPages& memory) {
  auto status = Status::kOk;
  const auto mlock = make_mlock_registrar(&status);
  if (mlock == nullptr ||
      mlock->pin(memory.pages(0, 1), Access::kLocalWrite, nullptr) != Status::kOk)
    return kNoMlock;
  const rlimit none{0, 0};
  if (setrlimit(RLIMIT_AS, &none) != 0) return kNoMlock;
  for (const size_t bytes : {size_t{4096}, size_t{256}, size_t{64}, size_t{16}}) {
    while (std::malloc(bytes) != nullptr) {
    }
  }
  size_t pinned = 1;
  while (pinned < kPins) {
    status = mlock->pin(memory.pages(2 * pinned, 1), Access::kLocalWrite, nullptr);
    if (status != Status::kOk) break;
    ++pinned;
  }
  if (pinned == kPins) return kNotUsedUp;
  if (status != Status::kResource) return kWrongStatus;
  for (size_t i = 0; i < pinned; ++i) {
    if (mlock->unpin(memory.pages(2 * i, 1), nullptr) != UnpinResult::kDone) return kUnpinFailed;
  }
  return kPassed;
}

TEST(MlockMemory, PinsFailAndUnpinsWorkWithoutMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer ends a process without memory";
#endif
  const MappedPages memory(2 * kPins * kPageBytes);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    hydrant_test_alarm(60);
    _exit(pin_without_memory(memory));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == kNoMlock) GTEST_SKIP() << "no mlock here";
  EXPECT_EQ(WEXITSTATUS(status), kPassed);
}

}  // namespace
}  // namespace hydrant
