// Each error text of the mlock and uring registrars names the range, the limit or cause, and the remedy.
#include "firehose/registrars/mlock_registrar.hpp"
#include "firehose/registrars/uring/uring_status.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <vector>

namespace hydrant {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::kPageBytes;
using testing::MappedPages;

std::string text_of(MemoryRange range) {
  char text[64];
  std::snprintf(text, sizeof text, "[0x%llx, +%zu)", static_cast<unsigned long long>(range.addr),
                range.len);
  return text;
}

// ---- uring ----

struct UringRow {
  const char* cause;
  int error;
  size_t bytes;
  Status status;
  std::vector<const char*> words;
};

const UringRow kUring[] = {
    {"NotWritable",
     EFAULT,
     4096,
     Status::kRefused,
     {"not all mapped and writable", "copy, or use mlock"}},
    {"KindOfMemory", EOPNOTSUPP, 4096, Status::kRefused, {"EOPNOTSUPP", "copy"}},
    {"SeveralFiles",
     EINVAL,
     4096,
     Status::kRefused,
     {"different files", "pin each mapping separately"}},
    {"Interrupted", EINTR, 4096, Status::kResource, {"failed each time", "try again"}},
};

class UringRefusalTexts : public ::testing::TestWithParam<UringRow> {};

TEST_P(UringRefusalTexts, NamesTheRangeTheCauseAndTheRemedy) {
  const UringRow& row = GetParam();
  const MemoryRange range{0x7000'0000, row.bytes};
  EXPECT_EQ(explain_uring_pin(row.error, range, 0), row.status);
  EXPECT_THAT(last_error_text(), HasSubstr(text_of(range)));
  for (const char* word : row.words) EXPECT_THAT(last_error_text(), HasSubstr(word));
}

INSTANTIATE_TEST_SUITE_P(Causes, UringRefusalTexts, ::testing::ValuesIn(kUring),
                         [](const auto& row) { return row.param.cause; });

// The text says "not now" or "never", depending on the machine's limit; both name the range.
TEST(UringRefusalTextsOfMemory, NameTheRange) {
  for (const size_t bytes : {size_t{4096}, size_t{1} << 50}) {
    const MemoryRange range{0x7000'0000, bytes};
    const Status status = explain_uring_pin(ENOMEM, range, 8192);
    EXPECT_TRUE(status == Status::kNotReady || status == Status::kResource);
    EXPECT_THAT(last_error_text(), HasSubstr(text_of(range)));
    EXPECT_THAT(last_error_text(),
                AnyOf(HasSubstr("locked"), HasSubstr("pinned"), HasSubstr("free memory")));
  }
}

TEST(UringRefusalTextsOfRings, NameTheLimitAndTheRemedy) {
  EXPECT_EQ(explain_uring_growth({-EMFILE, "io_uring_setup"}, 3), Status::kNotReady);
  EXPECT_THAT(last_error_text(), HasSubstr("all 3 rings are full"));
  EXPECT_THAT(last_error_text(), HasSubstr("release pins, or raise RLIMIT_NOFILE"));
  EXPECT_EQ(explain_uring_growth({-EPERM, "io_uring_setup"}, 0), Status::kResource);
  EXPECT_THAT(last_error_text(), HasSubstr("no ring is left"));
}

TEST(UringRefusalTextsOfMoves, NameTheDescriptorTheCauseAndTheRemedy) {
  const auto explain = [](UringMoveCause cause, int error) {
    return explain_uring_move({cause, error, 7}, 5, 30'000'000'000);
  };
  EXPECT_EQ(explain(UringMoveCause::kFile, -ECANCELED), Status::kNotReady);
  EXPECT_THAT(last_error_text(), HasSubstr("descriptor 5 after 7 bytes"));
  EXPECT_THAT(last_error_text(), HasSubstr("ulimit -u"));
  EXPECT_EQ(explain(UringMoveCause::kFile, -EAGAIN), Status::kNotReady);
  EXPECT_THAT(last_error_text(), HasSubstr("descriptor 5 made no progress for 30 s after 7 bytes"));
  EXPECT_EQ(explain(UringMoveCause::kFile, -EIO), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("I/O on descriptor 5 failed after 7 bytes"));
  EXPECT_EQ(explain(UringMoveCause::kCall, -EPERM), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("io_uring_enter: Operation not permitted"));
}

// ---- mlock, over system calls that fail on demand ----

int g_lock_error = 0;
int g_populate_error = 0;
bool g_probed = false;

int play_lock(MemoryRange, bool) noexcept { return g_probed ? g_lock_error : 0; }
int play_unlock(MemoryRange) noexcept { return 0; }
int play_populate(MemoryRange, bool) noexcept { return g_probed ? g_populate_error : 0; }
int play_find_lock(MemoryRange) noexcept { return 0; }
int play_mapping(uintptr_t, MemoryRange*) noexcept { return ENOTTY; }
int play_mapped(MemoryRange range, MappedRun each, void* context) noexcept {
  each(context, range);
  return 0;
}

struct MlockRow {
  const char* cause;
  int lock_error, populate_error;
  bool mapped;
  Access access;
  Status status;
  std::vector<const char*> words;
};

constexpr Access kWrite = Access::kLocalWrite;
const MlockRow kMlock[] = {
    {"LockOfAHole",
     ENOMEM,
     0,
     false,
     kWrite,
     Status::kRefused,
     {"not all mapped", "pin mapped memory only"}},
    {"PopulationOfAHole",
     0,
     EFAULT,
     false,
     kWrite,
     Status::kRefused,
     {"not all mapped", "pin mapped memory only"}},
    {"LockWithoutPages",
     EAGAIN,
     0,
     true,
     kWrite,
     Status::kNotReady,
     {"has no memory", "free memory"}},
    {"PopulationWithoutPages",
     0,
     ENOMEM,
     true,
     kWrite,
     Status::kNotReady,
     {"has no memory", "free memory"}},
    {"NotWritable",
     0,
     EINVAL,
     true,
     kWrite,
     Status::kRefused,
     {"not all writable", "rights that do not write"}},
    {"NotReadable",
     0,
     EINVAL,
     true,
     Access::kLocalRead,
     Status::kRefused,
     {"not all readable", "mprotect()"}},
    {"DeviceMemory",
     0,
     EFAULT,
     true,
     kWrite,
     Status::kRefused,
     {"cannot be made resident", "copy"}},
};

class MlockRefusalTexts : public ::testing::TestWithParam<MlockRow> {};

TEST_P(MlockRefusalTexts, NamesTheRangeTheCauseAndTheRemedy) {
  const MlockRow& row = GetParam();
  g_probed = false;
  auto status = Status::kOk;
  const auto mlock = make_mlock_registrar(&status, {&play_lock, &play_unlock, &play_populate,
                                                    &play_mapped, &play_find_lock, &play_mapping});
  ASSERT_NE(mlock, nullptr) << last_error_text();
  g_probed = true;
  g_lock_error = row.lock_error;
  g_populate_error = row.populate_error;
  const MappedPages memory(4 * kPageBytes);
  const MemoryRange range =
      row.mapped ? memory.pages(1, 2) : MemoryRange{kPageBytes, 2 * kPageBytes};
  EXPECT_EQ(mlock->pin(range, row.access, nullptr), row.status) << last_error_text();
  EXPECT_THAT(last_error_text(), HasSubstr(text_of(range)));
  for (const char* word : row.words) EXPECT_THAT(last_error_text(), HasSubstr(word));
  g_probed = false;
}

INSTANTIATE_TEST_SUITE_P(Causes, MlockRefusalTexts, ::testing::ValuesIn(kMlock),
                         [](const auto& row) { return row.param.cause; });

}  // namespace
}  // namespace hydrant
