// Puts and gets with failures: the n-th call of the transport, the n-th completion, the n-th
// allocation. In every case GASNET_OK means that the data has arrived, no operation hangs or is lost,
// and the next operation works.
#include "am/progress/waiting.hpp"
#include "extended/rma/common/known_peer.hpp"
#include "tests/unit/extended/rma_fixture.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <new>

// ---- allocations of the library that may fail ----

namespace {
// Countdown: the allocation that finds 1 fails. 0: no failure.
thread_local uint64_t fails_in = 0;
thread_local uint64_t failures = 0;

bool is_to_fail() {
  if (fails_in == 0 || --fails_in != 0) return false;
  ++failures;
  return true;
}
template <typename Allocate>
void* try_to(Allocate allocate) noexcept {
  if (is_to_fail()) return nullptr;
  try {
    return allocate();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
}  // namespace

void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return try_to([=] { return ::operator new(bytes); });
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return try_to([=] { return ::operator new[](bytes); });
}
void* operator new(size_t bytes, std::align_val_t align, const std::nothrow_t&) noexcept {
  return try_to([=] { return ::operator new(bytes, align); });
}
void* operator new[](size_t bytes, std::align_val_t align, const std::nothrow_t&) noexcept {
  return try_to([=] { return ::operator new[](bytes, align); });
}

namespace hydrant {
namespace {

using test::LoopNetwork;
using test::pattern;
using test::RmaFixture;

constexpr size_t kFaultyBytes = 20000;

// Runs each form of operation once on fresh memory. `check`: verify the data after GASNET_OK.
class Forms {
 public:
  explicit Forms(gex_TM_t team) : team_(team) {}

  // Returns the number of results other than GASNET_OK.
  uint32_t run() {
    uint32_t refused = 0;
    refused +=
        look(gex_RMA_PutBlocking(team_, 1, far_.data(), near_.data(), kFaultyBytes, 0), far_);
    refused +=
        look(gex_RMA_GetBlocking(team_, back_.data(), 1, wanted_.data(), kFaultyBytes, 0), back_);
    const int started =
        gex_RMA_PutNBI(team_, 1, far_.data(), near_.data(), kFaultyBytes, GEX_EVENT_NOW, 0);
    const bool told = waited_without_error([&] { gex_NBI_Wait(GEX_EC_ALL, 0); });
    refused += look(started != GASNET_OK || told ? started : GASNET_ERR_BAD_ARG, far_);
    const hydrant_rma_op_t ops[] = {
        {1, far_.data(), near_.data(), kFaultyBytes / 2},
        {1, far_.data() + kFaultyBytes / 2, near_.data() + kFaultyBytes / 2, kFaultyBytes / 2}};
    refused += look(hydrant_put_many(team_, ops, 2, kFaultyBytes, nullptr), far_);
    gex_Event_t event = GEX_EVENT_INVALID;
    const int many = hydrant_put_many(team_, ops, 2, kFaultyBytes, &event);
    const bool waited = waited_without_error([&] { gex_Event_Wait(event); });
    refused += look(many != GASNET_OK || waited ? many : GASNET_ERR_BAD_ARG, far_);
    const bool nb = waited_without_error([&] {
      gex_Event_Wait(
          gex_RMA_PutNB(team_, 1, far_.data(), near_.data(), kFaultyBytes, GEX_EVENT_DEFER, 0));
    });
    refused += look(nb ? GASNET_OK : GASNET_ERR_BAD_ARG, far_);
    const bool region = waited_without_error([&] {
      gasnet_begin_nbi_accessregion();
      gasnet_get_nbi(back_.data(), 1, wanted_.data(), kFaultyBytes);
      gex_Event_Wait(gasnet_end_nbi_accessregion());
    });
    refused += look(region ? GASNET_OK : GASNET_ERR_BAD_ARG, back_);
    const bool filled = waited_without_error(
        [&] { gex_Event_Wait(gasnet_memset_nb(1, far_.data(), 0x31, kFaultyBytes)); });
    if (filled) {
      EXPECT_EQ(std::count(far_.begin(), far_.end(), std::byte{0x31}), ptrdiff_t{kFaultyBytes});
    }
    std::fill(far_.begin(), far_.end(), std::byte{0});
    return refused + (filled ? 0 : 1);
  }

 private:
  // Calls without a result code report errors on standard error.
  template <typename Act>
  static bool waited_without_error(Act act) {
    ::testing::internal::CaptureStderr();
    act();
    const std::string text = ::testing::internal::GetCapturedStderr();
    if (text.empty()) return true;
    EXPECT_THAT(text, ::testing::HasSubstr("error: g"));
    return false;
  }
  uint32_t look(int code, std::vector<std::byte>& got) const {
    if (code == GASNET_OK) {
      EXPECT_TRUE(got == wanted_) << "reported success without the data";
    }
    std::fill(got.begin(), got.end(), std::byte{0});
    return code == GASNET_OK ? 0 : 1;
  }

  gex_TM_t team_;
  std::vector<std::byte> wanted_ = pattern(kFaultyBytes);
  std::vector<std::byte> near_ = pattern(kFaultyBytes);
  std::vector<std::byte> far_ = std::vector<std::byte>(kFaultyBytes);
  std::vector<std::byte> back_ = std::vector<std::byte>(kFaultyBytes);
};

class RmaFaults : public RmaFixture, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    RmaFixture::SetUp();
    network->order = LoopNetwork::Order::kRandom;
    choose({{"HYDRANT_PATH", GetParam()}});
  }
  // Without failures all operations succeed again.
  void expect_health() {
    network->refusal = Status::kOk;
    network->breakage = Status::kOk;
    EXPECT_EQ(Forms(team()).run(), 0u);
    EXPECT_EQ(network->under_way(), 0u);
    EXPECT_TRUE(network->sent.empty());
  }
  uint64_t calls_of_one_run() {
    uint64_t calls = 0;
    in_new_thread([&] {
      const uint64_t before = network->calls;
      EXPECT_EQ(Forms(team()).run(), 0u);
      calls = network->calls - before;
    });
    return calls;
  }
};

// Messages reach all memory and have no completion that could fail.
class OneSidedFaults : public RmaFaults {};

TEST_P(RmaFaults, NthCallIsRepeatedAfterNotReady) {
  const uint64_t calls = calls_of_one_run();
  for (uint64_t n = 1; n <= calls; ++n) {
    in_new_thread([&] {
      network->refused_call = network->calls + n;
      network->refused_calls = 1 + n % 5;
      network->refusal = Status::kNotReady;
      EXPECT_EQ(Forms(team()).run(), 0u) << "call " << n << " of " << calls;
      expect_health();
    });
  }
}

TEST_P(OneSidedFaults, NthUnsupportedCallUsesMessages) {
  const uint64_t calls = calls_of_one_run();
  for (uint64_t n = 1; n <= calls; ++n) {
    in_new_thread([&] {
      network->refused_call = network->calls + n;
      network->refused_calls = 1;
      network->refusal = Status::kUnsupported;
      EXPECT_EQ(Forms(team()).run(), 0u) << "call " << n << " of " << calls;
      expect_health();
    });
  }
}

TEST_P(OneSidedFaults, NthFailedCompletionIsReported) {
  const uint64_t calls = calls_of_one_run();
  for (const Status breakage : {Status::kUnsupported, Status::kBroken}) {
    uint32_t refused = 0;
    for (uint64_t n = 1; n <= calls; ++n) {
      in_new_thread([&] {
        network->broken_completion = network->completions + n;
        network->breakage = breakage;
        const uint32_t now = Forms(team()).run();
        EXPECT_LE(now, 1u) << "completion " << n;
        refused += now;
        network->broken_completion = 0;
        expect_health();
      });
    }
    EXPECT_GE(refused, 8u) << "failures were not reported";
  }
}

TEST_P(OneSidedFaults, FailedCompletionNamesRankAndRange) {
  in_new_thread([&] {
    std::vector<std::byte> far(100);
    std::vector<std::byte> near(100);
    network->broken_completion = network->completions + 1;
    network->breakage = Status::kUnsupported;
    EXPECT_EQ(gex_RMA_PutBlocking(team(), kPeer, far.data(), near.data(), 100, 0),
              GASNET_ERR_BAD_ARG);
    char wanted[100];
    std::snprintf(wanted, sizeof wanted, "100 bytes at %p of rank 1",
                  static_cast<void*>(far.data()));
    EXPECT_THAT(hydrant_last_error_text(), ::testing::HasSubstr(wanted));
  });
}

std::string path_of(const ::testing::TestParamInfo<const char*>& path) { return path.param; }
INSTANTIATE_TEST_SUITE_P(Paths, RmaFaults, ::testing::Values("direct", "bounce", "am"), path_of);
INSTANTIATE_TEST_SUITE_P(Paths, OneSidedFaults, ::testing::Values("direct", "bounce"), path_of);

// ---- allocations ----

class RmaAllocations : public RmaFixture {
 protected:
  // Starts a new thread that lives until the end of the test, so that each thread must allocate all its
  // state. The allocation `n` of its first operations fails.
  void start_thread(uint64_t n) {
    std::atomic<bool> done{false};
    threads_.emplace_back([&, n] {
      {
        Forms forms(team());
        fails_in = n;
        forms.run();
        fails_in = 0;
        failed_ += failures;
        EXPECT_EQ(Forms(team()).run(), 0u) << "allocation " << n;
        done = true;
      }
      is_over_.wait(false);
    });
    while (!done) std::this_thread::yield();
  }
  uint64_t end_threads() {
    is_over_ = true;
    is_over_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    return failed_;
  }

 private:
  std::vector<std::thread> threads_;
  std::atomic<bool> is_over_{false};
  uint64_t failed_ = 0;
};

TEST_F(RmaAllocations, NthFailedAllocationIsTolerated) {
  for (const char* path : {"direct", "bounce", "am"}) {
    choose({{"HYDRANT_PATH", path}});
    for (uint64_t n = 1; n <= 25; ++n) start_thread(n);
  }
  EXPECT_GE(end_threads(), 10u) << "too few allocations";
}

class RmaArgumentErrors : public test::RmaFixture {};

// The per-thread state depends on the job's size, so calls before the start of the job must not create it.
TEST_F(RmaArgumentErrors, DoNotCreateThreadState) {
  in_new_thread([&] {
    uint64_t word = 0;
    const gex_Rank_t nobody = job().size();
    EXPECT_EQ(hydrant_put_blocking(team(), nobody, &word, &word, sizeof word, 0),
              GASNET_ERR_BAD_ARG);
    EXPECT_EQ(hydrant_get_blocking(team(), &word, nobody, &word, sizeof word, 0),
              GASNET_ERR_BAD_ARG);
    EXPECT_EQ(hydrant_known_peers.count, 0u);
    EXPECT_EQ(hydrant_put_blocking(team(), kPeer, &word, &word, sizeof word, 0), GASNET_OK);
    EXPECT_EQ(hydrant_known_peers.count, job().size());
  });
}

}  // namespace
}  // namespace hydrant
