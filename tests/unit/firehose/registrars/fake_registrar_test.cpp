// The fake that other tests rely on: it must notice what they rely on it to notice.
#include "tests/fakes/fake_registrar.hpp"

#include "tests/support/child_process.hpp"
#include "tests/support/threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace hydrant {
namespace {

constexpr MemoryRange kA{0x10000, 0x4000};
constexpr MemoryRange kB{0x12000, 0x4000};

struct Key {
  std::vector<std::byte> bytes = std::vector<std::byte>(4096);
  std::byte* data() { return bytes.data(); }
};

TEST(FakeRegistrar, CountsLivePins) {
  FakeRegistrar fake;
  Key a, b, again;
  ASSERT_EQ(fake.pin(kA, Access::kLocalWrite, a.data()), Status::kOk);
  ASSERT_EQ(fake.pin(kB, Access::kRemoteRead, b.data()), Status::kOk);
  ASSERT_EQ(fake.pin(kA, Access::kAll, again.data()), Status::kOk);
  EXPECT_EQ(fake.live_pins(), 3u);
  EXPECT_EQ(fake.live_bytes(), 3 * kA.len);
  EXPECT_TRUE(fake.is_pinned(kA, Access::kAll, again.data()));
  EXPECT_FALSE(fake.is_pinned(kA, Access::kAll, a.data()));
  EXPECT_TRUE(fake.is_pinned({0x11000, 0x1000}, Access::kLocalWrite));
  EXPECT_FALSE(fake.is_pinned({0x15000, 0x2000}, Access::kLocalRead));
  EXPECT_NE(fake.leftovers(), "");
  EXPECT_EQ(fake.unpin(kA, a.data()), UnpinResult::kDone);
  EXPECT_EQ(fake.unpin(kA, again.data()), UnpinResult::kDone);
  EXPECT_EQ(fake.unpin(kB, b.data()), UnpinResult::kDone);
  EXPECT_EQ(fake.leftovers(), "");
  EXPECT_EQ(fake.pin_calls(), 3u);
  EXPECT_EQ(fake.unpin_calls(), 3u);
  EXPECT_EQ(fake.max_charged_bytes(), 3 * kA.len);
}

TEST(FakeRegistrar, RecordsViolations) {
  for (const uint32_t key_bytes : {0u, 4u, 16u, 4096u}) {
    FakeOptions options;
    options.key_bytes = key_bytes;
    FakeRegistrar fake(options);
    Key a, wrong;
    ASSERT_EQ(fake.pin(kA, Access::kAll, a.data()), Status::kOk);
    EXPECT_EQ(fake.unpin(kB, a.data()), UnpinResult::kBroken);
    EXPECT_EQ(fake.violations(), 1u);
    EXPECT_NE(fake.first_violation().find("0x12000"), std::string::npos);
    if (key_bytes != 0) {
      EXPECT_EQ(fake.unpin(kA, wrong.data()), UnpinResult::kBroken);
    }
    EXPECT_EQ(fake.live_pins(), 1u);
    EXPECT_EQ(fake.unpin(kA, a.data()), UnpinResult::kDone);
    const uint64_t before = fake.violations();
    EXPECT_EQ(fake.unpin(kA, a.data()), UnpinResult::kBroken);
    EXPECT_EQ(fake.violations(), before + 1);
    EXPECT_EQ(fake.pin({0x10001, 0x1000}, Access::kAll, a.data()), Status::kBadArg);
    EXPECT_EQ(fake.violations(), before + 2);
  }
}

TEST(FakeRegistrar, FailsTheNthCall) {
  FakeRegistrar fake;
  Key a, b;
  fake.fail_call(FakeCall::kPin, 2, Status::kNotReady);
  EXPECT_EQ(fake.pin(kA, Access::kAll, a.data()), Status::kOk);
  EXPECT_EQ(fake.pin(kA, Access::kAll, b.data()), Status::kNotReady);
  EXPECT_EQ(fake.pin(kA, Access::kAll, b.data()), Status::kOk);
  fake.fail_call(FakeCall::kUnpin, 1);
  EXPECT_EQ(fake.unpin(kA, a.data()), UnpinResult::kBroken);
  EXPECT_EQ(fake.unpin(kA, a.data()), UnpinResult::kDone);
  EXPECT_EQ(fake.unpin(kA, b.data()), UnpinResult::kDone);
  fake.fail_call(FakeCall::kPin, 1, Status::kRefused, true);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(fake.pin(kA, Access::kAll, a.data()), Status::kRefused);
  fake.fail_call(FakeCall::kPin, 0);
  EXPECT_EQ(fake.pin(kA, Access::kAll, a.data()), Status::kOk);
  EXPECT_EQ(fake.unpin(kA, a.data()), UnpinResult::kDone);
  EXPECT_EQ(fake.leftovers(), "");
}

TEST(FakeRegistrar, RefusesByRightAndByRange) {
  FakeOptions options;
  options.supported = Access::kLocalWrite | Access::kRemoteWrite;
  FakeRegistrar fake(options);
  Key a;
  fake.refuse_rights(Access::kRemoteWrite, {0x13000, 0x1000});
  EXPECT_EQ(fake.pin(kA, Access::kRemoteAtomic, a.data()), Status::kRefused);
  EXPECT_EQ(fake.pin(kA, Access::kRemoteWrite, a.data()), Status::kRefused);
  EXPECT_EQ(fake.pin({0x10000, 0x3000}, Access::kRemoteWrite, a.data()), Status::kOk);
  EXPECT_EQ(fake.unpin({0x10000, 0x3000}, a.data()), UnpinResult::kDone);
  EXPECT_EQ(fake.pin(kA, Access::kLocalWrite, a.data()), Status::kOk);
  EXPECT_EQ(fake.unpin(kA, a.data()), UnpinResult::kDone);
  fake.refuse_range({0x10000, 0x1000});
  EXPECT_EQ(fake.pin(kA, Access::kLocalRead, a.data()), Status::kRefused);
  EXPECT_EQ(fake.pin(kB, Access::kLocalRead, a.data()), Status::kOk);
  EXPECT_EQ(fake.unpin(kB, a.data()), UnpinResult::kDone);
  fake.allow_all();
  EXPECT_EQ(fake.pin(kA, Access::kRemoteWrite, a.data()), Status::kOk);
  EXPECT_EQ(fake.unpin(kA, a.data()), UnpinResult::kDone);
}

TEST(FakeRegistrar, LimitsChargesAndReleasesThemOnCommand) {
  FakeOptions options;
  options.charge_limit = 0x8000;
  options.pending_charges = true;
  options.max_region_bytes = 0x10000;
  FakeRegistrar fake(options);
  Key a, b;
  EXPECT_EQ(fake.pin({0, 0x11000}, Access::kAll, a.data()), Status::kResource);
  EXPECT_EQ(fake.pin({0, 0x9000}, Access::kAll, a.data()), Status::kNotReady);
  ASSERT_EQ(fake.pin(kA, Access::kAll, a.data()), Status::kOk);
  ASSERT_EQ(fake.pin(kB, Access::kAll, b.data()), Status::kOk);
  EXPECT_EQ(fake.unpin(kA, a.data()), UnpinResult::kPending);
  EXPECT_EQ(fake.pending_charge(), kA.len);
  EXPECT_EQ(fake.pin(kA, Access::kAll, a.data()), Status::kNotReady);
  EXPECT_EQ(fake.release_charges(0x1000), 0x1000u);
  EXPECT_EQ(fake.pin(kA, Access::kAll, a.data()), Status::kNotReady);
  EXPECT_EQ(fake.release_charges(), 0x3000u);
  EXPECT_EQ(fake.pin(kA, Access::kAll, a.data()), Status::kOk);
  fake.set_charge_block(0x10000);
  fake.set_charge_limit(UINT64_MAX);
  EXPECT_EQ(fake.charge(kB), 0x10000u);
  EXPECT_EQ(fake.charge({0x1f000, 0x2000}), 0x20000u);
  (void)fake.unpin(kA, a.data());
  (void)fake.unpin(kB, b.data());
  fake.release_charges();
  EXPECT_EQ(fake.charged_bytes(), 0u) << "the charge of the pin is released";
}

TEST(FakeRegistrar, DivisiblePinsAreUndoneInPieces) {
  FakeOptions options;
  options.key_bytes = 0;
  options.divisible = true;
  FakeRegistrar fake(options);
  ASSERT_EQ(fake.pin(kA, Access::kAll, nullptr), Status::kOk);
  ASSERT_EQ(fake.pin(kB, Access::kAll, nullptr), Status::kOk);
  EXPECT_EQ(fake.unpin({0x12000, 0x1000}, nullptr), UnpinResult::kDone);
  EXPECT_EQ(fake.unpin({0x10000, 0x6000}, nullptr), UnpinResult::kDone);
  EXPECT_TRUE(fake.is_pinned({0x13000, 0x1000}, Access::kAll));
  EXPECT_FALSE(fake.is_pinned({0x12000, 0x1000}, Access::kAll));
  EXPECT_EQ(fake.unpin({0x12000, 0x2000}, nullptr), UnpinResult::kBroken);
  EXPECT_EQ(fake.unpin({0x13000, 0x1000}, nullptr), UnpinResult::kDone);
  EXPECT_EQ(fake.live_pins(), 0u);
  EXPECT_EQ(fake.live_bytes(), 0u);
  EXPECT_EQ(fake.violations(), 1u);
}

TEST(FakeRegistrar, HookRunsBeforeThePinIsLive) {
  FakeRegistrar fake;
  Key a;
  uint64_t live_in_hook = 99;
  fake.set_pin_hook([&](MemoryRange range, Access) {
    EXPECT_EQ(range, kA);
    live_in_hook = fake.live_pins();
  });
  ASSERT_EQ(fake.pin(kA, Access::kAll, a.data()), Status::kOk);
  EXPECT_EQ(live_in_hook, 0u);
  EXPECT_EQ(fake.unpin(kA, a.data()), UnpinResult::kDone);
}

struct Outcome {
  std::atomic<int> calls{0};
  Status status = Status::kNotInit;
  Key key;
};

void note(void* context, Status status, const std::byte* key) {
  auto* outcome = static_cast<Outcome*>(context);
  outcome->status = status;
  if (key != nullptr) std::copy(key, key + 16, outcome->key.bytes.begin());
  ++outcome->calls;
}

TEST(FakeRegistrar, CompletesOnCommand) {
  FakeOptions options;
  options.completion = FakeCompletion::kWhenTold;
  Outcome good, bad, never;
  {
    FakeRegistrar fake(options);
    EXPECT_TRUE(fake.traits().asynchronous);
    Key scratch;
    EXPECT_FALSE(fake.complete_one());
    ASSERT_EQ(fake.pin_async(kA, Access::kAll, scratch.data(), note, &good), Status::kNotReady);
    ASSERT_EQ(fake.pin_async(kB, Access::kAll, scratch.data(), note, &bad), Status::kNotReady);
    EXPECT_EQ(fake.under_way(), 2u);
    EXPECT_EQ(fake.live_pins(), 0u);
    EXPECT_TRUE(fake.complete_one());
    EXPECT_EQ(good.calls, 1);
    EXPECT_EQ(good.status, Status::kOk);
    EXPECT_TRUE(fake.is_pinned(kA, Access::kAll, good.key.data()));
    EXPECT_TRUE(fake.complete_one(Status::kBroken));
    EXPECT_EQ(bad.status, Status::kBroken);
    EXPECT_EQ(fake.live_pins(), 1u);
    EXPECT_EQ(fake.unpin(kA, good.key.data()), UnpinResult::kDone);
    ASSERT_EQ(fake.pin_async(kA, Access::kAll, scratch.data(), note, &never), Status::kNotReady);
    EXPECT_NE(fake.leftovers(), "");
  }
  EXPECT_EQ(never.calls, 1) << "completed by the destructor";
  EXPECT_EQ(never.status, Status::kBroken);
}

TEST(FakeRegistrar, CompletesFromAThread) {
  FakeOptions options;
  options.completion = FakeCompletion::kFromThread;
  FakeRegistrar fake(options);
  Key scratch;
  Outcome outcome;
  ASSERT_EQ(fake.pin_async(kA, Access::kAll, scratch.data(), note, &outcome), Status::kNotReady);
  ASSERT_TRUE(testing::wait_until([&] { return outcome.calls == 1 && fake.under_way() == 0; }));
  EXPECT_EQ(outcome.status, Status::kOk);
  EXPECT_EQ(fake.unpin(kA, outcome.key.data()), UnpinResult::kDone);
  EXPECT_EQ(fake.leftovers(), "");
}

TEST(FakeRegistrar, ExportedKeysComeBack) {
  FakeRegistrar fake;
  Key a, imported;
  std::vector<std::byte> blob(fake.traits().export_bytes);
  ASSERT_EQ(fake.pin(kA, Access::kAll, a.data()), Status::kOk);
  size_t len = blob.size() - 1;
  EXPECT_EQ(fake.export_key(kA, a.data(), blob.data(), &len), Status::kBadArg);
  len = blob.size();
  ASSERT_EQ(fake.export_key(kA, a.data(), blob.data(), &len), Status::kOk);
  ASSERT_EQ(fake.import_key(blob.data(), len, imported.data()), Status::kOk);
  EXPECT_TRUE(std::equal(a.bytes.begin(), a.bytes.begin() + 16, imported.bytes.begin()));
  EXPECT_EQ(fake.import_key(blob.data(), len - 1, imported.data()), Status::kBadArg);
  blob[0] = std::byte{99};
  EXPECT_EQ(fake.import_key(blob.data(), len, imported.data()), Status::kBadArg);
  EXPECT_EQ(fake.unpin(kA, a.data()), UnpinResult::kDone);
}

TEST(FakeRegistrar, FastModeKeepsNoRecords) {
  FakeOptions options;
  options.fast = true;
  FakeRegistrar fake(options);
  Key a;
  EXPECT_EQ(fake.pin(kA, Access::kAll, a.data()), Status::kOk);
  EXPECT_EQ(fake.unpin(kB, a.data()), UnpinResult::kDone);
  EXPECT_EQ(fake.pin_calls(), 0u);
  EXPECT_EQ(fake.leftovers(), "");
}

TEST(FakeRegistrar, ThreadsAreCountedRight) {
  FakeRegistrar fake;
  testing::Threads threads;
  for (int t = 0; t < 4; ++t) {
    threads.start([&fake] {
      Key a;
      for (int i = 0; i < 500; ++i) {
        if (fake.pin(kA, Access::kAll, a.data()) != Status::kOk) continue;
        (void)fake.unpin(kA, a.data());
      }
    });
  }
  threads.join();
  EXPECT_EQ(fake.leftovers(), "");
  EXPECT_EQ(fake.pin_calls(), 2000u);
}

TEST(FakeRegistrar, ChildStartsEmpty) {
  FakeRegistrar fake;
  Key a;
  ASSERT_EQ(fake.pin(kA, Access::kAll, a.data()), Status::kOk);
  EXPECT_EQ(testing::run_in_child([&]() -> std::string {
              fake.forget_in_child();
              return fake.leftovers();
            }),
            "");
  EXPECT_EQ(fake.live_pins(), 1u);
  EXPECT_EQ(fake.unpin(kA, a.data()), UnpinResult::kDone);
}

}  // namespace
}  // namespace hydrant
