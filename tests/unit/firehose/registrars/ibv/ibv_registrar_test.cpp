// The registrar of verbs at work: registrations, keys for others, and on-demand paging.
#include "firehose/registrars/ibv/ibv_registrar.hpp"

#include "firehose/registrars/ibv/ibv_key_blob.hpp"
#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/unit/firehose/registrars/ibv/registrar_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace hydrant {
namespace {

using fake_verbs::Call;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IbvRegistrarTest;
using testing::kRange;
using Key = testing::IbvKeyBytes;

// ---- pin and unpin

TEST_F(IbvRegistrarTest, PinGivesTheKeysOfTheRegistration) {
  open();
  Key key;
  ASSERT_EQ(pin(kRange, Access::kLocalRead, &key), Status::kOk);
  const auto last = fake_verbs::last_registration();
  EXPECT_EQ(last.addr, kRange.addr);
  EXPECT_EQ(last.len, kRange.len);
  EXPECT_EQ(key.value().lkey, last.lkey);
  EXPECT_EQ(key.value().rkey, last.rkey);
  EXPECT_EQ(fake_verbs::live().mrs, 1U);
  EXPECT_EQ(unpin(key), UnpinResult::kDone);
  EXPECT_EQ(fake_verbs::live().mrs, 0U);
}

TEST_F(IbvRegistrarTest, RightsAreMappedAndRemoteWritesIncludeLocalWrite) {
  open();
  const struct {
    Access access;
    unsigned verbs;
  } rows[] = {
      {Access::kLocalRead, 0},
      {Access::kLocalWrite, IBV_ACCESS_LOCAL_WRITE},
      {Access::kRemoteRead, IBV_ACCESS_REMOTE_READ},
      {Access::kRemoteWrite, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE},
      {Access::kRemoteAtomic, IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE},
      {Access::kAll, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                         IBV_ACCESS_REMOTE_ATOMIC},
  };
  for (const auto& row : rows) {
    Key key;
    ASSERT_EQ(pin(kRange, row.access, &key), Status::kOk) << last_error_text();
    EXPECT_EQ(fake_verbs::last_registration().access, row.verbs) << bits(row.access);
    EXPECT_EQ(unpin(key), UnpinResult::kDone);
  }
}

TEST_F(IbvRegistrarTest, KernelErrorsMapToStatuses) {
  open();
  const struct {
    int error;
    Status status;
    const char* text;
  } rows[] = {
      {EFAULT, Status::kRefused, "Bad address"},
      {EINVAL, Status::kRefused, "Invalid argument"},
      {EOPNOTSUPP, Status::kRefused, "cannot be pinned"},
      {ENOMEM, Status::kNotReady, "memlock limit is"},
      {EAGAIN, Status::kNotReady, "ulimit -l"},
      {EPERM, Status::kBroken, "may not pin memory at all"},
      {EIO, Status::kBroken, "errno 5"},
  };
  for (const auto& row : rows) {
    fake_verbs::fail_call(Call::kRegMr, row.error);
    Key key;
    EXPECT_EQ(pin(kRange, Access::kLocalWrite, &key), row.status) << row.error;
    EXPECT_THAT(last_error_text(), AllOf(HasSubstr(row.text), HasSubstr("fake0")));
    EXPECT_EQ(key.value().mr, nullptr) << "a failed pin writes no key";
  }
  EXPECT_EQ(fake_verbs::live().mrs, 0U);
}

TEST_F(IbvRegistrarTest, FailedRegistrationsDoNotAffectOthers) {
  open();
  constexpr size_t kPins = 5;
  for (uint64_t nth = 1; nth <= kPins; ++nth) {
    fake_verbs::fail_call(Call::kRegMr, ENOMEM, nth);
    std::vector<Key> keys;
    for (size_t i = 0; i < kPins; ++i) {
      Key key;
      if (pin(kRange, Access::kLocalWrite, &key) == Status::kOk) keys.push_back(key);
    }
    EXPECT_EQ(keys.size(), kPins - 1);
    EXPECT_EQ(fake_verbs::live().mrs, kPins - 1);
    for (const Key& key : keys) EXPECT_EQ(unpin(key), UnpinResult::kDone);
  }
}

TEST_F(IbvRegistrarTest, LargerThanTheDeviceTakesIsResource) {
  open({.max_mr_size = 0x4000});
  Key key;
  EXPECT_EQ(pin({0x10000, 0x5000}, Access::kLocalRead, &key), Status::kResource);
  EXPECT_THAT(last_error_text(), HasSubstr("at most 16384 bytes"));
  EXPECT_EQ(fake_verbs::calls(Call::kRegMr), 0U);
}

TEST_F(IbvRegistrarTest, AtomicsAreRefusedWhereTheDeviceHasNone) {
  open({.atomics = false, .odp = true, .implicit_odp = true});
  Key key;
  EXPECT_EQ(pin(kRange, Access::kRemoteAtomic, &key), Status::kRefused);
  EXPECT_EQ(registrar_->implicit_key(Access::kRemoteAtomic, key.bytes), Status::kRefused);
  EXPECT_FALSE(includes(registrar_->traits().supported, Access::kRemoteAtomic));
  EXPECT_EQ(fake_verbs::calls(Call::kRegMr), 0U);
}

TEST_F(IbvRegistrarTest, FailedDeregistrationIsBrokenWithAText) {
  open();
  Key key;
  ASSERT_EQ(pin(kRange, Access::kLocalWrite, &key), Status::kOk);
  fake_verbs::fail_call(Call::kDeregMr, EBUSY);
  EXPECT_EQ(unpin(key), UnpinResult::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("ibv_dereg_mr"));
  EXPECT_EQ(unpin(key), UnpinResult::kDone);
}

TEST_F(IbvRegistrarTest, UnpinManyReturnsTheWorstResult) {
  open();
  Key keys[3];
  const std::byte* pointers[3];
  const MemoryRange ranges[3] = {kRange, kRange, kRange};
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(pin(kRange, Access::kLocalRead, &keys[i]), Status::kOk);
    pointers[i] = keys[i].bytes;
  }
  fake_verbs::fail_call(Call::kDeregMr, EIO, 2);
  EXPECT_EQ(registrar_->unpin_many(ranges, pointers, 3), UnpinResult::kBroken);
  EXPECT_EQ(fake_verbs::live().mrs, 1U);
  EXPECT_EQ(unpin(keys[1]), UnpinResult::kDone);
}

TEST_F(IbvRegistrarTest, ThreadsPinAtOnce) {
  open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      for (int i = 0; i < 200; ++i) {
        Key key;
        ASSERT_EQ(pin(kRange, Access::kLocalWrite, &key), Status::kOk);
        ASSERT_EQ(unpin(key), UnpinResult::kDone);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(fake_verbs::calls(Call::kRegMr), 800U);
}

TEST_F(IbvRegistrarTest, FailuresAtTheEndAreReportedNotFatal) {
  open();
  fake_verbs::fail_call(Call::kDeallocPd, EBUSY);
  ibv_pd* pd = registrar_->protection_domain();
  ::testing::internal::CaptureStderr();
  registrar_.reset();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("protection domain could not be released"));
  EXPECT_EQ(fake_verbs::live().pds, 1U);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(IbvRegistrarTest, DeviceThatDoesNotCloseIsReported) {
  open();
  ibv_context* context = registrar_->protection_domain()->context;
  fake_verbs::fail_call(Call::kCloseDevice, EIO);
  ::testing::internal::CaptureStderr();
  registrar_.reset();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("could not be closed"));
  EXPECT_EQ(ibv_close_device(context), 0);
}

// ---- keys for others

TEST_F(IbvRegistrarTest, ExportedKeyIsImportedWithItsRkey) {
  open();
  Key key;
  ASSERT_EQ(pin(kRange, Access::kRemoteWrite, &key), Status::kOk);
  std::byte blob[64];
  size_t len = sizeof blob;
  ASSERT_EQ(registrar_->export_key(kRange, key.bytes, blob, &len), Status::kOk);
  EXPECT_EQ(len, 32U);
  Key imported;
  ASSERT_EQ(registrar_->import_key(blob, len, imported.bytes), Status::kOk);
  EXPECT_EQ(imported.value().rkey, key.value().rkey);
  EXPECT_EQ(imported.value().lkey, 0U);
  EXPECT_EQ(imported.value().mr, nullptr);
  EXPECT_EQ(unpin(imported), UnpinResult::kBroken) << "nothing was pinned for it";
  EXPECT_EQ(unpin(key), UnpinResult::kDone);
}

TEST_F(IbvRegistrarTest, ExportNeedsRoomAndAKeyOfItsOwn) {
  open();
  Key key;
  ASSERT_EQ(pin(kRange, Access::kRemoteWrite, &key), Status::kOk);
  std::byte blob[32];
  size_t len = 31;
  EXPECT_EQ(registrar_->export_key(kRange, key.bytes, blob, &len), Status::kBadArg);
  EXPECT_EQ(len, sizeof blob) << "what is enough";
  EXPECT_THAT(last_error_text(), HasSubstr("needs 32 bytes, there are 31"));
  EXPECT_EQ(registrar_->export_key(kRange, Key().bytes, blob, &len), Status::kBadArg);
  EXPECT_EQ(unpin(key), UnpinResult::kDone);
}

TEST_F(IbvRegistrarTest, ForeignBytesAreNoKey) {
  open();
  std::byte blob[kIbvBlobBytes];
  std::memset(blob, 0x5a, sizeof blob);
  Key key;
  EXPECT_EQ(registrar_->import_key(blob, sizeof blob, key.bytes), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("magic"));
  EXPECT_EQ(key.value().rkey, 0U);
}

// ---- on-demand paging

TEST_F(IbvRegistrarTest, ImplicitKeyIsUnsupportedWithoutImplicitPaging) {
  open({.odp = true, .implicit_odp = false});
  Key key;
  EXPECT_EQ(registrar_->implicit_key(Access::kLocalWrite, key.bytes), Status::kUnsupported);
  EXPECT_THAT(last_error_text(), HasSubstr("fake0"));
}

TEST_F(IbvRegistrarTest, ImplicitKeyIsMadeOncePerSetOfRights) {
  open({.odp = true, .implicit_odp = true});
  Key first;
  Key again;
  Key other;
  ASSERT_EQ(registrar_->implicit_key(Access::kRemoteWrite, first.bytes), Status::kOk)
      << last_error_text();
  const auto last = fake_verbs::last_registration();
  EXPECT_EQ(last.addr, 0U);
  EXPECT_EQ(last.len, SIZE_MAX);
  EXPECT_EQ(last.access, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
  ASSERT_EQ(registrar_->implicit_key(Access::kRemoteWrite, again.bytes), Status::kOk);
  EXPECT_EQ(again.value().rkey, first.value().rkey);
  ASSERT_EQ(registrar_->implicit_key(Access::kLocalRead, other.bytes), Status::kOk);
  EXPECT_NE(other.value().lkey, first.value().lkey);
  EXPECT_EQ(fake_verbs::live().mrs, 2U);
  EXPECT_EQ(unpin(first), UnpinResult::kBroken) << "only the registrar undoes it";
}

TEST_F(IbvRegistrarTest, FailedImplicitRegistrationMayBeTriedAgain) {
  open({.odp = true, .implicit_odp = true});
  fake_verbs::fail_call(Call::kRegMr, ENOMEM);
  Key key;
  EXPECT_EQ(registrar_->implicit_key(Access::kLocalWrite, key.bytes), Status::kNotReady);
  EXPECT_EQ(registrar_->implicit_key(Access::kLocalWrite, key.bytes), Status::kOk);
}

TEST_F(IbvRegistrarTest, ImplicitRegistrationThatStaysIsReported) {
  open({.odp = true, .implicit_odp = true});
  ibv_pd* pd = registrar_->protection_domain();
  Key key;
  ASSERT_EQ(registrar_->implicit_key(Access::kLocalWrite, key.bytes), Status::kOk);
  fake_verbs::fail_call(Call::kDeregMr, EBUSY);
  ::testing::internal::CaptureStderr();
  registrar_.reset();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("implicit registration could not be undone"),
                    HasSubstr("protection domain could not be released")));
  fake_verbs::drop_registrations();
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

}  // namespace
}  // namespace hydrant
