// The uring registrar across processes: an ordinary user's limit, forks, and what a child may keep.
#include <hydrant/pin_cache.h>

#include "firehose/registrars/charge/memlock.hpp"
#include "firehose/registrars/registrar_factory.hpp"
#include "firehose/registrars/uring/uring_ring.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/mapped_memory.hpp"
#include "tests/support/recording_registrar.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/registrars/counted_pins.hpp"
#include "tests/unit/firehose/registrars/error_text.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <dirent.h>
#include <fcntl.h>
#include <functional>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant {
namespace {

using testing::ChildKind;
using testing::HeldPin;
using testing::Key;
using testing::kPageBytes;
using testing::MappedPages;
using testing::run_in_child;
using testing::says;
using testing::TestFile;
using testing::wait_until;

constexpr uint64_t kRingLimit = uint64_t{8} << 20;
constexpr size_t kPinBytes = 16 * kPageBytes;

// Without an allocation: another thread may have locked AddressSanitizer's allocator before a child was made.
size_t open_rings() {
  const int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return 0;
  size_t rings = 0;
  alignas(dirent64) std::array<char, 4096> entries;
  for (;;) {
    const long bytes = syscall(SYS_getdents64, folder, entries.data(), entries.size());
    if (bytes <= 0) break;
    for (long at = 0; at < bytes;) {
      const void* here = entries.data() + at;
      const auto* entry = static_cast<const dirent64*>(here);
      char target[64] = "";
      if (readlinkat(folder, entry->d_name, target, sizeof target - 1) > 0 &&
          std::strstr(target, "io_uring") != nullptr) {
        ++rings;
      }
      at += entry->d_reclen;
    }
  }
  close(folder);
  return rings;
}

// Pins pieces of `memory` until a pin fails; returns the status of that pin.
Status pin_until_refused(UringRegistrar& uring, const MappedPages& memory,
                         std::vector<HeldPin>& pins) {
  auto status = Status::kOk;
  for (size_t at = 0; status == Status::kOk && at < memory.size(); at += kPinBytes) {
    HeldPin pin{memory.pages(at / kPageBytes, kPinBytes / kPageBytes), {}};
    status = uring.pin(pin.range, Access::kAll, pin.key.data());
    if (status == Status::kOk) pins.push_back(pin);
  }
  return status;
}

std::string exhaust_as_ordinary_user() {
  std::string error = testing::become_ordinary_user(kRingLimit);
  if (!error.empty()) return error;
  const auto uring = testing::try_uring();
  if (uring == nullptr) return last_error_text();
  const RegistrarTraits& traits = uring->traits();
  // Rings take a sixteenth at most.
  if (traits.max_charge_bytes > kRingLimit || traits.max_charge_bytes < kRingLimit / 16 * 15) {
    return "the limit was not noticed";
  }
  if (traits.charge_scope != ChargeScope::kUser) return "the scope is not the user";
  MappedPages memory(2 * kRingLimit);
  memory.fill('A');
  std::vector<HeldPin> pins;
  if (pin_until_refused(*uring, memory, pins) != Status::kNotReady)
    return "exhaustion is not 'not now'";
  if (!says("RLIMIT_MEMLOCK is 8388608 bytes") || !says("ulimit -l")) return last_error_text();
  // The probe's pages may still be charged on kernels that release charges late.
  if (pins.size() > kRingLimit / kPinBytes) return "more was pinned than the limit allows";
  if (pins.size() < kRingLimit / kPinBytes - 8)
    return "only " + std::to_string(pins.size()) + " pins";
  Key key;
  if (uring->pin(memory.all(), Access::kAll, key.data()) != Status::kResource) {
    return "more than the limit is not a matter of resources";
  }
  if (uring->unpin(pins[0].range, pins[0].key.data()) == UnpinResult::kBroken) return "unpin";
  if (!wait_until([&] { return uring->pending_charge() == 0; }))
    return "the charge is still pending";
  // The tag is posted a moment before the charge is back.
  const auto pin_again = [&] {
    return uring->pin(pins[0].range, Access::kAll, key.data()) == Status::kOk;
  };
  if (!wait_until(pin_again)) return "given back, but not usable";
  return "";
}

TEST(UringProcess, OrdinaryUserGetsTheLimitToRaise) {
  HYDRANT_URING_OR_SKIP(uring);
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become a user of its own";
  EXPECT_EQ(run_in_child(exhaust_as_ordinary_user), "");
}

// A cache over uring, and more memory than two processes can have pinned under kRingLimit.
class SharerOfTheLimit {
 public:
  std::string create() {
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.registrar_name = "uring";
    return hydrant_domain_create(&options, &domain_) == GASNET_OK ? "" : hydrant_error_text();
  }
  // The status of a pin, which is released again.
  int use(uint64_t timeout_ns) {
    const hydrant_pin_t pin =
        hydrant_pin_wait(domain_, memory_.data(), memory_.size(), HYDRANT_LOCAL_WRITE, timeout_ns);
    return pin.region != nullptr ? hydrant_release(pin) : hydrant_pin_status(pin);
  }
  void unmap() { munmap(memory_.data(), memory_.size()); }

 private:
  hydrant_domain_t domain_ = 0;
  MappedPages memory_{kRingLimit / 8 * 5};
};

// The first process pins, releases its memory, and makes no more calls; the second one is its child.
std::string second_process_is_served() {
  std::string error = testing::become_ordinary_user(kRingLimit);
  if (!error.empty()) return error;
  int pinned[2], refused[2];
  if (pipe(pinned) != 0 || pipe(refused) != 0) return "no pipe";
  char byte = 0;
  const pid_t second = fork();
  if (second == 0) {
    SharerOfTheLimit sharer;
    const bool refused_first = read(pinned[0], &byte, 1) == 1 && sharer.create().empty() &&
                               sharer.use(0) == GASNET_ERR_NOT_READY;
    if (write(refused[1], "r", 1) != 1 || !refused_first) _exit(2);
    constexpr uint64_t kMaxNs = 10'000'000'000;
    _exit(sharer.use(static_cast<uint64_t>(testing::patience() * kMaxNs)) == GASNET_OK ? 0 : 1);
  }
  SharerOfTheLimit sharer;
  error = sharer.create();
  if (error.empty() && sharer.use(0) != GASNET_OK) error = hydrant_error_text();
  if (write(pinned[1], "p", 1) != 1 || read(refused[0], &byte, 1) != 1) return "no pipe";
  sharer.unmap();
  int end = 0;
  waitpid(second, &end, 0);
  if (!error.empty()) return error;
  if (WIFEXITED(end) && WEXITSTATUS(end) == 2) return "both fit under the limit";
  return end == 0 ? "" : "the second process was not served";
}

TEST(UringProcess, SecondProcessCanPinWhatTheFirstReleased) {
  HYDRANT_URING_OR_SKIP(uring);
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become a user of its own";
  HYDRANT_NEEDS_USERFAULTFD();
  EXPECT_EQ(run_in_child(second_process_is_served), "");
}

// Rings take their part of the account before pins do.
std::string pin_all_that_is_promised() {
  constexpr uint64_t kSmall = 64 * 1024;
  std::string error = testing::become_ordinary_user(kSmall);
  if (!error.empty()) return error;
  const auto uring = testing::try_uring();
  if (uring == nullptr) return last_error_text();
  const uint64_t promised = uring->traits().max_charge_bytes;
  if (promised > kSmall || promised < kSmall / 2) return "promised " + std::to_string(promised);
  MappedPages memory(promised);
  memory.fill('A');
  for (size_t page = 0; page < promised / kPageBytes; ++page) {
    Key key;
    const auto pinned = [&] {
      return uring->pin(memory.pages(page, 1), Access::kAll, key.data()) == Status::kOk;
    };
    // The probe's pages may still be charged on kernels that release charges late.
    if (!wait_until(pinned)) return last_error_text();
  }
  return "";
}

TEST(UringProcess, ReportedSmallLimitCanBePinned) {
  HYDRANT_URING_OR_SKIP(uring);
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become a user of its own";
  EXPECT_EQ(run_in_child(pin_all_that_is_promised), "");
}

TEST(UringProcess, WithoutLockedMemoryItIsUnusableWithAReason) {
  HYDRANT_URING_OR_SKIP(uring);
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become a user of its own";
  EXPECT_EQ(run_in_child([]() -> std::string {
              std::string error = testing::become_ordinary_user(0);
              if (!error.empty()) return error;
              auto status = Status::kOk;
              if (make_uring_registrar({}, &status) != nullptr) return "it was made";
              if (status != Status::kUnsupported) return "another status";
              if (!says("RLIMIT_MEMLOCK is 0 bytes: raise it")) return last_error_text();
              NamedRegistrar named;
              if (make_registrar("auto", &named) != Status::kUnsupported) return "auto was made";
              return says("uring") && says("mlock") ? "" : last_error_text();
            }),
            "");
}

TEST(UringProcess, ChildClosesTheRingsAndTheParentsPinsStayUsable) {
  HYDRANT_URING_OR_SKIP(uring);
  MappedPages memory(4 * kPageBytes);
  memory.fill('A');
  Key key;
  ASSERT_EQ(uring->pin(memory.all(), Access::kAll, key.data()), Status::kOk);
  EXPECT_GE(open_rings(), 1u);
  EXPECT_EQ(run_in_child([&]() -> std::string {
              uring->forget_in_child();
              if (open_rings() != 0) return "a ring is still open";
              if (uring->unpin(memory.all(), key.data()) != UnpinResult::kBroken) {
                return "the parent's key works in the child";
              }
              Key own;
              if (uring->pin(memory.all(), Access::kAll, own.data()) != Status::kOk) {
                return std::string("the child cannot pin: ") + last_error_text();
              }
              std::memset(memory.data(), 'C', kPageBytes);
              TestFile file;
              if (uring->move(own.data(), memory.all(), file.fd(), 0, true) != Status::kOk ||
                  file.read(kPageBytes) != std::string(kPageBytes, 'C')) {
                return "the child's pin is not the child's memory";
              }
              if (uring->unpin(memory.all(), own.data()) == UnpinResult::kBroken) return "unpin";
              return "";
            }),
            "");
  TestFile file;
  EXPECT_EQ(uring->move(key.data(), memory.all(), file.fd(), 0, true), Status::kOk);
  EXPECT_EQ(file.read(kPageBytes), std::string(kPageBytes, 'A'));
  EXPECT_NE(uring->unpin(memory.all(), key.data()), UnpinResult::kBroken);
}

TEST(UringProcess, ChildThatDestroysItsCopyLeavesTheParentAlone) {
  auto uring = testing::try_uring();
  if (uring == nullptr) GTEST_SKIP() << "no uring here: " << last_error_text();
  MappedPages memory(kPageBytes);
  memory.fill('A');
  Key key;
  ASSERT_EQ(uring->pin(memory.all(), Access::kAll, key.data()), Status::kOk);
  EXPECT_EQ(run_in_child([&] {
              uring.reset();  // without forget_in_child(), as after a raw clone
              return std::string(open_rings() == 0 ? "" : "a ring is still open");
            }),
            "");
  TestFile file;
  EXPECT_EQ(uring->move(key.data(), memory.all(), file.fd(), 0, true), Status::kOk);
  EXPECT_NE(uring->unpin(memory.all(), key.data()), UnpinResult::kBroken);
}

TEST(UringProcess, ForkClosesEveryRingDuringOpenAndClose) {
  HYDRANT_URING_OR_SKIP(uring);
  std::atomic<bool> stop{false};
  std::atomic<int> made{0}, failed{0};
  testing::Threads threads;
  for (int i = 0; i < 2; ++i) {
    threads.start([&] {
      while (!stop.load()) {
        UringFailure failure;
        ++(UringRing::open(64, false, &failure) != nullptr ? made : failed);
      }
    });
  }
  std::string wrong;
  for (int i = 0; i < 200 && wrong.empty(); ++i) {
    // No forget_in_child(): the rings of the threads are not recorded.
    wrong = run_in_child([] { return std::string(open_rings() == 0 ? "" : "a ring is open"); },
                         ChildKind::kForkAtOnce);
  }
  stop.store(true);
  threads.join();
  EXPECT_EQ(wrong, "");
  EXPECT_GT(made.load(), 0);
  EXPECT_EQ(failed.load(), 0);
  MappedPages memory(kPageBytes);
  Key key;
  ASSERT_EQ(uring->pin(memory.all(), Access::kAll, key.data()), Status::kOk) << last_error_text();
  EXPECT_NE(uring->unpin(memory.all(), key.data()), UnpinResult::kBroken);
}

TEST(UringProcess, BareCloneMayCreateARegistrarFirst) {
  HYDRANT_URING_OR_SKIP(inherited);
  MappedPages memory(kPageBytes);
  memory.fill('A');
  const auto child = [&]() -> std::string {
    const auto own = testing::try_uring();
    if (own == nullptr) return last_error_text();
    Key key;
    if (own->pin(memory.all(), Access::kAll, key.data()) != Status::kOk) return last_error_text();
    inherited->forget_in_child();
    if (open_rings() != 1) return std::to_string(open_rings()) + " rings are open, not its own";
    TestFile file;
    if (own->move(key.data(), memory.all(), file.fd(), 0, true) != Status::kOk) {
      return last_error_text();
    }
    return own->unpin(memory.all(), key.data()) != UnpinResult::kBroken ? "" : "unpin";
  };
  EXPECT_EQ(run_in_child(child, ChildKind::kRawClone), "");
}

TEST(UringProcess, BareCloneClosesTheRingsAndCreatesItsOwn) {
  HYDRANT_URING_OR_SKIP(first);
  HYDRANT_URING_OR_SKIP(second);
  MappedPages memory(kPageBytes);
  memory.fill('A');
  EXPECT_EQ(run_in_child(
                [&]() -> std::string {
                  if (open_rings() != 2) return "the child inherits no rings: nothing is shown";
                  Key key;
                  first->forget_in_child();
                  if (open_rings() != 0) return "a ring is still open";
                  if (first->pin(memory.all(), Access::kAll, key.data()) != Status::kOk) {
                    return last_error_text();
                  }
                  second->forget_in_child();
                  if (open_rings() != 1) return "forgetting the second closed the child's own ring";
                  return first->unpin(memory.all(), key.data()) != UnpinResult::kBroken ? ""
                                                                                        : "unpin";
                },
                ChildKind::kRawClone),
            "");
}

// A user's process fills the account, forks, and exits; its child keeps running. Whether the account is free
// again depends on what the child did with the rings.
class OrphanAccount {
 public:
  // Runs in a child of the test, as a user of its own. "" or what went wrong; *usable says whether the
  // account could be filled again within `longest`.
  static std::string run(bool child_forgets, std::chrono::nanoseconds longest, bool* usable) {
    std::string error = testing::become_ordinary_user(kRingLimit);
    if (!error.empty()) return error;
    int orphan_end[2], ready[2];
    if (pipe(orphan_end) != 0 || pipe(ready) != 0) return "no pipe";
    const pid_t middle = fork();
    if (middle == 0) fill_and_die(child_forgets, orphan_end, ready[1]);
    close(ready[1]);
    char byte = 0;
    pollfd waiting{ready[0], POLLIN, 0};
    const bool started = poll(&waiting, 1, static_cast<int>(20'000 * testing::patience())) == 1 &&
                         read(ready[0], &byte, 1) == 1;
    waitpid(middle, nullptr, 0);
    if (!started || byte != 'k') return "the account was not filled";
    *usable = testing::happens_within(longest, can_fill);
    close(orphan_end[1]);  // ends the orphan
    close(orphan_end[0]);
    return "";
  }

 private:
  [[noreturn]] static void fill_and_die(bool child_forgets, const int* orphan_end, int ready) {
    const auto uring = testing::try_uring();
    MappedPages memory(2 * kRingLimit);
    memory.fill('A');
    std::vector<HeldPin> pins;
    const bool full =
        uring != nullptr && pin_until_refused(*uring, memory, pins) == Status::kNotReady;
    // fork() closes the rings by itself; the child of a bare clone has to call forget_in_child().
    const auto orphan =
        static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0));
    if (orphan == 0) {
      close(orphan_end[1]);
      if (child_forgets) uring->forget_in_child();
      if (write(ready, full ? "k" : "n", 1) != 1) _exit(1);
      close(ready);
      pollfd until{orphan_end[0], POLLIN, 0};
      poll(&until, 1, -1);
      _exit(0);
    }
    close(ready);
    // Exits without destructors, as if killed. The orphan reports first, so that its copy exists by then.
    if (orphan > 0) usleep(1000);
    _exit(0);
  }

  static bool can_fill() {
    const auto uring = testing::try_uring();
    if (uring == nullptr) return false;
    MappedPages memory(kRingLimit / 2);
    memory.fill('B');
    Key key;
    return uring->pin(memory.all(), Access::kAll, key.data()) == Status::kOk;
  }
};

TEST(UringProcess, ChildWithoutTheRingsKeepsNoCharges) {
  HYDRANT_URING_OR_SKIP(uring);
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become a user of its own";
  EXPECT_EQ(run_in_child([]() -> std::string {
              bool usable = false;
              const auto error =
                  OrphanAccount::run(true, testing::patiently(testing::kDeadline), &usable);
              return !error.empty() ? error : usable ? "" : "the pins stay charged";
            }),
            "");
}

// Shows that the test above can fail.
TEST(UringProcess, ChildWithTheRingsKeepsTheCharges) {
  HYDRANT_URING_OR_SKIP(uring);
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become a user of its own";
  EXPECT_EQ(run_in_child([]() -> std::string {
              bool usable = true;
              const auto error = OrphanAccount::run(false, std::chrono::seconds(2), &usable);
              return !error.empty() ? error : usable ? "the pins were given back" : "";
            }),
            "");
}

TEST(UringProcess, DestructorReleasesTheChargeBeforeItReturns) {
  auto uring = testing::try_uring();
  if (uring == nullptr) GTEST_SKIP() << "no uring here: " << last_error_text();
  HYDRANT_COUNTED_PINS_OR_SKIP();
  const uint64_t before = testing::pinned_bytes();
  MappedPages memory(32 * kPageBytes);
  memory.fill('A');
  Key key;
  ASSERT_EQ(uring->pin(memory.all(), Access::kAll, key.data()), Status::kOk);
  EXPECT_EQ(testing::pinned_bytes(), before + memory.size());
  uring.reset();
  EXPECT_LE(testing::pinned_bytes(), before);
}

}  // namespace
}  // namespace hydrant
