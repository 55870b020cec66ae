#include "rdma/bootstrap/bootstrap_supervised.hpp"

#include "firehose/base/thread.hpp"
#include "tests/support/descriptors.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <string>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace hydrant {
namespace {

using launch::Reply;
using launch::Request;
using testing::soon;

// The supervisor's end of one rank's sockets, played by the test.
class SupervisedBootstrapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, calls_), 0);
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, events_), 0);
  }
  void TearDown() override {
    bootstrap_.reset();
    hang_up();
  }
  void hang_up() {
    for (int* fd : {&calls_[1], &events_[1]}) {
      if (*fd >= 0) close(*fd);
      *fd = -1;
    }
  }
  // Waits for a request and sends these bytes.
  Request receive() {
    Request request;
    EXPECT_EQ(recv(calls_[1], &request, sizeof request, 0), static_cast<ssize_t>(sizeof request));
    return request;
  }
  void answer(uint32_t id, Status status, std::string_view tail = "", uint32_t lie = 0) {
    const Reply reply{
        .id = id, .status = to_c(status), .bytes = static_cast<uint32_t>(tail.size()) + lie};
    EXPECT_EQ(
        launch::send_message(calls_[1], launch::bytes_of(reply), std::as_bytes(std::span(tail))),
        0);
  }
  void open() {
    std::thread supervisor([&] { answer(receive().id, Status::kOk); });
    EXPECT_EQ(SupervisedBootstrap::open("test", make_topology(1, 3), calls_[0], events_[0], soon(),
                                        &bootstrap_),
              Status::kOk);
    supervisor.join();
  }
  Status fence_while(const std::function<void()>& supervisor) {
    std::thread thread(supervisor);
    const Status status = bootstrap_->fence(soon());
    thread.join();
    return status;
  }

  int calls_[2] = {-1, -1};
  int events_[2] = {-1, -1};
  std::unique_ptr<Bootstrap> bootstrap_;
};

TEST_F(SupervisedBootstrapTest, PlaceHasAllRanksOnOneNode) {
  open();
  EXPECT_EQ(bootstrap_->topology().rank, 1u);
  EXPECT_EQ(bootstrap_->topology().node_ranks, (std::vector<Rank>{0, 1, 2}));
  EXPECT_EQ(bootstrap_->topology().node_rank, 1u);
}

TEST(MakeTopology, NodesHoldNeighboursAndAllRanksOnce) {
  for (Rank size = 1; size <= 9; ++size) {
    for (uint32_t nodes = 1; nodes <= size; ++nodes) {
      std::vector<Rank> counts(nodes);
      for (Rank rank = 0; rank < size; ++rank) {
        const JobTopology place = make_topology(rank, size, nodes);
        EXPECT_EQ(place.rank, rank);
        EXPECT_EQ(place.node_count, nodes);
        ASSERT_LT(place.node, nodes);
        ASSERT_LT(place.node_rank, place.node_ranks.size());
        EXPECT_EQ(place.node_ranks[place.node_rank], rank);
        ASSERT_EQ(place.leaders.size(), nodes);
        EXPECT_EQ(place.leaders[place.node], place.node_ranks.front());
        for (const Rank neighbour : place.node_ranks)
          EXPECT_EQ(make_topology(neighbour, size, nodes).node, place.node);
        ++counts[place.node];
        EXPECT_NEAR(static_cast<double>(place.node_ranks.size()), static_cast<double>(size) / nodes,
                    1);
      }
      for (uint32_t node = 0; node < nodes; ++node) EXPECT_GT(counts[node], 0u);
    }
  }
}

TEST_F(SupervisedBootstrapTest, RefusedHelloReturnsItsText) {
  std::thread supervisor([&] { answer(receive().id, Status::kBadArg, "taken"); });
  EXPECT_EQ(SupervisedBootstrap::open("test", make_topology(1, 3), calls_[0], events_[0], soon(),
                                      &bootstrap_),
            Status::kBadArg);
  supervisor.join();
  EXPECT_STREQ(last_error_text(), "taken");
}

TEST_F(SupervisedBootstrapTest, ReplyToAnEarlierCallIsSkipped) {
  open();
  EXPECT_EQ(fence_while([&] {
              const uint32_t id = receive().id;
              answer(id - 1, Status::kNotReady, "late");
              answer(id, Status::kOk);
            }),
            Status::kOk);
}

TEST_F(SupervisedBootstrapTest, FencePollsUntilAllRanksHaveCome) {
  static std::atomic<int> polls;
  polls = 0;
  open();
  std::thread supervisor([&] {
    const uint32_t id = receive().id;
    for (const uint64_t end = soon(); polls < 3 && now_ns() < end;) std::this_thread::yield();
    answer(id, Status::kOk);
  });
  EXPECT_EQ(bootstrap_->fence_and_poll(soon(), []() noexcept { ++polls; }), Status::kOk);
  supervisor.join();
  EXPECT_GE(polls, 3);
  // With a deadline the supervisor's silence ends the fence, polls or not.
  EXPECT_EQ(bootstrap_->fence_and_poll(now_ns(), []() noexcept { ++polls; }), Status::kBroken);
}

TEST_F(SupervisedBootstrapTest, MalformedRepliesAreErrors) {
  open();
  EXPECT_EQ(fence_while([&] { answer(receive().id, Status::kOk, "", 5); }), Status::kBroken);
  EXPECT_EQ(fence_while([&] { answer(receive().id, static_cast<Status>(12345)); }),
            Status::kBroken);
  EXPECT_EQ(fence_while([&] {
              receive();
              EXPECT_EQ(send(calls_[1], "junk", 4, 0), 4);
            }),
            Status::kBroken);
  EXPECT_EQ(fence_while([&] {
              receive();
              const std::vector<std::byte> big(5000);
              EXPECT_EQ(launch::send_message(calls_[1], big), 0);
            }),
            Status::kBroken);
}

TEST_F(SupervisedBootstrapTest, SupervisorThatExitsIsAnError) {
  open();
  EXPECT_EQ(fence_while([&] {
              receive();
              hang_up();
            }),
            Status::kBroken);
  EXPECT_EQ(bootstrap_->fence(soon()), Status::kBroken);
  EXPECT_EQ(bootstrap_->read_event().kind, Bootstrap::Event::Kind::kLauncherExited);
  bootstrap_->leave(0, ExitReason::kExit, soon());  // does not wait for the supervisor
}

TEST_F(SupervisedBootstrapTest, SilentSupervisorTimesOut) {
  open();
  EXPECT_EQ(bootstrap_->fence(now_ns()), Status::kBroken);
  EXPECT_NE(std::string(last_error_text()).find("does not answer"), std::string::npos);
}

TEST_F(SupervisedBootstrapTest, TooLargeValueLeavesTheBufferAlone) {
  open();
  std::byte room[2] = {std::byte{7}, std::byte{7}};
  size_t bytes = 99;
  std::thread supervisor([&] { answer(receive().id, Status::kOk, "abc"); });
  EXPECT_EQ(bootstrap_->get(0, "k", room, &bytes, soon()), Status::kBadArg);
  supervisor.join();
  EXPECT_EQ(bytes, 99u);
  EXPECT_EQ(room[0], std::byte{7});
}

TEST_F(SupervisedBootstrapTest, BadArgumentsSendNoRequest) {
  open();
  const std::vector<std::byte> big(Bootstrap::kMaxValueBytes + 1);
  EXPECT_EQ(bootstrap_->put("k", big), Status::kBadArg);
  EXPECT_EQ(bootstrap_->put("", {}), Status::kBadArg);
  size_t bytes = 0;
  EXPECT_EQ(bootstrap_->get(0, std::string(40, 'k'), {}, &bytes, soon()), Status::kBadArg);
}

TEST_F(SupervisedBootstrapTest, SignalsDoNotDisturbACall) {
  open();
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction old {};
  sigaction(SIGUSR1, &action, &old);  // without SA_RESTART: calls are interrupted
  const pthread_t caller = pthread_self();
  EXPECT_EQ(fence_while([&] {
              const uint32_t id = receive().id;
              for (int i = 0; i < 100; ++i) {
                pthread_kill(caller, SIGUSR1);
                usleep(200);
              }
              answer(id, Status::kOk);
            }),
            Status::kOk);
  sigaction(SIGUSR1, &old, nullptr);
}

TEST_F(SupervisedBootstrapTest, EventsAreReadOneAtATimeAndUnknownOnesSkipped) {
  open();
  EXPECT_EQ(bootstrap_->read_event().kind, Bootstrap::Event::Kind::kNothing);
  const launch::Event death{.kind = launch::EventKind::kDeath, .rank = 2, .signal = 9};
  const launch::Event leave{.kind = launch::EventKind::kLeave, .rank = 2};
  EXPECT_EQ(launch::send_message(events_[1], launch::bytes_of(leave)), 0);
  EXPECT_EQ(launch::send_message(events_[1], launch::bytes_of(death)), 0);
  EXPECT_EQ(bootstrap_->read_event().kind, Bootstrap::Event::Kind::kNothing);
  const auto event = bootstrap_->read_event();
  EXPECT_EQ(event.kind, Bootstrap::Event::Kind::kDeath);
  EXPECT_EQ(event.rank, 2u);
  EXPECT_EQ(event.signal, 9);
}

TEST_F(SupervisedBootstrapTest, FilesOfTheProgramUnderItsNumbersAreLeftAlone) {
  open();
  EXPECT_EQ(bootstrap_->supervisor(), getpid());
  EXPECT_EQ(bootstrap_->event_fd(), events_[0]);
  const testing::ProgramsFiles program({calls_[0], events_[0]});
  EXPECT_EQ(bootstrap_->event_fd(), -1);
  EXPECT_EQ(bootstrap_->supervisor(), getpid());
  EXPECT_EQ(bootstrap_->read_event().kind, Bootstrap::Event::Kind::kNothing);
  for (const Status status : {bootstrap_->fence(soon()), bootstrap_->put("key", {})}) {
    EXPECT_EQ(status, Status::kBroken);
    const std::string text = last_error_text();
    EXPECT_NE(text.find("the program has closed descriptor " + std::to_string(calls_[0])),
              text.npos)
        << text;
  }
  bootstrap_->leave(0, ExitReason::kExit, soon());
  bootstrap_.reset();
  EXPECT_EQ(program.harm(), "");
}

TEST_F(SupervisedBootstrapTest, CallInFlightDetectsAClosedDescriptor) {
  open();
  EXPECT_EQ(fence_while([&] {
              const Request request = receive();
              syscall(SYS_close,
                      calls_[0]);  // past ThreadSanitizer, which reports the race of numbers
              // The other end may be closed by now.
              const Reply reply{.id = request.id, .status = to_c(Status::kOk), .bytes = 0};
              (void)launch::send_message(calls_[1], launch::bytes_of(reply), {});
            }),
            Status::kBroken);
  EXPECT_NE(std::string(last_error_text()).find("the program has closed descriptor"),
            std::string::npos);
}

}  // namespace
}  // namespace hydrant
