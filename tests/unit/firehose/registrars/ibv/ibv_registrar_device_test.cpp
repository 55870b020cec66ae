// The registrar of verbs and its device: opened by its name, borrowed from a client, or lost in a child of a
// fork.
#include "firehose/base/machine/machine_limits.hpp"
#include "firehose/registrars/ibv/ibv_registrar.hpp"
#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/unit/firehose/registrars/ibv/registrar_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant {
namespace {

using fake_verbs::Call;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IbvRegistrarTest;
using testing::kRange;
using Key = testing::IbvKeyBytes;

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
  fake_verbs::set_fork_status(IBV_FORK_DISABLED);
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

TEST_F(IbvRegistrarTest, ForkProtectionThatIsActivatedLaterIsOneWarning) {
  fake_verbs::set_fork_status(IBV_FORK_DISABLED);
  open();
  ASSERT_EQ(ibv_fork_init(), 0);
  for (const bool first : {true, false}) {
    Key key;
    ::testing::internal::CaptureStderr();
    ASSERT_EQ(pin(kRange, Access::kLocalWrite, &key), Status::kOk);
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(log.find("ibv_fork_init() was called after the registrar") != log.npos, first) << log;
    EXPECT_EQ(unpin(key), UnpinResult::kDone);
  }
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
  borrow();
  EXPECT_EQ(registrar_->protection_domain(), pd_);
  Key key;
  ASSERT_EQ(pin(kRange, Access::kLocalWrite, &key), Status::kOk);
  EXPECT_EQ(key.value().mr->pd, pd_);
  EXPECT_EQ(unpin(key), UnpinResult::kDone);
  registrar_.reset();
  EXPECT_EQ(fake_verbs::live().pds, 1U);
  close_lent();
}

// The client may read the device's events by a signal.
TEST_F(IbvRegistrarTest, SignalsOfABorrowedContextStayTheClients) {
  lend();
  const int before = SIGRTMIN + 1;
  ASSERT_EQ(fcntl(context_->async_fd, F_SETSIG, before), 0);
  ASSERT_EQ(IbvRegistrar::create(pd_, &registrar_), Status::kOk);
  EXPECT_EQ(fcntl(context_->async_fd, F_GETSIG), before);
  EXPECT_EQ(fcntl(context_->cmd_fd, F_GETSIG), 0);
  const int later = SIGRTMIN + 2;
  ASSERT_EQ(fcntl(context_->async_fd, F_SETSIG, later), 0);
  ASSERT_EQ(fcntl(context_->cmd_fd, F_SETSIG, later), 0);
  Key key;
  ASSERT_EQ(pin(kRange, Access::kLocalWrite, &key), Status::kOk) << last_error_text();
  EXPECT_EQ(unpin(key), UnpinResult::kDone);
  EXPECT_EQ(fcntl(context_->async_fd, F_GETSIG), later);
  registrar_.reset();
  close_lent();
}

TEST_F(IbvRegistrarTest, ClosedDescriptorOfABorrowedContextIsNoticedAndNotWritten) {
  borrow();
  Key key;
  ASSERT_EQ(pin(kRange, Access::kLocalWrite, &key), Status::kOk);
  const int commands = context_->cmd_fd;
  const int saved = fcntl(commands, F_DUPFD_CLOEXEC, 0);
  const int file = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ASSERT_EQ(dup3(file, commands, O_CLOEXEC), commands);
  const uint64_t calls = fake_verbs::calls(Call::kRegMr) + fake_verbs::calls(Call::kDeregMr);
  Key other;
  EXPECT_EQ(pin(kRange, Access::kLocalWrite, &other), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("has closed its descriptors"));
  EXPECT_EQ(unpin(key), UnpinResult::kBroken);
  EXPECT_EQ(fake_verbs::calls(Call::kRegMr) + fake_verbs::calls(Call::kDeregMr), calls);
  EXPECT_EQ(context_->cmd_fd, commands);
  // The client puts its descriptor back.
  ASSERT_EQ(dup3(saved, commands, O_CLOEXEC), commands);
  ::close(saved);
  ::close(file);
  EXPECT_EQ(unpin(key), UnpinResult::kDone) << last_error_text();
  registrar_.reset();
  close_lent();
}

// A sanitizer sees a use of the released one.
TEST_F(IbvRegistrarTest, BorrowedDomainWithoutRegistrationsMayBeReleasedFirst) {
  borrow();
  close_lent();
  registrar_.reset();
}

TEST_F(IbvRegistrarTest, NullDomainIsABadArgument) {
  EXPECT_EQ(IbvRegistrar::create(nullptr, &registrar_), Status::kBadArg);
  EXPECT_EQ(registrar_, nullptr);
}

TEST_F(IbvRegistrarTest, BorrowedDomainOfASilentDeviceIsUnsupported) {
  lend();
  fake_verbs::fail_call(Call::kQueryDevice, ENODEV);
  EXPECT_EQ(IbvRegistrar::create(pd_, &registrar_), Status::kUnsupported);
  EXPECT_EQ(registrar_, nullptr);
  close_lent();
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
  borrow();
  const int fd = fake_verbs::command_fd(pd_);
  EXPECT_TRUE(in_child([&] {
    registrar_->forget_in_child();
    Key key;
    const bool refused = pin(kRange, Access::kLocalWrite, &key) == Status::kNotInit;
    return refused && fcntl(fd, F_GETFD) != -1;  // the descriptor is the caller's to close
  }));
  registrar_.reset();
  close_lent();
}

}  // namespace
}  // namespace hydrant
