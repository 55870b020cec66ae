// Passes a descriptor from a node's first rank to the others over a unix socket (SCM_RIGHTS). share_fd()
// serves the node's memory (rdma/shm), segments (am/segment) and the memory of barriers (extended/barrier).
#include "rdma/bootstrap/fd_passing.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/bootstrap/abstract_socket.hpp"
#include "rdma/bootstrap/system_calls.hpp"
#include "rdma/bootstrap/wire.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <utility>

namespace hydrant {
namespace {

constexpr uint32_t kHandshakeMagic = 0x48594e43;
constexpr uint32_t kRefusalMagic = 0x48594e4e;
constexpr uint64_t kRetryNs = 2'000'000;

// The leader's entry in the store.
struct LeaderAddress {
  RandomName name{};
  RandomName token{};
};

// The first message of a member; the leader returns it with the descriptor.
struct Handshake {
  uint32_t magic = kHandshakeMagic;
  Rank rank = 0;
  RandomName token{};
};

// Entry of a rank that failed. In place of a LeaderAddress: no descriptor will come. In place of a member's
// empty entry: do not wait for this member.
struct RefusalRecord {
  uint32_t magic = kRefusalMagic;
  int32_t status = 0;
  char text[512] = {};
};

class OwnedFd {
 public:
  explicit OwnedFd(int fd) noexcept : fd_(fd) {}
  ~OwnedFd() { reset(); }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  int get() const noexcept { return fd_; }
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset() noexcept {
    if (fd_ >= 0) uncancelled::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

// Whether the process at the other end is this user's.
Status ask_user(int socket, bool* is_same) noexcept {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
    const int error = errno;
    return fail(Status::kResource,
                "cannot see the user of another rank's process: getsockopt(SO_PEERCRED): %s%s",
                errno_text(error), launch::remedy(error));
  }
  *is_same = peer.uid == geteuid();
  return Status::kOk;
}

int open_socket() noexcept {
  return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

std::string record_key(uint32_t sequence) { return "fd." + std::to_string(sequence); }

// Sends a handshake with a descriptor. True if it was sent.
bool send_fd(int socket, const Handshake& handshake, int fd) noexcept {
  Handshake copy = handshake;
  iovec part{&copy, sizeof copy};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
  ssize_t sent = 0;
  do {
    sent = uncancelled::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof copy);
}

// Duplicates the descriptor, which also shows that this process has a free descriptor number.
int copy_fd(int fd) noexcept { return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3); }

Status no_descriptor() noexcept {
  return fail(Status::kResource,
              "no descriptor for memory that the ranks of this node share: %s (ulimit -n)",
              errno_text(errno));
}

RefusalRecord make_refusal(Status status, const char* text) noexcept {
  RefusalRecord record{.status = to_c(status)};
  std::snprintf(record.text, sizeof record.text, "%s", text);
  return record;
}

// Publishes this rank's error, whose text is last_error_text(), and joins the fence: the other ranks would
// wait there for it until the deadline.
Status refuse(Bootstrap& bootstrap, uint32_t sequence, Status status,
              uint64_t deadline_ns) noexcept {
  const RefusalRecord record = make_refusal(status, last_error_text());
  // The launcher reports a failure of put() or fence() to the other ranks.
  (void)bootstrap.put(record_key(sequence), launch::bytes_of(record));
  (void)bootstrap.fence(deadline_ns);
  return fail(status, "%s", record.text);
}

// The error in the entry of another rank; kOk if the entry is no refusal.
Status read_refusal(std::span<const std::byte> bytes, Rank rank) noexcept {
  RefusalRecord record;
  if (bytes.size() != sizeof record) return Status::kOk;
  std::memcpy(&record, bytes.data(), sizeof record);
  if (record.magic != kRefusalMagic) return Status::kOk;
  const auto status = static_cast<Status>(record.status);
  const bool is_known = status == Status::kResource || status == Status::kBadArg ||
                        status == Status::kUnsupported || status == Status::kNotReady;
  return fail(is_known ? status : Status::kBroken, "rank %u refuses: %.*s", rank,
              static_cast<int>(strnlen(record.text, sizeof record.text)), record.text);
}

// ---- the first rank of a node ----

// Serves one connection of this user's if it comes from a missing rank. Returns that rank, else kNoRank.
Rank serve_one(int connection, const LeaderAddress& record, int fd,
               const std::vector<Rank>& missing, uint64_t deadline_ns) noexcept {
  // A peer that connects and sends nothing delays the others for a second at most.
  constexpr uint64_t kHandshakeNs = 1'000'000'000;
  Handshake handshake;
  if (!launch::wait_readable(connection, std::min(deadline_ns, now_ns() + kHandshakeNs)))
    return kNoRank;
  // MSG_TRUNC makes recv() return the full length of the message.
  if (uncancelled::recv(connection, &handshake, sizeof handshake, MSG_TRUNC) != sizeof handshake)
    return kNoRank;
  if (handshake.magic != kHandshakeMagic || handshake.token != record.token) return kNoRank;
  const Rank rank = handshake.rank;
  if (std::find(missing.begin(), missing.end(), rank) == missing.end()) return kNoRank;
  return send_fd(connection, handshake, fd) ? rank : kNoRank;
}

std::string name_ranks(const std::vector<Rank>& ranks) {
  constexpr size_t kNamed = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < kNamed; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kNamed) text += " and " + std::to_string(ranks.size() - kNamed) + " more";
  return text;
}

// The other ranks of the node except those that refused, which report their own errors.
std::vector<Rank> ranks_that_come(Bootstrap& bootstrap, uint32_t sequence,
                                  uint64_t deadline_ns) noexcept {
  const JobTopology& topology = bootstrap.topology();
  std::vector<Rank> coming;
  for (const Rank rank : topology.node_ranks) {
    std::byte room[Bootstrap::kMaxValueBytes];
    size_t bytes = 0;
    if (rank == topology.rank) continue;
    const Status status = bootstrap.get(rank, record_key(sequence), room, &bytes, deadline_ns);
    if (status == Status::kOk && read_refusal(std::span(room, bytes), rank) != Status::kOk)
      continue;
    coming.push_back(rank);
  }
  return coming;
}

Status serve_members(std::vector<Rank> missing, int listener, const LeaderAddress& record, int fd,
                     uint64_t deadline_ns) noexcept {
  while (!missing.empty()) {
    if (!launch::wait_readable(listener, deadline_ns)) {
      return fail(Status::kNotReady,
                  "%s of this node did not connect in time for the shared memory; see the messages "
                  "of these ranks",
                  name_ranks(missing).c_str());
    }
    const OwnedFd connection(
        uncancelled::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.get() < 0) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) continue;
      return fail(Status::kResource, "accept4() for %s: %s", name_ranks(missing).c_str(),
                  errno_text(errno));
    }
    bool is_same_user = false;
    if (const Status status = ask_user(connection.get(), &is_same_user); status != Status::kOk)
      return status;
    if (!is_same_user) continue;
    const Rank rank = serve_one(connection.get(), record, fd, missing, deadline_ns);
    missing.erase(std::remove(missing.begin(), missing.end(), rank), missing.end());
  }
  return Status::kOk;
}

Status listen_at(int listener, const AbstractAddress& address) noexcept {
  if (listener >= 0 && bind(listener, address.get(), address.bytes) == 0 &&
      listen(listener, SOMAXCONN) == 0)
    return Status::kOk;
  const int error = errno;
  return fail(Status::kResource, "no socket for the ranks of this node: %s%s", errno_text(error),
              error == EMFILE || error == ENFILE ? " (ulimit -n)" : "");
}

Status lead(Bootstrap& bootstrap, uint32_t sequence, Status ready, int fd, int* received,
            uint64_t deadline_ns) noexcept {
  if (ready != Status::kOk) return refuse(bootstrap, sequence, ready, deadline_ns);
  const LeaderAddress record{.name = make_random_name(), .token = make_random_name()};
  const OwnedFd listener(open_socket());
  // All steps that may fail come before the fence: a refusal after it would not reach the other ranks.
  if (const Status status = listen_at(listener.get(), abstract_address(record.name, sequence));
      status != Status::kOk)
    return refuse(bootstrap, sequence, status, deadline_ns);
  OwnedFd copy(copy_fd(fd));
  OwnedFd room_for_connections(copy_fd(copy.get()));
  if (room_for_connections.get() < 0)
    return refuse(bootstrap, sequence, no_descriptor(), deadline_ns);
  Status status = bootstrap.put(record_key(sequence), launch::bytes_of(record));
  if (status == Status::kOk) status = bootstrap.fence(deadline_ns);
  if (status != Status::kOk) return status;
  room_for_connections.reset();
  status = serve_members(ranks_that_come(bootstrap, sequence, deadline_ns), listener.get(), record,
                         fd, deadline_ns);
  if (status == Status::kOk) *received = copy.release();
  return status;
}

// ---- the others ----

Status connect_to(int socket, const AbstractAddress& address, Rank leader,
                  uint64_t deadline_ns) noexcept {
  while (uncancelled::connect(socket, address.get(), address.bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) {
      return fail(
          Status::kBroken,
          "rank %u cannot be reached: %s; is it gone, or in a container with a network of its own?",
          leader, errno_text(errno));
    }
    // The listener's backlog is full.
    uncancelled::sleep_ns(kRetryNs);
    if (now_ns() > deadline_ns)
      return fail(Status::kNotReady, "rank %u did not accept the connection of this rank", leader);
  }
  return Status::kOk;
}

// The descriptor of a message, or -1.
int take_fd(msghdr* message) noexcept {
  const cmsghdr* head = CMSG_FIRSTHDR(message);
  const bool one = head != nullptr && head->cmsg_level == SOL_SOCKET &&
                   head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof(int));
  if (!one) return -1;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(head), sizeof fd);
  return fd;
}

Status receive_fd(int socket, const Handshake& sent, Rank leader, int* received,
                  uint64_t deadline_ns) noexcept {
  if (!launch::wait_readable(socket, deadline_ns)) {
    return fail(Status::kNotReady, "rank %u did not send the shared descriptor", leader);
  }
  Handshake handshake;
  iovec part{&handshake, sizeof handshake};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t bytes = 0;
  do {
    bytes = uncancelled::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (bytes < 0 && errno == EINTR);
  if (bytes <= 0) {
    return fail(Status::kBroken,
                "rank %u ended the connection before it sent the shared descriptor", leader);
  }
  const int fd = take_fd(&message);
  if (fd < 0 && (message.msg_flags & MSG_CTRUNC) != 0) {
    return fail(Status::kResource,
                "no descriptor is free for the memory of rank %u; raise ulimit -n", leader);
  }
  const bool ours = bytes == sizeof handshake && (message.msg_flags & MSG_TRUNC) == 0 &&
                    handshake.magic == kHandshakeMagic && handshake.rank == sent.rank &&
                    handshake.token == sent.token;
  if (fd < 0 || !ours) {
    if (fd >= 0) uncancelled::close(fd);
    return fail(Status::kBroken, "another process replied in place of rank %u", leader);
  }
  *received = fd;
  return Status::kOk;
}

Status follow(Bootstrap& bootstrap, uint32_t sequence, Status ready, int* received,
              uint64_t deadline_ns) noexcept {
  if (ready != Status::kOk) return refuse(bootstrap, sequence, ready, deadline_ns);
  const JobTopology& topology = bootstrap.topology();
  const Rank leader = topology.node_ranks.front();
  const OwnedFd socket(open_socket());
  OwnedFd room_for_received(copy_fd(socket.get()));
  if (room_for_received.get() < 0) return refuse(bootstrap, sequence, no_descriptor(), deadline_ns);
  Status status = bootstrap.put(record_key(sequence), {});
  if (status == Status::kOk) status = bootstrap.fence(deadline_ns);
  if (status != Status::kOk) return status;
  LeaderAddress record;
  std::byte room[Bootstrap::kMaxValueBytes];
  size_t bytes = 0;
  status = bootstrap.get(leader, record_key(sequence), room, &bytes, deadline_ns);
  if (status == Status::kOk) status = read_refusal(std::span(room, bytes), leader);
  if (status != Status::kOk) return status;
  if (bytes != sizeof record)
    return fail(Status::kBroken, "rank %u has put an entry of %zu bytes", leader, bytes);
  std::memcpy(&record, room, sizeof record);
  status = connect_to(socket.get(), abstract_address(record.name, sequence), leader, deadline_ns);
  if (status != Status::kOk) return status;
  bool is_same_user = false;
  status = ask_user(socket.get(), &is_same_user);
  if (status != Status::kOk) return status;
  if (!is_same_user) return fail(Status::kBroken, "rank %u runs as another user", leader);
  const Handshake handshake{.rank = topology.rank, .token = record.token};
  if (uncancelled::send(socket.get(), &handshake, sizeof handshake, MSG_NOSIGNAL) !=
      sizeof handshake) {
    return fail(Status::kBroken, "rank %u does not listen: %s", leader, errno_text(errno));
  }
  room_for_received.reset();
  return receive_fd(socket.get(), handshake, leader, received, deadline_ns);
}

}  // namespace

Status share_fd(Bootstrap& bootstrap, uint32_t sequence, Status ready, int fd_of_leader,
                int* received, uint64_t deadline_ns) noexcept {
  if (bootstrap.topology().node_rank == 0)
    return lead(bootstrap, sequence, ready, fd_of_leader, received, deadline_ns);
  return follow(bootstrap, sequence, ready, received, deadline_ns);
}

Status share_no_fd(Bootstrap& bootstrap, uint32_t sequence, const char* why,
                   uint64_t deadline_ns) noexcept {
  const JobTopology& topology = bootstrap.topology();
  const RefusalRecord record = make_refusal(Status::kBadArg, why);
  Status status = bootstrap.put(record_key(sequence), launch::bytes_of(record));
  if (status == Status::kOk) status = bootstrap.fence(deadline_ns);
  if (status != Status::kOk || topology.node_rank == 0) return status;
  const Rank leader = topology.node_ranks.front();
  std::byte room[Bootstrap::kMaxValueBytes];
  size_t bytes = 0;
  status = bootstrap.get(leader, record_key(sequence), room, &bytes, deadline_ns);
  if (status != Status::kOk || read_refusal(std::span(room, bytes), leader) != Status::kOk)
    return status;
  return fail(Status::kBadArg, "rank %u shares memory, and rank %u does not", leader,
              topology.rank);
}

}  // namespace hydrant
