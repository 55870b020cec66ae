// A program closes the rings' descriptors and opens files under their numbers: the registrar does not touch
// these files, and pins continue.
#include <hydrant/pin_cache.h>

#include "firehose/registrars/charge/memlock.hpp"
#include "firehose/registrars/uring/uring_forks.hpp"
#include "firehose/registrars/uring/uring_pool.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/descriptors.hpp"
#include "tests/support/fstat_call.hpp"
#include "tests/support/mapped_memory.hpp"
#include "tests/support/recording_registrar.hpp"
#include "tests/unit/firehose/registrars/counted_pins.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gtest/gtest.h>
#include <liburing.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace hydrant {
namespace {

using testing::ChildKind;
using testing::inode_of;
using testing::is_open;
using testing::Key;
using testing::kPageBytes;
using testing::MappedPages;
using testing::OwnDescriptors;
using testing::pinned_bytes;
using testing::pins_are_counted;
using testing::refuse_system_call;
using testing::run_in_child;
using testing::TestFile;
using testing::wait_until;

// A ring of the program's own, with a buffer in each of its first slots.
class ProgramsRing {
 public:
  static constexpr unsigned kBuffers = 4;

  ProgramsRing() {
    memory_.fill('P');
    if (io_uring_queue_init(4, &ring_, 0) != 0) return;
    iovec buffers[kBuffers];
    for (unsigned i = 0; i < kBuffers; ++i) {
      buffers[i] = {memory_.data() + i * kPageBytes, kPageBytes};
    }
    good_ = io_uring_register_buffers(&ring_, buffers, kBuffers) == 0;
  }
  ~ProgramsRing() { io_uring_queue_exit(&ring_); }
  ProgramsRing(const ProgramsRing&) = delete;
  ProgramsRing& operator=(const ProgramsRing&) = delete;

  int fd() const { return ring_.ring_fd; }
  // Each buffer is still registered: the kernel writes from it.
  bool works() {
    TestFile file;
    for (unsigned i = 0; good_ && i < kBuffers; ++i) {
      io_uring_sqe* entry = io_uring_get_sqe(&ring_);
      io_uring_prep_write_fixed(entry, file.fd(), memory_.data() + i * kPageBytes, kPageBytes, 0,
                                static_cast<int>(i));
      io_uring_cqe* completion = nullptr;
      if (io_uring_submit(&ring_) != 1 || io_uring_wait_cqe(&ring_, &completion) != 0) return false;
      const int written = completion->res;
      io_uring_cqe_seen(&ring_, completion);
      if (written != static_cast<int>(kPageBytes)) return false;
    }
    return good_;
  }

 private:
  MappedPages memory_{kBuffers * kPageBytes};
  io_uring ring_{};
  bool good_ = false;
};

// Closes what is not the program's own, and opens its rings under the numbers.
class Closer {
 public:
  void close_and_fill() {
    numbers_ = own_.close_others();
    (void)OwnDescriptors::fill(numbers_, [&] {
      rings_.push_back(std::make_unique<ProgramsRing>());
      return rings_.back()->fd();
    });
  }
  const std::vector<int>& numbers() const { return numbers_; }
  bool all_work() {
    for (const auto& ring : rings_) {
      if (!ring->works()) return false;
    }
    return !rings_.empty();
  }
  uint64_t pinned() const { return rings_.size() * ProgramsRing::kBuffers * kPageBytes; }

 private:
  OwnDescriptors own_;
  std::vector<int> numbers_;
  std::vector<std::unique_ptr<ProgramsRing>> rings_;
};

std::string pin_over_lost_rings() {
  Closer closer;
  auto uring = testing::try_uring();
  if (uring == nullptr) return last_error_text();
  const uint64_t before = pinned_bytes();
  MappedPages memory(32 * kPageBytes);
  memory.fill('A');
  Key first, second, third;
  if (uring->pin(memory.pages(0, 8), Access::kAll, first.data()) != Status::kOk ||
      uring->pin(memory.pages(8, 8), Access::kAll, second.data()) != Status::kOk) {
    return "pin";
  }
  closer.close_and_fill();
  if (closer.numbers().empty()) return "no descriptor was closed";
  if (!closer.all_work()) return "the program's rings do not work at first";
  const bool counted = pins_are_counted();
  const auto pinned_is = [&](size_t pages) {
    return !counted || pinned_bytes() == before + closer.pinned() + pages * kPageBytes;
  };
  if (!pinned_is(16)) return "a lost ring has let its memory go";
  if (uring->unpin(memory.pages(0, 8), first.data()) != UnpinResult::kPending) return "not pending";
  if (uring->losses() != 1) return "the loss is not told";
  if (uring->pending_charge() < 8 * kPageBytes) return "nothing is pending";
  if (!closer.all_work()) return "unpin() has cleared a buffer of the program's";
  if (uring->pin(memory.pages(16, 8), Access::kAll, third.data()) != Status::kOk) {
    return std::string("no pin after the loss: ") + last_error_text();
  }
  if (!closer.all_work()) return "pin() has changed a buffer of the program's";
  if (uring->unpin(memory.pages(0, 8), first.data()) != UnpinResult::kBroken)
    return "unpinned twice";
  if (uring->unpin(memory.pages(8, 8), second.data()) == UnpinResult::kBroken) return "unpin";
  if (!wait_until([&] { return pinned_is(8); })) return "a drained ring keeps its memory";
  if (uring->pending_charge() != 0) return "still pending";
  if (uring->unpin(memory.pages(16, 8), third.data()) != UnpinResult::kDone) return "last unpin";
  uring.reset();
  if (!closer.all_work()) return "the end of the registrar has closed a ring of the program's";
  for (const int number : closer.numbers()) {
    if (!is_open(number)) return "descriptor " + std::to_string(number) + " was closed";
  }
  return "";
}

TEST(UringLostRings, PinsContinueAndTheProgramsRingsStayOpen) {
  HYDRANT_URING_OR_SKIP(uring);
  EXPECT_EQ(run_in_child(pin_over_lost_rings), "");
}

TEST(UringLostRings, MoveIsRefusedWithTheReason) {
  HYDRANT_URING_OR_SKIP(uring);
  EXPECT_EQ(run_in_child([]() -> std::string {
              Closer closer;
              const auto own = testing::try_uring();
              MappedPages memory(4 * kPageBytes);
              memory.fill('A');
              Key key;
              if (own->pin(memory.all(), Access::kAll, key.data()) != Status::kOk) return "pin";
              closer.close_and_fill();
              TestFile file;
              if (own->move(key.data(), memory.all(), file.fd(), 0, true) != Status::kBroken) {
                return "moved";
              }
              const std::string text = last_error_text();
              if (text.find("closed the ring") == std::string::npos) return text;
              return closer.all_work() ? "" : "a ring of the program's was used";
            }),
            "");
}

// Loses rings with and without pins: idle rings are opened again, and the others are replaced.
TEST(UringLostRings, ManyLossesAreSurvived) {
  HYDRANT_URING_OR_SKIP(uring);
  EXPECT_EQ(run_in_child([]() -> std::string {
              const OwnDescriptors own;
              UringOptions options;
              options.max_rings = 2;
              auto many = testing::try_uring(options);
              if (many == nullptr) return last_error_text();
              MappedPages memory(2 * kPageBytes);
              memory.fill('A');
              Key held;
              if (many->pin(memory.pages(1, 1), Access::kAll, held.data()) != Status::kOk)
                return "";
              for (int i = 0; i < 200; ++i) {
                (void)own.close_others();
                Key key;
                if (many->pin(memory.pages(0, 1), Access::kAll, key.data()) != Status::kOk) {
                  return "pin " + std::to_string(i) + ": " + last_error_text();
                }
                if (many->unpin(memory.pages(0, 1), key.data()) != UnpinResult::kDone)
                  return "unpin";
              }
              if (many->unpin(memory.pages(1, 1), held.data()) == UnpinResult::kBroken)
                return "held";
              return many->rings() <= 4 ? "" : std::to_string(many->rings()) + " rings";
            }),
            "");
}

TEST(UringLostRings, ChildClosesNoForeignDescriptor) {
  HYDRANT_URING_OR_SKIP(uring);
  for (const ChildKind kind : {ChildKind::kFork, ChildKind::kRawClone}) {
    EXPECT_EQ(run_in_child([kind]() -> std::string {
                Closer closer;
                const auto own = testing::try_uring();
                if (own == nullptr) return last_error_text();
                closer.close_and_fill();
                std::vector<std::pair<int, ino_t>> files;
                for (const int number : closer.numbers()) {
                  files.emplace_back(number, inode_of(number));
                }
                return run_in_child(
                    [&]() -> std::string {
                      own->forget_in_child();
                      for (const auto& [number, inode] : files) {
                        if (inode_of(number) != inode)
                          return std::to_string(number) + " was closed";
                      }
                      MappedPages memory(kPageBytes);
                      Key key;
                      return own->pin(memory.all(), Access::kAll, key.data()) == Status::kOk
                                 ? ""
                                 : last_error_text();
                    },
                    kind);
              }),
              "");
  }
}

// Descriptors below 64, asked for by a call that no test here refuses.
std::vector<int> open_here() {
  std::vector<int> found;
  for (int fd = 0; fd < 64; ++fd) {
    if (lseek(fd, 0, SEEK_CUR) >= 0 || errno != EBADF) found.push_back(fd);
  }
  return found;
}

// The other call tells that the rings are open.
TEST(UringLostRings, ARefusedCheckIsNoLoss) {
  HYDRANT_URING_OR_SKIP(uring);
  for (const long number : {long{SYS_fcntl}, testing::kFstatCall}) {
    for (const bool before : {false, true}) {
      EXPECT_EQ(
          run_in_child([&]() -> std::string {
            const std::vector<int> open = open_here();
            MappedPages memory(2 * kPageBytes);
            TestFile file;
            std::string wrong;
            if (before) wrong = refuse_system_call(number, EPERM);
            auto own = testing::try_uring();
            if (own == nullptr) return last_error_text();
            Key first, second;
            if (own->pin(memory.pages(0, 1), Access::kAll, first.data()) != Status::kOk)
              return last_error_text();
            if (!before) wrong = refuse_system_call(number, EPERM);
            if (!wrong.empty()) return wrong;
            if (own->pin(memory.pages(1, 1), Access::kAll, second.data()) != Status::kOk ||
                own->move(second.data(), memory.pages(1, 1), file.fd(), 0, true) != Status::kOk) {
              return last_error_text();
            }
            if (own->unpin(memory.pages(0, 1), first.data()) != UnpinResult::kDone) return "unpin";
            if (own->losses() != 0) return "a loss";
            own.reset();
            std::vector<int> left = open_here();
            std::erase(left, file.fd());
            return left == open ? "" : "a descriptor stays open";
          }),
          "")
          << number << before;
    }
  }
}

TEST(UringLostRings, RefusedChecksAreNotTakenForAProgramThatCloses) {
  HYDRANT_URING_OR_SKIP(uring);
  EXPECT_EQ(run_in_child([]() -> std::string {
              MappedPages memory(kPageBytes);
              TestFile file;
              auto own = testing::try_uring();
              if (own == nullptr) return last_error_text();
              Key key, other;
              if (own->pin(memory.all(), Access::kAll, key.data()) != Status::kOk) return "pin";
              for (const long number : {long{SYS_fcntl}, testing::kFstatCall}) {
                if (std::string wrong = refuse_system_call(number, EPERM); !wrong.empty())
                  return wrong;
              }
              const auto says = [](const char* text) {
                return std::strstr(last_error_text(), text) != nullptr;
              };
              ::testing::internal::CaptureStderr();
              const Status pinned = own->pin(memory.all(), Access::kAll, other.data());
              const std::string log = ::testing::internal::GetCapturedStderr();
              if (log.find("fcntl() and fstat() of rings") == std::string::npos)
                return "log: " + log;
              if (pinned != Status::kResource || !says("no ring is left") || !says("fcntl"))
                return std::string("pin: ") + last_error_text();
              if (own->move(key.data(), memory.all(), file.fd(), 0, true) != Status::kBroken ||
                  !says("fcntl() and fstat() of the ring")) {
                return std::string("move: ") + last_error_text();
              }
              const std::vector<int> open = open_here();
              if (testing::try_uring() != nullptr || !says("fcntl"))
                return std::string("new: ") + last_error_text();
              return open_here() == open ? "" : "a descriptor that could not be noted stays open";
            }),
            "");
}

// Two files of one number have equal marks here, as two rings may have.
TEST(UringLostRings, NewRingReplacesTheRingWithItsDescriptor) {
  const TestFile file;
  const TestFile other_file;
  RingDescriptor first, second, other;
  first.fd = second.fd = file.fd();
  other.fd = other_file.fd();
  {
    MutexLock lock(open_rings_mutex());
    list_ring(&first);
    list_ring(&other);
  }
  EXPECT_TRUE(first.is_ours());
  {
    MutexLock lock(open_rings_mutex());
    list_ring(&second);
  }
  EXPECT_FALSE(first.is_ours());
  EXPECT_TRUE(second.is_ours());
  EXPECT_TRUE(other.is_ours());
  {
    MutexLock lock(open_rings_mutex());
    unlist_ring(&first);
    unlist_ring(&second);
    list_ring(&first);  // opened again under the number
    unlist_ring(&first);
    unlist_ring(&other);
  }
  EXPECT_TRUE(first.is_ours());
}

// Through the cache: cached regions are still hit, new memory is pinned, and unheld regions are unpinned.
TEST(UringLostRings, DomainContinues) {
  HYDRANT_URING_OR_SKIP(uring);
  EXPECT_EQ(run_in_child([]() -> std::string {
              Closer closer;
              hydrant_domain_options_t options;
              hydrant_domain_options_init(&options);
              options.registrar_name = "uring";
              options.watch = HYDRANT_WATCH_CLIENT;
              options.merge_bytes = 1;
              hydrant_domain_t domain{};
              const uint64_t before = pinned_bytes();
              if (hydrant_domain_create(&options, &domain) != GASNET_OK)
                return hydrant_error_text();
              constexpr size_t kPinned = 16;
              MappedPages memory(2 * kPinned * kPageBytes);
              memory.fill('A');
              const auto pin = [&](size_t page) {
                return hydrant_pin(domain, memory.data() + page * kPageBytes, kPageBytes,
                                   HYDRANT_LOCAL_WRITE);
              };
              for (size_t i = 0; i < kPinned; ++i) {
                const hydrant_pin_t held = pin(2 * i);
                if (held.region == nullptr) return hydrant_error_text();
                hydrant_release(held);
              }
              closer.close_and_fill();
              for (size_t i = 0; i < kPinned; ++i) {
                for (const size_t page : {2 * i, 2 * i + 1}) {
                  const hydrant_pin_t held = pin(page);
                  if (held.region == nullptr) return hydrant_error_text();
                  hydrant_release(held);
                }
              }
              if (!closer.all_work()) return "a ring of the program's was changed";
              if (hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN) != GASNET_OK) return "destroy";
              if (pins_are_counted() &&
                  !wait_until([&] { return pinned_bytes() == before + closer.pinned(); })) {
                return std::to_string(pinned_bytes() - before - closer.pinned()) + " stay pinned";
              }
              return closer.all_work() ? "" : "a ring of the program's was closed";
            }),
            "");
}

}  // namespace
}  // namespace hydrant
