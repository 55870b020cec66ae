// Every system call of a ring fails at every count: what may pass is tried again, anything else is an error
// at once with a text, nothing stays behind, and afterwards all works.
#include "firehose/registrars/uring/uring_registrar.hpp"
#include "firehose/registrars/uring/uring_ring.hpp"
#include "firehose/registrars/uring/uring_status.hpp"
#include "tests/support/refused_calls.hpp"
#include "tests/unit/firehose/registrars/error_text.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant {
namespace {

using testing::CallKind;
using testing::Key;
using testing::kPageBytes;
using testing::MappedPages;
using testing::RefusedCalls;
using testing::says;
using testing::TestFile;

enum Kind : size_t { kSetup, kEnter, kRegister, kMmap, kMadvise };

std::vector<CallKind> calls_of_rings() {
  return {{"io_uring_setup", SYS_io_uring_setup},
          {"io_uring_enter", SYS_io_uring_enter},
          {"io_uring_register", SYS_io_uring_register},
          {"mmap", SYS_mmap,
           [](const seccomp_data& call) { return static_cast<int>(call.args[4]) >= 0; }},
          {"madvise", SYS_madvise,
           [](const seccomp_data& call) { return call.args[2] == MADV_DONTFORK; }}};
}

constexpr int kErrors[] = {EPERM,  EINTR,  EIO,    ENXIO,  EBADF,  EAGAIN,     ENOMEM,
                           EACCES, EFAULT, EBUSY,  EINVAL, ENFILE, EMFILE,     ENOSPC,
                           ENOSYS, ETIME,  EBADFD, ERANGE, EDQUOT, EOPNOTSUPP, ECANCELED};
constexpr uint64_t kLongNs = 30'000'000'000;
constexpr uint64_t kShortNs = 1'000'000;

bool passes(int error) { return uring_try_again(-error); }

// The place of an injected fault, for messages.
std::string at(const char* call, int n, int times, int error) {
  return std::string(call) + " " + std::to_string(n) + (times == 1 ? " once " : " for ever ") +
         strerrorname_np(error) + ": ";
}

// A ring with a page pinned, and what is moved.
class MoveUnderFaults {
 public:
  std::string open() {
    UringFailure failure;
    ring_ = UringRing::open(4, false, &failure);
    if (ring_ == nullptr) return std::string("no ring here: ") + std::strerror(-failure.error);
    if (pipe2(pipe_, O_CLOEXEC) != 0) return "no pipe";
    if (!ring_->claim(memory_.size(), false)) return "the ring is full";
    const int error = ring_->register_run(memory_.all(), 0, &run_);
    return error == 0 ? "" : std::string("no page can be pinned: ") + std::strerror(-error);
  }
  std::string pin_again() {
    if (!ring_->begin_unregister(memory_.all(), run_)) return "the pin is gone";
    if (ring_->finish_unregister(run_.first, UringSize::of(memory_.size())) != 0) return "unpin";
    if (!ring_->claim(memory_.size(), false)) return "the ring is full";
    return ring_->register_run(memory_.all(), 0, &run_) == 0 ? "" : "pin";
  }
  ~MoveUnderFaults() {
    close(pipe_[0]);
    close(pipe_[1]);
  }

  UringMoveEnd move(int fd, bool to_file, uint64_t timeout_ns) {
    return ring_->move(run_, memory_.all(), fd, 0, to_file, timeout_ns);
  }
  // The right bytes go both ways, through the entry that the faults have used.
  std::string check() {
    for (const char c : {next(), next()}) {
      memory_.fill(c);
      if (move(file_.fd(), true, kLongNs).cause != UringMoveCause::kNone) return "no move to file";
      if (file_.read(kPageBytes) != std::string(kPageBytes, c)) return "the file is wrong";
      memory_.fill('-');
      if (move(file_.fd(), false, kLongNs).cause != UringMoveCause::kNone) return "no move back";
      if (!holds(c)) return "memory is wrong";
    }
    return "";
  }

  // A file, whose transfer ends in the call that submits it.
  std::string move_file(RefusedCalls& calls, int times, int error) {
    const char c = next();
    file_.write_all(std::string(kPageBytes, c));
    memory_.fill('-');
    const bool ends = times == 1 && passes(error);
    const UringMoveEnd end = move(file_.fd(), false, ends ? kLongNs : kShortNs);
    const bool refused = calls.allow() != 0;
    if (end.cause == UringMoveCause::kNone) return holds(c) ? "" : "the wrong bytes";
    if (!refused || ends) return "failed";
    if (!holds('-')) return "a failed move has written";
    return explained(end, error);
  }
  // A pipe without data: the transfer has to be waited for, and to be taken back.
  std::string move_from_pipe(RefusedCalls& calls, int error) {
    memory_.fill('-');
    const UringMoveEnd end = move(pipe_[0], false, calls_may_pass(error) ? kShortNs : kLongNs);
    const bool refused = calls.allow() != 0;
    if (end.cause == UringMoveCause::kNone) return "data from an empty pipe";
    std::string data(kPageBytes, next());
    if (write(pipe_[1], data.data(), data.size()) != static_cast<ssize_t>(data.size()))
      return "pipe";
    if (!holds('-')) return "the kernel has written after the end of the move";
    if (move(pipe_[0], false, kLongNs).cause != UringMoveCause::kNone) return "no move afterwards";
    if (!holds(data[0])) return "the wrong bytes afterwards";
    return refused && end.cause == UringMoveCause::kCall ? explained(end, error) : "";
  }

 private:
  static bool calls_may_pass(int error) { return error == 0 || passes(error); }
  char next() { return letter_ = letter_ == 'z' ? 'a' : static_cast<char>(letter_ + 1); }
  bool holds(char c) const {
    const auto* first = memory_.data();
    return std::all_of(first, first + memory_.size(),
                       [c](std::byte b) { return b == static_cast<std::byte>(c); });
  }
  static std::string explained(const UringMoveEnd& end, int error) {
    if (end.cause != UringMoveCause::kCall || end.error != -error) {
      return "cause " + std::to_string(static_cast<int>(end.cause)) + ", error " +
             std::to_string(end.error);
    }
    const Status status = explain_uring_move(end, 7, kShortNs);
    if (status != (passes(error) ? Status::kNotReady : Status::kBroken)) return "status";
    return says("descriptor 7") && says("io_uring_enter") && says(std::strerror(error))
               ? ""
               : last_error_text();
  }

  MappedPages memory_{kPageBytes};
  TestFile file_;
  int pipe_[2] = {-1, -1};
  std::unique_ptr<UringRing> ring_;
  UringRun run_;
  char letter_ = 'a';
};

// Runs `body` in a thread whose calls can be refused.
#define HYDRANT_RUN_UNDER_FAULTS(body)                                                      \
  do {                                                                                      \
    const std::string wrong_ = RefusedCalls::run(calls_of_rings(), body);                   \
    if (wrong_ == RefusedCalls::kNoFilter || wrong_.find(" here: ") != std::string::npos || \
        wrong_.find("no page can be pinned") == 0)                                          \
      GTEST_SKIP() << wrong_;                                                               \
    EXPECT_EQ(wrong_, "");                                                                  \
  } while (false)

TEST(UringCallFaults, AMoveWhoseCallFailsLeavesNothingQueued) {
  HYDRANT_RUN_UNDER_FAULTS([](RefusedCalls& calls) -> std::string {
    MoveUnderFaults moves;
    if (std::string failed = moves.open(); !failed.empty()) return failed;
    for (int error = 1; error <= EHWPOISON; ++error) {
      if (strerrorname_np(error) == nullptr) continue;
      for (const int times : {1, RefusedCalls::kForEver}) {
        for (int n = 0; n < 2; ++n) {
          calls.refuse(kEnter, n, times, error);
          std::string wrong = moves.move_file(calls, times, error);
          if (wrong.empty()) wrong = moves.check();
          if (!wrong.empty()) return at("enter", n, times, error) + wrong;
        }
      }
    }
    return "";
  });
}

TEST(UringCallFaults, TheHundredthMoveFailsLikeTheFirst) {
  HYDRANT_RUN_UNDER_FAULTS([](RefusedCalls& calls) -> std::string {
    MoveUnderFaults moves;
    if (std::string failed = moves.open(); !failed.empty()) return failed;
    for (int i = 0; i < 100; ++i) {
      calls.refuse(kEnter, 0, RefusedCalls::kForEver, EPERM);
      const std::string wrong = moves.move_file(calls, RefusedCalls::kForEver, EPERM);
      if (!wrong.empty()) return "move " + std::to_string(i) + ": " + wrong;
    }
    return moves.check();
  });
}

TEST(UringCallFaults, AMoveThatWasNotSubmittedNeverReachesALaterRegistration) {
  HYDRANT_RUN_UNDER_FAULTS([](RefusedCalls& calls) -> std::string {
    MoveUnderFaults moves;
    if (std::string failed = moves.open(); !failed.empty()) return failed;
    calls.refuse(kEnter, 0, RefusedCalls::kForEver, EAGAIN);
    std::string wrong = moves.move_file(calls, RefusedCalls::kForEver, EAGAIN);
    if (wrong.empty()) wrong = moves.pin_again();
    return wrong.empty() ? moves.check() : wrong;
  });
}

// The calls of such a move: submit, wait, submit the cancellation, wait for its end. If only io_uring_enter()
// is refused, io_uring_register() cancels.
TEST(UringCallFaults, ATransferUnderWayEndsBeforeItsMove) {
  HYDRANT_RUN_UNDER_FAULTS([](RefusedCalls& calls) -> std::string {
    MoveUnderFaults moves;
    if (std::string failed = moves.open(); !failed.empty()) return failed;
    for (const int error : kErrors) {
      for (const int times : {1, 2, 3, RefusedCalls::kForEver}) {
        for (int n = times == 1 ? 1 : 0; n < 5; ++n) {
          calls.refuse(kEnter, n, times, error);
          const bool reached = n < 2;  // surely: then an error that does not pass ends the move
          std::string wrong = moves.move_from_pipe(calls, reached ? error : 0);
          if (wrong.empty()) wrong = moves.check();
          if (!wrong.empty()) return at("enter", n, times, error) + wrong;
        }
      }
    }
    return "";
  });
}

// Pins and unpins of one registrar under faults of io_uring_register().
TEST(UringCallFaults, APinWhoseCallFailsIsExplained) {
  HYDRANT_RUN_UNDER_FAULTS([](RefusedCalls& calls) -> std::string {
    const auto uring = testing::try_uring();
    if (uring == nullptr) return std::string("no uring here: ") + last_error_text();
    MappedPages memory(2 * kPageBytes);
    for (const int error : kErrors) {
      for (const int times : {1, RefusedCalls::kForEver}) {
        const bool ends = times == 1 && passes(error);
        Key key;
        calls.refuse(kRegister, 0, times, error);
        Status status = uring->pin(memory.pages(0, 1), Access::kAll, key.data());
        calls.allow();
        if ((status == Status::kOk) != ends) return at("pin", 0, times, error) + "pin";
        if (!ends && !says("[0x") && !says("ring")) return last_error_text();
        // "Not now" would have a deferred pin wait for ever.
        if (passes(error) && !ends && status != Status::kResource) return "pin: status";
        if (!ends) status = uring->pin(memory.pages(0, 1), Access::kAll, key.data());
        if (status != Status::kOk) return at("pin", 0, times, error) + last_error_text();
        calls.refuse(kRegister, 0, times, error);
        const UnpinResult unpinned = uring->unpin(memory.pages(0, 1), key.data());
        calls.allow();
        if ((unpinned != UnpinResult::kBroken) != ends) return at("unpin", 0, times, error);
        if (!ends && !says("io_uring_register")) return last_error_text();
      }
    }
    return "";
  });
}

// Memory that a failed unpin has left pinned goes when its slots are used again: a small ring never fills up.
TEST(UringCallFaults, SlotsOfFailedUnpinsAreUsedAgain) {
  HYDRANT_RUN_UNDER_FAULTS([](RefusedCalls& calls) -> std::string {
    UringOptions options;
    options.ring_slots = 2;
    options.max_rings = 1;
    const auto uring = testing::try_uring(options);
    if (uring == nullptr) return std::string("no uring here: ") + last_error_text();
    MappedPages memory(kPageBytes);
    TestFile file;
    for (int i = 0; i < 8; ++i) {
      Key key;
      if (uring->pin(memory.all(), Access::kAll, key.data()) != Status::kOk)
        return "pin " + std::to_string(i) + ": " + last_error_text();
      memory.fill(static_cast<char>('a' + i));
      if (uring->move(key.data(), memory.all(), file.fd(), 0, true) != Status::kOk ||
          file.read(1)[0] != static_cast<char>('a' + i)) {
        return "the wrong memory";
      }
      calls.refuse(kRegister, 0, RefusedCalls::kForEver, ENOMEM);
      if (uring->unpin(memory.all(), key.data()) != UnpinResult::kBroken) return "unpinned";
      calls.allow();
      memory.replace('-');  // other pages: the old ones are still registered
    }
    return "";
  });
}

// The creation of a registrar: each call of the ring and of the trial pins.
TEST(UringCallFaults, ARingThatCannotBeMadeNamesTheCall) {
  HYDRANT_RUN_UNDER_FAULTS([](RefusedCalls& calls) -> std::string {
    if (testing::try_uring() == nullptr) return std::string("no uring here: ") + last_error_text();
    const std::vector<CallKind> kinds = calls_of_rings();
    for (const Kind kind : {kSetup, kMmap, kMadvise, kRegister}) {
      for (const int error : {EPERM, EINTR, EAGAIN, EBUSY, EIO, ENOMEM, EINVAL, EMFILE, ENOSYS}) {
        for (const int times : {1, RefusedCalls::kForEver}) {
          int refused = 1;
          for (int n = 0; refused != 0 && n < 4; ++n) {
            calls.refuse(kind, n, times, error);
            auto status = Status::kOk;
            const auto uring = make_uring_registrar({}, &status);
            refused = calls.allow();
            if (uring != nullptr) continue;
            const std::string wrong = at(kinds[kind].name, n, times, error) + last_error_text();
            if (refused == 0 || (times == 1 && passes(error))) return wrong;
            const bool is_shortage = passes(error) || error == EMFILE || error == ENFILE;
            if (is_shortage && status != Status::kResource) return wrong;
            const bool names_other =
                error == EMFILE || error == ENFILE;  // the text names the limit
            if (!names_other && !says(kinds[kind].name)) return wrong;
            if (kind != kSetup && says("io_uring_disabled")) return wrong;
          }
        }
      }
    }
    return "";
  });
}

}  // namespace
}  // namespace hydrant
