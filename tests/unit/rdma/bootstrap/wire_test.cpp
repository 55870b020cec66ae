#include "rdma/bootstrap/wire.hpp"

#include "firehose/base/thread.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fcntl.h>
#include <random>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace hydrant::launch {
namespace {

std::vector<std::byte> join(std::span<const std::byte> head, std::span<const std::byte> tail = {}) {
  std::vector<std::byte> all;
  all.reserve(head.size() + tail.size());
  all.insert(all.end(), head.begin(), head.end());
  all.insert(all.end(), tail.begin(), tail.end());
  return all;
}

bool reads(const Request& request, std::span<const std::byte> tail = {}) {
  Request got;
  std::span<const std::byte> rest;
  return read_request(join(bytes_of(request), tail), &got, &rest);
}

TEST(Wire, RequestsRoundTrip) {
  Request request{.kind = RequestKind::kPut, .id = 7, .value_bytes = 3};
  ASSERT_TRUE(set_key("key", &request));
  const std::byte value[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
  Request got;
  std::span<const std::byte> tail;
  const auto message = join(bytes_of(request), value);
  ASSERT_TRUE(read_request(message, &got, &tail));
  EXPECT_EQ(got.id, 7u);
  EXPECT_STREQ(got.key, "key");
  EXPECT_EQ(tail.size(), 3u);
}

TEST(Wire, EveryMalformedRequestIsRejected) {
  Request good{.kind = RequestKind::kGet};
  ASSERT_TRUE(set_key("key", &good));
  EXPECT_TRUE(reads(good));
  const std::byte one[1] = {};
  EXPECT_FALSE(reads(good, one));
  Request bad = good;
  bad.magic = 1;
  EXPECT_FALSE(reads(bad));
  bad = good;
  bad.kind = static_cast<RequestKind>(77);
  EXPECT_FALSE(reads(bad));
  bad = good;
  bad.value_bytes = UINT32_MAX;
  EXPECT_FALSE(reads(bad));
  bad = good;
  std::memset(bad.key, 'x', sizeof bad.key);
  EXPECT_FALSE(reads(bad));
  bad = good;
  bad.key[0] = '\0';
  EXPECT_FALSE(reads(bad));
  bad.kind = RequestKind::kFence;
  EXPECT_TRUE(reads(bad));
  bad.key[0] = 'x';
  EXPECT_FALSE(reads(bad));
}

TEST(Wire, InvalidKeysAreRejected) {
  Request request;
  EXPECT_FALSE(set_key("", &request));
  EXPECT_FALSE(set_key(std::string(32, 'k'), &request));
  EXPECT_FALSE(set_key(std::string_view("a\0b", 3), &request));
  EXPECT_TRUE(set_key(std::string(31, 'k'), &request));
}

// An accepted message must lie within the bytes received; the sanitizers check the other accesses.
TEST(Wire, RandomBytesAreReadWithoutHarm) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> message(random() % 1200);
    for (std::byte& one : message) one = static_cast<std::byte>(random() % 4);
    if (message.size() >= 4 && random() % 2 == 0)
      std::memcpy(message.data(), &kMagic, sizeof kMagic);
    Request request;
    Reply reply;
    Event event;
    std::span<const std::byte> tail;
    if (read_request(message, &request, &tail)) {
      EXPECT_EQ(tail.size() + sizeof request, message.size());
    }
    if (read_reply(message, &reply, &tail)) {
      EXPECT_EQ(tail.size() + sizeof reply, message.size());
    }
    if (read_event(message, &event)) {
      EXPECT_EQ(message.size(), sizeof event);
    }
  }
}

TEST(Wire, EventTellsTheReasonOfAnExit) {
  Event event{.kind = EventKind::kLeave, .code = 7, .how = ExitReason::kGasnetExit};
  Event back;
  ASSERT_TRUE(read_event(bytes_of(event), &back));
  EXPECT_EQ(back.how, ExitReason::kGasnetExit);
  event.how = static_cast<ExitReason>(3);
  EXPECT_FALSE(read_event(bytes_of(event), &back));
}

class LaunchSockets : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_), 0);
  }
  void TearDown() override {
    for (const int fd : ends_) {
      if (fd >= 0) close(fd);
    }
  }
  int ends_[2] = {-1, -1};
};

TEST_F(LaunchSockets, ReceiveDistinguishesNothingMessageAndEnd) {
  MessageRoom room;
  std::span<const std::byte> got;
  EXPECT_EQ(receive_message(ends_[0], &room, &got), Received::kNothing);
  const Event event{.kind = EventKind::kLeave, .code = 5};
  EXPECT_EQ(send_message(ends_[1], bytes_of(event)), 0);
  ASSERT_EQ(receive_message(ends_[0], &room, &got), Received::kMessage);
  Event back;
  ASSERT_TRUE(read_event(got, &back));
  EXPECT_EQ(back.code, 5);
  close(ends_[1]);
  ends_[1] = -1;
  EXPECT_EQ(receive_message(ends_[0], &room, &got), Received::kEnd);
  EXPECT_EQ(send_message(ends_[0], bytes_of(event)), EPIPE);
}

TEST_F(LaunchSockets, TooLongMessageIsDetected) {
  const std::vector<std::byte> big(kMaxMessage + 500);
  ASSERT_EQ(send_message(ends_[1], big), 0);
  MessageRoom room;
  std::span<const std::byte> got;
  ASSERT_EQ(receive_message(ends_[0], &room, &got), Received::kMessage);
  EXPECT_EQ(got.size(), kMaxMessage + 1);
}

TEST_F(LaunchSockets, FullSocketIsReportedWithoutWaiting) {
  const std::vector<std::byte> message(1000);
  int error = 0;
  for (int i = 0; i < 100000 && error == 0; ++i) error = send_message(ends_[1], message);
  EXPECT_EQ(error, EAGAIN);
  EXPECT_FALSE(wait_writable(ends_[1], now_ns() + 1'000'000));
}

TEST_F(LaunchSockets, UnexpectedDescriptorsAreClosed) {
  int pair[2];
  ASSERT_EQ(pipe2(pair, O_CLOEXEC), 0);
  char byte = 'x';
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(2 * sizeof(int));
  const int sent[2] = {pair[1], pair[1]};
  std::memcpy(CMSG_DATA(head), sent, sizeof sent);
  ASSERT_EQ(sendmsg(ends_[1], &message, 0), 1);
  MessageRoom room;
  std::span<const std::byte> got;
  EXPECT_EQ(receive_message(ends_[0], &room, &got), Received::kMessage);
  close(pair[1]);
  // The last writer is closed if this process kept no copy of it.
  EXPECT_EQ(read(pair[0], &byte, 1), 0);
  close(pair[0]);
}

}  // namespace
}  // namespace hydrant::launch
