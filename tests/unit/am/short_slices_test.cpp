// The slice that the kernel gives threads which wait.
#include "am/progress/waiting.hpp"
#include "firehose/base/config/config.hpp"
#include "firehose/base/machine/time_slice.hpp"
#include "rdma/config/job_knobs.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <sched.h>
#include <thread>

namespace hydrant {
namespace {

// Runs in a thread of its own: a time slice belongs to a thread, which requests it once.
template <typename Body>
void in_a_new_thread(Body body) {
  std::thread thread(body);
  thread.join();
}

TEST(TimeSlice, YieldingThreadHasAShortSlice) {
  const uint64_t before = time_slice_ns();
  if (before == 0) GTEST_SKIP() << "this kernel has no slices of threads (Linux 6.12 has)";
  const uint64_t wanted = knob_number(JobKnob::kTimeSlice);
  if (before <= wanted) GTEST_SKIP() << "slices are short here: " << before << " ns";
  in_a_new_thread([&] {
    errno = 7;
    yield_processor();
    EXPECT_EQ(time_slice_ns(), wanted);
    EXPECT_EQ(errno, 7);
  });
  in_a_new_thread([&] { EXPECT_EQ(time_slice_ns(), before) << "a thread that waits for nothing"; });
}

TEST(TimeSlice, NewThreadsInheritTheSlice) {
  const uint64_t before = time_slice_ns();
  const uint64_t wanted = knob_number(JobKnob::kTimeSlice);
  if (before <= wanted) GTEST_SKIP() << "slices are short here, or unknown: " << before << " ns";
  in_a_new_thread([&] {
    yield_processor();
    in_a_new_thread([&] { EXPECT_EQ(time_slice_ns(), wanted) << "it inherits them"; });
  });
}

TEST(TimeSlice, OtherPoliciesAreLeftAlone) {
  in_a_new_thread([] {
    const sched_param parameters{};
    ASSERT_EQ(sched_setscheduler(0, SCHED_BATCH, &parameters), 0);
    const uint64_t before = time_slice_ns();
    yield_processor();
    EXPECT_EQ(time_slice_ns(), before);
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
  });
}

}  // namespace
}  // namespace hydrant
