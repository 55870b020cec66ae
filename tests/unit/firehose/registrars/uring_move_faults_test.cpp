// Moves whose submission the kernel does not take: what stays queued must not touch a later registration.
#include "firehose/registrars/uring/uring_ring.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <memory>

namespace {
std::atomic<bool> g_refuse_submissions{false};
}  // namespace

// In place of the library's.
extern "C" int io_uring_submit(struct io_uring* ring) {
  if (g_refuse_submissions) return -EAGAIN;
  static const auto real =
      reinterpret_cast<int (*)(struct io_uring*)>(dlsym(RTLD_NEXT, "io_uring_submit"));
  return real(ring);
}

namespace hydrant {
namespace {

using testing::kPageBytes;
using testing::MappedPages;
using testing::TestFile;

constexpr uint64_t kShortNs = 1'000'000;
constexpr uint64_t kLongNs = 30'000'000'000;

class UringMoveFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    int error = 0;
    ring_ = UringRing::open(1, false, &error);
    if (ring_ == nullptr) GTEST_SKIP() << "no ring here: " << std::strerror(-error);
    pin();
  }
  void TearDown() override { g_refuse_submissions = false; }

  void pin() {
    ASSERT_TRUE(ring_->claim(memory_.size(), false));
    const int error = ring_->register_run(memory_.all(), 0, &run_);
    if (error != 0) GTEST_SKIP() << "no page can be pinned: " << std::strerror(-error);
  }
  void unpin() {
    ASSERT_TRUE(ring_->begin_unregister(memory_.all(), run_));
    ASSERT_EQ(ring_->finish_unregister(run_.first, UringSize::of(memory_.size())), 0);
  }
  int move(bool to_file, uint64_t timeout_ns) {
    uint64_t moved = 0;
    return ring_->move(run_, memory_.all(), file_.fd(), 0, to_file, timeout_ns, &moved);
  }
  void refuse(int moves) {
    g_refuse_submissions = true;
    for (int i = 0; i < moves; ++i) EXPECT_EQ(move(false, kShortNs), -ETIME);
    g_refuse_submissions = false;
  }

  MappedPages memory_{kPageBytes};
  TestFile file_;
  std::unique_ptr<UringRing> ring_;
  UringRun run_;
};

TEST_F(UringMoveFaults, UnsubmittedUpdateNeverReachesALaterRegistration) {
  memory_.fill('F');
  ASSERT_EQ(move(true, kLongNs), 0);
  refuse(1);  // would read the file
  unpin();
  memory_.fill('M');
  pin();
  ASSERT_EQ(move(true, kLongNs), 0);
  EXPECT_EQ(*memory_.data(), std::byte{'M'});
}

TEST_F(UringMoveFaults, ManyFailuresDoNotFillTheQueueForGood) {
  memory_.fill('F');
  refuse(20);
  EXPECT_EQ(move(true, kLongNs), 0);
  EXPECT_EQ(move(false, kLongNs), 0);
}

}  // namespace
}  // namespace hydrant
