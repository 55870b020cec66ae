// The socket by which the first rank of a node hands a descriptor to the others: the handshakes that it
// accepts.
#include "rdma/bootstrap/fd_passing.hpp"

#include "firehose/base/thread.hpp"
#include "rdma/bootstrap/abstract_socket.hpp"
#include "tests/support/fake_bootstrap.hpp"
#include "tests/support/mapped_memory.hpp"
#include "tests/support/patience.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace hydrant {
namespace {

using testing::soon;

constexpr uint32_t kSequence = 9;

// The handshake: a constant, the rank, and the token of the first rank's entry.
struct SentHandshake {
  uint32_t magic = 0x48594e43;
  Rank rank = 0;
  RandomName token{};
};
struct Record {
  RandomName name{};
  RandomName token{};
};

// Rank 0 of six, with 2 and 4 on its node. `others` runs after the entry has been put and before the first
// connection is accepted.
class NodeBootstrap final : public Bootstrap {
 public:
  std::function<void(const Record&)> others;
  JobTopology stands;
  testing::FakeBootstrap store;
  uint32_t fences = 0;

  explicit NodeBootstrap(Rank self) {
    stands.rank = self;
    stands.size = 6;
    stands.node_count = 2;
    stands.node_ranks = {0, 2, 4};
    stands.node_rank = self / 2;
    store.stands = stands;
  }
  const char* name() const noexcept override { return "node"; }
  const JobTopology& topology() const noexcept override { return stands; }
  Status put(std::string_view key, std::span<const std::byte> entry) noexcept override {
    return store.put(key, entry);
  }
  Status fence(uint64_t) noexcept override {
    ++fences;
    if (!others) return Status::kOk;
    const auto found = store.entries.find({0, "fd." + std::to_string(kSequence)});
    Record entry;
    if (found == store.entries.end() || found->second.size() != sizeof entry)
      return fail(Status::kBroken, "the entry has another form");
    std::memcpy(&entry, found->second.data(), sizeof entry);
    others(entry);
    return Status::kOk;
  }
  Status get(Rank rank, std::string_view key, std::span<std::byte> entry, size_t* bytes,
             uint64_t deadline_ns) noexcept override {
    return store.get(rank, key, entry, bytes, deadline_ns);
  }
  void leave(int, ExitReason, uint64_t) noexcept override {}
};

// Connects to the first rank, and sends `bytes`.
int connect_and_send(const Record& entry, std::span<const std::byte> bytes) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const AbstractAddress address = abstract_address(entry.name, kSequence);
  EXPECT_EQ(connect(fd, address.get(), address.bytes), 0);
  EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  return fd;
}

std::vector<std::byte> handshake(const Record& entry, Rank rank) {
  const SentHandshake message{.rank = rank, .token = entry.token};
  std::vector<std::byte> bytes(sizeof message);
  std::memcpy(bytes.data(), &message, sizeof message);
  return bytes;
}

// Whether a reply came, with a descriptor or without.
bool is_answered(int fd) {
  std::byte room[128];
  const ssize_t bytes = recv(fd, room, sizeof room, MSG_DONTWAIT);
  close(fd);
  return bytes > 0;
}

// A wrong message precedes the right ones of the ranks 2 and 4. It gets no reply, and these do.
void expect_ignored(const std::function<std::vector<std::byte>(const Record&)>& wrong) {
  NodeBootstrap node(0);
  int fd_of_wrong = -1;
  std::vector<int> right;
  node.others = [&](const Record& entry) {
    fd_of_wrong = connect_and_send(entry, wrong(entry));
    for (const Rank rank : {2U, 4U})
      right.push_back(connect_and_send(entry, handshake(entry, rank)));
  };
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe(ends), 0);
  int received = -1;
  EXPECT_EQ(share_fd(node, kSequence, Status::kOk, ends[0], &received, soon()), Status::kOk)
      << last_error_text();
  EXPECT_FALSE(is_answered(fd_of_wrong));
  for (const int fd : right) EXPECT_TRUE(is_answered(fd));
  for (const int fd : {received, ends[0], ends[1]}) close(fd);
}

TEST(FdPassing, LongMessageIsRejected) {
  expect_ignored([](const Record& entry) {
    std::vector<std::byte> bytes = handshake(entry, 2);
    bytes.push_back(std::byte{0});
    return bytes;
  });
}

TEST(FdPassing, ShortMessageIsRejected) {
  expect_ignored([](const Record& entry) {
    std::vector<std::byte> bytes = handshake(entry, 2);
    bytes.pop_back();
    return bytes;
  });
}

TEST(FdPassing, UnexpectedRanksGetNoDescriptor) {
  for (const Rank rank : {0U, 1U, 3U, 5U, 6U, 4096U, UINT32_MAX}) {
    SCOPED_TRACE(rank);
    expect_ignored([rank](const Record& entry) { return handshake(entry, rank); });
  }
}

TEST(FdPassing, RankGetsItsDescriptorOnce) {
  NodeBootstrap node(0);
  std::vector<int> fds;
  node.others = [&](const Record& entry) {
    for (const Rank rank : {2U, 2U, 4U})
      fds.push_back(connect_and_send(entry, handshake(entry, rank)));
  };
  int received = -1;
  EXPECT_EQ(share_fd(node, kSequence, Status::kOk, STDERR_FILENO, &received, soon()), Status::kOk);
  ASSERT_EQ(fds.size(), 3U);
  EXPECT_TRUE(is_answered(fds[0]));
  EXPECT_FALSE(is_answered(fds[1]));
  EXPECT_TRUE(is_answered(fds[2]));
  close(received);
}

TEST(FdPassing, WrongTokenIsRejected) {
  expect_ignored([](Record entry) {
    entry.token[0] = entry.token[0] == 'a' ? 'b' : 'a';
    return handshake(entry, 2);
  });
}

// ---- refusals ----

const std::string kKey = "fd." + std::to_string(kSequence);

// The entry by which a rank refuses: what share_fd() has put with this error.
std::vector<std::byte> record_of_refusal(Rank self, Status status, const char* text) {
  NodeBootstrap node(self);
  int received = -1;
  EXPECT_EQ(share_fd(node, kSequence, fail(status, "%s", text), -1, &received, soon()), status);
  EXPECT_STREQ(last_error_text(), text);
  EXPECT_EQ(received, -1);
  EXPECT_EQ(node.fences, 1U) << "the others are in the fence";
  const std::vector<std::byte> entry = node.store.entries[{self, kKey}];
  EXPECT_GT(entry.size(), sizeof(Record));
  return entry;
}

// The status that rank 2 gets if rank 0 has published `entry`.
Status status_at_rank_2(std::span<const std::byte> entry) {
  NodeBootstrap node(2);
  node.store.set(0, kKey, entry);
  int received = -1;
  const Status status = share_fd(node, kSequence, Status::kOk, -1, &received, soon());
  EXPECT_EQ(received, -1);
  return status;
}

TEST(FdPassing, LeadersRefusalReachesAllRanks) {
  for (const Status status : {Status::kResource, Status::kBadArg}) {
    EXPECT_EQ(status_at_rank_2(record_of_refusal(0, status, "no room for a file")), status);
    EXPECT_STREQ(last_error_text(), "rank 0 refuses: no room for a file");
  }
}

TEST(FdPassing, WithoutAFreeDescriptorTheLimitIsNamed) {
  NodeBootstrap node(0);
  const int next = dup(STDERR_FILENO);
  ASSERT_GE(next, 0);
  close(next);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit full{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &full), 0);
  int received = -1;
  EXPECT_EQ(share_fd(node, kSequence, Status::kOk, STDERR_FILENO, &received, soon()),
            Status::kResource);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(last_error_text(),
              ::testing::HasSubstr("this node: Too many open files (ulimit -n)"));
}

// The text of share_fd() in a thread that may not ask for the user at the other end of a socket.
std::string text_without_users(NodeBootstrap& node, int fd) {
  std::string text;
  std::thread([&] {
    text = testing::refuse_system_call(SYS_getsockopt, EPERM);
    if (!text.empty()) return;
    int received = -1;
    EXPECT_EQ(share_fd(node, kSequence, Status::kOk, fd, &received, soon()), Status::kResource);
    EXPECT_EQ(received, -1);
    text = last_error_text();
  }).join();
  return text;
}

TEST(FdPassing, WhereUsersCannotBeSeenTheCallIsNamed) {
  const auto names_it = ::testing::HasSubstr(
      "another rank's process: getsockopt(SO_PEERCRED): Operation not permitted; if a seccomp");
  NodeBootstrap leader(0);
  int connection = -1;
  leader.others = [&](const Record& entry) {
    connection = connect_and_send(entry, handshake(entry, 2));
  };
  EXPECT_THAT(text_without_users(leader, STDERR_FILENO), names_it);
  close(connection);

  const Record entry{.name = make_random_name()};
  const AbstractAddress address = abstract_address(entry.name, kSequence);
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(listener, address.get(), address.bytes), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  NodeBootstrap member(2);
  std::vector<std::byte> bytes(sizeof entry);
  std::memcpy(bytes.data(), &entry, sizeof entry);
  member.store.set(0, kKey, bytes);
  EXPECT_THAT(text_without_users(member, -1), names_it);
  close(listener);
}

TEST(FdPassing, MalformedRefusalIsBroken) {
  const std::vector<std::byte> good = record_of_refusal(0, Status::kResource, "no room");
  for (const int32_t status : {to_c(Status::kOk), -1, 77777}) {
    std::vector<std::byte> entry = good;
    std::memcpy(entry.data() + sizeof(uint32_t), &status, sizeof status);
    EXPECT_EQ(status_at_rank_2(entry), Status::kBroken) << status;
  }
  std::vector<std::byte> endless = good;
  std::fill(endless.begin() + 8, endless.end(), std::byte{'x'});
  EXPECT_EQ(status_at_rank_2(endless), Status::kResource);
  std::vector<std::byte> other = good;
  other[0] = std::byte{0};
  EXPECT_EQ(status_at_rank_2(other), Status::kBroken);
  EXPECT_EQ(status_at_rank_2(std::span(good).first(good.size() - 1)), Status::kBroken);
}

TEST(FdPassing, RefusingRankIsNotAwaited) {
  NodeBootstrap node(0);
  node.store.set(2, kKey, record_of_refusal(2, Status::kResource, "no descriptor"));
  node.store.set(4, kKey, {});
  int right = -1;
  node.others = [&right](const Record& entry) {
    right = connect_and_send(entry, handshake(entry, 4));
  };
  int received = -1;
  EXPECT_EQ(share_fd(node, kSequence, Status::kOk, STDERR_FILENO, &received, soon()), Status::kOk)
      << last_error_text();
  EXPECT_TRUE(is_answered(right));
  close(received);
}

// ---- ranks that share nothing ----

std::vector<std::byte> record_without_sharing(Rank self) {
  NodeBootstrap node(self);
  node.store.set(0, kKey, {});
  EXPECT_EQ(share_no_fd(node, kSequence, "another setting", soon()),
            self == 0 ? Status::kOk : Status::kBadArg);
  EXPECT_EQ(node.fences, 1U) << "the others are in the fence";
  return node.store.entries[{self, kKey}];
}

TEST(FdPassing, RanksDisagreeingAboutSharingFailAtOnce) {
  EXPECT_EQ(status_at_rank_2(record_without_sharing(0)), Status::kBadArg);
  EXPECT_STREQ(last_error_text(), "rank 0 refuses: another setting");

  NodeBootstrap leader(0);
  leader.store.set(2, kKey, record_without_sharing(2));
  EXPECT_STREQ(last_error_text(), "rank 0 shares memory, and rank 2 does not");
  leader.store.set(4, kKey, record_without_sharing(4));
  int received = -1;
  EXPECT_EQ(share_fd(leader, kSequence, Status::kOk, STDERR_FILENO, &received, soon()),
            Status::kOk);
  close(received);
}

TEST(FdPassing, RanksThatAllShareNothingAgree) {
  NodeBootstrap node(2);
  node.store.set(0, kKey, record_without_sharing(0));
  EXPECT_EQ(share_no_fd(node, kSequence, "another setting", soon()), Status::kOk);
}

}  // namespace
}  // namespace hydrant
