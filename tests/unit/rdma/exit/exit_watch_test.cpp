// The watch of a rank whose program closes the watch's descriptors and opens its own under their numbers.
#include "rdma/exit/exit_watch.hpp"

#include "firehose/base/thread.hpp"
#include "rdma/exit/process_exit.hpp"
#include "tests/support/descriptors.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace hydrant {
namespace {

using testing::OwnDescriptors;
using testing::ProgramsFiles;

uint64_t in_20_seconds() { return now_ns() + testing::patient_ns(20'000'000'000); }
void pause_shortly() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

// As NodeExitChannel puts it.
struct WordsCard {
  uint64_t start_time = 0;
  int32_t pid = 0;
  uint32_t zero = 0;
  RandomName name{};
  char padding[7] = {};
};
struct Message {
  uint32_t magic = 0x48594e57;
  Rank sender = 0;
  Rank rank = 0;
  int32_t code = 0;
  uint32_t what = 0;
};

// A launcher that sends nothing, and rank 1, a process that waits to be killed. A byte makes it announce its
// exit with code 5.
class OtherRank final : public Bootstrap {
 public:
  OtherRank() {
    EXPECT_EQ(pipe(go_), 0);
    place_.size = 2;
    place_.node_ranks = {0, 1};
    theirs_.name = make_random_name();
  }
  ~OtherRank() override {
    end(SIGKILL);
    close(go_[0]);
    close(go_[1]);
  }
  const char* name() const noexcept override { return "test"; }
  const JobTopology& topology() const noexcept override { return place_; }
  Status put(std::string_view, std::span<const std::byte> entry) noexcept override {
    WordsCard ours;
    std::memcpy(&ours, entry.data(), sizeof ours);
    start(ours.name);
    return Status::kOk;
  }
  Status fence(uint64_t) noexcept override { return Status::kOk; }
  Status get(Rank, std::string_view, std::span<std::byte> entry, size_t* bytes,
             uint64_t) noexcept override {
    std::memcpy(entry.data(), &theirs_, sizeof theirs_);
    *bytes = sizeof theirs_;
    return Status::kOk;
  }
  void leave(int, ExitReason, uint64_t) noexcept override {}

  void announce_exit() const { EXPECT_EQ(write(go_[1], "!", 1), 1); }
  void end(int signal) {
    if (pid_ == 0) return;
    kill(pid_, signal);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  void start(const RandomName& name) {
    const AbstractAddress address = abstract_address(name, 0);
    pid_ = fork();
    if (pid_ == 0) {
      char word = 0;
      for (int fd = 3; fd < 512; ++fd) {
        if (fd != go_[0]) close(fd);  // the socket of rank 0 too
      }
      const Message message{.sender = 1, .rank = 1, .code = 5};
      const int own = socket(AF_UNIX, SOCK_DGRAM, 0);
      while (read(go_[0], &word, 1) == 1)
        sendto(own, &message, sizeof message, 0, address.get(), address.bytes);
      _exit(0);
    }
    theirs_.pid = pid_;
    theirs_.start_time = process_start_time(pid_);
  }

  JobTopology place_;
  int go_[2] = {-1, -1};
  WordsCard theirs_;
  pid_t pid_ = 0;
};

class Heard final : public ExitWatch::Listener {
 public:
  void on_exit_requested(Rank, int code) noexcept override { code_.store(code); }
  void on_death(Rank, int signal) noexcept override { code_.store(128 + signal); }
  void on_launcher_exit() noexcept override { code_.store(-2); }
  bool program_catches_quit() noexcept override {
    is_asked_to_quit_.store(true);
    return true;  // and ignores it
  }
  bool is_asked_to_quit() const {
    const uint64_t deadline = in_20_seconds();
    while (!is_asked_to_quit_.load() && now_ns() < deadline) pause_shortly();
    return is_asked_to_quit_.load();
  }
  // Waits for the first exit code that is reported.
  int wait() const {
    const uint64_t deadline = in_20_seconds();
    while (code_.load() == kNothing && now_ns() < deadline) pause_shortly();
    return code_.load();
  }

 private:
  static constexpr int kNothing = -1;
  std::atomic<int> code_{kNothing};
  std::atomic<bool> is_asked_to_quit_{false};
};

class ClosedDescriptors : public ::testing::Test {
 protected:
  void SetUp() override { signal(SIGQUIT, SIG_IGN); }
  Status start() { return ExitWatch::start(rank_, heard_, in_20_seconds(), &watch_); }

  OtherRank rank_;
  Heard heard_;
  const OwnDescriptors own_;
  std::unique_ptr<ExitWatch> watch_;
};

TEST_F(ClosedDescriptors, WatchEndsWithoutItsDescriptors) {
  ASSERT_EQ(start(), Status::kOk) << last_error_text();
  const std::vector<int> numbers = own_.others();
  ASSERT_GE(numbers.size(), 4U) << "an eventfd, a socket, two processes";
  const ProgramsFiles program(numbers);
  watch_.reset();
  EXPECT_EQ(program.harm(), "");
}

TEST_F(ClosedDescriptors, DeathIsDetected) {
  ASSERT_EQ(start(), Status::kOk) << last_error_text();
  const ProgramsFiles program(own_.others());
  rank_.end(SIGKILL);
  const int heard = heard_.wait();
  watch_.reset();
  EXPECT_TRUE(heard == 128 + SIGKILL || heard == 1) << heard;  // 1: how is not known any more
  EXPECT_EQ(program.harm(), "");
}

TEST_F(ClosedDescriptors, LossOfARankIsReported) {
  ASSERT_EQ(start(), Status::kOk) << last_error_text();
  const ProgramsFiles program(own_.others());
  watch_->report_peer_failure(1, 3);
  EXPECT_TRUE(heard_.is_asked_to_quit());
  watch_->leave(3, ExitReason::kAbandoned, in_20_seconds());
  watch_.reset();
  EXPECT_EQ(program.harm(), "");
}

class ClosedExitChannel : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(NodeExitChannel::open(rank_, in_20_seconds(), &channel_), Status::kOk)
        << last_error_text();
  }
  // Waits for an exit notification of rank 1; returns its code.
  int read_exit() {
    Rank rank = kNoRank;
    int code = -1;
    rank_.announce_exit();
    const uint64_t deadline = in_20_seconds();
    while (!channel_->read(&rank, &code) && now_ns() < deadline) pause_shortly();
    return code;
  }

  OtherRank rank_;
  const OwnDescriptors own_;
  std::unique_ptr<NodeExitChannel> channel_;
};

TEST_F(ClosedExitChannel, AreOpenedAgainUnderTheirName) {
  EXPECT_FALSE(channel_->repair());
  EXPECT_EQ(read_exit(), 5);
  EXPECT_FALSE(channel_->lost_notices());
  for (int times = 0; times < 2; ++times) {
    const std::vector<int> numbers = own_.others();
    ASSERT_EQ(numbers.size(), 2U);
    const ProgramsFiles program(numbers);
    EXPECT_EQ(channel_->fd(), -1);
    Rank rank = kNoRank;
    int code = -1;
    EXPECT_FALSE(channel_->read(&rank, &code));
    channel_->publish_exit(0, 7);  // by a socket for that alone
    EXPECT_TRUE(channel_->repair());
    EXPECT_FALSE(channel_->repair());
    EXPECT_TRUE(channel_->lost_notices());
    EXPECT_GE(channel_->fd(), 0);
    EXPECT_EQ(read_exit(), 5);
    EXPECT_GE(channel_->peers()[0].pidfd.get(), 0);
    EXPECT_FALSE(channel_->peers()[0].is_gone);
    EXPECT_EQ(program.harm(), "");
  }
}

TEST_F(ClosedExitChannel, RankThatExitedMeanwhileIsDetected) {
  const ProgramsFiles program(own_.others());
  rank_.end(SIGKILL);
  EXPECT_TRUE(channel_->repair());
  EXPECT_TRUE(channel_->peers()[0].is_gone);
  EXPECT_EQ(channel_->peers()[0].pidfd.number(), -1);
  channel_.reset();
  EXPECT_EQ(program.harm(), "");
}

TEST_F(ClosedExitChannel, ClaimsLeaveForeignDescriptorsAlone) {
  EXPECT_TRUE(channel_->claim_exit());
  EXPECT_TRUE(channel_->claim_wait());
  EXPECT_TRUE(channel_->claim(channel_->peers()[0]));
  const std::vector<int> numbers = own_.others();
  EXPECT_EQ(numbers.size(), 5U);
  const ProgramsFiles program(numbers);
  EXPECT_FALSE(channel_->claim_wait()) << "claimed once";
  channel_.reset();
  EXPECT_EQ(program.harm(), "");
}

}  // namespace
}  // namespace hydrant
