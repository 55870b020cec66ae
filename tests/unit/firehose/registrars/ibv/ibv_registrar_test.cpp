#include "firehose/registrars/ibv/ibv_registrar.hpp"

#include "firehose/base/machine/machine_limits.hpp"
#include "firehose/registrars/ibv/ibv_key_blob.hpp"
#include "tests/fakes/fake_ibverbs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace hydrant {
namespace {

using fake_verbs::Call;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr MemoryRange kRange{0x10000, 0x4000};

struct Key {
  std::byte bytes[sizeof(IbvKey)] = {};
  IbvKey value() const {
    IbvKey key;
    std::memcpy(&key, bytes, sizeof key);
    return key;
  }
};

class IbvRegistrarTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_verbs::reset();
    ASSERT_TRUE(fake_verbs::live().none());
  }
  void TearDown() override {
    registrar_.reset();
    EXPECT_TRUE(fake_verbs::live().none()) << "an object was not released";
  }
  void open(const fake_verbs::Device& device = {}) {
    fake_verbs::add_device(device);
    ASSERT_EQ(IbvRegistrar::open(nullptr, &registrar_), Status::kOk) << last_error_text();
  }
  Status pin(MemoryRange range, Access access, Key* key) {
    return registrar_->pin(range, access, key->bytes);
  }
  UnpinResult unpin(const Key& key) { return registrar_->unpin(kRange, key.bytes); }

  std::unique_ptr<IbvRegistrar> registrar_;
};

// ---- opening

TEST_F(IbvRegistrarTest, NoDeviceIsUnsupportedWithAText) {
  EXPECT_EQ(IbvRegistrar::open(nullptr, &registrar_), Status::kUnsupported);
  EXPECT_THAT(last_error_text(),
              AllOf(HasSubstr("no verbs device"), HasSubstr("ibverbs-providers")));
  EXPECT_EQ(registrar_, nullptr);
}

TEST_F(IbvRegistrarTest, NoVerbsInTheKernelIsUnsupportedWithAText) {
  fake_verbs::fail_call(Call::kGetDeviceList, ENOSYS);
  EXPECT_EQ(IbvRegistrar::open(nullptr, &registrar_), Status::kUnsupported);
  EXPECT_THAT(last_error_text(), HasSubstr("cannot be listed: Function not implemented"));
}

TEST_F(IbvRegistrarTest, FirstUsableDeviceIsChosen) {
  fake_verbs::add_device({.name = "broken0"});
  fake_verbs::add_device({.name = "good0"});
  fake_verbs::fail_call(Call::kOpenDevice, EACCES);
  ASSERT_EQ(IbvRegistrar::open(nullptr, &registrar_), Status::kOk);
  EXPECT_STREQ(registrar_->device_name(), "good0");
}

TEST_F(IbvRegistrarTest, DeviceCanBeNamed) {
  fake_verbs::add_device({.name = "fake0"});
  fake_verbs::add_device({.name = "fake1"});
  ASSERT_EQ(IbvRegistrar::open("fake1", &registrar_), Status::kOk);
  EXPECT_STREQ(registrar_->device_name(), "fake1");
}

TEST_F(IbvRegistrarTest, SuccessLeavesAnOlderErrorText) {
  fake_verbs::add_device({.name = "fake0"});
  EXPECT_EQ(fail(Status::kBadArg, "older"), Status::kBadArg);
  ASSERT_EQ(IbvRegistrar::open("fake0", &registrar_), Status::kOk);
  EXPECT_STREQ(last_error_text(), "older");
}

TEST_F(IbvRegistrarTest, UnknownDeviceNameIsReported) {
  fake_verbs::add_device({});
  EXPECT_EQ(IbvRegistrar::open("mlx5_9", &registrar_), Status::kUnsupported);
  EXPECT_THAT(last_error_text(), HasSubstr("no verbs device named mlx5_9 among the 1 found"));
}

TEST_F(IbvRegistrarTest, EachOpeningStepMayFail) {
  const struct {
    Call call;
    int error;
    const char* text;
  } steps[] = {
      {Call::kOpenDevice, EACCES, "cannot be opened: Permission denied"},
      {Call::kAllocPd, ENOMEM, "cannot allocate a protection domain: Cannot allocate memory"},
      {Call::kQueryDevice, EIO, "ibv_query_device failed: Input/output error"},
  };
  fake_verbs::add_device({});
  for (const auto& step : steps) {
    fake_verbs::fail_call(step.call, step.error);
    EXPECT_EQ(IbvRegistrar::open(nullptr, &registrar_), Status::kUnsupported);
    EXPECT_THAT(last_error_text(), HasSubstr(step.text));
    EXPECT_TRUE(fake_verbs::live().none()) << step.text;
  }
  EXPECT_EQ(registrar_, nullptr);
}

TEST_F(IbvRegistrarTest, TraitsAreTheDevices) {
  open({.max_mr_size = (uint64_t{1} << 30) + 5, .max_mr = 77});
  const RegistrarTraits& traits = registrar_->traits();
  EXPECT_STREQ(traits.name, "ibv");
  EXPECT_EQ(traits.key_bytes, sizeof(IbvKey));
  EXPECT_EQ(traits.max_region_bytes, uint64_t{1} << 30) << "whole pages";
  EXPECT_EQ(traits.max_regions, 77U);
  const MachineLimits machine = read_machine_limits();
  EXPECT_EQ(traits.max_charge_bytes, machine.memlock_lifted ? kUnlimited : machine.memlock_bytes);
  EXPECT_EQ(traits.charge_scope == ChargeScope::kProcess, traits.max_charge_bytes != kUnlimited);
  EXPECT_EQ(traits.supported, Access::kAll);
  EXPECT_TRUE(traits.exports);
  EXPECT_EQ(traits.export_bytes, 32U);
  EXPECT_FALSE(traits.divisible);
}

TEST_F(IbvRegistrarTest, OnlyActiveForkProtectionIsUnpinnedBeforeTheRelease) {
  open();
  EXPECT_FALSE(registrar_->traits().unpin_before_release);
  fake_verbs::set_fork_status(IBV_FORK_ENABLED);
  EXPECT_FALSE(registrar_->traits().unpin_before_release) << "constant for its lifetime";
  ASSERT_EQ(IbvRegistrar::open(nullptr, &registrar_), Status::kOk);
  EXPECT_TRUE(registrar_->traits().unpin_before_release);
  // The kernel copies pinned pages at a fork: the library changes no memory.
  fake_verbs::set_fork_status(IBV_FORK_UNNEEDED);
  ASSERT_EQ(IbvRegistrar::open(nullptr, &registrar_), Status::kOk);
  EXPECT_FALSE(registrar_->traits().unpin_before_release);
}

TEST_F(IbvRegistrarTest, ZeroLimitsMeanUnlimited) {
  open({.max_mr_size = 0, .max_mr = 0});
  EXPECT_GE(registrar_->traits().max_region_bytes, SIZE_MAX - 0xffff);
  EXPECT_EQ(registrar_->traits().max_regions, UINT64_MAX);
}

TEST_F(IbvRegistrarTest, OldProviderIsQueriedThePlainWay) {
  open({.max_mr = 5, .odp = true, .implicit_odp = true, .extended = false});
  EXPECT_EQ(registrar_->traits().max_regions, 5U);
  Key key;
  EXPECT_EQ(registrar_->implicit_key(Access::kLocalRead, key.bytes), Status::kUnsupported);
}

// ---- a caller's protection domain

TEST_F(IbvRegistrarTest, BorrowedDomainIsUsedAndNotFreed) {
  fake_verbs::add_device({});
  ibv_context* context = fake_verbs::open_first();
  ibv_pd* pd = fake_verbs::alloc_pd(context);
  ASSERT_EQ(IbvRegistrar::create(pd, &registrar_), Status::kOk);
  EXPECT_EQ(registrar_->protection_domain(), pd);
  Key key;
  ASSERT_EQ(pin(kRange, Access::kLocalWrite, &key), Status::kOk);
  EXPECT_EQ(key.value().mr->pd, pd);
  EXPECT_EQ(unpin(key), UnpinResult::kDone);
  registrar_.reset();
  EXPECT_EQ(fake_verbs::live().pds, 1U);
  fake_verbs::close(context, pd);
}

// The client may read the device's events by a signal.
TEST_F(IbvRegistrarTest, SignalsOfABorrowedContextStayTheClients) {
  fake_verbs::add_device({});
  ibv_context* context = fake_verbs::open_first();
  ibv_pd* pd = fake_verbs::alloc_pd(context);
  const int before = SIGRTMIN + 1;
  ASSERT_EQ(fcntl(context->async_fd, F_SETSIG, before), 0);
  ASSERT_EQ(IbvRegistrar::create(pd, &registrar_), Status::kOk);
  EXPECT_EQ(fcntl(context->async_fd, F_GETSIG), before);
  EXPECT_EQ(fcntl(context->cmd_fd, F_GETSIG), 0);
  const int later = SIGRTMIN + 2;
  ASSERT_EQ(fcntl(context->async_fd, F_SETSIG, later), 0);
  ASSERT_EQ(fcntl(context->cmd_fd, F_SETSIG, later), 0);
  Key key;
  ASSERT_EQ(pin(kRange, Access::kLocalWrite, &key), Status::kOk) << last_error_text();
  EXPECT_EQ(unpin(key), UnpinResult::kDone);
  EXPECT_EQ(fcntl(context->async_fd, F_GETSIG), later);
  registrar_.reset();
  fake_verbs::close(context, pd);
}

TEST_F(IbvRegistrarTest, ClosedDescriptorOfABorrowedContextIsNoticedAndNotWritten) {
  fake_verbs::add_device({});
  ibv_context* context = fake_verbs::open_first();
  ibv_pd* pd = fake_verbs::alloc_pd(context);
  ASSERT_EQ(IbvRegistrar::create(pd, &registrar_), Status::kOk);
  Key key;
  ASSERT_EQ(pin(kRange, Access::kLocalWrite, &key), Status::kOk);
  const int commands = context->cmd_fd;
  const int saved = fcntl(commands, F_DUPFD_CLOEXEC, 0);
  const int file = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ASSERT_EQ(dup3(file, commands, O_CLOEXEC), commands);
  const uint64_t calls = fake_verbs::calls(Call::kRegMr) + fake_verbs::calls(Call::kDeregMr);
  Key other;
  EXPECT_EQ(pin(kRange, Access::kLocalWrite, &other), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("has closed its descriptors"));
  EXPECT_EQ(unpin(key), UnpinResult::kBroken);
  EXPECT_EQ(fake_verbs::calls(Call::kRegMr) + fake_verbs::calls(Call::kDeregMr), calls);
  EXPECT_EQ(context->cmd_fd, commands);
  // The client puts its descriptor back.
  ASSERT_EQ(dup3(saved, commands, O_CLOEXEC), commands);
  ::close(saved);
  ::close(file);
  EXPECT_EQ(unpin(key), UnpinResult::kDone) << last_error_text();
  registrar_.reset();
  fake_verbs::close(context, pd);
}

// A sanitizer sees a use of the released one.
TEST_F(IbvRegistrarTest, BorrowedDomainWithoutRegistrationsMayBeReleasedFirst) {
  fake_verbs::add_device({});
  ibv_context* context = fake_verbs::open_first();
  ibv_pd* pd = fake_verbs::alloc_pd(context);
  ASSERT_EQ(IbvRegistrar::create(pd, &registrar_), Status::kOk);
  fake_verbs::close(context, pd);
  registrar_.reset();
}

TEST_F(IbvRegistrarTest, NullDomainIsABadArgument) {
  EXPECT_EQ(IbvRegistrar::create(nullptr, &registrar_), Status::kBadArg);
  EXPECT_EQ(registrar_, nullptr);
}

TEST_F(IbvRegistrarTest, BorrowedDomainOfASilentDeviceIsUnsupported) {
  fake_verbs::add_device({});
  ibv_context* context = fake_verbs::open_first();
  ibv_pd* pd = fake_verbs::alloc_pd(context);
  fake_verbs::fail_call(Call::kQueryDevice, ENODEV);
  EXPECT_EQ(IbvRegistrar::create(pd, &registrar_), Status::kUnsupported);
  EXPECT_EQ(registrar_, nullptr);
  fake_verbs::close(context, pd);
}

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

// ---- fork

// Runs `body` in the child of a fork; true if it answered true.
template <typename Body>
bool in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(IbvRegistrarTest, ChildClosesTheDescriptorsAndOpensTheDeviceAgain) {
  open({.odp = true, .implicit_odp = true});
  Key key;
  ASSERT_EQ(pin(kRange, Access::kLocalWrite, &key), Status::kOk);
  const int fd = fake_verbs::command_fd(registrar_->protection_domain());
  EXPECT_TRUE(in_child([&] {
    registrar_->forget_in_child();
    const bool closed = fcntl(fd, F_GETFD) == -1 && errno == EBADF;
    const bool forgotten = registrar_->protection_domain() == nullptr;
    Key fresh;
    const bool pinned = pin(kRange, Access::kLocalWrite, &fresh) == Status::kOk;
    const bool implicit = registrar_->implicit_key(Access::kLocalRead, fresh.bytes) == Status::kOk;
    return closed && forgotten && pinned && implicit && fake_verbs::calls(Call::kOpenDevice) == 2;
  }));
  EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC) << "the parent keeps its descriptor";
  EXPECT_EQ(unpin(key), UnpinResult::kDone);
}

TEST_F(IbvRegistrarTest, ChildWithoutItsDeviceIsBroken) {
  open();
  EXPECT_TRUE(in_child([&] {
    registrar_->forget_in_child();
    fake_verbs::fail_call(Call::kOpenDevice, EACCES);
    Key key;
    const bool broken = pin(kRange, Access::kLocalWrite, &key) == Status::kBroken;
    const bool said =
        std::strstr(last_error_text(), "opening the device again after a fork") != nullptr;
    return broken && said && pin(kRange, Access::kLocalWrite, &key) == Status::kOk;
  }));
}

TEST_F(IbvRegistrarTest, ChildCannotUseABorrowedDomain) {
  fake_verbs::add_device({});
  ibv_context* context = fake_verbs::open_first();
  ibv_pd* pd = fake_verbs::alloc_pd(context);
  ASSERT_EQ(IbvRegistrar::create(pd, &registrar_), Status::kOk);
  const int fd = fake_verbs::command_fd(pd);
  EXPECT_TRUE(in_child([&] {
    registrar_->forget_in_child();
    Key key;
    const bool refused = pin(kRange, Access::kLocalWrite, &key) == Status::kNotInit;
    return refused && fcntl(fd, F_GETFD) != -1;  // the descriptor is the caller's to close
  }));
  registrar_.reset();
  fake_verbs::close(context, pd);
}

}  // namespace
}  // namespace hydrant
