// Atomic operations of an adapter whose completions report a failure.
#include "extended/event/completion_counter.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/rma/paths/rma_posted.hpp"
#include "tests/unit/extended/pinned_loop.hpp"
#include "tests/unit/extended/rma_fixture.hpp"

#include <gmock/gmock.h>

#include <memory>

namespace hydrant {
namespace {

using test::LoopNetwork;
using test::RmaFixture;

// An adapter that finds 41 in every word.
class AtomicNetwork final : public LoopNetwork, public PinnedOperations {
 public:
  PinnedOperations* pinned() noexcept override { return this; }
  // For the pool of buffers, which lives as long as the process.
  std::unique_ptr<Registrar> make_registrar() noexcept override {
    static test::LoopPins pins;
    return std::make_unique<test::LoopRegistrar>(std::make_shared<test::PinnedRanges>(), pins);
  }
  uint32_t keyless_bytes() const noexcept override { return 0; }
  using LoopNetwork::get;
  using LoopNetwork::put;
  Status put(Rank, const Pinned&, const Pinned&, size_t, Completion*) noexcept override {
    return Status::kUnsupported;
  }
  Status get(Rank, const Pinned&, const Pinned&, size_t, Completion*) noexcept override {
    return Status::kUnsupported;
  }
  Status start_atomic(Rank, const Pinned&, const Pinned& old, const Atomic&,
                      Completion* completion) noexcept override {
    return start({reinterpret_cast<void*>(old.addr), &word_, sizeof word_, completion}, nullptr);
  }

 private:
  const uint64_t word_ = 41;
};

class PostedAtomics : public RmaFixture {
 protected:
  std::unique_ptr<LoopNetwork> make_network() override { return std::make_unique<AtomicNetwork>(); }
  // Posts one operation and waits for it.
  static Status post(uint64_t* result) {
    Status status = Status::kOk;
    in_new_thread([&] {
      RmaThread& thread = *RmaThread::mine();
      CompletionCounter counter;
      counter.thread = &thread;
      status = post_atomic(
          thread, {.peer = kPeer, .word = {4096, nullptr}, .what = {}, .result = result}, counter);
      if (status == Status::kOk) status = wait_for(counter);
    });
    return status;
  }
};

TEST_F(PostedAtomics, OldValueIsStoredBeforeTheCompletionCounts) {
  uint64_t old = 0;
  EXPECT_EQ(post(&old), Status::kOk);
  EXPECT_EQ(old, 41u);
}

// The end of the job says why, unless this rank ends it first.
TEST_F(PostedAtomics, RefusalCountsAsAPeerThatIsGone) {
  network->broken_completion = 1;
  network->breakage = Status::kRefused;
  uint64_t old = 7;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(post(&old), Status::kBroken);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("of rank 1: the rank's adapter refuses the key"));
  EXPECT_EQ(old, 7u);
  EXPECT_EQ(post(&old), Status::kOk);
}

}  // namespace
}  // namespace hydrant
